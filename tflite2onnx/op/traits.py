"""Traits: hooks that only some operators have. Callers test for a trait with `isinstance`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from tflite2onnx.graph import Op
from tflite2onnx.made_options import MadeOptions
from tflite2onnx.op.base import Category, Operator
from tflite2onnx.op.common.leading_axis import Wider
from tflite2onnx.quantization.declarations import Moves, list_operands
from tflite2onnx.tensor import Array, Shape, Tensor
from tflite2onnx.utils.dimension import Dim


class MisreadInputs(Operator):
    """An operator of which LiteRT's kernel misreads constants.

    Verification compares it with LiteRT's result for constants that the kernel reads as they are
    meant.
    """

    @property
    def readable_inputs(self) -> Mapping[int, Tensor]:
        """The constants that the kernel misreads, in a form that it reads as they are meant."""
        raise NotImplementedError


class DynamicShape(Operator):
    """An operator whose operands may have dynamic axes, or whose output shapes depend on data.

    Attributes:
        dynamic_axes: the letters of the axes that may be dynamic, or "..." for all axes. The nodes
            that `emit` adds do not depend on the sizes of these axes. See `supports_dynamic_axis`.
        matrix_axes: the number of last axes of the first input that may not be dynamic; earlier
            axes may be.
        shape_inputs: the inputs whose elements determine the shapes of the outputs.
        sizes_input: the input that lists the sizes of the output.
    """

    dynamic_axes: ClassVar[str] = ""
    matrix_axes: ClassVar[int] = 0
    shape_inputs: ClassVar[tuple[int, ...]] = ()
    sizes_input: ClassVar[int | None] = None

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        """Return whether the nodes that `emit` adds are valid for any size of an operand's axis."""
        if self.dynamic_axes == "...":
            return True
        if self.matrix_axes:
            return axis < self.input(0).rank - self.matrix_axes
        letters = self.read_letters(operand)
        return bool(letters) and letters[axis] in self.dynamic_axes

    @property
    def has_data_dependent_shape(self) -> bool:
        """Whether the shapes of the outputs depend on elements that are computed at run time."""
        tensors = [t for i, t in enumerate(self.op.inputs) if i in self.shape_inputs]
        return not all(t is None or t.is_constant for t in tensors)

    def find_listed_sizes(self) -> int | None:
        """Return the input whose elements are the sizes of the output, None if there is none."""
        return self.sizes_input

    def find_least_sizes(self) -> Mapping[int, int]:
        """Return the least sizes of axes of the first input, where runtimes do not check them."""
        return {}

    def compute_dimension_options(self) -> MadeOptions | None:
        """Return options for `emit` that follow from the dimensions of the operands, if any do.

        It is called once, while sizes are dimensions. In `emit` sizes are numbers and names.
        """
        return None


class AnySizes(DynamicShape):
    """An operator whose nodes are valid for any sizes of all axes."""

    dynamic_axes = "..."


class ComputesMatrices(DynamicShape):
    """An operator that computes with each matrix of the last axes alone."""

    @property
    def batch_axes(self) -> int:
        """The number of axes before those of a matrix."""
        return self.input(0).rank - self.matrix_axes

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        x = self.op.operand(operand)
        return range(self.batch_axes, x.rank) if self._counts_matrices(operand) else None

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        return axis if axis < self.batch_axes and self._counts_matrices(other) else None

    def _counts_matrices(self, operand: int) -> bool:
        """Return whether the first axes of an operand are those that count matrices."""
        x, count = list_operands(self.op)[operand], self.batch_axes
        is_matrix = operand < 0 or x.rank > count
        return is_matrix and x.shape[:count] == self.input(0).shape[:count]


class Movement(AnySizes):
    """An operator that only moves stored elements."""

    quantization = Moves()


class Pointwise(AnySizes):
    """An operator that computes each element of its first input on its own."""

    category = Category.TRANSPARENT
    tflite = "... -> ..."
    keeps_shape = True


class MadeOperator(Operator):
    """An operator that no file has: passes or the forms of a target make it."""


class ReshapesInputs(Operator):
    """An operator some of whose inputs are reshaped before the plan."""

    def broadcast_shapes(self) -> Sequence[Shape | None]:
        """Return the shape to which each input is reshaped, or None."""
        raise NotImplementedError


class Broadcasts(ReshapesInputs):
    """An operator whose inputs of lower rank are aligned with the output as in NumPy."""

    def broadcast_shapes(self) -> Sequence[Shape | None]:
        rank = max((t.rank for t in list_operands(self.op).values()), default=0)
        return [None if t is None else (1,) * (rank - t.rank) + t.shape for t in self.op.inputs]

    def add_leading_axis(self) -> Wider | None:
        return self.op, [i for i, t in enumerate(self.op.inputs) if t is not None]


class Foldable(Operator):
    """An operator that the converter can compute itself, if its inputs are constant.

    Attributes:
        joins_elements: the output is a vector of the elements of all inputs in sequence.
        evaluates_dimensions: `evaluate` also supports arrays of objects that contain dimensions
            (see `dimension`).
    """

    joins_elements: ClassVar[bool] = False
    evaluates_dimensions: ClassVar[bool] = False

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        """Return the outputs for constant inputs, None if the class cannot compute them."""
        raise NotImplementedError


class TakesRanges(Operator):
    """An operator that takes a range of indices along each axis of its first input."""

    @property
    def ranges(self) -> Sequence[range] | None:
        """The indices along each axis of the first input, None if they are computed."""
        raise NotImplementedError


class IndexesAxes(Operator):
    """An operator that takes a part of an axis, and may drop the axis."""

    def keep_axis(self, axis: int) -> Op | None:
        """Return the operator with the whole of an axis of its data, which stays in the output.

        If the output lacked the axis, the operator gets another output. Returns None if the
        operator takes and keeps the whole axis already.
        """
        raise NotImplementedError


class IndexesTogether(Operator):
    """An operator that computes along several axes of its first input together.

    Samples in one of these axes are not independent of the other axes, even if its size is 1.
    """


class FlattensRows(Operator):
    """An operator whose kernel may reshape its first input to a matrix."""

    @property
    def row_size(self) -> int | None:
        """The row size of the matrix to which the kernel reshapes input 0, None if it does not."""
        raise NotImplementedError


class MovesSamples(Operator):
    """An operator that moves elements between the batch axis and other axes."""

    def count_before_samples(self, outer: Dim) -> Dim | None:
        """Return how many elements come before the samples in the batch axis of the outputs.

        `outer` is the number of elements before the samples in the batch axis of the inputs. None:
        the samples of the outputs are not together.
        """
        raise NotImplementedError


class HasInternalState(Operator):
    """A custom operator whose kernel keeps data from one run to the next."""

    def internal_state(self) -> Sequence[Tensor]:
        """Return the data that the kernel keeps from one run to the next.

        Each tensor has the shape, the type, a name, and the initial value as `data` (0 if None).
        `emit` receives these tensors after the inputs, and (`returns_tuple`) returns their next
        values after the outputs. The hook is called once, before the operator has these inputs.
        """
        raise NotImplementedError

    @property
    def may_end_run(self) -> bool:
        """Whether the kernel may end the whole run without an error.

        `emit` then returns, after its outputs and before the next states, whether the run goes on:
        a bool [1]. If the run ends, no state that is written after this operator changes.
        """
        return False


class RunsSubgraphs(Operator):
    """Control flow: an operator that runs sub-graphs."""

    def infer_subgraph_inputs(self) -> Sequence[Sequence[Shape]]:
        """Return the shapes of the inputs of each sub-graph; declared shapes are ignored."""
        return self.op.subgraph_input_shapes

    def find_varying_sizes(self) -> Iterable[tuple[int, int, int]]:
        """Return the sizes that change between iterations: (sub-graph, input, axis)."""
        return ()

    def fold_branch(self) -> Sequence[Op] | None:
        """Return the operators that replace it if the branch is known, else None."""
        raise NotImplementedError


TRAITS = (
    *(DynamicShape, Foldable, HasInternalState, IndexesAxes, ReshapesInputs, RunsSubgraphs),
    TakesRanges,
)
