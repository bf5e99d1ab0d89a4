"""Write the tables of modules: the operators of each module of tflite2onnx/op and of contrib."""

from __future__ import annotations

import argparse
import textwrap
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from tflite2onnx import op
from tflite2onnx.errors import RegistrationError
from tflite2onnx.extensions import list_packages, list_paths
from tflite2onnx.op.traits import MadeOperator

_START, _END = '_TABLE = """\n', '"""\n'
_WIDTH = 100


def find_table(package: str) -> Path:
    """Return the file of a package's table."""
    return Path(str(import_module(package).__file__)).with_name("builtin_modules.py")


def list_module_paths(package: str) -> list[str]:
    """Return the paths of all modules in a package, sorted."""
    folders = import_module(package).__path__
    return sorted(module.name for module in walk_packages(folders, f"{package}."))


def check_module_table() -> None:
    """Import all modules of operators, and compare their classes with the table of modules.

    Raises:
        RegistrationError: the table lacks the operator of a class, or lists an operator under a
            module that has no class for it. The message names all of them.
    """
    problems: list[str] = []
    for package, modules in list_packages().items():
        defined = {
            (code, path)
            for path in list_module_paths(package)
            for code in op.list_classes(import_module(path))
        }
        listed = {*list_paths(package, modules).items()}
        problems += [
            f"{code} must be listed in {package.replace('.', '/')}/builtin_modules.py for"
            f" {path.removeprefix(f'{package}.')}, got no entry: run python"
            " scripts/make_module_table.py"
            for code, path in sorted(defined - listed)
        ]
        problems += [op.describe_missing_class(*each) for each in sorted(listed - defined)]
    if problems:
        raise RegistrationError("\n".join(problems))


def document(package: str) -> str:
    """Return the module with a line for each module that defines classes of operators."""
    names = list_module_paths(package)
    classes = {name: sorted(op.list_classes(import_module(name)).items()) for name in names}
    codes = {
        name: [f"{code}*" if issubclass(cls, MadeOperator) else code for code, cls in found]
        for name, found in classes.items()
    }
    lines = [
        textwrap.fill(
            f"{name.removeprefix(f'{package}.')}: {' '.join(found)}",
            _WIDTH,
            subsequent_indent=" " * 4,
            break_long_words=False,
        )
        for name, found in codes.items()
        if found
    ]
    head, _, rest = find_table(package).read_text().partition(_START)
    return "".join((head, _START, *(f"{line}\n" for line in lines), rest[rest.index(_END) :]))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for each in list_packages():
        find_table(each).write_text(document(each))
