"""Passes have few tables of operator codes: what is true of an operator stands in its class."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tflite2onnx import passes
from tflite2onnx.op import OPERATORS

MOST = 15
FOLDER = Path(passes.__file__).parent
PATTERN = "any_of"  # the function of patterns that lists codes


def list_codes(node: ast.AST) -> list[object]:
    """Return what a display lists: its elements, or keys; a table of functions lists nothing."""
    if isinstance(node, ast.Dict):
        pairs = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key]
        functions = all(isinstance(v, (ast.Attribute, ast.Lambda, ast.Name)) for _, v in pairs)
        elements = [] if functions else [key for key, _ in pairs]
    else:
        elements = node.elts if isinstance(node, (ast.List, ast.Set, ast.Tuple)) else []
    return [element.value for element in elements if isinstance(element, ast.Constant)]


def find_tables(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the outermost displays with two codes or more."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == PATTERN:
        return
    if isinstance(node, ast.keyword) and node.arg == "needs":  # the gate of a rule
        return
    if sum(code in OPERATORS for code in list_codes(node)) > 1:
        yield node
        return
    for inner in ast.iter_child_nodes(node):
        yield from find_tables(inner)


def name_tables(path: Path) -> list[str]:
    """Return the names of the tables of a module; of others, what they are."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for statement in tree.body:
        is_named = isinstance(statement, (ast.Assign, ast.AnnAssign))
        tables = [*find_tables(statement)]
        target = ast.unparse(statement).partition(" =")[0].partition(":")[0]
        found += [target] if tables and is_named else [ast.unparse(each) for each in tables]
    return [f"{path.relative_to(FOLDER)} {name}" for name in found]


def test_passes_have_few_tables_of_codes() -> None:
    """Each table stands beside its reason; what is true of an operator is a fact of its class."""
    tables = [name for path in sorted(FOLDER.rglob("*.py")) for name in name_tables(path)]
    assert len(tables) <= MOST, "\n".join(tables)
