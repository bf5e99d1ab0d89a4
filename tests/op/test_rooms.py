"""The table of who has which operators says what the modules say themselves."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import tflite2onnx.op
from tflite2onnx.op import OPERATORS, declared
from tflite2onnx.op.rooms import ROOMS

FOLDER = Path(tflite2onnx.op.__file__).parent
FILES = [path.relative_to(FOLDER) for path in sorted(FOLDER.rglob("[!_]*.py"))]
MODULES = [".".join(file.with_suffix("").parts) for file in FILES]


def test_every_operator_stands_in_the_table() -> None:
    found = {name: declared(import_module(f"tflite2onnx.op.{name}")) for name in MODULES}
    assert {name: set(codes.split()) for name, codes in ROOMS.items()} == {
        name: set(classes) for name, classes in found.items() if classes
    }
    assert dict(OPERATORS) == {c: cls for each in found.values() for c, cls in each.items()}


def test_no_operator_stands_there_twice() -> None:
    codes = [code for each in ROOMS.values() for code in each.split()]
    assert len(codes) == len(set(codes)) == len(OPERATORS)
