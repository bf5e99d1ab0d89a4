"""Names and sizes: a function is a verb and its object, and is seen at a glance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = next(p for p in Path(__file__).parents if (p / "pyproject.toml").exists())
SOURCES = [
    path
    for folder in ("tflite2onnx", "tests", "scripts", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

LONGEST_FILE = 500
LONGEST_FUNCTION = 50  # lines but for its docstring

# A participle alone does not say of what, and is what a local variable is called.
IRREGULAR = {
    "built",
    "cut",
    "drawn",
    "found",
    "given",
    "heard",
    "held",
    "kept",
    "known",
    "laid",
    "led",
    "left",
    "lost",
    "made",
    "meant",
    "put",
    "read",
    "run",
    "said",
    "seen",
    "sent",
    "set",
    "shown",
    "sought",
    "spent",
    "split",
    "taken",
    "told",
    "written",
}
# Words that end like participles and are none.
OTHERS = {
    "embed",
    "even",
    "feed",
    "flatten",
    "lengthen",
    "need",
    "open",
    "red",
    "seed",
    "sharpen",
    "shorten",
    "speed",
    "split",
    "then",
    "token",
    "widen",
}
# Names without a meaning of their own, or that several functions had.
VAGUE = {
    "ahead",
    "alike",
    "alone",
    "along",
    "among",
    "apart",
    "around",
    "away",
    "behind",
    "below",
    "beside",
    "between",
    "inside",
    "integers",
    "outside",
    "real",
    "thing",
    "things",
    "towards",
    "within",
    "without",
}
# Methods whose names others prescribe: ONNX Runtime's sessions have this one.
PRESCRIBED = {"Live.run", "RemoteSession.run", "Session.run", "Stateful.run"}
# Classes of which two had the same name once.
ONCE = {"Row", "Site", "Stored", "Word"}


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(node: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield all functions with their names; methods have the name of their class before theirs."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef):
            yield owner + inner.name, inner
            yield from functions(inner)
        else:
            name = f"{inner.name}." if isinstance(inner, ast.ClassDef) else owner
            yield from functions(inner, name)


def is_property(function: ast.FunctionDef) -> bool:
    """Return whether a method is read as a value."""
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def is_participle(name: str) -> bool:
    """Return whether a name is a bare participle."""
    word = name.strip("_")
    if name.startswith("__") or word in OTHERS:
        return False
    return word in IRREGULAR or ("_" not in word and word.endswith(("ed", "en")))


def bare_participles(path: Path) -> list[str]:
    """Return the functions of a file whose name is a bare participle."""
    return [
        f"{path.relative_to(ROOT)}:{function.lineno} {name}"
        for name, function in functions(tree(path))
        if is_participle(function.name) and not is_property(function) and name not in PRESCRIBED
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_are_verbs_with_objects(path: Path) -> None:
    """A function is a verb and its object; a bare participle is the name of a value."""
    assert bare_participles(path) == []


def test_participles_are_known() -> None:
    """The rule finds participles only."""
    assert all(map(is_participle, ("made", "_kept", "padded", "written", "run")))
    assert not any(map(is_participle, ("pad_axes", "read_model", "flatten", "__len__", "emit")))


def test_names_say_what_is_meant() -> None:
    """No function of the package has a name without a meaning of its own."""
    package = [path for path in SOURCES if path.is_relative_to(ROOT / "tflite2onnx")]
    vague = [
        f"{path.relative_to(ROOT)}:{function.lineno} {name}"
        for path in package
        for name, function in functions(tree(path))
        if function.name.strip("_") in VAGUE
    ]
    assert vague == []


def test_classes_have_names_of_their_own() -> None:
    """One word for one idea."""
    classes = [
        node.name
        for path in SOURCES
        if path.is_relative_to(ROOT / "tflite2onnx")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef) and node.name in ONCE
    ]
    assert len(classes) == len(set(classes))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_too_long(path: Path) -> None:
    """A file has 500 lines at most, the body of a function 50, without its docstring.

    Parameters are not counted: `convert` has one for each option.
    """
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE
    for name, function in functions(tree(path)):
        body = function.body[ast.get_docstring(function) is not None :]
        lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        assert lines <= LONGEST_FUNCTION, f"{name} has {lines} lines"


if __name__ == "__main__":
    for source in SOURCES:
        for line in bare_participles(source):
            print(line)  # noqa: T201 - what it is run for
