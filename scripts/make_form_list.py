"""Write the list of recognised forms in docs/performance.md, from all rules."""

from __future__ import annotations

import usage  # noqa: F401 - packages may be missing

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import tflite2onnx
from tflite2onnx.passes.patterns.rules import Rule, Rules

TARGET = Path(__file__).parents[1] / "docs" / "performance.md"
START, END = "<!-- made by scripts/make_form_list.py -->\n", "<!-- end -->\n"


def list_rules() -> Iterator[tuple[str, Rule]]:
    """Yield the rules of all passes and of all targets, each with the path of its module."""
    package = tflite2onnx.__name__
    folders = tuple(f"{package}.{name}." for name in ("contrib", "passes", "targets"))
    for module in walk_packages(tflite2onnx.__path__, f"{package}."):
        if not module.name.startswith(folders):
            continue
        for value in vars(import_module(module.name)).values():
            if isinstance(value, Rules):
                yield from ((module.name.removeprefix(f"{package}."), rule) for rule in value.rules)


def document() -> str:
    """Return the document with the list of the rules."""
    rows = dict.fromkeys(
        f"| {rule.name} | {rule.result} | [{path.rpartition('.')[2]}]"
        f"(../tflite2onnx/{path.replace('.', '/')}.py) |\n"
        for path, rule in list_rules()
    )
    table = "| in the model | becomes | rule |\n| --- | --- | --- |\n" + "".join(rows)
    head, _, rest = TARGET.read_text().partition(START)
    return f"{head}{START}{table}{rest[rest.index(END) :]}"


if __name__ == "__main__":
    TARGET.write_text(document())
