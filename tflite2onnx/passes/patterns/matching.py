"""Patterns of operators.

A pattern matches the tensor that an operator computes:

1. a name matches any tensor; the same name matches the same tensor, or constants with equal
   elements;
2. a name that ends with # matches constants only;
3. a number matches a constant whose elements all are this number, up to rounding to float32;
4. (code, *patterns) matches the first output of an operator that applies no fused activation. The
   inputs of an operator that commutes match in both sequences. A code of an activation also matches
   an operator that applies the activation to its result.

No operator outside a pattern reads the tensors between its operators, so that the operators are
dead once the last of them is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.quantization.storage import BOUNDS
from tflite2onnx.tensor import Array, DType, Tensor

T = TypeVar("T")
Pattern: TypeAlias = "str | float | tuple[str | float | Pattern, ...]"

# Operators that keep the elements in the same sequence.
RESHAPES = ("EXPAND_DIMS", "RESHAPE", "SQUEEZE")
CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")
_KEEPS_AXES = (
    *("ADD", "AVERAGE_POOL_2D", "CONCATENATION", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC"),
    *("MAX_POOL_2D", "MUL", "PAD", "PRELU", "RELU", "RELU6", "SUB", "TANH"),
)
_IMAGE = 4  # axes
_BINARY = 2  # inputs
_COMMUTE = ("ADD", "MUL", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
_REDUCTIONS = ("MEAN", "REDUCE_MAX", "SUM")
_CLOSE = 1e-6  # relative difference of numbers


class Match(NamedTuple):
    """The tensors that the names of a pattern match, and the operators between them."""

    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...] = ()

    def number(self, name: str) -> float | None:
        """Return the only element of a constant, None if there is another number of elements."""
        data = self.tensors[name].data
        return None if data is None or data.size != 1 else float(data.reshape(()))

    def keeps_axes(self) -> bool:
        """Return whether all reductions keep the axes along which they reduce, with the size 1."""
        reductions = (op for op in self.ops if op.code in _REDUCTIONS)
        return all(op.options.get("keep_dims") for op in reductions)


class Matcher:
    """Finds the operators of a graph that match patterns."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def match(self, op: Op, pattern: Pattern, *, activated: bool = False) -> Match | None:
        """Return the match of a pattern with the operators that end in this operator.

        With `activated` the last operator may apply an activation to its result.
        """
        if isinstance(pattern, str | float) or not op.outputs or not is_float(op.outputs[0]):
            return None
        if activated and pattern[0] == op.code:
            matches = self._match_inputs(op, pattern, Match({}))
        elif pattern[0] in (op.code, op.activation):
            matches = self._match_op(op, pattern, Match({}))
        else:
            return None
        return next((found for found in matches if self._is_private(found, op)), None)

    def _is_private(self, found: Match, last: Op) -> bool:
        """Return whether only operators of the match read what the operators before `last` make."""
        ops = {*found.ops, last}
        made = [t for op in found.ops if op is not last for t in op.outputs]
        return all(self.graph.readers.are_among(ops, t) for t in made)

    def _match_tensor(self, tensor: Tensor, pattern: Pattern, found: Match) -> Iterator[Match]:
        if isinstance(pattern, str):
            yield from _bind_name(pattern, tensor, found)
        elif isinstance(pattern, (int, float)):
            if _is_number(tensor, pattern):
                yield found
        else:
            op = self.graph.producers.get(tensor)
            if op is not None and op.outputs[0] is tensor and is_float(tensor):
                yield from self._match_op(op, pattern, found)

    def _match_op(self, op: Op, pattern: Sequence[Pattern], found: Match) -> Iterator[Match]:
        code, *arguments = pattern
        if op.activation == code and code in BOUNDS and isinstance(arguments[0], tuple):
            yield from self._match_inputs(op, arguments[0], found)
        elif op.activation == "NONE":
            yield from self._match_inputs(op, pattern, found)

    def _match_inputs(self, op: Op, pattern: Sequence[Pattern], found: Match) -> Iterator[Match]:
        code, *arguments = pattern
        if op.code != code or len(op.inputs) != len(arguments) or op.graphs:
            return
        sequences = permutations(op.inputs) if op.is_builtin(*_COMMUTE) else [op.inputs]
        for inputs in sequences:
            yield from self._match_all(inputs, arguments, found._replace(ops=(*found.ops, op)))

    def _match_all(
        self, inputs: Sequence[Tensor | None], arguments: Sequence[Pattern], found: Match
    ) -> Iterator[Match]:
        if not inputs:
            yield found
        elif inputs[0] is not None:
            for each in self._match_tensor(inputs[0], arguments[0], found):
                yield from self._match_all(inputs[1:], arguments[1:], each)


def group_by_last_code(
    rules: Iterable[T], pattern_of: Callable[[T], Pattern]
) -> dict[object, list[T]]:
    """Return rules, each of which has a pattern, by the code of the pattern's last operator."""
    groups: dict[object, list[T]] = {}
    for each in rules:
        groups.setdefault(next(list_codes(pattern_of(each))), []).append(each)
    return groups


def list_codes(pattern: Pattern) -> Iterator[object]:
    """Yield the codes of all operators of a pattern."""
    if isinstance(pattern, tuple):
        yield pattern[0]
        for argument in pattern[1:]:
            yield from list_codes(argument)


def normalize_axes(axes: Array, rank: int) -> set[int]:
    """Return the axes of a constant as numbers from 0 on; negative axes count from the last.

    Raises:
        ValueError, OverflowError: an axis is not finite.
    """
    return {int(axis) % rank for axis in axes.flat}


def is_float(tensor: Tensor) -> bool:
    """Return whether a tensor has float32 elements that are not quantized."""
    return tensor.dtype is DType.FLOAT32 and tensor.quantization is None


def find_order(op: Op) -> tuple[int, ...] | None:
    """Return the constant permutation of a TRANSPOSE, None for other operators."""
    order = op.inputs[1] if op.is_builtin("TRANSPOSE") and len(op.inputs) == _BINARY else None
    return None if order is None or order.data is None else tuple(map(int, order.data.flat))


def find_producer(tensor: Tensor | None, graph: Graph, *codes: str) -> Op | None:
    """Return the operator that computes a tensor if it has one of the codes.

    Returns None if the tensor has several readers.
    """
    op = None if tensor is None else graph.producers.get(tensor)
    if op is None or not op.is_builtin(*codes) or graph.readers.find_only_reader(tensor) is None:
        return None
    return op


def find_images(graph: Graph) -> set[Tensor]:
    """Return the images that depend on a convolution by operators that keep the order of the axes.

    The planner stores them with channels first.
    """
    images: set[Tensor] = set()
    for op in graph.every_op():
        keeps = op.is_builtin(*_KEEPS_AXES) and any(t in images for t in op.inputs)
        if keeps or op.is_builtin(*CONVOLUTIONS):
            images.update(t for t in op.outputs if t.rank == _IMAGE)
    return images


def _bind_name(name: str, tensor: Tensor, found: Match) -> Iterator[Match]:
    known = found.tensors.get(name)
    if known is None:
        if tensor.data is not None or not name.endswith("#"):
            yield found._replace(tensors={**found.tensors, name: tensor})
    elif known is tensor or _are_equal(known, tensor):
        yield found


def _are_equal(a: Tensor, b: Tensor) -> bool:
    if a.data is None or b.data is None or a.dtype is not b.dtype:
        return False
    return np.array_equal(a.data, b.data)


def _is_number(tensor: Tensor, number: float) -> bool:
    data = tensor.data
    if data is None or not is_float(tensor) or not 0 < data.size <= tensor.elements:
        return False
    return bool(np.all(np.abs(data.astype(np.float64) - number) <= _CLOSE * abs(number)))
