"""Graphs as text, so that a test shows a pass as the operators before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from textwrap import dedent

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.normalise import eliminate_dead_operators
from tflite2onnx.tensor import Tensor

_FEW = 8  # the number of elements of a constant that are shown


class _Writer:
    """Numbers tensors in order of appearance: %0, %1, ..."""

    def __init__(self, shown: Iterable[str]) -> None:
        self._names: dict[Tensor, str] = {}
        self._shown, self._numbers = tuple(shown), count()

    def write_graph(self, graph: Graph) -> Iterator[str]:
        """Yield the lines of a graph; those of its sub-graphs are indented."""
        inputs = ", ".join(f"{self._name(t)}: {_type(t)}" for t in graph.inputs)
        yield f"inputs {inputs}".rstrip()
        for op in graph.ops:
            yield self._write_op(op)
            for inner in op.graphs:
                yield from (f"    {line}" for line in self.write_graph(inner))
        yield f"return {', '.join(map(self._operand, graph.outputs))}"

    def _write_op(self, op: Op) -> str:
        arguments = [self._operand(t) for t in op.inputs]
        shown = [name for name in self._shown if name in op.options]
        arguments += [f"{name}={op.options[name]}".replace(" ", "") for name in shown]
        outputs = ", ".join(f"{self._name(t)}: {_type(t)}" for t in op.outputs)
        return f"{outputs} = {op.code}({', '.join(arguments)})".removeprefix(" = ")

    def _name(self, tensor: Tensor) -> str:
        if tensor not in self._names:
            self._names[tensor] = f"%{next(self._numbers)}"
        return self._names[tensor]

    def _operand(self, tensor: Tensor | None) -> str:
        if tensor is None:
            return "none"
        if tensor.data is None:
            return self._name(tensor)
        small = tensor.data.size <= _FEW
        return str(tensor.data.tolist()) if small else f"constant{_shape(tensor)}"


def _type(tensor: Tensor) -> str:
    return f"{tensor.dtype.label}{_shape(tensor)}"


def _shape(tensor: Tensor) -> str:
    return f"[{','.join(map(str, tensor.shape))}]"


def write_graph(graph: Graph, *options: str) -> str:
    """Return a graph as text, with the options named in `options`."""
    return "\n".join(_Writer(options).write_graph(graph))


def check_pass(
    change: Callable[[Graph], Graph], graph: Graph, before: str, after: str, *options: str
) -> None:
    """Compare a graph before and after a pass with expected texts; see `write_graph`."""
    assert write_graph(graph, *options) == dedent(before).strip()
    assert write_graph(change(graph), *options) == dedent(after).strip()


def check_unchanged(change: Callable[[Graph], Graph], graph: Graph) -> None:
    """Check that a pass leaves a graph as it is."""
    assert write_graph(change(graph)) == write_graph(graph)


def eliminate_dead_after(change: Callable[[Graph], Graph]) -> Callable[[Graph], Graph]:
    """Return a pass followed by `eliminate_dead_operators`."""
    return lambda graph: eliminate_dead_operators(change(graph))
