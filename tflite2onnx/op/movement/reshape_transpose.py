"""Operators on axes: TRANSPOSE, RESHAPE, SQUEEZE, EXPAND_DIMS, SHAPE and RANK."""

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import takewhile
from math import prod
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import Axes, Frame, axis_names, make_identity
from tflite2onnx.made_options import MadeOptions, OrderOptions, ReshapeOptions
from tflite2onnx.op.base import Category, DataDependentSize, OperatorError, OutputShape, Unknown
from tflite2onnx.op.common.checks import (
    axis_of,
    count_listed_sizes,
    expect_list,
    expect_type,
    expect_type_option,
    integer,
    ints,
)
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.common.runtime_shapes import (
    count_up,
    emit_sizes,
    expect_axis,
    multiply_sizes,
    reshape_to,
    resolve_axis,
    split_shape,
)
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import AnySizes, Foldable, MadeOperator, Movement
from tflite2onnx.tensor import Array, DType, Shape, Sizes
from tflite2onnx.utils.dimension import (
    Dim,
    Dimension,
    depends_on_inputs,
    evaluate,
    has_dimensions,
    is_known,
    make_array,
    require_equal,
    require_number,
)


def match_reshape_axes(source: Shape, target: Shape) -> tuple[Axes, Axes]:
    """Name the axes of both sides of a reshape so that axes of one name have equal elements.

    The shapes are divided into groups wherever the products of the leading sizes agree. A group of
    one axis on both sides is one name. The axes of a group that is split or merged share one name,
    so that they stay together. Axes of size 1 without a counterpart get names of their own, because
    they can have any position.
    """
    if 0 in source:
        free = tuple(f"in{i}" for i in range(len(source)))
        return free, tuple(f"out{i}" for i in range(len(target)))
    names: tuple[list[str], list[str]] = ([""] * len(source), [""] * len(target))
    i = j = group = 0
    while i < len(source) or j < len(target):
        if i < len(source) and j < len(target) and source[i] == target[j]:
            names[0][i] = names[1][j] = f"r{group}"
            i, j = i + 1, j + 1
        elif i < len(source) and source[i] == 1:
            names[0][i], i = f"in{i}", i + 1
        elif j < len(target) and target[j] == 1:
            names[1][j], j = f"out{j}", j + 1
        else:
            i, j = _match_group(source, target, i, j, names, f"r{group}")
        group += 1
    return tuple(names[0]), tuple(names[1])


def _match_group(
    source: Shape, target: Shape, i: int, j: int, names: tuple[list[str], list[str]], name: str
) -> tuple[int, int]:
    """Name the smallest groups from i and j on with equal products of sizes; return their ends."""
    a, b = source[i], target[j]
    names[0][i] = names[1][j] = name
    i, j = i + 1, j + 1
    while a != b:
        if a < b:
            a, names[0][i], i = a * source[i], name, i + 1
        else:
            b, names[1][j], j = b * target[j], name, j + 1
    return i, j


def match_dynamic_reshape_axes(source: Sizes, target: Sizes) -> tuple[Axes, Axes]:
    """Name the axes as `match_reshape_axes` does, where some axes are dynamic.

    Equal sizes at the beginning and at the end are matched. If dynamic axes remain between them,
    they may be split or merged in any way, so all axes between share one name.
    """
    if not any(isinstance(size, str) for size in (*source, *target)):
        return match_reshape_axes(_list_fixed_sizes(source), _list_fixed_sizes(target))
    first = _count_common(source, target)
    last = _count_common(source[first:][::-1], target[first:][::-1])
    between = [sizes[first : len(sizes) - last] for sizes in (source, target)]
    if any(isinstance(size, str) for sizes in between for size in sizes):
        inner = tuple(tuple("between" for _ in sizes) for sizes in between)
    else:
        inner = match_reshape_axes(*(_list_fixed_sizes(sizes) for sizes in between))
    before = tuple(f"first{i}" for i in range(first))
    after = tuple(f"last{i}" for i in range(last))
    return (*before, *inner[0], *after), (*before, *inner[1], *after)


def _list_fixed_sizes(sizes: Sizes) -> Shape:
    return tuple(size for size in sizes if isinstance(size, int))


def _count_common(a: Sizes, b: Sizes) -> int:
    """Return the number of leading sizes that are equal."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return len(list(pairs))


class Reshape(Movement, Foldable):
    """RESHAPE, SQUEEZE, EXPAND_DIMS: the same elements with other axes."""

    codes: ClassVar[tuple[str, ...]] = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
    facts = (Fact.KEEPS_SEQUENCE, Fact.TAKES)
    joins_elements = True
    evaluates_dimensions = True
    shape_inputs = (1,)

    def check(self) -> None:
        x, y = self.input(0), self.output
        if self.has_data_dependent_shape:
            self._check_dynamic()
            expect_type(y, (x.dtype,))
        elif x.symbols:  # the number of elements is known at run time only
            expect_type(y, (x.dtype,))
        elif (x.elements, x.dtype) != (y.elements, y.dtype):
            source, target = (f"{t.dtype.label}{list(t.shape)}" for t in (x, y))
            raise OperatorError(
                f"{y.name} must be {x.elements!r} elements of {x.dtype.label}, "
                f"as {x.name} is {source}, got {target}"
            )

    def _check_dynamic(self) -> None:
        if self._adds_axis:
            expect_axis(self, 1)
        else:
            expect_list(self, 1, self.input(1).elements)

    @property
    def _adds_axis(self) -> bool:
        return self.op.code == "EXPAND_DIMS"

    @property
    def _dynamic_rank(self) -> int:
        """The rank of the output if its shape is an input that is known at run time only."""
        if self._adds_axis:
            return self.input(0).rank + 1
        return count_listed_sizes(self, 1)

    @cached_property
    def _squeezed_axes(self) -> tuple[Collection[int], int, bool]:
        """The axes that SQUEEZE removes, the number of others, and whether others may be 1.

        Without a list the kernel removes all axes of size 1. The file declares 1 for unknown sizes,
        too: the rank of the output says how many of them are removed.
        """
        x, y = self.input(0), self.output
        if listed := self.options.get("squeeze_dims"):
            return {axis_of(axis, x.rank) for axis in listed}, 0, False
        unknown = [axis for axis in range(x.rank) if self._may_be_1(axis)]
        ones = [i for i, size in enumerate(x.shape) if i not in unknown and size == 1]
        if not unknown:
            return ones, 0, False
        rest = x.rank - y.rank - len(ones)
        is_vague = y.shape in ((), (1,)) and not y.dynamic_axes  # the file does not know the rank
        if is_vague and has_dimensions([x.shape[axis] for axis in unknown]):
            raise OperatorError(
                "it must list the axes to remove (squeeze_dims), because sizes of its input are"
                f" known at run time only, and the file does not declare the axes of {y.name}"
            )
        if is_vague or rest == len(unknown):
            return (*ones, *unknown), 0, False
        return ones, max(rest, 0) if rest < len(unknown) else 0, True

    def _may_be_1(self, axis: int) -> bool:
        """Return whether an axis may have the size 1, but need not have it."""
        x, size = self.input(0), self.input(0).shape[axis]
        if isinstance(size, Dimension):
            return not depends_on_inputs(size)
        return axis in x.symbols or (size == 1 and axis in x.dynamic_axes)

    def frames(self) -> Sequence[Frame]:
        if self.op.read_made(ReshapeOptions).squeezes_at_run_time:
            return []
        source, target = match_dynamic_reshape_axes(self.input(0).sizes, self.output.sizes)
        names = tuple(dict.fromkeys(_merge_names(source, target)))
        return [Frame({0: source, ~0: target}, names)]

    def emit(self, g: Builder, y: View, x: View, *rest: View) -> Value:
        if self.op.read_made(ReshapeOptions).squeezes_at_run_time:
            return g.move("Squeeze", x.dtype, x)
        if x.sizes == y.sizes:
            return x.value
        known = {*x.tensor.symbols.values()}
        unknown = [name for name in y.tensor.symbols.values() if name not in known]
        if not self.has_data_dependent_shape or len(unknown) < 2:  # Reshape can infer one size
            return g.reshape(x, y.sizes)
        return reshape_to(g, x.value, self._compute_shape(g, y, x, rest[0]))

    def _compute_shape(self, g: Builder, y: View, x: View, axis_or_shape: View) -> Value:
        if not self._adds_axis:
            return g.as_int64_list(axis_or_shape, y.order)
        parts = split_shape(g, emit_sizes(g, x), resolve_axis(g, axis_or_shape, y.rank), 0)
        shape = g.Concat(parts.before, [1], parts.after, axis=0)
        return (
            shape if y.order == make_identity(y.rank) else g.Gather(shape, g.ints(y.order), axis=0)
        )

    def compute_dimension_options(self) -> MadeOptions | None:
        may_be_1 = self.op.code == "SQUEEZE" and self._squeezed_axes[2]
        return ReshapeOptions(squeezes_at_run_time=True) if may_be_1 else None

    @property
    def has_data_dependent_shape(self) -> bool:
        reads = self._adds_axis or self._reads_shape
        return reads and super().has_data_dependent_shape

    def find_listed_sizes(self) -> int | None:
        return 1 if self._reads_shape else None

    @property
    def _reads_shape(self) -> bool:
        """Whether input 1 of RESHAPE has the new shape.

        The kernel reads a vector of int32. For any other input it reads the option `new_shape`
        (GetOutputShape in reshape.cc). If the file lacks the option, which LiteRT refuses, an int64
        input is read here.
        """
        shape = self.op.inputs[1] if self.op.code == "RESHAPE" and len(self.op.inputs) > 1 else None
        if shape is None or shape.rank != 1:
            return False
        return shape.dtype is DType.INT32 or (
            shape.dtype is DType.INT64 and not self.options.get("new_shape")
        )

    def infer_outputs(self) -> Sequence[OutputShape]:
        if self.has_data_dependent_shape:
            return [self._infer_computed_shape()]
        if self.op.code == "SQUEEZE" and self._squeezed_axes[1]:
            return [[DataDependentSize() for _ in range(self.output.rank)]]
        x, shape = self.input(0), list(self._find_requested_shape())
        message = (
            f"its new shape must have {x.elements!r} elements, "
            f"as {x.name} is {list(x.shape)}, got {shape}"
        )
        if shape.count(-1) > 1:
            raise OperatorError(message)
        product = prod(size for size in shape if size != -1)
        is_dynamic = x.symbols or not is_known(x.elements)
        if is_dynamic and -1 not in shape and evaluate(x.elements) != evaluate(product):
            return [shape]  # the kernel compares the number of elements at run time
        rest = x.elements // product if product != 0 else 0
        resolved = [rest if size == -1 else size for size in shape]
        if is_known(x.elements) or -1 not in shape:  # the kernel divides at run time
            is_computed = has_dimensions(shape)
            is_computed |= not is_known(x.elements) and not depends_on_inputs(x.elements)
            _require_elements(prod(resolved), x.elements, message, computed=is_computed)
        return [resolved]

    def _infer_computed_shape(self) -> OutputShape:
        """Return unknown sizes: `Unknown` if the declared sizes fit the number of elements.

        A single size is the number of elements.
        """
        y, elements = self.output, self.input(0).elements
        if self._dynamic_rank == 1 and not self._adds_axis:
            return [elements]
        product = prod(size for axis, size in enumerate(y.shape) if axis not in y.dynamic_axes)
        fits = is_known(elements) and y.dynamic_axes and product and elements % product == 0
        kind = Unknown if fits or not is_known(elements) else DataDependentSize
        return [kind() for _ in range(self._dynamic_rank)]

    def _find_requested_shape(self) -> Sequence[Dim]:
        """Return the requested shape, in which -1 stands for the rest of the elements."""
        x = self.input(0)
        if self._adds_axis:
            axis = axis_of(integer(self, 1), x.rank + 1)
            return (*x.shape[:axis], 1, *x.shape[axis:])
        if self.op.code == "RESHAPE" and self.op.read_made(ReshapeOptions).keeps_shape:
            return x.shape
        if self.op.code == "SQUEEZE":
            dropped, *_ = self._squeezed_axes
            for axis in dropped:
                require_number(x.shape[axis], 1, f"axis {axis} of {x.name} must have the size 1")
            return tuple(size for axis, size in enumerate(x.shape) if axis not in dropped)
        if self._reads_shape:
            return ints(self, 1)
        shape = self.options.new_shape or ()
        # Old converters write the shape of a scalar as [0].
        return () if list(shape) == [0] else shape

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [inputs[0].reshape(self.output.shape)]


def _require_elements(first: Dim, other: Dim, message: str, *, computed: bool) -> None:
    """Require that two numbers of elements are equal; an error leaves common factors out.

    If the new shape is computed, sizes that no expression relates are accepted: the kernel
    compares them at run time.
    """
    for whole, part in ((first, other), (other, first)):
        factor = whole.divide_exactly(part) if isinstance(whole, Dimension) else None
        if factor is not None:
            require_equal(factor, 1, message)
            return
    symbols = [dim.symbol for dim in (first, other) if isinstance(dim, Dimension)]
    if not computed or any(symbols):
        require_equal(first, other, message)


def _merge_names(source: Axes, target: Axes) -> list[str]:
    """Return all names in a sequence that agrees with both sides."""
    merged, rest = [], list(target)
    for name in source:
        if name in rest:
            end = rest.index(name) + 1
            merged += rest[:end]
            rest = rest[end:]
        else:
            merged.append(name)
    return merged + rest


class Transpose(Movement, Foldable):
    """TRANSPOSE renames axes; the layout plan inserts a node only where elements must move.

    If the permutation is an input that is known at run time only, elements are gathered, because
    ONNX's Transpose takes a constant permutation only.
    """

    codes = ("TRANSPOSE",)
    facts = (Fact.TAKES,)
    operands = "T, any -> T"
    evaluates_dimensions = True
    shape_inputs = (1,)
    add_leading_axis = prepend_axis({1: 0}, axes=1)

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape = self.input(0).shape
        if self.has_data_dependent_shape:
            expect_list(self, 1, len(shape))
            return [[Unknown() for _ in shape]]
        return [[shape[axis] for axis in self._permutation]]

    def frames(self) -> Sequence[Frame]:
        if self.has_data_dependent_shape:
            return []
        names = axis_names(self.input(0).rank)
        return [Frame({0: names, ~0: tuple(names[axis] for axis in self._permutation)}, names)]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand or self.has_data_dependent_shape else ()

    def emit(self, g: Builder, y: View, x: View, permutation: View) -> Value:
        if not self.has_data_dependent_shape or not x.rank:
            return x.value
        sizes, order = emit_sizes(g, x), g.as_int64_list(permutation)
        new = g.Gather(sizes, order, axis=0)
        # The flat index of each output element becomes its indices, then the flat index of its
        # source in x.
        number = g.Unsqueeze(count_up(g, multiply_sizes(g, new)), [1])
        indices = g.Mod(g.Div(number, _compute_strides(g, new, x.rank)), new)
        strides = g.Gather(_compute_strides(g, sizes, x.rank), order, axis=0)
        source = g.reduce("ReduceSum", g.Mul(indices, strides), [1], keepdims=False)
        flat = g.reshape(x, [-1])
        return reshape_to(g, g.move("Gather", x.dtype, flat, source, axis=0), new)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.transpose(inputs[0], self._permutation)]

    @property
    def _permutation(self) -> list[int]:
        rank, numbers = self.input(0).rank, ints(self, 1)
        permutation = [axis_of(number, rank) for number in numbers]
        if sorted(permutation) != list(range(rank)):
            raise OperatorError(f"permutation must be a permutation of {rank} axes, got {numbers}")
        return permutation


def _compute_strides(g: Builder, sizes: Value, rank: int) -> Value:
    """Return the distance of neighbours along each axis, in elements, for a row-major layout."""
    inner = np.triu(np.ones((rank, rank), np.bool_), 1)
    factors = g.Where(inner, sizes, 1)
    return g.reduce("ReduceProd", factors, [1], keepdims=False)


class ShapeOf(Movement, Foldable):
    """SHAPE: the sizes of the axes in TFLite's order. RANK: the number of axes."""

    codes = ("SHAPE", "RANK")
    evaluates_dimensions = True
    facts = (Fact.SHAPE_ONLY,)

    @property
    def _is_rank(self) -> bool:
        return self.op.code == "RANK"

    def infer_outputs(self) -> Sequence[OutputShape]:
        rank = self.input(0).rank
        return [() if self._is_rank else (rank,)]

    def check(self) -> None:
        y, _ = self.output, self.input(0)
        expect_type(y, (DType.INT32,) if self._is_rank else (DType.INT32, DType.INT64))
        expect_type_option(y, self.options.get("out_type"))

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        return [Frame({0: names}, names)]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        if self._is_rank:
            return g.scalar(x.rank, y.dtype)
        sizes = g.Shape(x)
        if x.order != make_identity(x.rank):
            sizes = g.Gather(sizes, [x.axis(axis) for axis in range(x.rank)])
        return sizes if y.dtype is DType.INT64 else g.cast(sizes, y.dtype)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        if self._is_rank:
            return [np.asarray(self.input(0).rank, np.int32)]
        return [make_array(self.input(0).shape, self.output.dtype.numpy)]


class AsPlanned(MadeOperator, AnySizes):
    """Pins the order of axes that the user chose for a tensor (see `interface.pin_orders`)."""

    codes = ("AS_PLANNED",)
    keeps_shape = True
    category = Category.IMPLICIT

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.output.rank)
        label = tuple(names[i] for i in self.op.read_made(OrderOptions).order)
        return [Frame({0: names, ~0: names}, names, label, semantic=True)]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.Identity(x)
