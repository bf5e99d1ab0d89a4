"""STABLEHLO_GATHER and STABLEHLO_SCATTER: windows of a tensor, at places that an index says.

Both look at an index as a vector: an axis of the indices, whose elements are about some axes of
the tensor. The tensor is laid out with these in front; ONNX's nodes then take one place after
another, and whole rows of what is behind.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from math import prod

import numpy as np

from tflite2onnx.builder.builder import NeedsReshape, Operand
from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, expect_type
from tflite2onnx.op.movement.pad import pad_axes
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.quantize import is_quantized
from tflite2onnx.tensor import Array, DType, Shape

_INDICES = (DType.INT32, DType.INT64)
_SCATTERED = (
    DType.FLOAT16,
    DType.FLOAT32,
    DType.FLOAT64,
    DType.INT8,
    DType.INT16,
    DType.INT32,
    DType.INT64,
    DType.UINT8,
    DType.UINT16,
    DType.UINT32,
    DType.UINT64,
    DType.BOOL,
)
_REDUCTIONS = {
    "": None,
    "STABLEHLO_ADD": "add",
    "STABLEHLO_MULTIPLY": "mul",
    "STABLEHLO_MAXIMUM": "max",
    "STABLEHLO_MINIMUM": "min",
}
# Bools are added up as numbers, which come back as whether they are not 0.
_OF_BOOLS = {"max": "add", "min": "mul"}


class _Indexed(Operator):
    """What both share."""

    category = Category.TERMINATE
    moves_only = True

    @cached_property
    def _batches(self) -> Shape:
        """The shape of the indices without the axis of the index vectors."""
        shape, at = self.input(1).shape, self._vector_axis
        return (*shape[:at], *shape[at + 1 :])

    @property
    def _vector_axis(self) -> int:
        rank, at = self.input(1).rank, int(self.options.index_vector_dim)
        if not 0 <= at < rank:
            raise OperatorError(f"index vectors along axis {at} of {rank}")
        return at

    def _distinct_axes(self, name: str, rank: int) -> list[int]:
        """Return an option that lists axes of which there are `rank`."""
        axes = [int(axis) for axis in self.options.get(name) or ()]
        if len({*axes}) != len(axes) or any(not 0 <= axis < rank for axis in axes):
            raise OperatorError(f"{name} {axes} of {rank} axes")
        return axes

    def _about(self, name: str) -> list[int]:
        """Return the axes that the elements of an index vector are about."""
        axes = self._distinct_axes(name, self.input(0).rank)
        count = self.input(1).shape[self._vector_axis]
        if len(axes) != count or not self.input(0).rank:
            raise OperatorError(f"index vectors of {count} elements are about the axes {axes}")
        return axes or [0]  # ONNX's nodes want at least one, along which all begins at 0 then

    def _vectors(self, g: Builder, indices: View) -> Value | Array:
        """Return int64 indices whose last axis is the vectors; elements where they are constant."""
        at, rank = self._vector_axis, indices.rank
        order = [*(axis for axis in range(rank) if axis != at), at]
        if not indices.shape[at]:
            check_element_count(prod(self._batches))
            return np.zeros((*self._batches, 1), np.int64)
        if indices.tensor.data is not None:
            return indices.constant.transpose(order).astype(np.int64)
        value = g.recast(indices, indices.dtype, DType.INT64)
        return value if at == rank - 1 else g.Transpose(value, perm=order)


def _expand_windows(
    g: Builder, vectors: Value | Array, batches: Shape, sizes: Shape
) -> Value | Array:
    """Return for each vector those of all elements of its window, on an axis for each size."""
    if prod(sizes) == 1:
        return vectors
    check_element_count(prod(sizes) * len(sizes))
    grid = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).astype(np.int64)
    apart = (*batches, *len(sizes) * (1,), len(sizes))
    if isinstance(vectors, np.ndarray):
        return vectors.reshape(apart) + grid
    return g.Add(g.reshape(vectors, apart), grid)


def _move_to_front(axes: Sequence[int], rank: int) -> list[int]:
    """Return all axes, these in front."""
    return [*axes, *(axis for axis in range(rank) if axis not in axes)]


class StablehloGather(_Indexed, DynamicShape):
    """STABLEHLO_GATHER: windows that begin where index vectors say, moved to lie inside.

    The axes of a window take the places `offset_dims` of the result, without those that are
    collapsed, which have one element.
    """

    codes = ("STABLEHLO_GATHER",)

    @cached_property
    def _sizes(self) -> list[int]:
        """The size of a window along each axis of the data."""
        shape, sizes = self.input(0).shape, [int(n) for n in self.options.slice_sizes or ()]
        fitting = len(sizes) == len(shape) and all(
            0 < size <= whole for size, whole in zip(sizes, shape, strict=True)
        )
        if not fitting:
            raise OperatorError(f"windows of {sizes} in {list(shape)}")
        return sizes

    @cached_property
    def _collapsed_axes(self) -> list[int]:
        axes = self._distinct_axes("collapsed_slice_dims", self.input(0).rank)
        if any(self._sizes[axis] != 1 for axis in axes):
            raise OperatorError(f"the axes {axes} of windows of {self._sizes} cannot collapse")
        return axes

    @cached_property
    def _result_axes(self) -> list[tuple[str, int]]:
        """The axes of the result: of the data, or batches."""
        left = [axis for axis in range(self.input(0).rank) if axis not in self._collapsed_axes]
        rank = len(left) + len(self._batches)
        places = self._distinct_axes("offset_dims", rank)
        if len(places) != len(left) or sorted(places) != places:
            raise OperatorError(f"windows of {len(left)} axes at the places {places}")
        data, batch = iter(left), iter(range(len(self._batches)))
        return [
            ("data", next(data)) if place in places else ("batch", next(batch))
            for place in range(rank)
        ]

    def check(self) -> None:
        x = self.input(0)
        expect_type(self.input(1), _INDICES)
        self._about("start_index_map")
        sizes = {"data": self._sizes, "batch": self._batches}
        expect(self.output, [sizes[kind][axis] for kind, axis in self._result_axes], x.dtype)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        about = self._about("start_index_map")
        if any(self._sizes[each] > 1 for each in about) or not self.input(1).elements:
            return False
        if operand < 0:
            return self._result_axes[axis][0] == "batch"
        return operand == 1 and axis != self._vector_axis

    def emit(self, g: Builder, y: View, x: View, indices: View) -> Value | NeedsReshape:
        about, sizes = self._about("start_index_map"), self._sizes
        vectors = self._clamp_starts(g, self._vectors(g, indices), x.shape)
        batches = [("batch", axis) for axis in range(len(self._batches))]
        data = self._slice_unreached(g, x, about)
        if len(about) == 1 and sizes[about[0]] == 1:
            (axis,) = about
            where: Operand
            if isinstance(vectors, np.ndarray):
                where = vectors[..., 0]
            else:
                where = g.Squeeze(vectors, g.ints([-1]))
            made = g.with_compute_type(
                "Gather", x.dtype, lambda v: g.Gather(v, where, axis=axis), data
            )
            rest = [("data", other) for other in range(x.rank)]
            return self._arrange_axes(g, y, made, [*rest[:axis], *batches, *rest[axis + 1 :]])
        window = tuple(sizes[axis] for axis in about)
        where = _value(g, _expand_windows(g, vectors, self._batches, window))
        order = _move_to_front(about, x.rank)
        laid = data if order == sorted(order) else g.Transpose(data, perm=order)
        made = g.with_compute_type("GatherND", x.dtype, lambda v: g.GatherND(v, where), laid)
        of_window = [("data", axis) for axis in about] if prod(window) > 1 else []
        rest = [("data", axis) for axis in order[len(about) :]]
        return self._arrange_axes(g, y, made, [*batches, *of_window, *rest])

    def _clamp_starts(self, g: Builder, vectors: Value | Array, shape: Shape) -> Value | Array:
        last = np.array([shape[a] - self._sizes[a] for a in self._about("start_index_map")])
        if isinstance(vectors, np.ndarray):
            return vectors.clip(0, last)
        return g.clamp_int64(vectors, g.scalar(0, DType.INT64), last)

    def _slice_unreached(self, g: Builder, x: View, about: Collection[int]) -> Value:
        """Return the data without what no window reaches, as windows begin at 0 along most axes."""
        axes = [a for a, size in enumerate(self._sizes) if a not in about and size < x.shape[a]]
        if not axes:
            return x.value
        bounds = g.ints([0] * len(axes)), g.ints([self._sizes[axis] for axis in axes])
        return g.with_compute_type("Slice", x.dtype, lambda v: g.Slice(v, *bounds, g.ints(axes)), x)

    def _arrange_axes(
        self, g: Builder, y: View, made: Value, axes: Sequence[tuple[str, int]]
    ) -> Value | NeedsReshape:
        """Return what has these axes with those of the result; others have one element."""
        order = [axes.index(axis) for axis in self._result_axes if axis in axes]
        order += [place for place, axis in enumerate(axes) if axis not in self._result_axes]
        if order != sorted(order):
            made = g.Transpose(made, perm=order)
        return made if [axes[i] for i in order] == self._result_axes else NeedsReshape(made)


class StablehloScatter(_Indexed):
    """STABLEHLO_SCATTER: updates of windows that begin where index vectors say.

    The elements of a window that lie outside are left out. A sub-graph says what becomes of an
    element and its update; of several updates without any the last counts.
    """

    codes = ("STABLEHLO_SCATTER",)

    @cached_property
    def _window_axes(self) -> list[int]:
        """The axes of the updates that are axes of the windows."""
        return self._distinct_axes("update_window_dims", self.input(2).rank)

    @cached_property
    def _sizes(self) -> list[int]:
        """The size of a window along each axis of the data."""
        x, updates = self.input(0), self.input(2)
        inserted = self._distinct_axes("inserted_window_dims", x.rank)
        if len(inserted) + len(self._window_axes) != x.rank:
            raise OperatorError(
                f"windows of {len(self._window_axes)} axes and {len(inserted)} of {x.rank}"
            )
        sizes = iter(updates.shape[axis] for axis in self._window_axes)
        return [1 if axis in inserted else next(sizes) for axis in range(x.rank)]

    @cached_property
    def _indexed_axes(self) -> list[int]:
        """The axes of the data along which places are counted; rows of the others are whole."""
        shape, about = self.input(0).shape, self._about("scatter_dims_to_operand_dims")
        return [
            *about,
            *(
                axis
                for axis, size in enumerate(self._sizes)
                if axis not in about and size != shape[axis]
            ),
        ]

    @property
    def _reduction(self) -> str | None:
        computation = self.options.get("computation")
        if computation not in _REDUCTIONS:
            raise OperatorError(f"it updates by {computation or 'a sub-graph that is not there'}")
        return _REDUCTIONS[computation]

    def check(self) -> None:
        x, indices, updates = (self.input(i) for i in range(3))
        expect_type(indices, _INDICES)
        expect_type(x, _SCATTERED)
        expect(self.output, x.shape, x.dtype)
        batches = [size for axis, size in enumerate(updates.shape) if axis not in self._window_axes]
        expect(updates, updates.shape, x.dtype)
        _ = self._indexed_axes  # checks them
        if tuple(batches) != self._batches:
            raise OperatorError(f"updates of {batches} windows at {list(self._batches)} places")
        if self._reduction and is_quantized(x):
            raise OperatorError(f"{x.name} is quantized")

    def emit(self, g: Builder, y: View, x: View, indices: View, updates: View) -> Value:
        if not updates.tensor.elements or not x.tensor.elements:
            return x.value
        order = _move_to_front(self._indexed_axes, x.rank)
        dtype, reduction = self._reduction_type(x.dtype)
        counted = [x.shape[axis] for axis in self._indexed_axes]
        whole = [x.shape[axis] for axis in order[len(counted) :]]
        window = tuple(self._sizes[axis] for axis in self._indexed_axes)
        where, inside = self._rows(g, self._vectors(g, indices), counted, window)
        rows = g.reshape(
            _transpose_to(g, g.recast(x, x.dtype, dtype), order), [prod(counted), *whole]
        )
        if not inside:  # one row more, for what is left out
            none = [0] * len(whole)
            rows = pad_axes(g, rows, dtype, [0, *none], [1, *none], g.scalar(0, dtype))
        new = g.reshape(
            self._order_updates(g, g.recast(updates, x.dtype, dtype), order),
            [*self._batches, *(window if prod(window) > 1 else ()), *whole],
        )
        made = g.scatter_nd(rows, where, new, reduction)
        if not inside:
            made = g.with_compute_type(
                "Slice",
                dtype,
                lambda v: g.Slice(v, g.ints([0]), g.ints([prod(counted)]), g.ints([0])),
                made,
            )
        made = g.reshape(made, [*counted, *whole])
        return g.recast(_transpose_to(g, made, np.argsort(order).tolist()), dtype, x.dtype)

    def _reduction_type(self, dtype: DType) -> tuple[DType, str | None]:
        """Return the type in which ONNX Runtime reduces, and how."""
        reduction = self._reduction
        if dtype is DType.BOOL and reduction:
            return DType.INT32, _OF_BOOLS.get(reduction, reduction)
        return DType.FLOAT32 if dtype is DType.FLOAT16 and reduction else dtype, reduction

    def _rows(
        self, g: Builder, vectors: Value | Array, counted: Sequence[int], window: Shape
    ) -> tuple[Operand, bool]:
        """Return the row of each element, [..., 1], and whether all of them are inside."""
        about = len(self._about("scatter_dims_to_operand_dims"))
        more = len(counted) - about  # along these every window begins at 0
        if isinstance(vectors, np.ndarray):
            vectors = np.pad(vectors, [(0, 0)] * (vectors.ndim - 1) + [(0, more)])
        elif more:
            rank = len(self._batches) + 1
            pads = g.ints([0] * (2 * rank - 1) + [more])
            vectors = g.Pad(vectors, pads, g.scalar(0, DType.INT64))
        places = _expand_windows(g, vectors, self._batches, window)
        sizes = np.array(counted, np.int64)
        steps = np.array([prod(counted[i + 1 :]) for i in range(len(counted))], np.int64)
        if isinstance(places, np.ndarray):
            outside = ((places < 0) | (places >= sizes)).any(-1, keepdims=True)
            rows = np.where(outside, prod(counted), (places * steps).sum(-1, keepdims=True))
            return rows, not outside.any()
        zero = g.scalar(0, DType.INT64)
        within = g.And(g.GreaterOrEqual(places, zero), g.Less(places, sizes))
        inside = g.reduce("ReduceMin", g.cast(within, DType.INT32), [-1], keepdims=True)
        row = g.reduce("ReduceSum", g.Mul(places, steps), [-1], keepdims=True)
        end = g.scalar(prod(counted), DType.INT64)
        return g.Where(g.cast(inside, DType.BOOL), row, end), False

    def _order_updates(self, g: Builder, updates: Value, order: Sequence[int]) -> Value:
        """Return updates with batches first, then the axes of windows in an order of the data's."""
        inserted = self._distinct_axes("inserted_window_dims", len(order))
        left = [axis for axis in range(len(order)) if axis not in inserted]
        place = dict(zip(left, self._window_axes, strict=True))
        batches = [a for a in range(self.input(2).rank) if a not in self._window_axes]
        return _transpose_to(
            g, updates, [*batches, *(place[axis] for axis in order if axis in place)]
        )


def _transpose_to(g: Builder, x: Value, order: Sequence[int]) -> Value:
    return x if list(order) == sorted(order) else g.Transpose(x, perm=list(order))


def _value(g: Builder, elements: Value | Array) -> Value:
    return g.constant(elements) if isinstance(elements, np.ndarray) else elements
