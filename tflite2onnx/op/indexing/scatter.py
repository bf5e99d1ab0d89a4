"""SCATTER_ND and SPARSE_TO_DENSE: elements are written to indices."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import (
    expect,
    expect_indices,
    expect_list,
    ints,
    read_shape,
)
from tflite2onnx.op.traits import AnySizes, Foldable, Movement
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array, DType, Shape
from tflite2onnx.utils.dimension import is_known, require_equal, require_number

# Element types that ScatterND of runtimes does not add, and the type of their sums. Cast wraps the
# sums around.
_WIDE = {DType.INT8: DType.INT32, DType.UINT8: DType.INT32, DType.BOOL: DType.INT32}


class ScatterNd(AnySizes):
    """SCATTER_ND: the sums of updates at their indices, in a tensor that is 0 elsewhere.

    The kernel adds stored integers to the stored integer 0, whatever the scale and zero point are.
    """

    codes = ("SCATTER_ND",)
    quantization = Integers(in_file_types=True)
    shape_inputs = (2,)
    operands = "int32, T:float32|uint8|int8|int32|int64|bool, any -> T"

    def infer_outputs(self) -> Sequence[OutputShape]:
        indices, updates, shape = self.input(0), self.input(1), read_shape(self, 2)
        if indices.rank and is_known(indices.shape[-1]):
            rest = shape[indices.shape[-1] :]
            for size, other in zip(updates.shape, (*indices.shape[:-1], *rest), strict=False):
                if not isinstance(other, Unknown):
                    require_equal(size, other, f"{updates.name} must have an update for each index")
        return [shape]

    def check(self) -> None:
        indices, updates = self.input(0), self.input(1)
        if self.has_data_dependent_shape:
            expect_list(self, 2, self.input(2).elements)
            return
        shape = ints(self, 2)
        if not indices.rank or not 0 < indices.shape[-1] <= len(shape):
            raise OperatorError(
                f"the last axis of {indices.name} must have 1 to {len(shape)} elements, "
                f"got the shape {list(indices.shape)}"
            )
        depth = indices.shape[-1]
        expect(updates, (*indices.shape[:-1], *shape[depth:]), updates.dtype)
        expect_indices(indices, shape[:depth])

    def emit(self, g: Builder, y: View, indices: View, updates: View, shape: View) -> Value:
        dtype = _WIDE.get(y.dtype, y.dtype)
        # The zeros are computed: as a constant, a few bytes of a file could declare a shape of any
        # size.
        zeros = g.Expand(g.scalar(0, dtype), g.as_int64_list(shape))
        vectors = g.cast(indices, DType.INT64)
        output = g.scatter_nd(zeros, vectors, g.recast(updates, y.dtype, dtype), "add")
        return g.recast(output, dtype, y.dtype)


class SparseToDense(Movement, Foldable):
    """SPARSE_TO_DENSE: values at their indices, a default value elsewhere.

    An index is a row of the indices, or a single number if the output has one axis. The last value
    of equal indices is used.
    """

    codes = ("SPARSE_TO_DENSE",)
    shape_inputs = (1,)
    operands = "index, any, T:float32|int32|int64|int8|uint8, T [1*] -> T"

    @cached_property
    def _index_shape(self) -> Shape:
        """The shape of the indices as a matrix with a row for each value."""
        indices, rank = self.input(0), self.output.rank
        shape = indices.shape if indices.rank == 2 else (indices.elements, 1)
        if indices.rank > 2 or shape[1] != rank:
            raise OperatorError(
                f"{indices.name} must have a row of {rank} elements for each value, "
                f"got the shape {list(indices.shape)}"
            )
        return shape

    def infer_outputs(self) -> Sequence[OutputShape]:
        indices, values, shape = self.input(0), self.input(2), read_shape(self, 1)
        if indices.rank == 2:
            message = f"{indices.name} must have an index for each of {len(shape)} axes"
            require_number(indices.shape[1], len(shape), message)
        if indices.rank and values.rank:
            message = f"{values.name} must have a value for each index"
            require_equal(indices.shape[0], values.shape[0], message)
        return [shape]

    def check(self) -> None:
        values = self.input(2)
        if self.has_data_dependent_shape:
            expect_list(self, 1, self.input(1).elements)
        expect(values, self._index_shape[:1] if values.rank else (), values.dtype)
        if not self.has_data_dependent_shape:
            expect_indices(self.input(0), self.output.shape)

    def emit(
        self, g: Builder, y: View, indices: View, shape: View, values: View, default: View
    ) -> Value:
        vectors = g.reshape(indices, [-1, self._index_shape[1]])
        vectors = g.recast(vectors, indices.dtype, DType.INT64)
        count = g.runtime_shape(indices.sizes[:1], indices) if indices.rank else g.ints([1])
        updates = values.value if values.rank else g.Expand(values, count)
        background = g.Expand(default.reshape(()), g.as_int64_list(shape))
        return g.scatter_nd(background, vectors, updates)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        indices, shape, values, default = inputs
        dense = np.full(shape.reshape(-1), default.reshape(()), values.dtype)
        dense[tuple(indices.reshape(self._index_shape).T)] = values
        return [dense]
