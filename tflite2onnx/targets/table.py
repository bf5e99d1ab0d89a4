"""The targets: a folder of this package each, which only this table names.

The `__init__.py` of a folder has `OPTIONS`, those that the target sets unless the user gives them,
and maybe `CONTRADICTIONS` of the command line and `ALIASES`, what else its runtime is called. A
folder has the modules of `PARTS`, as far as the target needs them. A module is imported only if it
is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from tflite2onnx.targets.rules import RuntimeRule
    from tflite2onnx.utils.contradictions import Contradiction

Target = Literal[
    "onnxruntime",
    "portable",
    "openvino",
    "opencv",
    "tvm",
    "web",
    "tensorrt",
    "genai",
    "qnn",
    "nnapi",
    "coreml",
    "hailo",
    "rknn",
    "webgpu",
    "iree",
    "tract",
    "mnn",
    "ncnn",
    "sentis",
]
TARGETS: tuple[Target, ...] = get_args(Target)

# What the folder of a target may have:
PARTS: Mapping[str, str] = MappingProxyType(
    {
        "rules": "RULES: what a model must follow, with sources",
        "forms": "list_groups: the forms of operators, in groups",
        "operators": "PATHS: modules of classes in place of the canonical ones, by code",
        "faults": "PATHS: such modules for operators that the runtime refuses or spoils",
        "nodes": "PASSES: passes over nodes, in order",
        "bundles": "prepare_model: how a bundle becomes a folder that the runtime loads",
        "sessions": "LoadedDecoder: the runtime runs such a folder",
    }
)
# The default target. Targets without these parts have those of this target.
DEFAULT: Target = "onnxruntime"
_FORMS = ("forms", "operators", "nodes")


def has_part(target: str, part: str) -> bool:
    """Return whether the folder of a target has a module; False for unknown targets."""
    return target in TARGETS and _has_module(f"{__package__}.{target}.{part}")


@cache
def _has_module(name: str) -> bool:
    return find_spec(name) is not None


def import_part(target: str, part: str) -> ModuleType:
    """Return a module of the folder of a target; forms may be those of another target."""
    has_own = part not in _FORMS or target == DEFAULT or has_part(target, part)
    return import_module(f"{__package__}.{target if has_own else DEFAULT}.{part}")


def find_options(target: str) -> Mapping[str, Any]:
    """Return the options that a target chooses, for options that the user leaves at their defaults.

    There are none for an unknown target, which `ConversionOptions` refuses.
    """
    options: Mapping[str, Any] = getattr(_import_folder(target), "OPTIONS", MappingProxyType({}))
    return options


def find_targets(alias: str) -> list[str]:
    """Return the targets whose runtimes have another name, or are of a kind."""
    return [t for t in TARGETS if alias in getattr(_import_folder(t), "ALIASES", ())]


def find_contradictions(target: str) -> Sequence[Contradiction]:
    """Return the options of the command line that contradict a target."""
    found: Sequence[Contradiction] = getattr(_import_folder(target), "CONTRADICTIONS", ())
    return found


def _import_folder(target: str) -> ModuleType | None:
    return import_module(f"{__package__}.{target}") if target in TARGETS else None


def find_rules(target: str) -> Sequence[RuntimeRule]:
    """Return the rules that models for a target must follow, none if they are not known."""
    if not has_part(target, "rules"):
        return ()
    rules: Sequence[RuntimeRule] = import_part(target, "rules").RULES
    return rules
