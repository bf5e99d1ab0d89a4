"""Calls of other sub-graphs, replaced by the operators of these.

STABLEHLO_COMPOSITE names what it computes, and has a sub-graph that says how; CALL has a sub-graph
alone. Either runs it once, with its own inputs and outputs in place of the sub-graph's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tflite2onnx.errors import OperatorError, UnsupportedOperators, guarded
from tflite2onnx.graph import Graph, Model, Op, copying
from tflite2onnx.quantize import is_quantized
from tflite2onnx.tensor import Tensor

# Which option names the sub-graph.
CALLS = {"STABLEHLO_COMPOSITE": "decomposition_subgraph_index", "CALL": "subgraph"}
# Sub-graphs that call each other twice make a huge model of a tiny file.
_MOST_OPERATORS = 1 << 16
_MOST_LEVELS = 64


def inlined(model: Model, index: int = 0) -> Graph:
    """Return a graph of a model, the main one by default, with all that it calls inside.

    Raises:
        UnsupportedOperators: a sub-graph is not there, calls itself, does not have the inputs and
            outputs of the call, or there is too much to call.
    """
    graph = model.graphs[index]
    if not any(_calls(op) for op in graph.ops):
        return graph
    inliner = _Inliner(model, graph)
    ops = tuple(inliner.expanded(graph, (index,), {}))
    return replace(graph, ops=ops, tensors=tuple(inliner.tensors))


def _calls(op: Op) -> bool:
    return op.code in CALLS and not op.custom


class _Inliner:
    """Copies operators into one graph; knows all its tensors, whose names differ."""

    def __init__(self, model: Model, graph: Graph) -> None:
        self._graphs = model.graphs
        self._left = _MOST_OPERATORS
        self.tensors = list(graph.tensors)
        self._names = {t.name for t in self.tensors}
        self._copies: Counter[str] = Counter()

    def expanded(
        self, graph: Graph, levels: Sequence[int], known: Mapping[Tensor, Tensor]
    ) -> Iterator[Op]:
        """Yield the operators of a graph on the tensors that are known in place of its own.

        `levels` are the graphs that are being called, the innermost last.
        """
        for op in graph.ops:
            self._left -= 1
            here = replace(
                op,
                inputs=tuple(None if t is None else known.get(t, t) for t in op.inputs),
                outputs=tuple(known.get(t, t) for t in op.outputs),
                intermediates=tuple(known.get(t, t) for t in op.intermediates),
            )
            if not _calls(op):
                yield here
                continue
            try:
                with guarded():
                    callee = self._callee(here, levels)
            except OperatorError as error:
                raise UnsupportedOperators([error.at(op.place)]) from error
            yield from self._called(here, self._graphs[callee], (*levels, callee))

    def _callee(self, op: Op, levels: Sequence[int]) -> int:
        index = int(getattr(op.options, CALLS[op.code]))
        message = ""
        if not 0 <= index < len(self._graphs):
            message = f"there is no sub-graph {index}"
        elif index in levels:
            message = f"sub-graph {index} calls itself"
        elif len(levels) >= _MOST_LEVELS:
            message = f"calls are nested more than {_MOST_LEVELS} deep"
        elif self._left < 0:
            message = f"the model has more than {_MOST_OPERATORS} operators with all that it calls"
        else:
            _check_operands(op, self._graphs[index])
        if message:
            raise OperatorError(message)
        return index

    def _called(self, op: Op, callee: Graph, levels: Sequence[int]) -> Iterator[Op]:
        """Yield the operators that stand for a call.

        Constants and state are the sub-graph's own, however often it is called.
        """
        known: dict[Tensor, Tensor] = {}
        for outer, inner in zip(op.inputs, callee.inputs, strict=True):
            if outer is not None and _same(outer, inner):
                known[inner] = outer
            elif outer is not None:
                known[inner] = self._copy(inner)
                yield copying(op, outer, known[inner])
        made = {t for each in callee.ops for t in each.outputs if not t.is_variable}
        own = dict(zip(callee.outputs, op.outputs, strict=True))
        for tensor in callee.tensors:
            if tensor in made and tensor in own and _same(tensor, own[tensor]):
                known[tensor] = own[tensor]
            elif tensor in made:
                known[tensor] = self._copy(tensor)
        yield from self.expanded(callee, levels, known)
        for inner, outer in zip(callee.outputs, op.outputs, strict=True):
            source = known.get(inner, inner)
            if source is not outer:
                yield copying(op, source, outer)

    def _copy(self, tensor: Tensor) -> Tensor:
        name = tensor.name
        while name in self._names:
            self._copies[tensor.name] += 1
            name = f"{tensor.name}_{self._copies[tensor.name]}"
        self._names.add(name)
        self.tensors.append(replace(tensor, name=name))
        return self.tensors[-1]


def _check_operands(op: Op, callee: Graph) -> None:
    """Raise OperatorError unless a call has the inputs and outputs of its sub-graph."""
    for kind, outer, inner in (
        ("inputs", op.inputs, callee.inputs), ("outputs", op.outputs, callee.outputs),
    ):  # fmt: skip
        if len(outer) != len(inner):
            message = f"it has {len(outer)} {kind} and its sub-graph {len(inner)}"
            raise OperatorError(message)
        for a, b in zip(outer, inner, strict=True):
            if a is not None and (a.shape, a.dtype) != (b.shape, b.dtype):
                declared = [f"{t.name}, which is {t.dtype.label}{list(t.shape)}" for t in (a, b)]
                message = f"its sub-graph has {declared[1]}, for {declared[0]}"
                raise OperatorError(message)


def _same(outer: Tensor, inner: Tensor) -> bool:
    """Return whether the integers of two tensors of one type and shape stand for the same."""
    if not is_quantized(outer) and not is_quantized(inner):
        return True
    return outer.quantization is not None and outer.quantization.same_as(inner.quantization)

