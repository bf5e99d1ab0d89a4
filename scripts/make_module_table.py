"""Write the tables of modules: the operators of each module of tflite2onnx/op and of contrib."""

from __future__ import annotations

import textwrap
from importlib import import_module
from pathlib import Path

from tflite2onnx import op
from tflite2onnx.extensions import list_packages
from tflite2onnx.op.traits import MadeOperator

_START, _END = '_TABLE = """\n', '"""\n'
_WIDTH = 100


def find_table(package: str) -> Path:
    """Return the file of a package's table."""
    return Path(str(import_module(package).__file__)).with_name("builtin_modules.py")


def document(package: str) -> str:
    """Return the module with a line for each module that defines classes of operators."""
    names = op.list_module_paths(package)
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
    for each in list_packages():
        find_table(each).write_text(document(each))
