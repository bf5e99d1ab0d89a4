"""What packages add: operators and passes, by the names of their modules.

tflite2onnx/contrib adds its families in this way, and a package of a user can do the same. A module
is imported when a model needs it, so that an offer costs a conversion almost nothing. Classes that
a user registers or offers by entry points come first (`op/registry.py`).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tflite2onnx.errors import RegistrationError


class OfferedPass(NamedTuple):
    """A pass of a package, for models with certain operators or element types.

    A pass of "models" receives the whole `Model`, before its subgraphs are inlined. A pass of
    "graphs" receives the `Graph` of an entry point with the shapes of all tensors; the shapes of
    the operators that it makes are inferred afterwards. Both return their argument if there is
    nothing to rewrite.
    """

    path: str  # "package.module": a module with a function of its name, or a function after a colon
    receives: str  # "models" or "graphs"
    codes: str = ""  # beginnings of the operators' codes, separated by blanks
    dtypes: str = ""  # names of element types, separated by blanks
    # "package.module:function": why the pass has not replaced an operator of `codes`, or "".
    explain: str = ""


# One table per process, as imports are: the path of the module of each operator's code.
MODULE_PATHS: dict[str, str] = {}
_offered: dict[str, Mapping[str, str]] = {}
_passes: list[OfferedPass] = []


def list_paths(package: str, modules: Mapping[str, str]) -> dict[str, str]:
    """Return the path of the module of each code; `modules` has the codes of each module."""
    return {code: f"{package}.{name}" for name, codes in modules.items() for code in codes.split()}


def offer_operators(package: str, modules: Mapping[str, str]) -> None:
    """Offer the classes of a package; `modules` has the codes of each module, between blanks.

    Raises:
        RegistrationError: another package offers one of the operators.
    """
    paths = list_paths(package, modules)
    for code, path in paths.items():
        if MODULE_PATHS.get(code, path) != path:  # equal ones are of a module that is run again
            raise RegistrationError(
                f"one package must offer {code}, got {MODULE_PATHS[code]} and {path}"
            )
    _offered[package] = modules
    MODULE_PATHS.update(paths)


def offer_passes(*passes: OfferedPass) -> None:
    """Offer passes; they run in the order in which they are offered."""
    for each in passes:
        if each.receives not in ("models", "graphs"):
            raise RegistrationError(
                f'a pass must receive "models" or "graphs", got {each.receives!r}'
            )
    _passes.extend(each for each in passes if each not in _passes)


def list_packages() -> dict[str, Mapping[str, str]]:
    """Return the codes of the modules of each package that offers operators."""
    return dict(_offered)


def list_offered_passes(receives: str) -> Iterator[OfferedPass]:
    """Yield the offered passes of "models" or of "graphs"."""
    return (each for each in _passes if each.receives == receives)
