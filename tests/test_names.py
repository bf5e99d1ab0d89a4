"""Names and sizes: a function is a verb with an object, and fits a screen."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = next(p for p in Path(__file__).parents if (p / "pyproject.toml").exists())
SOURCES = [
    path
    for folder in ("tflite2onnx", "tests", "scripts", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

LONGEST_FUNCTION = 50  # lines without the docstring

# A bare participle does not name its object, and is the name of a local variable.
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
# Words that end like participles but are not.
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
# Names that are too general, or that several functions had.
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
# Methods whose names are prescribed: ONNX Runtime's sessions have this method.
PRESCRIBED = {"Live.run", "RemoteSession.run", "Session.run", "Stateful.run"}


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(node: ast.AST, owner: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield all functions with their names; the name of a method starts with its class."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef):
            yield owner + inner.name, inner
            yield from functions(inner)
        else:
            name = f"{inner.name}." if isinstance(inner, ast.ClassDef) else owner
            yield from functions(inner, name)


def is_property(function: ast.FunctionDef) -> bool:
    """Return whether a method is a property."""
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


def test_functions_are_verbs_with_objects() -> None:
    """A function is a verb and its object; a bare participle is the name of a value."""
    assert [fault for path in SOURCES for fault in bare_participles(path)] == []


def test_participles_are_known() -> None:
    """The rule recognises participles, and only these."""
    assert all(map(is_participle, ("made", "_kept", "padded", "written", "run")))
    assert not any(map(is_participle, ("pad_axes", "read_model", "flatten", "__len__", "emit")))


def test_functions_have_no_vague_names() -> None:
    """No function of the package has a vague name."""
    package = [path for path in SOURCES if path.is_relative_to(ROOT / "tflite2onnx")]
    vague = [
        f"{path.relative_to(ROOT)}:{function.lineno} {name}"
        for path in package
        for name, function in functions(tree(path))
        if function.name.strip("_") in VAGUE
    ]
    assert vague == []


def test_classes_do_not_share_names() -> None:
    """No two classes have one name, but for a target's class of an operator."""
    classes = Counter(
        node.name.strip("_")
        for path in SOURCES
        if path.is_relative_to(ROOT / "tflite2onnx") and "operators" not in path.parts
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in classes.items() if count > 1] == []


def long_functions(path: Path) -> Iterator[str]:
    """Yield the functions of a file whose body has more than 50 lines.

    Docstrings and parameters are not counted: `convert` has a parameter for each option.
    """
    place = path.relative_to(ROOT)
    for name, function in functions(tree(path)):
        body = function.body[ast.get_docstring(function) is not None :]
        lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
        if lines > LONGEST_FUNCTION:
            yield f"{place}:{function.lineno} {name} has {lines} lines"


def test_functions_have_limited_length() -> None:
    """The body of a function has limited length."""
    assert [part for path in SOURCES for part in long_functions(path)] == []


if __name__ == "__main__":
    for source in SOURCES:
        for line in bare_participles(source):
            print(line)  # noqa: T201 - the output of the script


def test_classes_of_the_package_have_names_of_their_own() -> None:
    """A reader does not take a class for another one of the same name."""
    counts = Counter(
        node.name.lstrip("_")
        for path in SOURCES
        if path.is_relative_to(ROOT / "tflite2onnx")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, number in counts.items() if number > 1] == []
