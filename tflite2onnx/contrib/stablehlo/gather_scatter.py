"""STABLEHLO_GATHER and STABLEHLO_SCATTER: windows of a tensor at indices.

An index is a vector along one axis of the indices, with an element for each indexed axis of the
tensor. The indexed axes are transposed to the front of the tensor. ONNX's nodes then process the
elements of a window one by one, and whole rows of the other axes.
"""

from collections.abc import Collection, Sequence
from functools import cached_property
from math import prod

import numpy as np

from tflite2onnx.contrib.stablehlo.resolve_computations import OF_BOOLS, ComputationOptions
from tflite2onnx.operators import (
    Builder,
    DType,
    DynamicShape,
    Moves,
    NeedsReshape,
    Operator,
    OperatorError,
    OutputShape,
    Shape,
    Value,
    View,
    check_element_count,
    expect_rank,
    is_quantized,
)

_REDUCTIONS = ("add", "mul", "max", "min")
# Bools are reduced as integers. Cast turns every integer but 0 into true.
_OF_INTEGERS = {"or": "add", "and": "mul"}


class _Indexed(Operator):
    """Base of STABLEHLO_GATHER and STABLEHLO_SCATTER, which reads the index vectors."""

    quantization = Moves()

    @cached_property
    def _batches(self) -> Shape:
        """The shape of the indices without the axis of the index vectors."""
        return tuple(self.input(1).shape[axis] for axis in self._batch_axes)

    @property
    def _batch_axes(self) -> list[int]:
        return [axis for axis in range(self.input(1).rank) if axis != self._vector_axis]

    @property
    def _vector_axis(self) -> int:
        rank, axis = self.input(1).rank, int(self.options.index_vector_dim)
        if not 0 <= axis < rank:
            raise OperatorError(f"index_vector_dim must be from 0 to {rank - 1}, got {axis}")
        return axis

    def _read_distinct_axes(self, name: str, rank: int) -> list[int]:
        """Return an option that is a list of different axes of a tensor of this rank."""
        axes = [int(axis) for axis in self.options.get(name) or ()]
        if len({*axes}) != len(axes) or any(not 0 <= axis < rank for axis in axes):
            raise OperatorError(f"{name} must be different axes from 0 to {rank - 1}, got {axes}")
        return axes

    def _find_indexed_axes(self, name: str) -> list[int]:
        """Return the axis of the data for each element of an index vector, from an option."""
        axes = self._read_distinct_axes(name, self.input(0).rank)
        count = self.input(1).shape[self._vector_axis]
        if len(axes) != count or not self.input(0).rank:
            raise OperatorError(
                f"{name} must list {count} axes, one for each number of an index, got {axes}"
            )
        # ONNX's nodes require at least one axis; the indices of axis 0 are 0 then.
        return axes or [0]

    @property
    def _sizes(self) -> Sequence[int]:
        """The size of a window along each axis of the data."""
        raise NotImplementedError

    def _order_vectors(self, g: Builder, indices: View) -> Value:
        """Return int64 indices with the vector axis last."""
        vector_axis = self._vector_axis
        if not indices.shape[vector_axis]:
            # The file holds no indices, so its size does not limit the number of windows.
            check_element_count(prod(self._batches) * prod(self._sizes))
            return g.constant(np.zeros((*self._batches, 1), np.int64))
        value = g.recast(indices, indices.dtype, DType.INT64)
        return _transpose_to(g, value, [*self._batch_axes, vector_axis])


def _expand_windows(g: Builder, vectors: Value, batches: Shape, sizes: Shape) -> Value:
    """Return the index vectors of all elements of each window, with an axis for each size."""
    if prod(sizes) == 1:
        return vectors
    check_element_count(prod(sizes) * len(sizes))
    grid = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).astype(np.int64)
    starts = g.reshape(vectors, (*batches, *len(sizes) * (1,), len(sizes)))
    if starts.data is None:
        return g.Add(starts, grid)
    check_element_count(prod(batches) * grid.size)
    return g.constant(starts.data + grid)


def _move_to_front(axes: Sequence[int], rank: int) -> list[int]:
    return [*axes, *(axis for axis in range(rank) if axis not in axes)]


class StablehloGather(_Indexed, DynamicShape):
    """STABLEHLO_GATHER: windows that begin at index vectors, clamped so that windows fit.

    The axes of a window are the axes `offset_dims` of the result. Collapsed axes, which have one
    element, are left out.
    """

    codes = ("STABLEHLO_GATHER",)
    operands = "T, index -> T"

    @cached_property
    def _sizes(self) -> list[int]:
        """The size of a window along each axis of the data."""
        shape, sizes = self.input(0).shape, [int(n) for n in self.options.slice_sizes or ()]
        fits = len(sizes) == len(shape) and all(
            0 < size <= whole for size, whole in zip(sizes, shape, strict=True)
        )
        if not fits:
            raise OperatorError(
                f"slice_sizes must be positive and fit into {list(shape)}, got {sizes}"
            )
        return sizes

    @cached_property
    def _collapsed_axes(self) -> list[int]:
        axes = self._read_distinct_axes("collapsed_slice_dims", self.input(0).rank)
        if any(self._sizes[axis] != 1 for axis in axes):
            raise OperatorError(
                f"collapsed_slice_dims must be axes of size 1 of the slice sizes {self._sizes}, "
                f"got {axes}"
            )
        return axes

    @cached_property
    def _result_axes(self) -> list[tuple[str, int]]:
        """The axes of the result: ("data", axis of the data) or ("batch", batch axis)."""
        window = [axis for axis in range(self.input(0).rank) if axis not in self._collapsed_axes]
        rank = len(window) + len(self._batches)
        offsets = self._read_distinct_axes("offset_dims", rank)
        if len(offsets) != len(window) or sorted(offsets) != offsets:
            raise OperatorError(
                f"offset_dims must be {len(window)} axes in ascending order, got {offsets}"
            )
        data, batch = iter(window), iter(range(len(self._batches)))
        return [
            ("data", next(data)) if axis in offsets else ("batch", next(batch))
            for axis in range(rank)
        ]

    def infer_outputs(self) -> Sequence[OutputShape]:
        sizes = {"data": self._sizes, "batch": self._batches}
        shape = [sizes[kind][axis] for kind, axis in self._result_axes]
        expect_rank(self.output, len(shape))  # the kernel reads the declared rank
        return [shape]

    def check(self) -> None:
        self._find_indexed_axes("start_index_map")

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        indexed = self._find_indexed_axes("start_index_map")
        if any(self._sizes[number] > 1 for number in indexed) or not self.input(1).elements:
            return False
        if operand < 0:
            return self._result_axes[axis][0] == "batch"
        return operand == 1 and axis != self._vector_axis

    def emit(self, g: Builder, y: View, x: View, indices: View) -> Value | NeedsReshape:
        indexed, sizes = self._find_indexed_axes("start_index_map"), self._sizes
        vectors = self._clamp_starts(g, self._order_vectors(g, indices), x.shape)
        batches = [("batch", axis) for axis in range(len(self._batches))]
        data = self._drop_unreached(g, x, indexed)
        if len(indexed) == 1 and sizes[indexed[0]] == 1:
            (axis,) = indexed
            starts = g.Squeeze(vectors, [-1])
            gathered = g.move("Gather", x.dtype, data, starts, axis=axis)
            rest = [("data", other) for other in range(x.rank)]
            return self._arrange_axes(g, y, gathered, [*rest[:axis], *batches, *rest[axis + 1 :]])
        window = tuple(sizes[axis] for axis in indexed)
        starts = _expand_windows(g, vectors, self._batches, window)
        order = _move_to_front(indexed, x.rank)
        source = _transpose_to(g, data, order)
        gathered = g.move("GatherND", x.dtype, source, starts)
        window_axes = [("data", axis) for axis in indexed] if prod(window) > 1 else []
        rest = [("data", axis) for axis in order[len(indexed) :]]
        return self._arrange_axes(g, y, gathered, [*batches, *window_axes, *rest])

    def _clamp_starts(self, g: Builder, vectors: Value, shape: Shape) -> Value:
        indexed = self._find_indexed_axes("start_index_map")
        last = np.array([shape[axis] - self._sizes[axis] for axis in indexed])
        return g.clamp_int64(vectors, 0, last)

    def _drop_unreached(self, g: Builder, x: View, indexed: Collection[int]) -> Value:
        """Return the data cut to the windows along axes without indices: windows begin at 0."""
        axes = [a for a, size in enumerate(self._sizes) if a not in indexed and size < x.shape[a]]
        if not axes:
            return x.value
        last = [self._sizes[axis] for axis in axes]
        return g.move("Slice", x.dtype, x, [0] * len(axes), last, axes)

    def _arrange_axes(
        self, g: Builder, y: View, value: Value, axes: Sequence[tuple[str, int]]
    ) -> Value | NeedsReshape:
        """Return a value with its axes in the order of the result; all other axes have size 1."""
        order = [axes.index(axis) for axis in self._result_axes if axis in axes]
        order += [place for place, axis in enumerate(axes) if axis not in self._result_axes]
        value = _transpose_to(g, value, order)
        return value if [axes[i] for i in order] == self._result_axes else NeedsReshape(value)


class StablehloScatter(_Indexed):
    """STABLEHLO_SCATTER: updates windows that begin at index vectors.

    Elements of a window that are outside of the tensor are dropped. A subgraph is the reduction of
    an element and its update. Without a reduction, the last update of an element is used.
    """

    codes = ("STABLEHLO_SCATTER",)
    operands = "T:bool|integers|float16|float32|float64 [...], index, T -> T [...]"

    @cached_property
    def _window_axes(self) -> list[int]:
        """The axes of the updates that are axes of the windows."""
        return self._read_distinct_axes("update_window_dims", self.input(2).rank)

    @cached_property
    def _sizes(self) -> list[int]:
        """The size of a window along each axis of the data."""
        x, updates = self.input(0), self.input(2)
        inserted = self._read_distinct_axes("inserted_window_dims", x.rank)
        if len(inserted) + len(self._window_axes) != x.rank:
            raise OperatorError(
                f"update_window_dims and inserted_window_dims must be {x.rank} axes together, "
                f"got {len(self._window_axes)} and {len(inserted)}"
            )
        sizes = iter(updates.shape[axis] for axis in self._window_axes)
        return [1 if axis in inserted else next(sizes) for axis in range(x.rank)]

    @cached_property
    def _indexed_axes(self) -> list[int]:
        """The axes of the data that have indices; windows span all other axes."""
        shape = self.input(0).shape
        indexed = self._find_indexed_axes("scatter_dims_to_operand_dims")
        partial = [axis for axis, size in enumerate(self._sizes) if size != shape[axis]]
        return [*indexed, *(axis for axis in partial if axis not in indexed)]

    @property
    def _reduction(self) -> str | None:
        made = self.op.read_made(ComputationOptions)
        if made.computation != "" and made.reduction not in _REDUCTIONS:
            raise OperatorError(
                f"its update computation must be one of {', '.join(_REDUCTIONS)}, or return the"
                f" update, got {made.computation or 'a missing subgraph'}"
            )
        return made.reduction or None

    def check(self) -> None:
        x, updates = self.input(0), self.input(2)
        batches = [size for axis, size in enumerate(updates.shape) if axis not in self._window_axes]
        _ = self._indexed_axes  # the property raises OperatorError
        if tuple(batches) != self._batches:
            raise OperatorError(
                f"updates must have the batch axes of the indices, {list(self._batches)}, "
                f"got {batches}"
            )
        if self._reduction and is_quantized(x):
            raise OperatorError(f"{x.name} must not be quantized if updates are reduced")

    def emit(self, g: Builder, y: View, x: View, indices: View, updates: View) -> Value:
        if not updates.tensor.elements or not x.tensor.elements:
            return x.value
        order = _move_to_front(self._indexed_axes, x.rank)
        dtype, reduction = self._find_reduction_type(x.dtype)
        indexed = [x.shape[axis] for axis in self._indexed_axes]
        whole = [x.shape[axis] for axis in order[len(indexed) :]]
        window = tuple(self._sizes[axis] for axis in self._indexed_axes)
        places, is_inside = self._find_rows(g, self._order_vectors(g, indices), indexed, window)
        ordered = _transpose_to(g, g.recast(x, x.dtype, dtype), order)
        rows = g.reshape(ordered, [prod(indexed), *whole])
        if not is_inside:  # an additional row receives the elements that are dropped
            zeros = [0] * len(whole)
            rows = g.pad(dtype, rows, [0, *zeros, 1, *zeros], g.scalar(0, dtype))
        new = self._order_updates(g, g.recast(updates, x.dtype, dtype), order)
        windows = window if prod(window) > 1 else ()
        new = g.reshape(new, [*self._batches, *windows, *whole])
        output = g.scatter_nd(rows, places, new, reduction)
        if not is_inside:
            output = g.move("Slice", dtype, output, [0], [prod(indexed)], [0])
        output = g.reshape(output, [*indexed, *whole])
        return g.recast(_transpose_to(g, output, np.argsort(order).tolist()), dtype, x.dtype)

    def _find_reduction_type(self, dtype: DType) -> tuple[DType, str | None]:
        """Return the type in which runtimes reduce, and the reduction."""
        reduction = self._reduction
        if dtype is DType.BOOL and reduction:
            return DType.INT32, _OF_INTEGERS[OF_BOOLS[reduction]]
        return DType.FLOAT32 if dtype is DType.FLOAT16 and reduction else dtype, reduction

    def _find_rows(
        self, g: Builder, vectors: Value, sizes: Sequence[int], window: Shape
    ) -> tuple[Value, bool]:
        """Return the row of each element, [..., 1], and whether all rows are known to be inside."""
        count = len(self._find_indexed_axes("scatter_dims_to_operand_dims"))
        count_of_rest = len(sizes) - count  # every window begins at 0 along the remaining axes
        if count_of_rest:
            rank = len(self._batches) + 1
            vectors = g.Pad(vectors, [0] * (2 * rank - 1) + [count_of_rest], 0)
        places = _expand_windows(g, vectors, self._batches, window)
        bounds = np.array(sizes, np.int64)
        steps = np.array([prod(sizes[i + 1 :]) for i in range(len(sizes))], np.int64)
        are_inside = g.And(g.GreaterOrEqual(places, 0), g.Less(places, bounds))
        inside = g.reduce("ReduceMin", g.cast(are_inside, DType.INT32), [-1], keepdims=True)
        row = g.reduce("ReduceSum", g.Mul(places, steps), [-1], keepdims=True)
        is_inside = inside.data is not None and bool(inside.data.all())
        return g.Where(g.cast(inside, DType.BOOL), row, prod(sizes)), is_inside

    def _order_updates(self, g: Builder, updates: Value, order: Sequence[int]) -> Value:
        """Return updates with the batches first, then the window axes in this order."""
        inserted = self._read_distinct_axes("inserted_window_dims", len(order))
        window = [axis for axis in range(len(order)) if axis not in inserted]
        place = dict(zip(window, self._window_axes, strict=True))
        batches = [a for a in range(self.input(2).rank) if a not in self._window_axes]
        windows = (place[axis] for axis in order if axis in place)
        return _transpose_to(g, updates, [*batches, *windows])


def _transpose_to(g: Builder, x: Value, order: Sequence[int]) -> Value:
    return x if list(order) == sorted(order) else g.Transpose(x, perm=list(order))
