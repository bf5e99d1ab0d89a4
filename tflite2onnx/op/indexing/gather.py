"""GATHER and GATHER_ND: elements at indices."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

from tflite2onnx.graph import Op, copy_op
from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import axis_of, expect_indices, require_equal_shapes
from tflite2onnx.op.common.leading_axis import Wider, shift_axis_option
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import Foldable, IndexesAxes, IndexesTogether, Movement
from tflite2onnx.tensor import Array, DType


def _widen_indices(g: Builder, indices: View) -> Value:
    return g.recast(indices, indices.dtype, DType.INT64)


class Gather(Movement, Foldable, IndexesAxes):
    """GATHER: slices along an axis, in the shape of the indices.

    The first `batch_dims` axes are common to data and indices: each batch has its own indices.
    """

    codes = ("GATHER",)
    operands = "T, any -> T"
    facts = (Fact.TAKES,)
    evaluates_dimensions = True

    @cached_property
    def _axis(self) -> int:
        return axis_of(self.options.axis, self.input(0).rank)

    @cached_property
    def _batch(self) -> int:
        indices = self.input(1)
        number = int(self.options.batch_dims)
        batch = number + indices.rank if number < 0 else number
        if not 0 <= batch <= min(self._axis, indices.rank):
            raise OperatorError(
                f"batch_dims must be at most {min(self._axis, indices.rank)}, because the axis is "
                f"{self._axis} and the indices have {indices.rank} axes, got {number}"
            )
        return batch

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, indices, axis, n = self.input(0).shape, self.input(1).shape, self._axis, self._batch
        batch = require_equal_shapes(x[:n], indices[:n])
        return [(*batch, *x[n:axis], *indices[n:], *x[axis + 1 :])]

    def check(self) -> None:
        expect_indices(self.input(1), (self.input(0).shape[self._axis],))

    def frames(self) -> Sequence[Frame]:
        # The axes of the indices replace the indexed axis in the output, in the same sequence.
        # GatherND requires that the batch axes come first, then the indexed axis.
        axis, batch, names = self._axis, self._batch, axis_names(self.input(0).rank)
        index_axes = (self.input(1).rank - batch) * (names[axis],)
        slots = {0: names, ~0: (*names[:axis], *index_axes, *names[axis + 1 :])}
        first = (*names[:batch], names[axis])
        if not batch:
            return [Frame(slots, names)]
        rest = (*names[batch:axis], *names[axis + 1 :])
        return [Frame(slots, first + rest, legal=lambda label: label[: batch + 1] == first)]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        if operand or self._takes_all:
            return ()
        return (self._axis,)

    def add_leading_axis(self) -> Wider | None:
        shifted = shift_axis_option(self.op)
        if self.input(1).is_constant and not self._batch:
            return shifted, (0,)
        return shift_axis_option(shifted, "batch_dims"), (0, 1)

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        return axis if axis < self._batch else None

    @property
    def _takes_all(self) -> bool:
        """Whether the only index is 0 and the axis has one element."""
        indices, axis = self.input(1), self._axis
        return bool(
            indices.data is not None
            and indices.elements == self.input(0).shape[axis] == 1
            and not indices.data.any()
        )

    def keep_axis(self, axis: int) -> Op | None:
        if axis != self._axis or not self._takes_all:
            return None
        x = self.input(0)
        return copy_op(self.op, x, replace(self.output, shape=x.shape))

    def emit(self, g: Builder, y: View, x: View, indices: View, *_: View) -> Value:
        if self._batch:
            vectors = g.Unsqueeze(_widen_indices(g, indices), [indices.rank])
            return g.move("GatherND", x.dtype, x, vectors, batch_dims=self._batch)
        vectors = indices.value if indices.dtype is DType.INT32 else _widen_indices(g, indices)
        axis = x.axis(self._axis)
        return g.move("Gather", x.dtype, x, vectors, axis=axis)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return None if self._batch else [inputs[0].take(inputs[1], self._axis)]


class GatherNd(Movement, IndexesTogether):
    """GATHER_ND: the last axis of the indices holds indices of the first axes of the data.

    `batch_dims`, an option of this package, is the number of first axes that data and indices have
    in common: each sample has its own indices.
    """

    codes = ("GATHER_ND",)
    operands = "T, any -> T"

    @property
    def _batch(self) -> int:
        return int(self.options.get("batch_dims") or 0)

    @cached_property
    def _depth(self) -> int:
        """The number of axes of the data that an index has an element for."""
        x, indices = self.input(0), self.input(1)
        # The kernel rejects an empty index.
        if not indices.rank or indices.shape[-1] not in range(1, x.rank - self._batch + 1):
            raise OperatorError(
                f"the last axis of {indices.name} must have 1 to {x.rank} elements, "
                f"got the shape {list(indices.shape)}"
            )
        return indices.shape[-1]

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, indices = self.input(0), self.input(1)
        return [(*indices.shape[:-1], *x.shape[self._batch + self._depth :])]

    def check(self) -> None:
        x, indices = self.input(0), self.input(1)
        expect_indices(indices, x.shape[self._batch :][: self._depth])

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        count = self._batch + self._depth
        rest = names[count:]
        data, index_axes = count * ("index",), (self.input(1).rank - 1) * ("index",)
        slots = {0: (*data, *rest), ~0: (*index_axes, *rest)}
        return [Frame(slots, ("index", *rest), legal=lambda label: label[0] == "index")]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return (-1,) if operand else range(self._batch, self._batch + self._depth)

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        return axis if axis < self._batch else None

    def add_leading_axis(self) -> Wider | None:
        return self.op.with_options(batch_dims=self._batch + 1), (0, 1)

    def emit(self, g: Builder, y: View, x: View, indices: View, *_: View) -> Value:
        vectors = _widen_indices(g, indices)
        if self._depth == 1 and not self._batch and vectors.data is not None:
            # More runtimes compute Gather right than GatherND of one index each. Computed indices
            # would need a node more.
            rows = g.Squeeze(vectors, [indices.rank - 1])
            return g.move("Gather", x.dtype, x, rows, axis=0)
        return g.move("GatherND", x.dtype, x, vectors, batch_dims=self._batch or None)
