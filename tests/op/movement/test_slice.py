"""SLICE and STRIDED_SLICE."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.dynamic_sizes.test_networks import compare_sizes
from tests.op.ports import FLOAT8, add_input, check_float8, check_outputs, folds
from tests.support import Build, check, run_tflite
from tests.support.runtimes import session
from tests.support.tensor import NUMBER_TYPES
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support import Tensor

SIZES = (2, 3, 5, 7, 4)

# shape, begin, size
SLICES: list[tuple[list[int], list[int], list[int]]] = [
    ([11], [3], [5]),
    ([11], [0], [-1]),
    ([11], [11], [-1]),
    ([5, 7], [1, 2], [3, -1]),
    ([5, 7], [0, 7], [-1, 0]),
    ([3, 5, 7], [2, 0, 1], [1, 5, -1]),
    ([2, 3, 5, 7], [0, 1, 2, 3], [-1, 2, 1, 4]),
    ([2, 3, 5, 7], [0, 0, 0, 0], [2, 3, -1, 7]),
    ([2, 3, 5, 7, 4], [1, 1, 0, 2, 1], [1, -1, 4, 3, 2]),
    ([2, 3, 5, 2, 3, 2], [1, 1, 0, 0, 1, 0], [1, -1, 4, 1, 2, 1]),
]


def add_slice(
    m: Build, x: Tensor, begin: Sequence[int], size: Sequence[int], index: str = "int32"
) -> Tensor:
    shape = [n - b if s == -1 else s for n, b, s in zip(x.shape, begin, size, strict=True)]
    bounds = [m.constant(np.array(each, index)) for each in (begin, size)]
    return m.op("SLICE", [x, *bounds], [shape])[0]


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(("shape", "begin", "size"), SLICES)
def test_slice_of_every_shape_equals_litert(
    shape: list[int], begin: list[int], size: list[int], index: str
) -> None:
    m = Build()
    check_outputs(m, add_slice(m, add_input(m, shape), begin, size, index))


@pytest.mark.parametrize("dtype", [*NUMBER_TYPES, "int4"])
def test_slice_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    check_outputs(m, add_slice(m, add_input(m, [3, 5, 7, 2], dtype), [0, 2, 1, 0], [3, 2, -1, 2]))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_slices_of_float8_equal_numpy(dtype: str) -> None:
    m = Build()
    x = m.input([16, 16], dtype=dtype)
    y = add_slice(m, x, [0, 1], [16, 15])
    m.output(Cut(((0, 0, -1), (0, 0, 1)), 3, 3).add(m, y, [16, 15]))
    check_float8(m, lambda every: every[::-1, 1:])


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(
    ("shape", "begin", "size"),
    [
        ([11], [3], [5]),
        ([3, 5], [1, 0], [2, 4]),
        ([2, 3, 5, 7], [0, 1, 2, 3], [2, 2, 1, 4]),
        ([2, 3, 5, 7, 4], [1, 1, 0, 2, 1], [1, 2, 4, 3, 2]),
    ],
)
def test_slice_from_a_computed_begin_equals_litert(
    shape: list[int], begin: list[int], size: list[int], index: str
) -> None:
    m = Build()
    x, first = m.input(shape, dtype="int32"), m.input([len(shape)], dtype=index)
    (y,) = m.op("SLICE", [x, first, m.constant(np.array(size, index))], [size])
    given = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    check_outputs(m, y, inputs=[given, np.array(begin, index)])


def test_rest_after_a_computed_begin_equals_litert() -> None:
    """The size -1 is that of the rest, which depends on the begin."""
    m = Build()
    inputs = [m.input([3, 5]), m.input([2], dtype="int32"), m.constant(np.array([2, -1], np.int32))]
    m.output(*m.op("SLICE", inputs, [m.tensor([2, None])]))
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    for begin in ([0, 0], [1, 3]):
        check(m.bytes(), inputs=[x, np.array(begin, np.int32)])


@pytest.mark.parametrize(
    ("begin", "dtype", "size", "made", "reason"),
    [
        ([1], "int32", [1, 5], [1, 5], r"int32\[2\], got int32\[1\]"),
        ([2], "int16", [1, 5], [1, 5], "int32 or int64, got int16"),
        ([2], "int32", [1, 6], [1, 6], r"at most \[3, 5\], got \[1, 6\]"),
    ],
)
def test_computed_begin_refuses_unsupported_shapes_and_types(
    begin: list[int], dtype: str, size: list[int], made: list[int], reason: str
) -> None:
    m = Build()
    inputs = [m.input([3, 5]), m.input(begin, dtype=dtype), m.constant(size)]
    m.output(*m.op("SLICE", inputs, [made]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


@pytest.mark.parametrize("begin", [[-1, 0], [-3, 0], [0, -1], [0, -4], [2, 0], [0, 3]])
def test_computed_begin_outside_of_the_input_ends_the_run_as_in_litert(begin: list[int]) -> None:
    """ONNX's Slice counts a negative begin from the end, and clamps a range to the input."""
    m = Build()
    x, first = m.input([3, 4]), m.input([2], dtype="int32")
    m.output(*m.op("SLICE", [x, first, m.constant([2, 2])], [[2, 2]]))
    ran = session(convert(m.bytes()).model, optimize=True)
    inputs = [np.zeros((3, 4), np.float32), np.array(begin, np.int32)]
    with pytest.raises(RuntimeError, match="Invalid begin"):
        run_tflite(m.bytes(), inputs)
    with pytest.raises(Exception, match="cannot be reshaped to the requested shape"):
        ran.run(None, dict(zip([each.name for each in ran.get_inputs()], inputs, strict=True)))


def test_slice_moves_stored_integers() -> None:
    m = Build()
    x = add_input(m, [3, 5, 7, 2], "int8", scale=0.5, zero_point=3)
    result = check_outputs(m, add_slice(m, x, [0, 2, 1, 0], [3, 2, -1, 2]))
    assert [node.op_type for node in result.model.graph.node] == ["Slice"]


def test_slice_of_constants_folds() -> None:
    m = Build()
    x = m.constant(np.arange(15, dtype=np.int32).reshape(3, 5))
    folds(m, add_slice(m, x, [1, 2], [2, -1]), add_slice(m, x, [0, 5], [3, 0]))


def test_slice_of_everything_is_identity() -> None:
    m = Build()
    result = check_outputs(m, add_slice(m, add_input(m, [3, 5]), [0, 0], [3, -1]))
    assert [node.op_type for node in result.model.graph.node] == ["Identity"]


@pytest.mark.parametrize(
    ("begin", "size", "made", "reason"),
    [
        ([0], [3, 5], [3, 5], "must have 2 elements, got 1 and 2"),
        ([0, 0], [3], [3, 5], "must have 2 elements, got 2 and 1"),
        ([0, 0, 0], [3, 5, 1], [3, 5], "must have 2 elements, got 3 and 3"),
        ([-1, 0], [1, 5], [1, 5], r"inside \[3, 5\], got begin \[-1, 0\] and size \[1, 5\]"),
        ([4, 0], [-1, 5], [0, 5], "must lie inside"),
        ([0, 0], [-2, 5], [3, 5], "must lie inside"),
        ([2, 0], [2, 5], [2, 5], "must lie inside"),
        ([2**62, 0], [2**62, 5], [2, 5], "must lie inside"),
    ],
)
def test_slice_refuses_bounds_outside_of_the_input(
    begin: list[int], size: list[int], made: list[int], reason: str
) -> None:
    m = Build()
    bounds = [m.constant(np.array(each, np.int64)) for each in (begin, size)]
    m.output(*m.op("SLICE", [add_input(m, [3, 5]), *bounds], [made]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


def test_parameters_must_be_integers() -> None:
    m = Build()
    begin = m.constant([1, 0])
    m.output(*m.op("SLICE", [add_input(m, [3, 5]), begin, m.constant([1.0, np.nan])], [[1, 5]]))
    m.output(*m.op("SLICE", [add_input(m, [3, 5])], [[1, 5]]))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    assert "integers, got float32" in reasons
    assert "input 1 is missing" in reasons


@dataclass(frozen=True)
class Cut:
    """A STRIDED_SLICE: begin, end and stride of each entry, and the masks."""

    entries: tuple[tuple[int, int, int], ...]
    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    offset: bool = False

    def add(self, m: Build, x: Tensor, shape: Sequence[int] | Tensor) -> Tensor:
        lists = np.array(self.entries, np.int32).reshape(-1, 3).T
        options = {name: value for name, value in vars(self).items() if name != "entries"}
        inputs = [x, *(m.constant(each.copy()) for each in lists)]
        return m.op("STRIDED_SLICE", inputs, [shape], **options)[0]


MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def random_entry(rng: random.Random, size: int, *, index: bool) -> tuple[int, int, int]:
    """Return a random begin, end and stride; the begin of a single index is in range or below."""
    if index:
        return rng.randrange(-size - 2, size), rng.randrange(-9, 9), rng.choice([1, 2, 7])
    return rng.randrange(-9, 9), rng.randrange(-9, 9), rng.choice([1, 1, 2, 3, -1, -1, -2, -3])


def random_cut(
    rng: random.Random, shape: Sequence[int], count: int, masks: Sequence[int]
) -> Cut | None:
    """Return a random slice of `count` entries with these masks, or None if the shape has none."""
    begin, end, ellipsis, new, shrink = masks
    bits = range(count)
    kinds = ["..." if ellipsis >> i & 1 else "new" if new >> i & 1 else "axis" for i in bits]
    whole = len(shape) - kinds.count("axis")
    if kinds.count("...") > 1 or whole < kinds.count("..."):
        return None
    axes = iter(range(len(shape)))
    entries = []
    for i, kind in enumerate(kinds):
        skipped = whole if kind == "..." else kind == "axis"
        sizes = [shape[axis] for axis in itertools.islice(axes, skipped)]
        # With the begin mask the index is 0.
        single = kind == "axis" and shrink >> i & 1
        entries.append(random_entry(rng, sizes[0] if single else 1, index=bool(single)))
    return Cut(tuple(entries), begin, end, ellipsis, new, shrink)


def list_cuts(rank: int, count: int) -> Iterator[Cut]:
    """Yield a random slice for each combination of masks on `count` entries."""
    rng = random.Random(10 * rank + count)
    for masks in itertools.product(range(2**count), repeat=len(MASKS)):
        found = random_cut(rng, SIZES[:rank], count, masks)
        if found is not None:
            yield found


def some_masks(rank: int, count: int, tries: int) -> Iterator[Cut]:
    rng = random.Random(rank)
    for _ in range(tries):
        found = random_cut(rng, SIZES[:rank], count, [rng.randrange(2**count) for _ in MASKS])
        if found is not None:
            yield found


def litert_shapes(cuts: Sequence[Cut], shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes that LiteRT computes, whatever the file declares."""
    m = Build()
    x = m.input(shape, dtype="int32")
    m.output(*(each.add(m, x, m.tensor(None, dtype="int32")) for each in cuts))
    return [made.shape for made in run_tflite(m.bytes(), [np.zeros(shape, np.int32)])]


def check_cuts(cuts: Sequence[Cut], shape: Sequence[int]) -> None:
    """Compare many slices of an input, and of a constant, with LiteRT."""
    made = litert_shapes(cuts, shape)
    m, constant = Build(), Build()
    x = add_input(m, shape, "int32")
    c = constant.constant(np.arange(np.prod(shape), dtype=np.int32).reshape(shape))
    check_outputs(m, *(each.add(m, x, out) for each, out in zip(cuts, made, strict=True)))
    # LiteRT cannot return a constant without elements.
    full = [(each, out) for each, out in zip(cuts, made, strict=True) if 0 not in out]
    folds(constant, *(each.add(constant, c, out) for each, out in full))


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2])
def test_strided_slice_with_every_mask_equals_litert(rank: int, count: int) -> None:
    check_cuts(list(list_cuts(rank, count)), SIZES[:rank])


@pytest.mark.parametrize(("rank", "count"), [(3, 3), (4, 3), (2, 4), (3, 4), (4, 4), (5, 5)])
def test_strided_slice_with_random_masks_equals_litert(rank: int, count: int) -> None:
    check_cuts(list(some_masks(rank, count, 400)), SIZES[:rank])


def test_offset_makes_ends_relative_to_begins() -> None:
    """With `offset` an end is relative to its begin; the end alone decides the output size."""
    cuts = (
        Cut(((1, 3, 1), (-4, 2, 1)), offset=True),
        Cut(((3, -2, -1), (6, -5, -2)), offset=True),
        Cut(((4, 5, 2), (2, 5, 3)), begin_mask=1, offset=True),
        Cut(((2, 3, 2), (1, 1, 1)), end_mask=1, shrink_axis_mask=2, offset=True),
        Cut(((2, 9, 3), (3, 1, 2)), shrink_axis_mask=1, offset=True),
        Cut(((2, 0, 1), (3, 4, 2)), offset=True),
    )
    check_cuts(cuts, (5, 7))


@pytest.mark.parametrize("dtype", NUMBER_TYPES)
def test_strided_slice_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    each = Cut(((1, 3, 1), (0, 0, 1), (6, 0, -2), (1, 0, 1)), new_axis_mask=2, shrink_axis_mask=8)
    check_outputs(m, each.add(m, add_input(m, [3, 7, 5, 2], dtype), [2, 1, 3, 2]))


def test_strided_slice_moves_stored_integers() -> None:
    m = Build()
    x = add_input(m, [3, 5], "int8", scale=0.5, zero_point=3)
    result = check_outputs(m, Cut(((1, 0, 1), (0, 0, -2)), 2, 2, shrink_axis_mask=1).add(m, x, [3]))
    assert [node.op_type for node in result.model.graph.node] == ["Slice", "Squeeze"]


@pytest.mark.parametrize(
    ("made", "each", "reason"),
    [
        ([3, 5], Cut(((0, 3, 0),)), "the stride of axis 0 must not be 0"),
        (
            [5],
            Cut(((3, 0, 1),), shrink_axis_mask=1),
            "an index of axis 0 must be inside its 3 elements, got 3",
        ),
        ([5], Cut(((1, 0, -1),), shrink_axis_mask=1), "of axis 0 must be at least 1, got -1"),
        ([3], Cut(((0, 3, 1), (0, 5, 1), (0, 1, 1))), "each of 2 axes, got 3"),
        ([3, 5], Cut(((0, 0, 1), (0, 3, 1), (0, 5, 1)), ellipsis_mask=1), "each of 2 axes, got 3"),
        ([3, 5], Cut(((0, 0, 1), (0, 0, 1)), ellipsis_mask=3), "at most one bit, got 2"),
        ([3, 5], Cut(((0, 3, 1),), ellipsis_mask=2), "must have at most 1 bits"),
        ([3, 5], Cut(((0, 3, 1),), new_axis_mask=-2), "must have at most 1 bits"),
    ],
)
def test_strided_slice_refuses_unsupported_strides_indices_and_masks(
    made: list[int], each: Cut, reason: str
) -> None:
    m = Build()
    m.output(each.add(m, add_input(m, [3, 5]), made))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


def test_computed_bounds_refuse_an_index_with_a_negative_stride() -> None:
    """The kernel writes no element of such an output."""
    m = Build()
    bounds = [m.input([1], dtype="int32"), m.constant([1]), m.constant([-1])]
    m.output(*m.op("STRIDED_SLICE", [m.input([5]), *bounds], [m.tensor([])], shrink_axis_mask=1))
    with pytest.raises(ConversionError, match="of axis 0 must be at least 1, got -1"):
        convert(m.bytes())


def test_strided_slice_refuses_lists_of_different_lengths() -> None:
    m = Build()
    bounds = [m.constant(each) for each in ([0, 0], [3, 5], [1])]
    m.output(*m.op("STRIDED_SLICE", [add_input(m, [3, 5]), *bounds], [[3, 5]]))
    with pytest.raises(ConversionError, match="begin, end and strides must have the same length"):
        convert(m.bytes())


@pytest.mark.parametrize("operand", range(3))
@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        ([1, 1], "int32", r"int32\[1\], got int32\[1, 1\]"),
        ([1], "float32", "int32 or int64, got float32"),
    ],
)
def test_computed_bounds_are_lists_of_integers(
    operand: int, shape: list[int], dtype: str, reason: str
) -> None:
    m = Build()
    bounds = [m.input([1], dtype="int32") for _ in range(3)]
    bounds[operand] = m.input(shape, dtype=dtype)
    m.output(*m.op("STRIDED_SLICE", [m.input([5]), *bounds], [m.tensor([None])]))
    with pytest.raises(ConversionError, match=f"tensor_3 must be {reason}"):
        convert(m.bytes())


def test_whole_dynamic_axes_are_not_sliced() -> None:
    """A begin of 0 takes an axis of any size from its first element on."""
    m = Build()
    x = m.input([None, None], dtype="int32")
    m.output(Cut(((0, 0, 1), (0, 0, 1)), end_mask=3).add(m, x, m.tensor(None, dtype="int32")))
    assert [node.op_type for node in convert(m.bytes()).model.graph.node] == ["Identity"]


def test_last_element_of_a_dynamic_axis_is_one() -> None:
    m = Build()
    x = m.input([None, 4], dtype="int32")
    m.output(Cut(((-1, 0, 1),), end_mask=1).add(m, x, m.tensor([None, 4], dtype="int32")))
    assert convert(m.bytes()).outputs[0].tflite_sizes == (1, 4)


@pytest.mark.parametrize(
    "each",
    [
        Cut(((-2, 0, 1), (0, 2, 1)), shrink_axis_mask=1),
        Cut(((0, 0, 1), (-4, 0, 2)), begin_mask=1, end_mask=1, shrink_axis_mask=2),
        Cut(((-3, 0, -1), (-2, -4, -2))),
        Cut(((-4, -2, -1), (-4, 1, -3)), end_mask=1),
        Cut(((-5, 2, 1), (3, -5, -2))),
        Cut(((2, 2**31 - 1, -1), (-3, 2**31 - 1, -2))),
        Cut(((-2, 0, 1), (-3, 0, 1)), shrink_axis_mask=3),
        Cut(((0, 0, 1), (-2, 0, 1), (-3, -9, -1)), new_axis_mask=1, shrink_axis_mask=2),
    ],
    ids=str,
)
def test_strided_slice_of_dynamic_axes_clamps_as_litert(each: Cut) -> None:
    """An index, or a begin of steps backward, may be before the first element of a short axis."""
    m = Build()
    x = m.input([None, None], dtype="int32")
    m.output(each.add(m, x, m.tensor(None, dtype="int32")))
    sizes = [(1, 1), (1, 3), (2, 4), (3, 1), (5, 2), (6, 7)]
    cases = [[np.arange(1, 1 + a * b, dtype=np.int32).reshape(a, b)] for a, b in sizes]
    result = convert(m.bytes())
    assert {*result.inputs[0].symbols} == {0, 1}
    compare_sizes(m.bytes(), result, cases)


@pytest.mark.parametrize(
    ("each", "reason"),
    [
        (Cut(((1, 2, 1),), offset=True), "one entry for each of 2 axes if offset is set"),
        (Cut(((0, 0, 1), (1, 2, 1)), ellipsis_mask=1, offset=True), "one entry for each"),
        (Cut(((0, 1, 1), (0, 3, 1), (0, 5, 1)), new_axis_mask=1, offset=True), "one entry"),
        (Cut(((1, 1, 1), (1, 2, 1)), end_mask=1, offset=True), "axis 0 must select 2 elements"),
        (Cut(((2, 3, -1), (1, 2, 1)), offset=True), "must be 3 at most if offset is set, got 5"),
    ],
)
def test_offset_refuses_ends_that_are_not_the_size_of_the_output(each: Cut, reason: str) -> None:
    """With `offset` the kernel takes the size of each axis from its end alone, without masks."""
    m = Build()
    m.output(each.add(m, add_input(m, [3, 5]), m.tensor(None)))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


# Computed bounds: the masks, the strides (None if they are computed, too), and the given strides.
COMPUTED: list[tuple[dict[str, int], tuple[int, int] | None, tuple[int, int]]] = [
    ({}, (1, 2), (1, 2)),
    ({}, (-1, -2), (-1, -2)),
    ({}, (1, -1), (1, -1)),
    ({}, None, (2, 1)),
    ({}, None, (-1, 2)),
    ({"shrink_axis_mask": 3}, (1, 1), (1, 1)),
    ({"shrink_axis_mask": 2}, (-2, 1), (-2, 1)),
    ({"shrink_axis_mask": 1}, None, (1, -1)),
    ({"shrink_axis_mask": 1, "begin_mask": 1}, (1, -1), (1, -1)),
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("begin", ["computed", "constant"])
@pytest.mark.parametrize(("masks", "steps", "given"), COMPUTED)
def test_computed_bounds_before_the_first_element_clamp_as_litert(
    masks: dict[str, int],
    steps: tuple[int, int] | None,
    given: tuple[int, int],
    begin: str,
    *,
    dynamic: bool,
) -> None:
    """A begin before the axis is moved to its first element, or before it by backward steps."""
    options: dict[str, Any] = masks
    lists = [np.array(each, np.int32) for each in ((-9, -7), (-1, 2**31 - 1), given)]
    constants = [begin == "constant", False, steps is not None]
    m = Build()
    x = m.input([None, None] if dynamic else [5, 4], dtype="int32")
    bounds = [
        m.constant(numbers) if is_constant else m.input([2], dtype="int32")
        for numbers, is_constant in zip(lists, constants, strict=True)
    ]
    rank = 2 - masks.get("shrink_axis_mask", 0).bit_count()
    y = m.op("STRIDED_SLICE", [x, *bounds], [m.tensor([None] * rank, dtype="int32")], **options)[0]
    # LiteRT's interpreter does not hand out a tensor without elements.
    flat = m.op("RESHAPE", [y, m.constant([-1])], [m.tensor([None], dtype="int32")])[0]
    parts = [flat, m.constant(np.array([7], np.int32))]
    m.output(*m.op("CONCATENATION", parts, [m.tensor([None], dtype="int32")], axis=0))
    m.output(
        *m.op("SHAPE", [y], [m.tensor([rank], dtype="int32")], out_type="int32") if rank else []
    )
    data = m.bytes()
    ran = session(convert(data).model, optimize=True)
    firsts = [*itertools.product([-9, -5, -1, 2], [-7, -4, 3])]
    for first in firsts[: 1 if constants[0] else None]:
        lists[0] = np.array(first, np.int32)
        given_lists = [each for each, known in zip(lists, constants, strict=True) if not known]
        for shape in [(5, 4), (4, 6)] if dynamic else [(5, 4)]:
            inputs = [np.arange(np.prod(shape), dtype=np.int32).reshape(shape), *given_lists]
            names = [each.name for each in ran.get_inputs()]
            made = ran.run(None, dict(zip(names, inputs, strict=True)))
            for mine, want in zip(made, run_tflite(data, inputs), strict=True):
                np.testing.assert_array_equal(mine, want)
