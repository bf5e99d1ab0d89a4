"""passes/batch/: networks whose samples are independent, although their axes are shared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.passes.batch.test_add_batch import Network, build, check_batch, draw, reshape
from tests.support import Build, Tensor
from tests.support.control import op
from tests.support.runtimes import session
from tests.support.streams import assign, handle, initialise, read_variable
from tflite2onnx import ConversionError, convert, verify
from tflite2onnx.errors import OptionError


def subtract_mean(m: Build) -> Sequence[Tensor]:
    """A scalar of each sample meets a vector of each sample."""
    x = m.input([8], name="x")
    (mean,) = m.op("MEAN", [x, m.constant([0])], [[]])
    return m.op("SUB", [x, mean], [[8]])


def scale_constant(m: Build) -> Sequence[Tensor]:
    (y,) = m.op("MUL", [m.input([], name="x"), m.constant(draw(5))], [[5]])
    return [op(m, "EXP", y)]


def pack_scalars(m: Build) -> Sequence[Tensor]:
    """Scalars of each sample and a constant are the elements of a vector of each sample."""
    x = m.input([8], name="x")
    parts = [m.op("SUM", [x, m.constant([0])], [[]])[0], m.input([], name="z")]
    return m.op("PACK", [*parts, m.constant(np.float32(2))], [[3]], values_count=3, axis=0)


def convolve_phases(m: Build) -> Sequence[Tensor]:
    """A dilated convolution of sequences: RESHAPE and TRANSPOSE make a batch of its phases."""
    x = reshape(m, m.input([1, 6, 4], name="x"), 3, 2, 4)
    (phases,) = m.op("TRANSPOSE", [x, m.constant([1, 0, 2])], [[2, 3, 4]])
    inputs = [reshape(m, phases, 2, 1, 3, 4), m.constant(draw(5, 1, 2, 4)), m.constant(draw(5))]
    (y,) = m.op("CONV_2D", inputs, [[2, 1, 2, 5]], padding="VALID", stride_h=1, stride_w=1)
    (turned,) = m.op("TRANSPOSE", [y, m.constant([2, 0, 3, 1])], [[2, 2, 5, 1]])
    return [op(m, "EXP", reshape(m, turned, 1, 4, 5))]


def normalize_rows(m: Build) -> Sequence[Tensor]:
    """Rows of an image are sequences, and all pixels are normalized as Keras spells it.

    The samples may be in the axis of size 1 or in that of the pixels; MEAN reduces the former.
    """
    x = m.input([1, 2, 6, 4], name="x")
    (rows,) = m.op("RESHAPE", [x, m.constant([-1, 6, 4])], [[2, 6, 4]])
    pixels = reshape(m, op(m, "EXP", rows), 1, 12, 4, 1)
    (turned,) = m.op("TRANSPOSE", [pixels, m.constant([0, 2, 3, 1])], [[1, 4, 1, 12]])
    over = m.constant([0, 1, 2])
    (mean,) = m.op("MEAN", [turned, over], [[12]])
    (squares,) = m.op("SQUARED_DIFFERENCE", [turned, mean], [[1, 4, 1, 12]])
    (variance,) = m.op("MEAN", [squares, over], [[12]])
    (scaled,) = m.op("MUL", [turned, *m.op("RSQRT", [variance], [[12]])], [[1, 4, 1, 12]])
    (back,) = m.op("TRANSPOSE", [scaled, m.constant([0, 3, 1, 2])], [[1, 12, 4, 1]])
    return [reshape(m, back, 1, 2, 6, 4)]


def normalize_steps(m: Build) -> Sequence[Tensor]:
    """Each step of a sequence is normalized as PyTorch's converter spells it.

    The axes of both means include the batch axis.
    """
    x = m.input([1, 5, 8], name="x")
    over = m.constant([0, 2])
    (mean,) = m.op("MEAN", [x, over], [[5]])
    (squares,) = m.op("SQUARED_DIFFERENCE", [x, reshape(m, mean, 1, 5, 1)], [[1, 5, 8]])
    (variance,) = m.op("MEAN", [squares, over], [[5]])
    factor = op(m, "RSQRT", variance)
    (scaled,) = m.op("MUL", [x, reshape(m, factor, 1, 5, 1)], [[1, 5, 8]])
    (product,) = m.op("MUL", [factor, mean], [[5]])
    (y,) = m.op("SUB", [scaled, reshape(m, product, 1, 5, 1)], [[1, 5, 8]])
    return [y]


def reduce_batch_axis_too(code: str, dtype: str, *, keep_dims: bool) -> Network:
    """Return a network that reduces the batch axis, another axis of size 1, and a longer axis."""

    def network(m: Build) -> Sequence[Tensor]:
        x = m.input([1, 4, 1, 3], name="x", dtype=dtype)
        shape = [1, 4, 1, 1] if keep_dims else [4]
        axes = m.constant([-1, 0, 2])
        return m.op(code, [x, axes], [shape], dtype=dtype, keep_dims=keep_dims)

    return network


def sample_grid(m: Build) -> Sequence[Tensor]:
    """Indices of pixels begin with the index of the sample, as a grid of PyTorch is sampled."""
    x, grid = m.input([1, 4, 5, 3], name="x"), m.input([1, 2, 2, 2], name="grid", dtype="int32")
    zeros = m.constant(np.zeros((1, 2, 2, 1), np.int32))
    (places,) = m.op("CONCATENATION", [zeros, grid], [[1, 2, 2, 3]], dtype="int32", axis=3)
    return m.op("GATHER_ND", [x, places], [[1, 2, 2, 3]])


def take_pixels(m: Build) -> Sequence[Tensor]:
    """All samples have the same indices, which begin with the index of the sample."""
    places = np.array([[0, 3, 1], [0, 0, 4], [0, 2, 2], [0, 1, 0]], np.int32)
    return m.op("GATHER_ND", [m.input([1, 4, 5, 3], name="x"), m.constant(places)], [[4, 3]])


def take_own_row(m: Build) -> Sequence[Tensor]:
    """The only index is that of the sample."""
    places = m.constant(np.zeros((1, 1), np.int32))
    return m.op("GATHER_ND", [m.input([1, 4, 3], name="x"), places], [[1, 4, 3]])


def sum_segments(m: Build) -> Sequence[Tensor]:
    """Segments of rows are sums along the first axis, and the samples are the second."""
    (x,) = m.op("TRANSPOSE", [m.input([1, 4, 3], name="x"), m.constant([1, 0, 2])], [[4, 1, 3]])
    numbers, count = m.constant([0, 1, 0, 2]), m.constant(np.int32(3))
    return m.op("UNSORTED_SEGMENT_SUM", [x, numbers, count], [[3, 1, 3]])


INDEPENDENT: dict[str, Network] = {
    f.__name__: f
    for f in (
        subtract_mean,
        scale_constant,
        pack_scalars,
        convolve_phases,
        normalize_rows,
        normalize_steps,
        sample_grid,
        sum_segments,
        take_pixels,
        take_own_row,
    )
}
INDEPENDENT |= {
    f"{code}{' that keeps axes' * keep_dims}": reduce_batch_axis_too(
        code, dtype, keep_dims=keep_dims
    )
    for code, dtype in (
        ("MEAN", "float32"),
        ("SUM", "int32"),
        ("REDUCE_MAX", "float32"),
        ("REDUCE_MIN", "int32"),
        ("REDUCE_PROD", "float32"),
        ("REDUCE_ANY", "bool"),
        ("REDUCE_ALL", "bool"),
    )
    for keep_dims in (False, True)
}


@pytest.mark.parametrize("name", INDEPENDENT)
@pytest.mark.parametrize("size", [3, "n"])
def test_batch_equals_single_runs(name: str, size: int | str) -> None:
    check_batch(build(INDEPENDENT[name]), size)


def test_axis_of_unknown_size_is_not_taken_for_an_axis_of_size_1() -> None:
    """The file declares the number of rows of a sample as 1; each sample has several rows."""
    m = Build()
    x = m.input([1, None, 3], name="x")
    (rows,) = m.op("RESHAPE", [x, m.constant([-1, 3])], [m.tensor([None, 3])])
    m.output(*m.op("SUM", [rows, m.constant([0, 1])], [[]]))
    result = convert(m.bytes(), batch="n")
    given = draw(2, 4, 3)
    (total,) = session(result.model, optimize=True).run(None, {"x": given})
    np.testing.assert_allclose(total, given.sum((1, 2)), rtol=1e-5)


def test_hash_table_finds_words_of_a_batch() -> None:
    m = Build()
    (table,) = m.op(
        "HASHTABLE",
        [],
        [[1]],
        dtype="resource",
        table_id=3,
        key_dtype="string",
        value_dtype="int64",
    )
    words, numbers = m.constant(["a", "b"]), m.constant(np.array([4, 5], np.int64))
    m.op("HASHTABLE_IMPORT", [table, words, numbers], [])
    x = m.input([1, 2], name="x", dtype="string")
    missing = m.constant(np.int64(-1))
    m.output(*m.op("HASHTABLE_FIND", [table, x, missing], [[1, 2]], dtype="int64"))
    result = convert(m.bytes(), batch=3)
    assert result.outputs[0].sizes == (3, 2)
    given = np.array([["a", "c"], ["b", "b"], ["d", "a"]])
    assert verify(m.bytes(), result, inputs={"x": given}).ok


def build_masked() -> bytes:
    """Return a layer whose weights are a state that a mask multiplies in each run."""
    m = Build()
    x = m.input([1, 4], name="x")
    initialise(m, weights=draw(3, 4))
    weights = handle(m, "weights")
    (masked,) = m.op("MUL", [read_variable(m, weights, [3, 4]), m.constant(draw(3, 4))], [[3, 4]])
    assign(m, weights, masked)
    m.output(*m.op("FULLY_CONNECTED", [x, masked], [[1, 3]]))
    return m.bytes()


@pytest.mark.parametrize("size", [3, "n"])
def test_state_that_all_samples_share_has_no_batch(size: int | str) -> None:
    result = check_batch(build_masked(), size)
    assert [state.input.sizes for state in result.states] == [(3, 4)]


def test_errors_without_a_batch_are_not_reported_as_mixed_samples() -> None:
    """A network that cannot be converted without a batch is not said to mix samples."""
    wrong, custom = Build(), Build()
    x = wrong.input([1, 3])
    wrong.output(*wrong.op("ADD", [x, wrong.constant(draw(4))], [[1, 4]]))
    custom.output(*custom.custom("Unknown", [custom.input([1, 3])], [[1, 3]]))
    for m, words in ((wrong, "ADD .*must broadcast"), (custom, "Unknown .*not supported")):
        with pytest.raises(ConversionError, match=words) as caught:
            convert(m.bytes(), batch=3)
        assert not isinstance(caught.value, OptionError)
