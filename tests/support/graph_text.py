"""Graphs that are read from text, in the form that `tflite2onnx.graph_text` writes.

A test of a pass is two texts, before and after:

    assert_rewritten(
        fuse,
        '''
        inputs x: float32[2,3]
        y: float32[2,3] = MAXIMUM(x, 0.0)
        return y
        ''',
        '''
        inputs x: float32[2,3]
        y: float32[2,3] = RELU(x)
        return y
        ''',
    )

Names are free. A constant that is written as its type has random elements. A code that is not in
upper case is that of a custom operator. An axis with a name in place of a size is dynamic. A call
may be continued on the next line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import unified_diff
from textwrap import dedent
from typing import Any, TypeAlias

import numpy as np

from tests.support.build import Build
from tests.support.tensor import Tensor as Built, TensorFields
from tflite2onnx.graph import Graph, Op, Options
from tflite2onnx.graph_text import write_graph
from tflite2onnx.layout import plan
from tflite2onnx.made_options import MadeOptions
from tflite2onnx.op import find_operator
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.planning import PlannedGraph, Planning, plan_graph
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import Array, DType, Quantization, Tensor

Pass: TypeAlias = Callable[[Graph], Graph]

_DTYPES = {dtype.label: dtype for dtype in DType}
_PLAIN = {"f": DType.FLOAT32, "i": DType.INT32, "b": DType.BOOL}
_WORDS = {"none": None, "inf": np.inf, "nan": np.nan}


class _Parser:
    """The lines that are left, and the tensors by their names, in sub-graphs too."""

    def __init__(self, text: str) -> None:
        self._lines: list[str] = []
        for line in filter(None, dedent(text).replace("%", "_").splitlines()):
            if self._lines and self._lines[-1].count("(") > self._lines[-1].count(")"):
                self._lines[-1] += f" {line.strip()}"
            else:
                self._lines.append(line)
        self._tensors: dict[str, Tensor] = {}
        self._random = np.random.default_rng(0)

    def parse_graph(self, depth: int = 0) -> Graph:
        """Read a graph whose lines are indented by `depth`."""
        inputs = self._declare(self._lines.pop(0).strip().removeprefix("inputs"))
        ops: list[Op] = []
        while not (line := self._lines.pop(0).strip()).startswith("return"):
            targets, _, call = line.rpartition(" = ")
            op = self._parse_op(_parse_expression(call), len(ops))
            outputs, graphs = self._declare(targets), []
            while self._lines and self._lines[0].startswith(" " * (depth + 1)):
                graphs.append(self.parse_graph(depth + 4))
            ops.append(replace(op, outputs=outputs, graphs=tuple(graphs)))
        returned = _parse_expression(f"RETURN({line.removeprefix('return')})").args
        results = tuple(t for t in map(self._parse_operand, returned) if t is not None)
        return Graph("main", inputs, results, tuple(ops), tuple(self._tensors.values()))

    def _declare(self, text: str) -> tuple[Tensor, ...]:
        """Return new tensors: name: type, name: type."""
        declared = _parse_expression(f"{{{text}}}".replace("[]", "[()]"))
        pairs = zip(declared.keys, declared.values, strict=True) if text.strip() else ()
        made = [self._make_tensor(name.id, kind) for name, kind in pairs]
        self._tensors |= {tensor.name: tensor for tensor in made}
        return tuple(made)

    @staticmethod
    def _make_tensor(name: str, kind: Any) -> Tensor:
        """Return a tensor of a type as float32[2,3] or int8(0.5, 3)[2,3]."""
        quantization, dtype = None, kind.value
        if isinstance(dtype, ast.Call):
            scale, zero = (ast.literal_eval(each) for each in dtype.args)
            quantization = Quantization(np.array([scale], np.float32), np.array([zero], np.int64))
            dtype = dtype.func
        sizes: list[Any] = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        symbols = {i: size.id for i, size in enumerate(sizes) if isinstance(size, ast.Name)}
        shape = tuple(1 if i in symbols else size.value for i, size in enumerate(sizes))
        signature = tuple(-1 if i in symbols else size for i, size in enumerate(shape))
        return Tensor(
            name,
            shape,
            _DTYPES[dtype.id],
            quantization=quantization,
            shape_signature=signature if symbols else (),
            symbols=symbols,
        )

    def _parse_op(self, call: Any, index: int) -> Op:
        inputs = tuple(map(self._parse_operand, call.args))
        code, given = call.func.id, {each.arg: _parse_option(each.value) for each in call.keywords}
        made = _make_options(code, given)
        options = Options({n: value for n, value in given.items() if not hasattr(made, n)})
        return Op(code, index, inputs, (), options, custom=not code.isupper(), made=made)

    def _parse_operand(self, node: Any) -> Tensor | None:
        if isinstance(node, ast.Name) and node.id not in _WORDS:
            return self._tensors[node.id]
        if isinstance(node, ast.Name) and node.id == "none":
            return None
        if isinstance(node, ast.Subscript):
            tensor = self._make_tensor(f"constant_{node.col_offset}", node)
            return replace(tensor, data=self._draw_elements(tensor))
        typed = isinstance(node, ast.Call)
        data = np.array(_parse_option(node.args[0] if typed else node))
        dtype = _DTYPES[node.func.id] if typed else _PLAIN[data.dtype.kind]
        data = data.astype(dtype.numpy)
        return Tensor(f"constant_{node.col_offset}", data.shape, dtype, data)

    def _draw_elements(self, tensor: Tensor) -> Array:
        dtype = np.dtype(tensor.dtype.numpy)
        if dtype.kind == "f":
            return self._random.standard_normal(tensor.shape).astype(dtype)
        # Weights of 8 bits fill their type, as quantizers make them: their products may saturate.
        is_weight = tensor.quantization is not None and dtype == np.int8
        least, end = (-127, 128) if is_weight else (0, 8)
        return self._random.integers(least, end, tensor.shape).astype(dtype)


def _parse_expression(text: str) -> Any:
    """Return the syntax tree of an expression, whose nodes have attributes by their types."""
    return ast.parse(text, mode="eval").body


def _parse_option(node: Any) -> Any:
    """Return a number, a sequence of numbers, or a word as a string."""
    if isinstance(node, ast.Name):
        return _WORDS.get(node.id, node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        elements = map(_parse_option, node.elts)
        return [*elements] if isinstance(node, ast.List) else (*elements,)
    return ast.literal_eval(node)


def _make_options(code: str, given: Mapping[Any, Any]) -> MadeOptions | None:
    """Return those options that no file has, None if there are none."""
    suiting = [kind for kind in _list_kinds(MadeOptions) if code in (kind.codes or (code,))]
    names = {kind: kind.defaults.keys() & given.keys() for kind in suiting}
    kind = max(suiting, key=lambda kind: len(names[kind]))
    return kind(**{name: given[name] for name in names[kind]}) if names[kind] else None


def _list_kinds(kind: type[MadeOptions]) -> list[type[MadeOptions]]:
    return [kind, *(k for each in kind.__subclasses__() for k in _list_kinds(each))]


def parse_graph(text: str) -> PlannedGraph:
    """Return the graph that a text describes."""
    return plan_by_default(_Parser(text).parse_graph())


def plan_by_default(graph: Graph) -> PlannedGraph:
    """Return a graph with the plan that it gets without options, as forms of targets need it."""
    return plan_graph(graph, Planning(find_operator, plan, {}, "auto", {}))


def read_graph(model: bytes) -> PlannedGraph:
    """Return the first graph of a model as the file has it, with its plan."""
    return plan_by_default(read_model(model).graphs[0])


def assert_rewritten(change: Pass, before: str, after: str) -> None:
    """Check that a pass turns a graph into another, apart from operators that nothing reads then.

    The options that the texts name are compared.
    """
    graph, expected = parse_graph(before), parse_graph(after)
    ops = [op for each in (graph, expected) for op in each.walk_ops()]
    named = {name for op in ops for name in (*op.options, *(op.made.list_set() if op.made else ()))}
    rewritten = eliminate_dead_operators(change(graph))
    _compare_texts(write_graph(rewritten, sorted(named)), write_graph(expected, sorted(named)))


def check_pass(change: Pass, graph: Graph, before: str, after: str, *options: str) -> None:
    """Compare a graph before and after a pass with texts, which have the options of these names."""
    _compare_texts(write_graph(graph, options), dedent(before).strip())
    _compare_texts(write_graph(change(graph), options), dedent(after).strip())


def check_unchanged(change: Pass, graph: Graph) -> None:
    """Check that a pass leaves a graph as it is."""
    _compare_texts(write_graph(change(graph)), write_graph(graph))


def _compare_texts(have: str, want: str) -> None:
    """Show all lines of two texts that differ; pytest cuts long texts off without -vv."""
    if have != want:
        lines = unified_diff(want.split("\n"), have.split("\n"), "expected", "made", lineterm="")
        raise AssertionError("\n".join(lines))


def eliminate_dead_after(change: Pass) -> Pass:
    """Return a pass followed by `eliminate_dead_operators`."""
    return lambda graph: eliminate_dead_operators(change(graph))


def make_model(text: str) -> bytes:
    """Return the file of a graph without sub-graphs, whose operators are TFLite's."""
    graph, m = parse_graph(text), Build()
    made: dict[Tensor | None, Built | None] = {None: None}
    made |= {t: m.input(t.shape, **_list_fields(t)) for t in graph.inputs}
    for op in graph.ops:
        for t in op.inputs:
            if t is not None and t.data is not None:
                made[t] = m.constant(t.data, **_list_fields(t))
        outputs = [m.tensor(t.shape, **_list_fields(t)) for t in op.outputs]
        made |= zip(op.outputs, outputs, strict=True)
        m.op(op.code, [made[t] for t in op.inputs], outputs, **op.options)
    m.output(*(t for t in map(made.get, graph.outputs) if t is not None))
    return m.bytes()


def _list_fields(tensor: Tensor) -> TensorFields:
    fields: TensorFields = {"dtype": tensor.dtype.label, "name": tensor.name}
    if tensor.quantization is not None:
        fields |= {"scale": tensor.quantization.scale, "zero_point": tensor.quantization.zero_point}
    if tensor.shape_signature:
        fields["shape_signature"] = tensor.shape_signature
    return fields
