"""The house: imports run one way, and nothing in it is larger than one can see at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tflite2onnx"

# From the ground up: a module imports from the rows above its own alone. The modules of operators
# share one row; they may import each other as long as they do not do so in a circle.
ROWS = (
    {
        "apart", "archive", "errors", "flexbuffer", "metadata_schema", "mincut", "names", "nodedef",
        "schema", "text", "version",
    },
    {"labelling", "tensor"},
    {
        "elements", "files", "flatbuffer", "graph", "layout", "nodes", "quantize", "sparse",
        "stateful",
    },
    {"interface", "metadata", "pairs", "reader"},
    {"builder", "fixed_point"},
    {"op.base"},
    {"op.*"},
    {"op"},
    {"complex", "convolution", "flex_rewrites", "fold", "inline", "items", "lists", "regions",
     "shapes", "tables"},
    {"flex_rules", "formulas", "memory", "scores"},
    {"flex", "loops"},
    {"normalise"},
    {"initial"},
    {"sizes", "state"},
    {"ancestor", "emit", "variants"},
    {"signatures", "validity", "writer"},
    {"options", "result"},
    {"convert"},
    {"verification.difference", "verification.processor"},
    {"verification.runtimes", "verification.samples"},
    {
        "verification.converted", "verification.entry", "verification.images",
        "verification.segments",
    },
    {"verification.tensors"},
    {"verification.findings", "verification.run"},
    {"verification.api"},
    {"bundle", "inspection", "verification"},
    {"report.elements", "report.strip"},
    {"report.drawing", "report.facts"},
    {"report.page"},
    {"report"},
    {"commands.findings", "commands.inspect", "commands.ops"},
    {"commands.convert", "commands.verify"},
    {"commands", "cli", "operators"},
    {"__init__", "__main__"},
)
# Who may import what is neither Python's own nor numpy.
LIBRARIES = {
    "flatbuffers": {"flexbuffer"},
    "onnx": {
        "nodes", "options", "report.facts", "report.strip", "result", "verification.converted",
        "validity", "verification.segments", "writer",
    },
}


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


def modules() -> dict[str, Path]:
    """Return the modules by their names within the package: "op.conv"; "op" is op/__init__.py."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(node: ast.AST) -> list[str]:
    """Return the full names that an import statement may mean; none of any other node."""
    match node:
        case ast.Import(names):
            return [alias.name for alias in names]
        case ast.ImportFrom(str(module), names):
            return [module, *(f"{module}.{alias.name}" for alias in names)]
        case _:
            return []


def own(path: Path) -> set[str]:
    """Return the modules of the package that a file imports."""
    known = modules()
    named = (n for node in ast.walk(tree(path)) for n in imported(node))
    names = {n.removeprefix("tflite2onnx.") for n in named if n.startswith("tflite2onnx.")}
    # `from tflite2onnx.op import conv` reads op/conv.py; op/__init__.py is not what is meant.
    found = names & known.keys()
    return {n for n in found if not any(m.startswith(f"{n}.") for m in found)}


def row(name: str) -> int:
    """Return the row that a module stands in."""
    group = "op.*" if name.startswith("op.") and name != "op.base" else name
    (found,) = [i for i, names in enumerate(ROWS) if group in names]
    return found


@pytest.mark.parametrize("name", modules())
def test_imports_run_one_way(name: str) -> None:
    """From the ground up, and in no circle."""
    for other in own(modules()[name]):
        siblings = name.startswith("op.") and row(name) == row(other)
        assert row(other) < row(name) or siblings, f"{name} imports {other}"


def test_operators_import_each_other_in_no_circle() -> None:
    """What several families share lies below them."""
    graph = {n: own(p) & modules().keys() for n, p in modules().items() if n.startswith("op.")}
    assert list(TopologicalSorter(graph).static_order())


def test_every_row_is_in_use() -> None:
    """A module that is gone goes here, too."""
    names = {"op.*" if n.startswith("op.") and n != "op.base" else n for n in modules()}
    assert set().union(*ROWS) == names


def foreign(node: ast.AST) -> set[str]:
    """Return the libraries that a syntax tree imports."""
    names = {n.partition(".")[0] for inner in ast.walk(node) for n in imported(inner)}
    return names - {"tflite2onnx"}


@pytest.mark.parametrize("name", modules())
def test_libraries(name: str) -> None:
    """Each has few places, or one."""
    for library in foreign(tree(modules()[name])) - sys.stdlib_module_names - {"numpy"}:
        assert name in LIBRARIES.get(library, ()), f"{name} imports {library}"


def test_a_conversion_needs_no_runtime() -> None:
    """LiteRT and ONNX Runtime are for `verify`, and TensorFlow for nobody."""
    model = PACKAGE.parent / "assets" / "models" / "keywords_int8.tflite"
    code = (
        f"import sys, tflite2onnx, tflite2onnx.cli; tflite2onnx.convert({str(model)!r}).model;"
        "print(*{'ai_edge_litert', 'onnxruntime', 'tensorflow'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


SOURCES = [p for d in ("tflite2onnx", "tests", "scripts") for p in sorted((ROOT / d).rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_too_long(path: Path) -> None:
    """A file has 500 lines at most, a function 60."""
    assert len(path.read_text().splitlines()) <= 500
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines"
