"""SLICE and STRIDED_SLICE: a range of indices along each axis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.graph import Op, Options
from tflite2onnx.layout import Axes, Frame, axis_names
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import count_listed_axes, expect_list, expect_type, ints
from tflite2onnx.op.common.leading_axis import Wider, prepend_axis, prepend_entries
from tflite2onnx.op.common.runtime_shapes import emit_sizes, take_entries
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import Foldable, IndexesAxes, Movement, TakesRanges
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import Dim, UndecidedError, evaluate, is_known, is_positive

# ONNX reads a bound of -1 as the last element, so the smallest int64 stands for a position before
# the first element. The largest int64 stands for the end.
_LOWEST, _HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_WHOLE = slice(None)

# Runtimes read the end 2**31 - 1 as omitted, also if the steps go backward; the kernel reads
# it as beyond the axis, where backward steps take nothing.
_HIGHEST_END = 2**31 - 2


def _make_slice(indices: range, size: int) -> slice:
    """Return the Python slice that selects these indices."""
    if indices == range(size):
        return _WHOLE
    if not indices:
        return slice(0, 0, 1)
    return slice(indices.start, indices.stop if indices.stop >= 0 else None, indices.step)


def _slice_axes(g: Builder, x: View, value: Value, parts: Sequence[slice]) -> Value:
    """Return a value, which has the layout of x, sliced along each TFLite axis."""
    cut = {x.axis(axis): part for axis, part in enumerate(parts) if part != _WHOLE}
    if not cut:
        return value
    bounds = [_list_bounds(part) for part in cut.values()]
    first, last, steps = (g.ints(numbers) for numbers in zip(*bounds, strict=True))
    stepwise = any(step != 1 for *_, step in bounds)
    return g.Slice(value, first, last, g.ints(list(cut)), steps if stepwise else None)


def _list_bounds(part: slice) -> tuple[int, int, int]:
    """Return the begin, end and step of an ONNX Slice."""
    step = 1 if part.step is None else part.step
    first, last = (0, _HIGHEST) if step > 0 else (_HIGHEST, _LOWEST)
    return (
        first if part.start is None else part.start,
        last if part.stop is None else part.stop,
        step,
    )


def _take_ranges(data: Array, ranges: Sequence[range]) -> Array:
    for axis, indices in enumerate(ranges):
        if indices != range(data.shape[axis]):
            data = data.take(indices, axis)
    return data


def _list_cut_axes(operator: Slice | StridedSlice) -> Collection[int] | None:
    """Return the axes of which an operator takes a part, None if the part is not known."""
    shape, ranges = operator.input(0).shape, operator.ranges
    if ranges is None:
        return None
    return [
        axis
        for axis, (size, indices) in enumerate(zip(shape, ranges, strict=True))
        if indices != range(size) and not size == len(indices) == 1
    ]


def _request_index(index: int) -> tuple[slice, ...]:
    """Return the slices of one index, which the kernel clamps to the first element."""
    if index >= -1:
        return (slice(index or None, index + 1 or None),)
    return slice(index, None), slice(None, 1)


def _request_range(begin: int | None, end: int | None, step: int) -> tuple[slice, ...]:
    """Return the slices of a range of an axis of any size.

    If steps go backward from before the first element, the kernel takes nothing, and ONNX's Slice
    the first element. The steps are forward in the reversed axis: index i is its index ~i.
    """
    if step < 0 and end is not None:
        end = min(end, _HIGHEST_END)
    if step < 0 and begin is not None and begin < -1:
        return slice(None, None, -1), slice(~begin, None if end is None else ~end, -step)
    return (slice(begin, end, None if step == 1 else step),)


class Slice(Movement, Foldable, TakesRanges, IndexesAxes):
    """SLICE: `size` elements from `begin` on; a size of -1 stands for all the rest.

    `begin` and `size` may be inputs that are known at run time only.
    """

    codes = ("SLICE",)
    facts = (Fact.TAKES,)
    evaluates_dimensions = True
    shape_inputs = (2,)
    tflite = "... -> ..."
    add_leading_axis = prepend_axis({1: 0, 2: -1})

    @cached_property
    def _ranges(self) -> list[range]:
        shape, begins, sizes = self.input(0).shape, ints(self, 1), ints(self, 2)
        if not len(shape) == len(begins) == len(sizes):
            counts = f"{len(shape)} elements, got {len(begins)} and {len(sizes)}"
            raise OperatorError(f"begin and size must have {counts}")
        ends = [
            axis if size == -1 else begin + size
            for axis, begin, size in zip(shape, begins, sizes, strict=True)
        ]
        if not all(0 <= b <= e <= axis for b, e, axis in zip(begins, ends, shape, strict=True)):
            raise OperatorError(
                f"the slice must lie inside {list(shape)}, got begin {begins} and size {sizes}"
            )
        return [range(*pair) for pair in zip(begins, ends, strict=True)]

    @property
    def ranges(self) -> Sequence[range] | None:
        return self._ranges if self._is_known else None

    @property
    def _parts(self) -> list[slice]:
        """The Python slice of each axis; bounds of dynamic axes are as in the file."""
        x, numbers = self.input(0), zip(self._ranges, ints(self, 1), ints(self, 2), strict=True)
        return [
            slice(begin or None, None if size == -1 else begin + size)
            if axis in x.symbols
            else _make_slice(indices, x.shape[axis])
            for axis, (indices, begin, size) in enumerate(numbers)
        ]

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape = self.input(0).shape
        if not self._is_known:
            for i in (1, 2):
                expect_list(self, i, len(shape))
        if not self.input(2).is_constant:
            return [[Unknown() for _ in shape]]
        begins = ints(self, 1) if self.input(1).is_constant else [None] * len(shape)
        if any(is_known(size) and size < -1 for size in ints(self, 2)):
            raise OperatorError(f"sizes must be at least -1, got {ints(self, 2)}")
        rest = [Unknown() if b is None else n - b for n, b in zip(shape, begins, strict=True)]
        pairs = zip(rest, ints(self, 2), strict=True)
        return [[whole if size == -1 else size for whole, size in pairs]]

    def check(self) -> None:
        x = self.input(0)
        expect_type(self.output, (x.dtype,))
        if self._is_known:
            _ = self._ranges  # the property raises OperatorError
            return
        if self.has_data_dependent_shape:
            return
        sizes = ints(self, 2)
        if any(size > axis for axis, size in zip(x.shape, sizes, strict=False)):
            raise OperatorError(f"size must be at most {list(x.shape)}, got {sizes}")

    @property
    def _is_known(self) -> bool:
        return self.input(1).is_constant and self.input(2).is_constant

    @property
    def has_data_dependent_shape(self) -> bool:
        if not self.input(2).is_constant:
            return True
        return not self.input(1).is_constant and -1 in ints(self, 2)

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return _list_cut_axes(self) if operand == 0 else None

    def keep_axis(self, axis: int) -> Op | None:
        sizes = self.input(2)
        if not sizes.is_constant or sizes.data is None:
            return None
        numbers = np.where(np.arange(sizes.elements) == axis, -1, sizes.data)
        rest = replace(sizes, data=numbers.astype(sizes.dtype.numpy))
        return replace(self.op, inputs=(*self.op.inputs[:2], rest))

    def emit(self, g: Builder, y: View, x: View, begin: View, size: View) -> Value:
        if self._is_known:
            return g.with_compute_type(
                "Slice", x.dtype, lambda v: _slice_axes(g, x, v, self._parts), x.value
            )
        first, count = (g.recast(v, v.dtype, DType.INT64) for v in (begin, size))
        # The kernel refuses a begin before the first element, ONNX counts it from the end: it
        # becomes one after the last.
        first = g.Mod(first, 2**31)
        last = g.Add(first, count)
        if self.has_data_dependent_shape:
            is_rest = g.Equal(count, -1)
            last = g.Where(is_rest, _HIGHEST, last)
        axes = g.ints([x.axis(axis) for axis in range(x.rank)])
        value = g.move("Slice", x.dtype, x, first, last, axes)
        return value if self.has_data_dependent_shape else g.reshape(value, y.sizes)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [_take_ranges(inputs[0], self._ranges)]


class _CutAxis(NamedTuple):
    """One axis of a STRIDED_SLICE: the input axis (None if it is new) and its indices in the slice.

    `requested` are slices with the bounds of the file, one after another, for any size of the axis.
    `shrinks` marks an axis that the output does not have.
    """

    axis: int | None
    indices: range
    requested: tuple[slice, ...] = ()
    shrinks: bool = False


class StridedSlice(Movement, Foldable, TakesRanges, IndexesAxes):
    """STRIDED_SLICE: NumPy's indexing, x[a:b:c, ..., newaxis, d], as five masks and three lists.

    Bit i of a mask applies to entry i of begin, end and strides: `begin_mask` and `end_mask` omit
    the bound, `ellipsis_mask` stands for all axes without an entry, `new_axis_mask` inserts an
    axis, `shrink_axis_mask` takes one index and drops the axis. With `offset`, ends are relative to
    begins.
    """

    codes = ("STRIDED_SLICE",)
    facts = (Fact.TAKES,)
    operands = "T, any, any, any -> T"
    evaluates_dimensions = True
    shape_inputs = (1, 2, 3)

    @cached_property
    def _parts(self) -> list[_CutAxis]:
        shape = self.input(0).shape
        parts, axis = [], 0
        for entry in self._find_axis_entries():
            if entry is None:
                parts.append(_CutAxis(None, range(1)))
                continue
            parts.append(self._make_part(entry, axis, shape[axis]))
            axis += 1
        return parts

    @property
    def ranges(self) -> Sequence[range] | None:
        if self.has_data_dependent_shape or not self._steps_are_known:
            return None
        return [part.indices for part in self._parts if part.axis is not None]

    @cached_property
    def _bounds(self) -> list[tuple[Any, Any, Any]]:
        """The constant begin, end and step of each entry."""
        return list(zip(*(ints(self, i) for i in (1, 2, 3)), strict=True))

    def _find_axis_entries(self) -> list[int | None]:
        """Return the entry of each axis: -1 for a whole axis without an entry, None for a new axis.

        An ellipsis stands for at least one axis: TFLite's kernel does not support an empty
        ellipsis, TensorFlow's does, as NumPy.
        """
        o, rank = self.options, self.input(0).rank
        count = count_listed_axes(self, 1)
        bits = range(count)
        ellipsis = [i for i in bits if o.ellipsis_mask >> i & 1]
        new = [i for i in bits if o.new_axis_mask >> i & 1 and i not in ellipsis]
        whole = rank - (count - len(new) - len(ellipsis))
        least = 0 if self.op.made and self.op.made.of_tensorflow else len(ellipsis)
        if not self.input(2).elements == self.input(3).elements == count:
            message = "begin, end and strides must have the same length"
        elif len(ellipsis) > 1:
            message = f"ellipsis_mask must have at most one bit, got {len(ellipsis)}"
        elif (o.ellipsis_mask | o.new_axis_mask) >> count:
            message = f"ellipsis_mask and new_axis_mask must have at most {count} bits"
        elif whole < least:
            message = f"begin must have at most one entry for each of {rank} axes, got {count}"
        elif o.offset and (whole or new):
            # The kernel reads the sizes of all axes of the output from the entries of end.
            message = f"begin must have one entry for each of {rank} axes if offset is set"
        else:
            place = ellipsis[0] if ellipsis else count
            entries = [None if i in new else i for i in bits]
            return entries[:place] + [-1] * whole + entries[place + 1 :]
        raise OperatorError(message)

    def _count_indices(self, entry: int, size: Any) -> Any:  # noqa: ANN401 - of an output shape
        """Return the number of indices that an entry selects; the axis clamps bounds."""
        if entry < 0:
            return size
        if self.has_data_dependent_shape:
            return Unknown()
        begin, end, step = self._bounds[entry]
        if is_known(size) and is_known(begin) and is_known(end):
            return len(self._make_part(entry, 0, size).indices)
        o, bit = self.options, 1 << entry
        start = 0 if o.begin_mask & bit else _open_index(begin, size)
        stop = size if o.end_mask & bit else _open_index(end, size)
        if o.begin_mask & o.end_mask & bit and is_known(step):
            return -(-size // abs(step))
        if start is None or stop is None or not is_known(step) or step <= 0 or o.offset:
            return Unknown()
        count = -((start - stop) // step)
        # If the axis were shorter, there would be fewer elements.
        return count if not is_known(count) or _is_inside(start, stop, size) else Unknown()

    def _make_part(self, entry: int, axis: int, size: int) -> _CutAxis:
        if entry < 0:
            return _CutAxis(axis, range(size))
        o, bit = self.options, 1 << entry
        step = ints(self, 3)[entry] if self._steps_are_known else 1
        if step == 0:
            raise OperatorError(f"the stride of axis {axis} must not be 0")
        shrinks = bool(o.shrink_axis_mask & bit)
        if shrinks and step < 0:  # the kernel leaves its output unwritten
            raise OperatorError(
                f"the stride of an index of axis {axis} must be at least 1, got {step}"
            )
        if self.has_data_dependent_shape:
            return _CutAxis(axis, range(size), shrinks=shrinks)
        begin, end, _ = self._bounds[entry]
        # The kernel clamps bounds to at most one element outside of the axis, at the end where the
        # steps leave the axis.
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first, last = (low, high) if step > 0 else (high, low)
        start = first if o.begin_mask & bit else _clamp_index(begin, size, low, high)
        if shrinks:
            if not 0 <= start < size:
                raise OperatorError(
                    f"an index of axis {axis} must be inside its {size} elements, got {begin}"
                )
            requested = _request_index(0 if o.begin_mask & bit else begin)
            return _CutAxis(axis, range(start, start + 1), requested, shrinks=True)
        count = len(range(0, end, step))
        end += start if o.offset else 0
        if o.offset and not o.end_mask & bit and end > size:
            raise OperatorError(  # the kernel reads beyond the input
                f"the end of axis {axis} must be {size} at most if offset is set, got {end}"
            )
        stop = last if o.end_mask & bit else _clamp_index(end, size, low, high)
        if o.offset and count != len(range(start, stop, step)):
            raise OperatorError(  # the kernel takes the size of the output from the end alone
                f"the end of axis {axis} must select {len(range(start, stop, step))} elements if "
                f"offset is set, got {count}"
            )
        requested = _request_range(
            None if o.begin_mask & bit or (begin == 0 and step > 0) else begin,
            None if o.end_mask & bit else end,
            step,
        )
        return _CutAxis(axis, range(start, stop, step), requested)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        # With the option `offset`, the end depends on the begin, and a negative begin counts from
        # the end of the axis.
        return not self.options.offset

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape, axis = self.input(0).shape, 0
        result: list[Any] = []
        for entry in self._find_axis_entries():
            if entry is None:
                result.append(1)
                continue
            if entry < 0 or not self.options.shrink_axis_mask >> entry & 1:
                result.append(self._count_indices(entry, shape[axis]))
            axis += 1
        return [result]

    def check(self) -> None:
        if self.has_data_dependent_shape:
            if self.options.offset:
                raise OperatorError("begin, end and strides must be constant if offset is set")
            for i in (1, 2, 3):
                expect_list(self, i, self.input(1).elements)
        self.frames()  # raises OperatorError if an index is outside of its axis

    def frames(self) -> Sequence[Frame]:
        old = axis_names(self.input(0).rank)
        names: Axes = tuple(
            f"new{i}" if part.axis is None else old[part.axis] for i, part in enumerate(self._parts)
        )
        new = tuple(n for n, part in zip(names, self._parts, strict=True) if not part.shrinks)
        return [Frame({0: old, ~0: new}, names)]

    @property
    def _steps_are_known(self) -> bool:
        return self.input(3).is_constant

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return _list_cut_axes(self) if operand == 0 else None

    def add_leading_axis(self) -> Wider | None:
        masks = {name: self.options[name] << 1 for name in self.options if name.endswith("_mask")}
        masks |= {name: masks[name] | 1 for name in ("begin_mask", "end_mask")}
        wider = replace(self.op, options=Options({**self.options, **masks}))
        op = prepend_entries(wider, {1: 0, 2: 0, 3: 1})
        return None if op is None else (op, (0,))

    def keep_axis(self, axis: int) -> Op | None:
        entry, steps = self._find_old_axes()[axis], self.input(3)
        if entry < 0 or steps.data is None:
            return None
        bit, masks = 1 << entry, dict(self.options)
        shrinks = masks["shrink_axis_mask"] & bit
        masks |= {name: masks[name] | bit for name in ("begin_mask", "end_mask")}
        masks["shrink_axis_mask"] &= ~bit
        numbers = np.where(np.arange(steps.elements) == entry, 1, steps.data)
        whole = replace(steps, data=numbers.astype(steps.dtype.numpy))
        axes = [part.axis for part in self._parts if not part.shrinks or part.axis == axis]
        y, place = self.output, axes.index(axis)
        if shrinks:
            y = replace(y, shape=(*y.shape[:place], 1, *y.shape[place:]))
        inputs = (*self.op.inputs[:3], whole)
        return replace(self.op, inputs=inputs, outputs=(y,), options=Options(masks))

    def emit(self, g: Builder, y: View, x: View, begin: View, end: View, step: View) -> Value:
        if self.has_data_dependent_shape:
            bounds = self._list_bounds(g, x, begin, end, step)
            return g.with_compute_type(
                "Slice", x.dtype, lambda v: self._slice_dynamic(g, y, x, v, bounds), x
            )
        return g.with_compute_type(
            "Slice", x.dtype, lambda v: self._slice_static(g, y, x, v), x.value
        )

    def _list_bounds(
        self, g: Builder, x: View, begin: View, end: View, step: View
    ) -> tuple[Value, ...]:
        """Return the begins, ends and steps of an ONNX Slice, one for each entry.

        The kernel and ONNX move a begin before the axis to its first element, with two exceptions:
        the index of an axis that shrinks has an end, which must move with it, and backward steps
        from there take nothing (see `_request_range`).
        """
        o, entries = self.options, np.arange(self.input(1).elements)
        first, last, steps = (g.recast(v, v.dtype, DType.INT64) for v in (begin, end, step))
        backward = None if steps.data is None else steps.data < 0
        if backward is None or backward.any():
            if last.data is None:
                last = g.Min(last, _HIGHEST_END)
            else:
                last = g.ints(np.minimum(last.data, _HIGHEST_END).tolist())
        first = _replace_masked(g, o.begin_mask >> entries & 1, first, steps, (0, _HIGHEST))
        last = _replace_masked(g, o.end_mask >> entries & 1, last, steps, (_HIGHEST, _LOWEST))
        single = o.shrink_axis_mask >> entries & 1
        may_be_before = first.data is None or (first.data < 0).any()
        if may_be_before and (single.any() or backward is None or backward.any()):
            lowest = self._list_lowest_indices(g, x)
            if backward is None or backward.any():
                before = g.Less(first, lowest)
                if backward is None:
                    before = g.And(before, g.Less(steps, 0))
                elif not backward.all():
                    before = g.And(before, backward)
                last = g.Where(before, lowest, last)  # both bounds are the first element
            first = g.Max(first, lowest)
        if not single.any():
            return first, last, steps
        after = g.Where(g.Equal(first, -1), _HIGHEST, g.Add(first, 1))
        return first, g.Where(single.astype(np.bool_), after, last), steps

    def _list_lowest_indices(self, g: Builder, x: View) -> Value:
        """Return the index of the first element, counted from the end, of each entry's axis."""
        axes = {entry: axis for axis, entry in enumerate(self._find_old_axes())}
        of_entries = [axes.get(i, 0) for i in range(self.input(1).elements)]
        return g.Neg(take_entries(g, emit_sizes(g, x), of_entries))

    def _find_old_axes(self) -> list[int]:
        """Return the entry of each axis of the input, -1 for a whole axis without an entry."""
        return [entry for entry in self._find_axis_entries() if entry is not None]

    def _slice_dynamic(
        self, g: Builder, y: View, x: View, value: Value, bounds: tuple[Value, ...]
    ) -> Value:
        entries = self._find_old_axes()
        axes = [x.axis(axis) for axis, entry in enumerate(entries) if entry >= 0]
        selected = [entry for entry in entries if entry >= 0]
        first, last, steps = (take_entries(g, bound, selected) for bound in bounds)
        return self._squeeze_and_expand(g, y, x, g.Slice(value, first, last, g.ints(axes), steps))

    def _slice_static(self, g: Builder, y: View, x: View, value: Value) -> Value:
        shape, unknown = x.tensor.shape, x.tensor.symbols
        parts = [
            p.requested if p.axis in unknown else (_make_slice(p.indices, shape[p.axis]),)
            for p in self._parts
            if p.axis is not None
        ]
        for ranges in zip_longest(*parts, fillvalue=_WHOLE):
            value = _slice_axes(g, x, value, ranges)
        return self._squeeze_and_expand(g, y, x, value)

    def _squeeze_and_expand(self, g: Builder, y: View, x: View, value: Value) -> Value:
        """Return a slice without the axes that shrink, and with the new axes."""
        dropped = [x.axis(p.axis) for p in self._parts if p.shrinks and p.axis is not None]
        remaining = (part for part in self._parts if not part.shrinks)
        added = [y.axis(i) for i, part in enumerate(remaining) if part.axis is None]
        value = g.squeeze(value, dropped, y.dtype) if dropped else value
        return g.unsqueeze(value, added, y.dtype) if added else value

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        ranges = [part.indices for part in self._parts if part.axis is not None]
        return [_take_ranges(inputs[0], ranges).reshape(self.output.shape)]


def _replace_masked(
    g: Builder, mask: Array, bounds: Value, steps: Value, ends: tuple[int, int]
) -> Value:
    """Return bounds; where a mask omits them, the end for steps forward or for steps backward."""
    if not mask.any():
        return bounds
    default = g.Where(g.Greater(steps, 0), *ends)
    return g.Where(mask.astype(np.bool_), default, bounds)


def _is_inside(start: Dim, stop: Dim, size: Dim) -> bool:
    """Return whether both bounds are inside an axis at all sizes."""
    try:
        return start >= 0 and stop <= size
    except UndecidedError:
        return False


def _open_index(index: Dim, size: Dim) -> Dim | None:
    """Return an index of an axis of dynamic size, counted from the start.

    An axis that is long enough at the declared sizes is assumed to be long enough at all sizes.
    Otherwise the index would be clamped at some sizes, and the result is None.
    """
    try:
        index = index + size if is_positive(-index) else index
    except UndecidedError:
        return None
    return index if 0 <= evaluate(index) <= evaluate(size) else None


def _clamp_index(index: int, size: int, low: int, high: int) -> int:
    return min(max(index + size if index < 0 else index, low), high)


SLICES = Slice.codes + StridedSlice.codes  # with one output, unlike others that take ranges
