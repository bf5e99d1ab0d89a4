"""Batches of networks with other dynamic sizes: heights and widths, or the length of a sequence."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.dynamic_sizes.test_networks import compare_sizes
from tests.passes.batch.test_add_batch import build, draw
from tests.passes.patterns.test_fuse_group_normalizations import pack_image
from tests.support import Build, Tensor
from tests.support.runtimes import run_tflite, session
from tflite2onnx import ConversionError, Result, convert, verify


def check_sizes(data: bytes, result: Result) -> None:
    """Compare a batch with single runs at the declared sizes, and at two more sizes."""
    report = verify(data, result)
    assert report.ok
    assert len(report.other_sizes or ()) == 2


def image(m: Build, *, dynamic: bool) -> Tensor:
    sizes: list[int | None] = [1, None, None, 3] if dynamic else [1, 8, 6, 3]
    return m.input(sizes, name="x")


def ints(*numbers: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.array(numbers, np.int32)


def take_every_other(m: Build, x: Tensor, first: int) -> Tensor:
    bounds = [m.constant(ints(*each)) for each in ([0, first, 0, 0], [0] * 4, [1, 2, 1, 1])]
    options: dict[str, Any] = {"begin_mask": 13, "end_mask": 15}
    return m.op("STRIDED_SLICE", [x, *bounds], [m.tensor([1, None, None, 3])], **options)[0]


def join_rows(m: Build) -> Sequence[Tensor]:
    """Return the even and the odd rows as channels: their numbers must be equal."""
    x = m.input([1, 8, 6, 3], name="x")
    parts = [take_every_other(m, x, first) for first in (0, 1)]
    return m.op("CONCATENATION", parts, [m.tensor([1, None, None, 6])], axis=3)


def test_batch_may_assume_that_sizes_are_equal() -> None:
    """If LiteRT runs one sample only with equal sizes, the batch needs equal sizes, too."""
    data = build(join_rows)
    result = convert(data, batch="n", shapes={"x": ["n", "h", "w", 3]})
    assert result.inputs[0].tflite_sizes == ("n", "h", "w", 3)
    assert result.outputs[0].tflite_sizes[0] == "n"
    check_sizes(data, result)


def repeat_rows(m: Build, x: Tensor) -> Tensor:
    """Return images with each row twice, as Keras's UpSampling2D spells it for unknown sizes."""
    (rows,) = m.op(
        "EXPAND_DIMS", [x, m.constant(np.int32(2))], [m.tensor([None] * 2 + [1, None, 3])]
    )
    twice = m.constant(ints(1, 1, 2, 1, 1))
    (pairs,) = m.op("TILE", [rows, twice], [m.tensor([None, None, 2, None, 3])])
    (sizes,) = m.op("SHAPE", [x], [m.tensor([4], dtype="int32")], out_type="INT32")
    count, height, rest = (
        m.op(
            "STRIDED_SLICE",
            [sizes, m.constant(ints(first)), m.constant(ints(end)), m.constant(ints(1))],
            [m.tensor([end - first], dtype="int32")],
        )[0]
        for first, end in ((0, 1), (1, 2), (2, 4))
    )
    (doubled,) = m.op("MUL", [height, m.constant(np.int32(2))], [m.tensor([1], dtype="int32")])
    parts = [count, doubled, rest]
    (shape,) = m.op("CONCATENATION", parts, [m.tensor([4], dtype="int32")], axis=0)
    return m.op("RESHAPE", [pairs, shape], [m.tensor([None] * 4)])[0]


@pytest.mark.parametrize("size", [3, "n"])
def test_batch_of_a_network_that_joins_images_of_equal_sizes(size: int | str) -> None:
    """Pooled rows that are repeated must be as many as before, whichever axis has the samples."""
    m = Build()
    x = m.input([None, None, None, 3], name="x")
    window: dict[str, Any] = {"filter_height": 2, "filter_width": 1, "stride_h": 2, "stride_w": 1}
    pooled = m.tensor([None, None, None, 3])
    m.op("MAX_POOL_2D", [x], [pooled], padding="VALID", **window)
    parts = [repeat_rows(m, pooled), x]
    m.output(*m.op("CONCATENATION", parts, [m.tensor([None, None, None, 6])], axis=3))
    result = convert(m.bytes(), batch=size)
    images = [
        np.random.default_rng(height).random((3, height, 5, 3), np.float32) for height in (4, 8)
    ]
    compare_sizes(m.bytes(), result, [[each] for each in images])


@pytest.mark.parametrize("size", [3, "n"])
def test_batch_of_transposed_convolutions_of_computed_sizes(size: int | str) -> None:
    """Keras packs the constant 1 of a fixed batch together with the computed height and width."""
    m = Build()
    x = m.input([1, None, None, 3], name="x")
    (shape,) = m.op("SHAPE", [x], [m.tensor([4], dtype="int32")], out_type="INT32")
    bounds = [[m.constant(ints(i)) for i in (axis, axis + 1, 1)] for axis in (1, 2)]
    sides = [
        m.op("STRIDED_SLICE", [shape, *each], [m.tensor([], dtype="int32")], shrink_axis_mask=1)[0]
        for each in bounds
    ]
    two = m.constant(np.int32(2))
    doubled = [m.op("MUL", [side, two], [m.tensor([], dtype="int32")])[0] for side in sides]
    parts = [m.constant(np.int32(1)), *doubled, m.constant(np.int32(5))]
    (sizes,) = m.op("PACK", parts, [m.tensor([4], dtype="int32")], values_count=4)
    filters = m.constant(draw(5, 3, 3, 3))
    options: dict[str, Any] = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
    y = m.tensor([1, None, None, 5])
    m.output(*m.op("TRANSPOSE_CONV", [sizes, filters, x], [y], **options))
    result = convert(m.bytes(), batch=size)
    check_sizes(m.bytes(), result)


@pytest.mark.parametrize("size", [3, "n"])
def test_batch_of_images_with_groups_of_channels(size: int | str) -> None:
    """A RESHAPE with two dynamic sizes besides the batch, as Keras's GroupNormalization has it."""
    m = Build()
    x = m.input([1, None, None, 6], name="x")
    groups = m.tensor([1, None, None, 2, 3])
    m.op("RESHAPE", [x, pack_image(m, x, [2, 3])], [groups])
    axes = m.constant(ints(1, 2, 4))
    mean = m.tensor([1, 1, 1, 2, 1])
    m.op("MEAN", [groups, axes], [mean], keep_dims=True)
    (y,) = m.op("SUB", [groups, mean], [m.tensor([1, None, None, 2, 3])])
    m.output(*m.op("RESHAPE", [y, pack_image(m, x, [6])], [m.tensor([1, None, None, 6])]))
    check_sizes(m.bytes(), convert(m.bytes(), batch=size))


@pytest.mark.parametrize("size", [3, "n"])
def test_batch_of_vectors_that_fill_images(size: int | str) -> None:
    """BROADCAST_TO adds axes in front of each sample, not in front of the batch."""
    m = Build()
    x, image = m.input([3], name="x"), m.input([None, None, 3], name="image")
    (shape,) = m.op("SHAPE", [image], [m.tensor([3], dtype="int32")], out_type="INT32")
    m.output(*m.op("BROADCAST_TO", [x, shape], [m.tensor([None, None, 3])]))
    result = convert(m.bytes(), batch=size)
    live = session(result.model, optimize=True)
    for rows in (1, 4):
        vectors, images = draw(3, 3), draw(3, rows, 3)
        (have,) = live.run(None, {"x": vectors, "image": images})
        want = np.broadcast_to(vectors[:, None], images.shape)
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("size", [3, "n"])
def test_batch_of_images_that_fill_the_shape_of_two(size: int | str) -> None:
    """BROADCAST_ARGS of two lists with the batch, as `tf.linspace` writes it."""
    m = Build()
    x, y = m.input([None, 1, 3], name="x"), m.input([None, 5, 3], name="y")
    made = [m.tensor([3], dtype="int32") for _ in range(3)]
    lists = [
        m.op("SHAPE", [each], [list_], out_type="INT32")[0]
        for each, list_ in zip((x, y), made, strict=False)
    ]
    (shape,) = m.op("BROADCAST_ARGS", lists, made[2:])
    m.output(*m.op("BROADCAST_TO", [x, shape], [m.tensor([None, 5, 3])]))
    result = convert(m.bytes(), batch=size)
    compare_sizes(m.bytes(), result, [[draw(3, 1, 3), draw(3, 5, 3)]])


def test_vectors_do_not_fill_the_axis_of_the_samples() -> None:
    """The computed shape has the samples in its second axis, and the vectors in their first."""
    m = Build()
    x, image = m.input([3], name="x"), m.input([None, None, 3], name="image")
    turned = m.tensor([None, None, 3])
    m.op("TRANSPOSE", [image, m.constant(ints(1, 0, 2))], [turned])
    (shape,) = m.op("SHAPE", [turned], [m.tensor([3], dtype="int32")], out_type="INT32")
    m.output(*m.op("BROADCAST_TO", [x, shape], [m.tensor([None, None, 3])]))
    with pytest.raises(ConversionError, match=r"BROADCAST_TO .* it mixes samples"):
        convert(m.bytes(), batch=3)


@pytest.mark.parametrize("size", [3, "n"])
def test_batch_of_rows_that_are_cropped(size: int | str) -> None:
    """Nothing is left of the single row that the file declares."""
    m = Build()
    x = m.input([None, None, 3], name="x")
    bounds = [m.constant(ints(*each)) for each in ([0, 2, 0], [0, -1, 0], [1, 1, 1])]
    cropped = m.tensor([None, None, 3])
    m.output(*m.op("STRIDED_SLICE", [x, *bounds], [cropped], begin_mask=5, end_mask=5))
    result = convert(m.bytes(), batch=size)
    compare_sizes(m.bytes(), result, [[draw(3, rows, 3)] for rows in (5, 9)])


def test_volume_that_is_cropped_is_small_enough_to_verify() -> None:
    """The single element that the file declares is cropped; verification makes larger volumes."""
    m = Build()
    x = m.input([None, None, None, None], name="x")
    bounds = [m.constant(ints(*each)) for each in ([0, 2, 2, 2], [0] * 4, [1] * 4)]
    (y,) = m.op("STRIDED_SLICE", [x, *bounds], [m.tensor([None] * 4)], begin_mask=1, end_mask=15)
    m.output(y)
    result = convert(m.bytes(), batch=3)
    assert result.inputs[0].tflite_shape == (3, 60, 60, 60)
    check_sizes(m.bytes(), result)


def add_rows(m: Build, *, dynamic: bool = True) -> Sequence[Tensor]:
    """Add a constant of 8 rows, and join blocks: other numbers of rows are not possible."""
    (y,) = m.op("ADD", [image(m, dynamic=dynamic), m.constant(draw(1, 8, 1, 3))], [[1, 8, 6, 3]])
    shape = m.constant(ints(1, 8, -1, 3))
    return m.op("RESHAPE", [y, shape], [[1, 8, 6, 3]])


@pytest.mark.parametrize("size", [3, "n"])
def test_sizes_of_file_are_fixed_with_one_warning(
    size: int | str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning lists the dynamic sizes of the file that an operator needs to know."""
    m = Build()
    x = m.input([1, 8, 6, 3], shape_signature=[1, -1, -1, 3], name="x")
    (y,) = m.op("CONCATENATION", [x, m.constant(draw(1, 8, 6, 3))], [[1, 8, 6, 6]], axis=3)
    shape = m.constant(ints(1, 48, 6))
    m.output(*m.op("RESHAPE", [y, shape], [[1, 48, 6]]))
    data = m.bytes()
    with caplog.at_level(logging.WARNING):
        result = convert(data, batch=size)
    (record,) = caplog.records
    assert "axes of inputs are fixed as in the file, x_1 because " in record.getMessage()
    assert result.inputs[0].tflite_sizes == (size, 8, 6, 3)
    assert verify(data, result).ok


def test_refuses_sizes_that_cannot_be_dynamic() -> None:
    """The reason is the size, in the user's words, and not that samples were mixed."""
    data = build(lambda m: add_rows(m, dynamic=False))
    with pytest.raises(ConversionError, match="the size h cannot be dynamic because ADD") as caught:
        convert(data, batch="n", shapes={"x": ["n", "h", "w", 3]})
    assert "not independent" not in str(caught.value)
    assert "x_1" not in str(caught.value)
    assert verify(data, convert(data, batch="n", shapes={"x": ["n", 8, "w", 3]})).ok


def test_refuses_named_sizes_in_a_loop_of_samples() -> None:
    with pytest.raises(ConversionError, match="the size h must be a number with the batch loop:n"):
        convert(build(join_rows), batch="loop:n", shapes={"x": ["n", "h", 6, 3]})


def test_rows_of_a_sample_get_their_own_axis() -> None:
    """At other sizes one sample becomes several rows: they get an axis of their own."""
    m = Build()
    x = m.input([1, 4, 4, 3], name="x")
    (y,) = m.op(
        "AVERAGE_POOL_2D", [x], [[1, 1, 1, 3]], padding="VALID", filter_height=4, filter_width=4,
        stride_h=4, stride_w=4,
    )  # fmt: skip
    (rows,) = m.op("RESHAPE", [y, m.constant(ints(-1, 3))], [[1, 3]])
    m.output(*m.op("FULLY_CONNECTED", [rows, m.constant(draw(2, 3)), None], [[1, 2]]))
    result = convert(m.bytes(), batch="n", shapes={"x": ["n", "h", "w", 3]})
    first, *rest = result.outputs[0].tflite_sizes
    assert (first, len(rest), rest[-1]) == ("n", 2, 2)
    check_sizes(m.bytes(), result)
    assert convert(m.bytes(), batch="n").outputs[0].tflite_sizes == ("n", 2)


@pytest.mark.parametrize("kind", ["dynamic range", "int8"])
def test_dense_layers_of_dynamic_images_equal_litert(kind: str) -> None:
    """Rows are multiplied as a matrix; the shape of the output has three dynamic sizes."""
    m = Build()
    integers = np.random.default_rng(3).integers(-127, 128, (5, 3), np.int8)
    weights = m.constant(integers, scale=0.01)
    if kind == "int8":
        x = m.input([1, 8, 6, 3], name="x", dtype="int8", scale=0.02)
        y = m.tensor([1, 8, 6, 5], dtype="int8", scale=0.05)
    else:
        x, y = m.input([1, 8, 6, 3], name="x"), m.tensor([1, 8, 6, 5])
    m.output(*m.op("FULLY_CONNECTED", [x, weights, None], [y], keep_num_dims=True))
    result = convert(m.bytes(), batch="n", shapes={"x": ["n", "h", "w", 3]})
    assert result.outputs[0].tflite_sizes == ("n", "h", "w", 5)
    check_sizes(m.bytes(), result)


def take_image(end: int, code: str, dynamic: tuple[bool, ...]) -> bytes:
    """Return a network that takes `x[0, -2, :end, :8]`, and applies an operator if there is one."""
    m = Build()
    sizes = (5, 7, 3)
    x = m.input([1, *(None if d else n for d, n in zip(dynamic, sizes, strict=True))], name="x")
    bounds = [m.constant(ints(*each)) for each in ([0, -2, 0, 0], [0, 0, end, 8], [1] * 4)]
    masks: dict[str, Any] = {"begin_mask": 13, "end_mask": 1, "shrink_axis_mask": 3}
    y = m.op("STRIDED_SLICE", [x, *bounds], [m.tensor(None)], **masks)[0]
    m.output(m.op(code, [y], [m.tensor(None)])[0] if code else y)
    return m.bytes()


@pytest.mark.parametrize("code", ["", "ABS"])
@pytest.mark.parametrize("dynamic", [(False,) * 3, (True,) * 3, (True, False, False)], ids=str)
@pytest.mark.parametrize("end", [0, 4])
def test_samples_without_elements_are_counted(
    end: int, dynamic: tuple[bool, ...], code: str
) -> None:
    """A batch of empty samples has as many samples as its input, whose axes LiteRT keeps."""
    data, fixed = take_image(end, code, dynamic), bool(code) or not all(dynamic)
    result = convert(data, batch=3, shapes={"x": [1, 5, 7, 3]} if fixed else {})
    for sizes in [(5, 7, 3), (6, 9, 2)][: 2 - fixed]:
        x = draw(3, *sizes)
        (made,) = session(result.model, optimize=True).run(None, {"x": x})
        want = np.stack([run_tflite(data, [sample[None]])[0] for sample in x])
        assert made.shape == want.shape == (3, end, sizes[2])
        np.testing.assert_array_equal(made, want)


@pytest.mark.parametrize("batch", [3, "n"])
@pytest.mark.parametrize("code", ["SLICE", "STRIDED_SLICE"])
def test_a_range_of_all_samples_is_computed(code: str, batch: int | str) -> None:
    """Keras's crop_images and tf.signal.frame list the size or end with the size of the batch."""
    m = Build()
    x = m.input([None, 5, 7, 3], name="x")
    (shape,) = m.op("SHAPE", [x], [[4]], dtype="int32", out_type="int32")
    bounds = [m.constant(ints(n)) for n in (0, 1, 1)]
    (count,) = m.op("STRIDED_SLICE", [shape, *bounds], [[1]], dtype="int32")
    (size,) = m.op(
        "CONCATENATION", [count, m.constant(ints(2, 3, 3))], [[4]], dtype="int32", axis=0
    )
    begin = m.constant(ints(0, 1, 2, 0) if code == "SLICE" else ints(0, 0, 0, 0))
    steps = [m.constant(ints(1, 1, 1, 1))] if code == "STRIDED_SLICE" else []
    m.output(*m.op(code, [x, begin, size, *steps], [m.tensor([None, 2, 3, 3])]))
    data = m.bytes()
    result = convert(data, batch=batch)
    assert result.outputs[0].tflite_sizes[0] == batch
    assert verify(data, result).ok


def test_a_range_of_one_sample_mixes_samples() -> None:
    m = Build()
    x = m.input([None, 5], name="x")
    (shape,) = m.op("SHAPE", [x], [[2]], dtype="int32", out_type="int32")
    (first,) = m.op("SUB", [shape, shape], [[2]], dtype="int32")
    (less,) = m.op("SUB", [shape, m.constant(ints(1, 0))], [[2]], dtype="int32")
    m.output(*m.op("SLICE", [x, first, less], [m.tensor([None, 5])]))
    with pytest.raises(ConversionError, match="mixes samples"):
        convert(m.bytes(), batch=3)
