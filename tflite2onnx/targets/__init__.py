"""Rules of runtimes for ONNX models: a table for each target, and a checker that applies them.

The options that a target chooses are in `options.TARGETS`; a table says which models the runtime
supports, with a source for each rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tflite2onnx.targets.rules import Rule

# The targets that have a table of rules, in the module of the same name.
TABLES = (
    "coreml",
    "hailo",
    "nnapi",
    "opencv",
    "openvino",
    "qnn",
    "rknn",
    "tensorrt",
    "tvm",
    "web",
)


def find_rules(target: str) -> Sequence[Rule]:
    """Return the rules of a target, none if it has no table."""
    if target not in TABLES:
        return ()
    rules: Sequence[Rule] = import_module(f"tflite2onnx.targets.{target}").RULES
    return rules
