"""What a graph computes of the position of a token, at each position of a cache.

Masks, angles and places in caches are computed of positions in as many ways as there are exporters.
All positions of a cache are tried, so what holds for the results is proven.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import find_operator
from tflite2onnx.op.base import Operator
from tflite2onnx.passes.recurrent.formulas import evaluate_op
from tflite2onnx.tensor import Array, DType, Tensor
from tflite2onnx.utils.mapped_files import digest_elements, keep_bytes, release_memory

T = TypeVar("T")
_MOST_TIMES = 16  # elements of a result, for each token of the cache
_MOST_OPS = 64  # between a position and what is computed of it
_RELEASED = 64  # the number of positions after which the memory of constants is released
# What is added to the scores of tokens that a token does not see, at the most. The weight of such a
# token is 0 unless its score is higher by 9,900 than all others.
_HIDDEN = -1e4
# Operators whose classes do not compute: kernels may round sines otherwise than NumPy.
_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "COS": np.cos,
    "GATHER_ND": lambda x, places: x[tuple(np.moveaxis(places, -1, 0))],
    "SIN": np.sin,
}


class CachePositions:
    """The results of a graph for each position in a cache of `length` tokens, from `first` on.

    `position` is the input of the graph that all results depend on; it is set by the first one.
    Results are None if they depend on anything else, or cannot be computed.
    """

    def __init__(self, graph: Graph, length: int, *, first: int = 0) -> None:
        self.position: Tensor | None = None
        self._graph, self._length, self._first = graph, length, first
        self._known: dict[tuple[Tensor, Callable[..., object]], Any] = {}
        self._tables: dict[bytes, Tensor] = {}

    def find_rows(self, tensor: Tensor) -> Array | None:
        """Return the elements of a tensor, a row for each position."""
        return self._analyze(tensor, _stack_rows)

    def find_window(self, mask: Tensor) -> int | None:
        """Return how many tokens a mask shows: the last ones up to the position.

        A bool mask shows tokens where it is true, another mask where it is 0. Returns 0 if the mask
        hides none before the position, and None if it says anything else.
        """
        return self._analyze(mask, _find_window)

    def make_table(self, angle: Tensor) -> Tensor | None:
        """Return a constant with the rows of a cosine or sine; equal tables are one constant."""
        # Layers reshape the same angles.
        rows = self.find_rows(self._graph.producers.trace(angle, "RESHAPE"))
        if rows is None or rows.dtype != np.float32:
            return None
        table = Tensor(f"{angle.name}/positions", rows.shape, DType.FLOAT32, rows)
        return self._tables.setdefault(digest_elements(rows), table)

    def _analyze(self, tensor: Tensor, analysis: Callable[[Iterator[Array]], T]) -> T | None:
        """Return what a function finds in the rows of a tensor, for which it is called once."""
        key = tensor, analysis
        if key not in self._known:
            try:
                self._known[key] = analysis(self._compute(tensor))
            except OperatorError:
                self._known[key] = None
        found: T | None = self._known[key]
        return found

    def _compute(self, tensor: Tensor) -> Iterator[Array]:
        """Yield the elements of a tensor at each position.

        Raises:
            OperatorError: they depend on anything else, or cannot be computed.
        """
        ops = self._list_ops(tensor)
        source = self.position
        if not ops or not source:
            raise OperatorError(f"{tensor.name} must depend on a position only")
        steps = [(op, find_operator(op)) for op in ops]
        constants = [t.values for op in ops for t in op.present if t.has_data]
        for position in range(self._first, self._length):
            if position % _RELEASED == 0:  # a mask of all positions has several MB
                release_memory(*constants)
            known = {source: np.full(source.shape, position, np.int32)}
            for op, operator in steps:
                operands = [known.get(t, t.values) for t in op.present]
                known.update(zip(op.outputs, _evaluate(op, operator, operands), strict=False))
            yield known[tensor].reshape(-1)

    def _list_ops(self, tensor: Tensor) -> list[Op]:
        """Return the operators that compute a tensor of the position, in order; [] if others do."""
        found: dict[int, Op] = {}
        places = {op: place for place, op in enumerate(self._graph.ops)}
        for each in self._graph.producers.walk_back(tensor):
            op = self._graph.producers.find(each)
            if each in self._graph.inputs:
                other = self.position not in (None, each)
                if other or each.dtype is not DType.INT32 or each.elements != 1:
                    return []
                self.position = each
            elif not each.is_constant:
                large = any(t.elements > _MOST_TIMES * self._length for t in op.outputs)
                if op not in places or op.graphs or op.activation != "NONE" or large:
                    return []
                found[places[op]] = op
            if len(found) > _MOST_OPS:
                return []
        return [found[place] for place in sorted(found)] if self.position else []


def _stack_rows(rows: Iterable[Array]) -> Array:
    table, row = bytearray(), np.empty(0, np.float32)
    for row in rows:  # as arrays, rows would take twice the memory
        table += row.tobytes()
    kept = keep_bytes(len(table), lambda: [np.frombuffer(table, np.uint8)])
    return kept.view(row.dtype).reshape(-1, row.size)


def _find_window(masks: Iterable[Array]) -> int | None:
    counts = []
    for position, mask in enumerate(masks):
        is_bool = mask.dtype == np.bool_
        shown = mask if is_bool else mask == 0
        count = int(np.count_nonzero(shown))
        last = shown[max(position + 1 - count, 0) : position + 1]
        if (
            len(last) != count
            or not np.all(last)
            or not np.all(shown | is_bool | (mask <= _HIDDEN))
        ):
            return None
        counts.append(count)
    window = max(counts)
    expected = [min(position + 1, window) for position in range(len(counts))]
    if counts != expected:
        return None
    return window if window < len(counts) else 0


def _evaluate(op: Op, operator: Operator, operands: Sequence[Array]) -> Sequence[Array]:
    """Return the outputs of an operator.

    Raises:
        OperatorError: they cannot be computed, or do not have the declared shapes and types.
    """
    function = None if op.custom else _FUNCTIONS.get(op.code)
    with as_operator_error():
        results = [function(*operands)] if function else evaluate_op(operator, operands)
    pairs = list(zip(op.outputs, results, strict=False))
    fits = all(t.shape == r.shape and t.dtype.numpy == r.dtype for t, r in pairs)
    if len(pairs) != len(op.outputs) or not fits or any(t.quantization for t in op.outputs):
        raise OperatorError("an operator of positions must be computable")
    return results
