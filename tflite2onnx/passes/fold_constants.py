"""Compute operators in the converter whose results are constant.

The outputs of an operator become constants if:

1. all inputs are constants, or the outputs depend on the shapes of the inputs alone (SHAPE);
2. no input or output has a dynamic size, and no output is quantized;
3. `Foldable.evaluate` returns arrays of the declared shapes and dtypes;
4. the constants that are computed stay within a budget (`Folder`): a tiny file could
   otherwise become an ONNX model of any size.

Operators that compute large constants of small ones stay, if the file would otherwise become much
larger (`_restore_large`): a runtime computes them when it loads the model.

DEQUANTIZE of float16 constants, and CAST to float32, are removed, too; the elements stay float16 in
the ONNX file. IF with
a constant condition, and WHILE that never runs, are replaced by the operators that run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import find_facts, find_operator, is_valid
from tflite2onnx.op.base import Operator, moves_elements
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import Foldable, RunsSubgraphs
from tflite2onnx.reader.sparsity import count_distinct_bytes
from tflite2onnx.tensor import Array, DType, Tensor
from tflite2onnx.utils.constant_budget import SizeLimit

_LIMIT = SizeLimit(times=4, more=1 << 24)  # limits the bytes of computed constants
# Constants that operators compute of constants of half the bytes or less may take this part of the
# stored bytes, plus a number for any file. A smaller constant than `_LEAST` always is stored.
_PART, _MORE, _LEAST = 16, 1 << 14, 1 << 12
_NODE = 200  # bytes of a node in the file


def fold_operators(graph: Graph) -> Graph:
    """Return the graph without the operators whose outputs are constant.

    A loop variable is not constant, even if its first value is.
    """
    folder = Folder(graph)
    folded = graph.rewrite(folder.list_remaining_ops, folder.known)
    if not folder.made or any(op.graphs for op in folded.ops):
        return folded
    return _restore_large(folded, folder, count_stored_bytes(graph) // _PART + _MORE)


def fold_small_values(graph: Graph) -> Graph:
    """Return the graph without operators on constants, and on ranks, whose outputs are small.

    Other operators on shapes stay: before dynamic sizes have names, a declared size may be any.
    """
    folder = Folder(graph)

    def fold(op: Op) -> Iterable[Op]:
        reads_sizes = Fact.SHAPE_ONLY in find_facts(op) and not op.is_builtin("RANK")
        stays = reads_sizes or any(t.nbytes > _LEAST for t in op.outputs)
        return [op.with_inputs(folder.known)] if stays else folder.list_remaining_ops(op)

    return graph.rewrite(fold, folder.known)


def _restore_large(graph: Graph, folder: Folder, limit: int) -> Graph:
    """Return the graph with operators in place of large constants that they compute of small ones.

    The largest constants are restored, until all others take `limit` bytes more than what they are
    computed of. An operator that has to know its input keeps the constant.
    """
    read = dict.fromkeys(t for op in graph.ops for t in op.present if t.has_data)
    least = _count_least_bytes(folder, read)
    growth = {t: _count_bytes(t) - least[t] for t in read if t in least and t.nbytes >= _LEAST}
    left, restored = sum(growth.values()), set[Tensor]()
    for tensor in sorted(growth, key=lambda t: -growth[t]):
        if left > limit and growth[tensor]:
            restored.add(tensor)
            left -= growth[tensor]
    computed = {t for t in least if least[t] < _count_bytes(t) and (t in restored or t not in read)}
    outputs = {constant: tensor for tensor, constant in folder.known.items()}
    done: set[Op] = set()

    def restore(op: Op) -> Iterator[Op]:
        large = [t for t in dict.fromkeys(op.present) if t in restored]
        changed = op.with_inputs({t: outputs[t] for t in large})
        if large and is_valid(find_operator(changed)):
            for each in _list_operators(large, folder, computed):
                if each not in done:
                    done.add(each)
                    yield each.with_inputs({t: outputs[t] for t in each.present if t in computed})
            op = changed
        yield op

    return graph.rewrite(restore) if restored else graph


def _count_least_bytes(folder: Folder, read: Collection[Tensor]) -> dict[Tensor, int]:
    """Return the bytes of computed constants, or of what they are computed of, if half or less.

    A node counts, too. What `read` has is stored in any case. What several operators read is stored
    once, and each of them counts its part; `_LEAST` covers their nodes and parameters.
    """
    made = dict.fromkeys(folder.made.values())
    users = Counter(t for op in made for t in dict.fromkeys(op.present))
    least: dict[Tensor, int] = {}
    for tensor, op in folder.made.items():  # in order of execution
        sources = [t for t in dict.fromkeys(op.present) if t not in read]
        inner = _NODE + sum(least.get(t, _count_bytes(t)) // users[t] for t in sources)
        stored = _count_bytes(tensor)
        least[tensor] = inner if 2 * inner <= stored + _LEAST else stored
    return least


def _count_bytes(tensor: Tensor) -> int:
    """Return the bytes of a constant as it is stored, which may be float16 for float32."""
    return tensor.values.nbytes if tensor.has_data else tensor.nbytes


def _list_operators(
    tensors: Iterable[Tensor], folder: Folder, computed: Collection[Tensor]
) -> list[Op]:
    """Return the operators that compute constants, in order of execution."""
    waiting, found = [*tensors], set[Op]()
    while waiting:
        tensor = waiting.pop()
        op = folder.made.get(tensor)
        if op and tensor in computed and op not in found:
            found.add(op)
            waiting += op.present
    return [op for op in dict.fromkeys(folder.made.values()) if op in found]


def count_stored_bytes(graph: Graph) -> int:
    """Return how many bytes of memory the constants of a graph take."""
    constants = dict.fromkeys(t for op in graph.walk_ops() for t in op.present)
    return count_distinct_bytes([t.values for t in constants if t.has_data])


class Folder:
    """Folds operators one by one.

    `known` has the constants by the tensors that they replace, `made` the operators by constants.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.known: dict[Tensor, Tensor] = {}
        self.made: dict[Tensor, Op] = {}

    @cached_property
    def _room(self) -> int:
        """The number of bytes that further computed constants may have."""
        return _LIMIT.compute(count_stored_bytes(self._graph))

    def fold(self, op: Op, operator: Operator | None) -> list[Tensor]:
        """Return the outputs as constants; empty if they are not constant, or too large."""
        if operator and not _depends_on_constants(op, operator.facts):
            return []
        results = _fold_float16(op)
        if not results and isinstance(operator, Foldable):
            results = _evaluate_op(op, operator, self._room)
        self._room -= sum(t.nbytes for t in results)
        return results

    def list_remaining_ops(self, op: Op) -> Iterator[Op]:
        """Yield the operators that replace an operator: none if its outputs are constant."""
        op = op.with_inputs(self.known)
        if not op.graphs and not _depends_on_constants(op, find_facts(op)):
            yield op
            return
        found = find_operator(op)
        operator = found if is_valid(found) else None
        decided = operator.fold_branch() if isinstance(operator, RunsSubgraphs) else None
        results = self.fold(op, operator)
        if decided is not None:
            for remaining in decided:
                yield from self.list_remaining_ops(remaining)
        elif results:
            self.known |= dict(zip(op.outputs, results, strict=True))
            self.made |= dict.fromkeys(results, op)
        else:
            yield op


def _fold_float16(op: Op) -> list[Tensor]:
    """Return a float16 constant that an operator makes float32: float32, stored as float16."""
    source = op.operand(0)
    if not op.is_builtin("CAST", "DEQUANTIZE") or source.dtype is not DType.FLOAT16:
        return []
    types = [(t.shape, t.dtype) for t in op.outputs]
    fits = source.has_data and types == [(source.shape, DType.FLOAT32)]
    return [replace(t, data=source.data, quantization=None) for t in op.outputs if fits]


def _evaluate_op(op: Op, operator: Foldable, room: int) -> list[Tensor]:
    """Return the outputs as constants; empty if they are not known or exceed `room` bytes."""
    try:
        with as_operator_error():
            arrays = [
                _decode_constant(op.operand(i), moves=moves_elements(operator))
                for i in range(len(op.inputs))
            ]
    except OperatorError:  # a size is 0, and the other sizes are too large for numpy
        return []
    has_dynamic_sizes = any(t.symbols for t in op.tensors)
    unknown = any(a is None for a in arrays) and Fact.SHAPE_ONLY not in operator.facts
    unknown |= sum(t.nbytes for t in op.outputs) > room
    if unknown or has_dynamic_sizes or any(t.quantization for t in op.outputs):
        return []
    results = _evaluate(operator, [np.empty(0) if a is None else a for a in arrays])
    pairs = list(zip(op.outputs, results, strict=False))
    if len(pairs) != len(op.outputs) or not all(_fits(t, r, operator) for t, r in pairs):
        return []
    return [replace(t, data=np.asarray(r, order="C")) for t, r in pairs]


def _evaluate(operator: Foldable, arrays: Sequence[Array]) -> Sequence[Array]:
    """Return the outputs for arrays; none if the operator is invalid, which is reported later."""
    try:
        return operator.evaluate(*arrays) or ()
    except OperatorError:
        return ()
    except Exception:
        if is_valid(operator):
            raise  # a bug: the operator is valid
        return ()


def _depends_on_constants(op: Op, facts: Sequence[Fact]) -> bool:
    """Return whether the outputs depend on constants and shapes only."""
    return Fact.SHAPE_ONLY in facts or all(t and t.is_constant for t in op.inputs)


def _decode_constant(tensor: Tensor, *, moves: bool) -> Array | None:
    """Return a constant's elements as an operator reads them, None if they cannot be evaluated.

    Quantized constants are not evaluated. Small float types, which numpy stores as bits, and
    float16 constants of float32 tensors keep their stored form if the operator only moves them.
    """
    if not tensor.dtype.numpy or tensor.quantization:
        return None
    data = tensor.data
    if data is None and 0 in tensor.shape and not tensor.dynamic_axes:
        # The file stores no data for an empty tensor.
        data = np.zeros(tensor.shape, tensor.dtype.numpy)
    if data is None or moves:
        return data
    if tensor.dtype.is_float and not issubclass(tensor.dtype.numpy, np.floating):
        return None
    return data.astype(tensor.dtype.numpy, copy=False)


def _fits(tensor: Tensor, data: Array, operator: Operator) -> bool:
    """Return whether an array fits a tensor; float16 fits float32 if it is only moved."""
    narrow = moves_elements(operator) and tensor.dtype is DType.FLOAT32 and data.dtype == np.float16
    return data.shape == tensor.shape and (narrow or data.dtype == tensor.dtype.numpy)
