"""Options that no file has are fields of `MadeOptions`: passes set no other names than TFLite's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import tflite2onnx
from tflite2onnx.graph import Op
from tflite2onnx.made_options import MadeOptions, ReshapeOptions, WindowOptions
from tflite2onnx.op.base import Operator
from tflite2onnx.op.registry import list_builtin_codes
from tflite2onnx.op.traits import MadeOperator
from tflite2onnx.reader.schema import UNIONS

PACKAGE = Path(tflite2onnx.__file__).parent
TABLES = [UNIONS[name].values() for name in ("BuiltinOptions", "BuiltinOptions2")]
SCHEMA = {field.partition(":")[0] for tables in TABLES for table in tables for field in table}
MODULES = [
    path.relative_to(PACKAGE)
    for folder in ("builder", "contrib", "op", "passes", "quantization", "targets")
    for path in sorted((PACKAGE / folder).rglob("*.py"))
]
MODULES += [Path(f"{name}.py") for name in ("emit", "graph", "interface", "planning")]
# Functions whose other keywords are options: their own parameters.
MAKERS = {"op": {"output", "like", "name", "shape", "made"}, "as_builtin": {"made"}}
MAKERS |= {"with_options": set()}


def list_read(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the options of operators that the code reads."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Attribute(attr="options"), name):
                if name not in ("get", "items", "keys", "replace", "values"):
                    yield name
            case ast.Call(
                ast.Attribute(ast.Attribute(attr="options"), "get"), [ast.Constant(str(name)), *_]
            ):
                yield name
            case ast.Subscript(ast.Attribute(attr="options"), ast.Constant(str(name))):
                yield name
            case ast.Compare(ast.Constant(str(name)), _, [ast.Attribute(attr="options")]):
                yield name


def list_written(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the options that the code gives to operators that are not custom."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name), [*arguments], keywords):
                is_custom = any("Flex" in ast.unparse(each) for each in arguments[:1])
                if name in MAKERS and not is_custom:
                    yield from (k.arg for k in keywords if k.arg and k.arg not in MAKERS[name])
                elif name == "Options":
                    keys = [
                        k for each in arguments if isinstance(each, ast.Dict) for k in each.keys
                    ]
                    yield from (str(k.value) for k in keys if isinstance(k, ast.Constant))


def is_operator(found: object) -> bool:
    """Return whether something is a class of operators."""
    return isinstance(found, type) and issubclass(found, Operator)


def list_all_classes(cls: type[Operator]) -> Iterator[type[Operator]]:
    """Yield a class and all its subclasses."""
    yield cls
    for each in cls.__subclasses__():
        yield from list_all_classes(each)


def is_custom(cls: type[Operator]) -> bool:
    """Return whether a class, or one that is made of it, converts a custom operator."""
    codes = {code for each in list_all_classes(cls) for code in each.codes}
    made = {code for each in list_all_classes(MadeOperator) for code in each.codes}
    return bool(codes - list_builtin_codes() - made)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_passes_write_options_of_the_schema(module: Path) -> None:
    written = {*list_written(ast.parse((PACKAGE / module).read_text()))}
    assert not written - SCHEMA


@pytest.mark.parametrize("module", [m for m in MODULES if m.parts[0] != "contrib"], ids=str)
def test_options_that_the_schema_lacks_are_of_custom_operators(module: Path) -> None:
    tree = ast.parse((PACKAGE / module).read_text())
    path = ".".join(("tflite2onnx", *module.with_suffix("").parts))
    for node in tree.body:
        names = {*list_read(node)} - SCHEMA
        if names:
            module_names = vars(import_module(path))
            named = module_names[node.name] if isinstance(node, ast.ClassDef) else None
            read_by = [named] if named else [c for c in module_names.values() if is_operator(c)]
            assert any(map(is_custom, read_by)), names


def test_options_are_of_one_kind_of_operator() -> None:
    made = WindowOptions(pads=(1, 2, 3, 4))
    assert Op("CONV_2D", 0, (), (), made=made).read_made(WindowOptions) is made
    with pytest.raises(TypeError, match="ADD must not have ReshapeOptions"):
        Op("ADD", 0, (), (), made=ReshapeOptions())


def test_options_of_a_target_include_those_of_the_operator() -> None:
    """Options that are read as another kind keep their values; absent ones are the defaults."""
    plain = Op("CONV_2D", 0, (), (), made=MadeOptions(of_tensorflow=True))
    assert plain.read_made(WindowOptions) == WindowOptions(of_tensorflow=True)
    assert Op("CONV_2D", 0, (), ()).read_made(WindowOptions) == WindowOptions()


def test_only_options_that_are_set_are_listed() -> None:
    assert WindowOptions(pads=(0, 0, 1, 1)).list_set() == {"pads": (0, 0, 1, 1)}


def test_options_are_values() -> None:
    """Equal fields are equal options, which cannot be assigned, and have no other fields."""
    made = WindowOptions(pads=(1, 2, 3, 4))
    assert made == WindowOptions().replace(pads=(1, 2, 3, 4)) != WindowOptions()
    assert len({made, WindowOptions(pads=(1, 2, 3, 4))}) == 1
    assert made != MadeOptions()
    assert "pads=(1, 2, 3, 4)" in repr(made)
    with pytest.raises(TypeError, match="WindowOptions must not have size"):
        made.replace(size=1)
    with pytest.raises(AttributeError, match="pads cannot be assigned: call `replace`"):
        made.pads = ()  # type: ignore[misc]
