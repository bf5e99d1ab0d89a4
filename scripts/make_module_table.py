"""Write the table of tflite2onnx/op/builtin_modules.py: the operators of each module."""

from __future__ import annotations

import textwrap
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from tflite2onnx import op

TARGET = Path(op.__file__).with_name("builtin_modules.py")
_START, _END = '_TABLE = """\n', '"""\nMODULE_OF'
_WIDTH = 100


def document() -> str:
    """Return the module with a line for each module that defines classes of operators."""
    names = sorted(each.name for each in walk_packages(op.__path__, f"{op.__name__}."))
    codes = {name: sorted(op.list_classes(import_module(name))) for name in names}
    lines = [
        textwrap.fill(
            f"{name.removeprefix(f'{op.__name__}.')}: {' '.join(found)}",
            _WIDTH,
            subsequent_indent=" " * 4,
            break_long_words=False,
        )
        for name, found in codes.items()
        if found
    ]
    head, _, rest = TARGET.read_text().partition(_START)
    return "".join((head, _START, *(f"{line}\n" for line in lines), rest[rest.index(_END) :]))


if __name__ == "__main__":
    TARGET.write_text(document())
