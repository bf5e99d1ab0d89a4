"""passes/batch/add_batch.py: a batch equals single runs, or is refused with the operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.op.recurrent import cells
from tests.support import Build, Subgraph, Tensor
from tests.support.control import add_if, count_rounds, loop, number, op
from tests.support.runtimes import session
from tests.support.streams import build_sum
from tflite2onnx import ConversionError, convert, verify
from tflite2onnx.cli import main
from tflite2onnx.inspection import inspect
from tflite2onnx.op import find_operator
from tflite2onnx.passes.batch.inputs import add_first_axis, has_batch_axis
from tflite2onnx.passes.batch.loop_samples import _make_buffer, loop_samples
from tflite2onnx.passes.shape_walk import ShapeWalk
from tflite2onnx.reader.model import read_model
from tflite2onnx.stateful import Stateful
from tflite2onnx.tensor import DType, Tensor as FileTensor

RANDOM = np.random.default_rng(7)
Network = Callable[[Build], Sequence[Tensor]]


@pytest.mark.parametrize(
    ("shape", "signature", "has_axis"),
    [
        ((), (), False),
        ((1,), (), True),
        ((3, 1), (3, -1), False),
        ((3, 5), (-1, 5), True),
    ],
)
def test_first_axis_of_one_or_a_dynamic_size_counts_samples(
    shape: tuple[int, ...], signature: tuple[int, ...], *, has_axis: bool
) -> None:
    tensor = FileTensor("x", shape, DType.FLOAT32, shape_signature=signature)
    assert has_batch_axis(tensor) == has_axis
    wider = add_first_axis(tensor)
    assert wider.shape == (1, *shape)
    assert wider.shape_signature == ((1, *signature) if signature else ())


def draw(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def build(network: Network) -> bytes:
    m = Build()
    m.output(*network(m))
    return m.bytes()


def check_batch(data: bytes, size: int | str, **options: Any) -> Any:
    """Return the converted model after a comparison of the batch with single runs in LiteRT."""
    result = convert(data, batch=size, **options)
    ends = (*result.inputs, *result.outputs)
    assert [end.tflite_sizes[0] for end in ends] == [size] * len(ends)
    report = verify(data, result, samples=2)
    assert report.ok, report
    return result


def single(
    code: str, shape: Sequence[int], y: Sequence[int], *constants: Any, **options: Any
) -> Network:
    """Return a network of one operator, whose first input is the network's."""

    def network(m: Build) -> Sequence[Tensor]:
        others = [None if each is None else m.constant(each) for each in constants]
        return m.op(code, [m.input(shape, name="x"), *others], [y], **options)

    return network


def reshape(m: Subgraph, x: Tensor, *shape: int) -> Tensor:
    return m.op("RESHAPE", [x, m.constant([*shape])], [shape])[0]


def add_positions(code: str, m: Build, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return SPACE_TO_BATCH_ND or BATCH_TO_SPACE_ND in blocks of 2 x 2."""
    edges = m.constant([[0, 0], [0, 0]])
    return m.op(code, [x, m.constant([2, 2]), edges], [shape])[0]


def dilate(m: Build) -> Sequence[Tensor]:
    x = add_positions("SPACE_TO_BATCH_ND", m, m.input([1, 4, 4, 2]), [4, 2, 2, 2])
    return [add_positions("BATCH_TO_SPACE_ND", m, op(m, "EXP", x), [1, 4, 4, 2])]


def multiply_keys(m: Build) -> Sequence[Tensor]:
    """Return the scores of an attention of one head, whose keys are weights."""
    x = m.input([1, 4, 6], name="x")
    keys, queries = (
        m.op("FULLY_CONNECTED", [x, m.constant(draw(5, 6)), None], [shape], keep_num_dims=keeps)[0]
        for shape, keeps in (([4, 5], False), ([1, 4, 5], True))
    )
    inputs = [reshape(m, queries, 1, 1, 4, 5), keys, None]
    return m.op("FULLY_CONNECTED", inputs, [[1, 1, 4, 4]], keep_num_dims=True)


def upsample(m: Build) -> Sequence[Tensor]:
    inputs = [m.constant([1, 4, 4, 2]), m.constant(draw(2, 2, 2, 3)), m.input([1, 2, 2, 3])]
    return m.op("TRANSPOSE_CONV", inputs, [[1, 4, 4, 2]], padding="VALID", stride_h=2, stride_w=2)


def split(sizes: Sequence[int], rows: int) -> Network:
    def network(m: Build) -> Sequence[Tensor]:
        inputs = [m.input([rows, 3]), m.constant([*sizes]), number(m, 0)]
        return m.op("SPLIT_V", inputs, [[size, 3] for size in sizes], num_splits=len(sizes))

    return network


def find_largest(m: Build) -> Sequence[Tensor]:
    y = m.tensor([], dtype="int32")
    return m.op("ARG_MAX", [m.input([6]), number(m, 0)], [y], output_type="int32")


def find_two_largest(m: Build) -> Sequence[Tensor]:
    ends = [m.tensor([2]), m.tensor([2], dtype="int32")]
    return m.op("TOPK_V2", [m.input([6]), number(m, 2)], ends)


def encode(*shape: int) -> Network:
    def network(m: Build) -> Sequence[Tensor]:
        ends = m.constant(np.float32(2)), m.constant(np.float32(-1))
        inputs = [m.input(shape, dtype="int32"), number(m, 5), *ends]
        return m.op("ONE_HOT", inputs, [[*shape, 5]], axis=-1)

    return network


def join_bytes(*shape: int) -> Network:
    def network(m: Build) -> Sequence[Tensor]:
        return m.op("BITCAST", [m.input([*shape, 4], dtype="uint8")], [[*shape]], dtype="int32")

    return network


NETWORKS: dict[str, Network] = {
    # Shapes that say 1.
    "RESHAPE with -1": single("RESHAPE", [1, 4, 6, 8], [1, 24, 8], [1, -1, 8]),
    "RESHAPE with -1 for the batch": single("RESHAPE", [1, 4, 6], [1, 24], [-1, 24]),
    "RESHAPE to fixed sizes": single("RESHAPE", [1, 4, 6], [1, 2, 12], [1, 2, 12]),
    "RESHAPE to more axes": single("RESHAPE", [1, 6], [1, 1, 2, 3], [1, 1, 2, 3]),
    "SQUEEZE": single("SQUEEZE", [1, 1, 1, 5], [1, 5], squeeze_dims=[1, 2]),
    "SQUEEZE of the batch": single("SQUEEZE", [1, 4, 5], [4, 5], squeeze_dims=[0]),
    "SQUEEZE of all axes": single("SQUEEZE", [1, 4, 1, 5], [4, 5]),
    "SQUEEZE to a scalar": single("SQUEEZE", [1, 1], []),
    "EXPAND_DIMS": single("EXPAND_DIMS", [1, 5], [1, 1, 5], np.int32(0)),
    "BROADCAST_TO": single("BROADCAST_TO", [1, 1, 5], [1, 4, 5], [1, 4, 5]),
    "BROADCAST_TO more axes": single("BROADCAST_TO", [1, 5], [4, 1, 5], [4, 1, 5]),
    "TILE": single("TILE", [1, 2, 5], [1, 6, 10], [1, 3, 2]),
    "SLICE": single("SLICE", [1, 5, 4], [1, 3, 4], [0, 1, 0], [1, 3, -1]),
    "SLICE of the rest": single("SLICE", [1, 5], [1, 3], [0, 2], [-1, 3]),
    "STRIDED_SLICE": single("STRIDED_SLICE", [1, 5], [1, 3], [0, 1], [1, 4], [1, 1]),
    "STRIDED_SLICE of the batch": single(
        "STRIDED_SLICE", [1, 5], [5], [0, 0], [1, 5], [1, 1], shrink_axis_mask=1, end_mask=2
    ),
    "STRIDED_SLICE backwards": single("STRIDED_SLICE", [1, 5], [1, 5], [-1, 0], [-2, 5], [-1, 1]),
    "STRIDED_SLICE with a new axis": single(
        "STRIDED_SLICE", [1, 5], [1, 1, 3], [0, 0, 1], [0, 1, 4], [1, 1, 1], new_axis_mask=1
    ),
    "STRIDED_SLICE with an ellipsis": single(
        "STRIDED_SLICE", [1, 5, 4], [1, 5, 2], [0, 1], [0, 3], [1, 1], ellipsis_mask=1
    ),
    "UNPACK of the batch": single("UNPACK", [1, 4, 5], [4, 5], num=1, axis=0),
    "GATHER of the batch": single("GATHER", [1, 4, 5], [4, 5], np.int32(0), axis=0),
    "GATHER of the batch with a list": single("GATHER", [1, 5], [1, 5], [0], axis=0),
    "EMBEDDING_LOOKUP": lambda m: m.op(
        "EMBEDDING_LOOKUP", [m.input([1], dtype="int32"), m.constant(draw(9, 3))], [[1, 3]]
    ),
    "SPLIT_V of the batch": split([1], 1),
    "TRANSPOSE_CONV": upsample,
    "FULLY_CONNECTED by samples": multiply_keys,
    "blocks in the batch": dilate,
    # Axes that are not those of the samples.
    "ONE_HOT": encode(1, 3),
    "BITCAST": join_bytes(1, 3),
    "SOFTMAX": single("SOFTMAX", [1, 5], [1, 5], beta=1.0),
    "MEAN": single("MEAN", [1, 4, 6, 3], [1, 3], [1, 2]),
    "TRANSPOSE": single("TRANSPOSE", [1, 4, 5], [4, 1, 5], [1, 0, 2]),
    "BATCH_MATMUL": single("BATCH_MATMUL", [1, 2, 3], [1, 2, 4], draw(1, 3, 4)),
    "REVERSE_SEQUENCE": single(
        "REVERSE_SEQUENCE", [1, 4, 2], [1, 4, 2], [3], seq_dim=1, batch_dim=0
    ),
    "FULLY_CONNECTED of an image": single("FULLY_CONNECTED", [1, 2, 3], [1, 4], draw(4, 6), None),
    "FULLY_CONNECTED of rows": single("FULLY_CONNECTED", [5, 1, 6], [5, 4], draw(4, 6), None),
    # Samples without an axis of their own.
    "SOFTMAX of a vector": single("SOFTMAX", [5], [5], beta=1.0),
    "ONE_HOT of a vector": encode(3),
    "BITCAST of a vector": join_bytes(3),
    "TOPK_V2 of a vector": find_two_largest,
    "MEAN of a vector": single("MEAN", [4], [1], [0], keep_dims=True),
    "SUM of a vector to a scalar": single("SUM", [4], [], [0]),
    "ARG_MAX of a vector": find_largest,
    "CUMSUM of a vector": single("CUMSUM", [6], [6], np.int32(0)),
    "REVERSE_V2 of a vector": single("REVERSE_V2", [6], [6], [0]),
    "SLICE of a vector": single("SLICE", [6], [3], [2], [3]),
    "STRIDED_SLICE of a vector": single("STRIDED_SLICE", [6], [2], [1], [5], [2]),
    "STRIDED_SLICE to a scalar": single(
        "STRIDED_SLICE", [6], [], [1], [2], [1], shrink_axis_mask=1
    ),
    "PAD of a vector": single("PAD", [6], [9], [[1, 2]]),
    "MIRROR_PAD of rows": single("MIRROR_PAD", [4, 3], [6, 3], [[1, 1], [0, 0]], mode="REFLECT"),
    "TILE of a vector": single("TILE", [3], [6], [2]),
    "TRANSPOSE of a matrix": single("TRANSPOSE", [3, 4], [4, 3], [1, 0]),
    "GATHER of a vector": single("GATHER", [6], [2], [4, 1], axis=0),
    "GATHER of rows by rows": single(
        "GATHER", [2, 6], [2, 3], [[4, 1, 0], [2, 2, 5]], axis=1, batch_dims=1
    ),
    "UNPACK of rows": lambda m: m.op("UNPACK", [m.input([2, 3])], [[3], [3]], num=2, axis=0),
    "SPLIT_V of rows": split([1, 3], 4),
    "BROADCAST_TO of rows": single("BROADCAST_TO", [2, 1], [2, 3], [2, 3]),
    "BATCH_MATMUL of a matrix": single("BATCH_MATMUL", [2, 3], [2, 4], draw(3, 4)),
    "ABS of a scalar": single("ABS", [], []),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_batch_of_each_operator_equals_single_runs(name: str) -> None:
    check_batch(build(NETWORKS[name]), "n")


# Several operands


def join_with_constant(m: Build) -> Sequence[Tensor]:
    token = m.constant(draw(1, 1, 3))
    return m.op("CONCATENATION", [token, m.input([1, 4, 3])], [[1, 5, 3]], axis=1)


def pack_with_constant(m: Build) -> Sequence[Tensor]:
    return m.op(
        "PACK", [m.input([1, 3]), m.constant(draw(1, 3))], [[1, 2, 3]], axis=1, values_count=2
    )


def pack_vectors(m: Build) -> Sequence[Tensor]:
    return m.op("PACK", [m.input([3]), m.input([3])], [[3, 2]], axis=1, values_count=2)


def join_vectors(m: Build) -> Sequence[Tensor]:
    return m.op("CONCATENATION", [m.input([3]), m.constant(draw(2))], [[5]], axis=0)


def multiply_heads(m: Build) -> Sequence[Tensor]:
    """Heads of an attention, which are folded into the batch and unfolded again."""
    x = m.input([1, 4, 2, 3])
    (turned,) = m.op("TRANSPOSE", [x, m.constant([0, 2, 1, 3])], [[1, 2, 4, 3]])
    heads = reshape(m, turned, 2, 4, 3)
    (scores,) = m.op("BATCH_MATMUL", [heads, heads], [[2, 4, 4]], adj_y=True)
    (biased,) = m.op("ADD", [scores, m.constant(draw(2, 4, 4))], [[2, 4, 4]])
    return [reshape(m, biased, 1, 2, 4, 4)]


def shuffle_channels(m: Build) -> Sequence[Tensor]:
    split = reshape(m, m.input([1, 2, 2, 6]), 2, 2, 2, 3)
    (turned,) = m.op("TRANSPOSE", [split, m.constant([0, 1, 3, 2])], [[2, 2, 3, 2]])
    return [reshape(m, turned, 1, 2, 2, 6)]


def turn_to_time_major(m: Build) -> Sequence[Tensor]:
    """A RESHAPE of [batch, 1, 3] to [1, batch, 3] looks the same for one sample."""
    x = reshape(m, m.input([1, 1, 3]), 1, 1, 3)
    (other,) = m.op("TRANSPOSE", [m.input([1, 4, 3]), m.constant([1, 0, 2])], [[4, 1, 3]])
    return m.op("CONCATENATION", [x, other], [[5, 1, 3]], axis=0)


def add_of_lower_rank(m: Build) -> Sequence[Tensor]:
    return m.op("ADD", [m.input([1, 4, 3]), m.input([1, 3])], [[1, 4, 3]])


def add_scalar(m: Build) -> Sequence[Tensor]:
    return m.op("ADD", [m.input([1, 4]), m.input([])], [[1, 4]])


def select_rows(m: Build) -> Sequence[Tensor]:
    """Each sample has its own indices."""
    indices = m.input([2], dtype="int32")
    return m.op("GATHER", [m.constant(draw(9, 3)), indices], [[2, 3]], axis=0)


def select_own_rows(m: Build) -> Sequence[Tensor]:
    """Each sample has its own table and its own indices."""
    indices = m.input([1, 2], dtype="int32")
    return m.op("GATHER", [m.input([1, 9, 3]), indices], [[1, 1, 2, 3]], axis=1)


def select_from_own_vector(m: Build) -> Sequence[Tensor]:
    return m.op("GATHER", [m.input([9]), m.input([2], dtype="int32")], [[2]], axis=0)


def update_vector(m: Build) -> Sequence[Tensor]:
    return m.op(
        "DYNAMIC_UPDATE_SLICE",
        [m.constant(draw(6)), m.input([2]), m.constant([3])],
        [[6]],
    )


def reverse_own_rows(m: Build) -> Sequence[Tensor]:
    operands = m.input([1, 4, 2]), m.input([1], dtype="int32")
    return m.op("REVERSE_SEQUENCE", operands, [[1, 4, 2]], seq_dim=1, batch_dim=0)


def share_output(m: Build) -> Sequence[Tensor]:
    """The second output is the same for all samples."""
    return [op(m, "ABS", m.input([1, 3])), op(m, "ABS", m.constant(draw(2, 3)))]


def fill_by_shape(m: Build) -> Sequence[Tensor]:
    """A shape that is computed from the batch is right for any batch."""
    x = m.input([1, 3])
    (shape,) = m.op("SHAPE", [x], [[2]], dtype="int32", out_type="int32")
    (zeros,) = m.op("FILL", [shape, m.constant(np.float32(2))], [m.tensor([1, 3])])
    (joined,) = m.op("CONCATENATION", [x, zeros], [[1, 6]], axis=1)
    size = m.op(
        "STRIDED_SLICE", [shape, *map(m.constant, ([0], [1], [1]))], [[]], shrink_axis_mask=1
    )
    (computed,) = m.op("PACK", [*size, number(m, 2), number(m, 3)], [[3]], values_count=3)
    return m.op("RESHAPE", [joined, computed], [[1, 2, 3]])


SEVERAL = {
    f.__name__: f
    for f in (
        join_with_constant, pack_with_constant, pack_vectors, join_vectors, multiply_heads,
        shuffle_channels, turn_to_time_major, add_of_lower_rank, add_scalar, select_rows,
        select_from_own_vector, update_vector, reverse_own_rows, share_output,
        fill_by_shape,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_batch_of_several_operands_equals_single_runs(name: str) -> None:
    check_batch(build(SEVERAL[name]), "n")


def test_every_network_takes_a_batch() -> None:
    """Three samples of all networks are one case; the first level draws cases of those above."""
    for network in (*NETWORKS.values(), *SEVERAL.values()):
        check_batch(build(network), 3)


# Sub-graphs


def test_loop_repeats_values_to_which_samples_are_added() -> None:
    """What a loop carries is repeated if an iteration adds samples to it."""
    m = Build()
    x, zeros = m.input([1, 3], name="x"), m.constant(np.zeros((1, 3), np.float32))
    change = count_rounds(lambda _, xs: [op(_, "ADD", xs[0], xs[1]), xs[1]])
    _, total, _ = loop(m, [number(m, 0), zeros, x], change)
    m.output(total)
    for size in (3, "n"):
        check_batch(m.bytes(), size)


def test_both_branches_return_the_whole_batch() -> None:
    """Both branches have the samples in one axis, also if a branch returns a constant."""
    m = Build()
    x, y = m.input([1, 3], name="x"), m.constant(draw(1, 3))
    (limit,) = m.op("LESS", [number(m, 1), number(m, 2)], [[]], dtype="bool")
    m.output(*add_if(m, limit, [x, y], lambda _, xs: [xs[1]], lambda _, xs: [op(_, "NEG", xs[0])]))
    check_batch(m.bytes(), 3)


# Refused


def mix_by_sum(m: Build) -> Sequence[Tensor]:
    return m.op("SUM", [m.input([1, 3]), m.constant([0])], [[3]])


def mix_by_mean_that_keeps_axes(m: Build) -> Sequence[Tensor]:
    return m.op("MEAN", [m.input([1, 3]), m.constant([0])], [[1, 3]], keep_dims=True)


def mix_by_where(m: Build) -> Sequence[Tensor]:
    return m.op("WHERE", [m.input([1, 3], dtype="bool")], [m.tensor([None, 2], dtype="int64")])


def mix_by_condition(m: Build) -> Sequence[Tensor]:
    x = m.input([1, 3], name="x")
    (total,) = m.op("SUM", [x, m.constant([1])], [[1]])
    (less,) = m.op("LESS", [total, m.constant(np.array([1], np.float32))], [[1]], dtype="bool")
    return add_if(m, less, [x], lambda _, xs: [op(_, "ABS", xs[0])], lambda _, xs: xs)


def divide_by_batch(m: Build) -> Sequence[Tensor]:
    x = m.input([1, 3])
    (shape,) = m.op("SHAPE", [x], [[2]], dtype="int32", out_type="int32")
    sizes = m.op("CAST", [shape], [[2]], dtype="float32")
    return m.op("ADD", [reshape(m, x, 3, 1), *sizes], [[3, 2]])


def return_batch(m: Build) -> Sequence[Tensor]:
    return m.op("SHAPE", [m.input([1, 3])], [[2]], dtype="int32", out_type="int32")


def count_batch(m: Build) -> Sequence[Tensor]:
    (shape,) = m.op("SHAPE", [m.input([1])], [[1]], dtype="int32", out_type="int32")
    (size,) = m.op("SQUEEZE", [shape], [[]])
    return m.op("RANGE", [number(m, 0), size, number(m, 1)], [m.tensor([1], dtype="int32")])


def multiply_samples(m: Build) -> Sequence[Tensor]:
    (y,) = m.op("ADD", [m.input([1, 3]), m.constant(draw(5, 3))], [[5, 3]])
    return [y]


REFUSED: dict[str, tuple[Network, str]] = {
    "a sum": (mix_by_sum, "SUM .*it mixes samples"),
    "a mean that keeps axes": (mix_by_mean_that_keeps_axes, "MEAN .*it mixes samples"),
    "WHERE": (mix_by_where, "WHERE .*it mixes samples"),
    "a condition": (mix_by_condition, "IF .*its condition must be the same"),
    "the number of samples": (divide_by_batch, "it computes with the number of samples"),
    "the shape as an output": (return_batch, "depends on the number of samples"),
    "a range": (count_batch, "RANGE .*depend on the number of samples"),
    "SOFTMAX over the batch": (single("SOFTMAX", [1], [1], beta=1.0), ""),
    "PAD of the batch": (single("PAD", [1, 3], [3, 3], [[1, 1], [0, 0]]), "PAD .*it mixes"),
    "more rows than samples": (multiply_samples, "ADD .*it mixes samples"),
    "a RESHAPE between samples": (select_own_rows, "GATHER .*it mixes samples"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_networks_that_mix_samples(name: str) -> None:
    network, reason = REFUSED[name]
    with pytest.raises(ConversionError, match=f"samples are not independent: .*{reason}"):
        convert(build(network), batch=3)


# States


@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.parametrize(
    "data",
    [
        build_sum(),
        cells.lstm(cells.Form(batch=1)),
        cells.lstm(cells.Form(batch=1, time_major=True)),
        cells.rnn(cells.Form(batch=1)),
        cells.bidirectional_rnn(cells.Form(batch=1)),
        cells.svdf(cells.Form(batch=1)),
        cells.integer_svdf(cells.Form(batch=1)),
    ],
    ids=["variable", "LSTM", "LSTM time first", "RNN", "both directions", "SVDF", "int16 SVDF"],
)
def test_each_sample_has_its_own_state(data: bytes, size: int | str) -> None:
    result = check_batch(data, size)
    assert {state.output.tflite_sizes[0] for state in result.states} == {size}


@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.parametrize(
    "make", [cells.lstm, cells.bidirectional_lstm, cells.rnn, cells.bidirectional_rnn]
)
def test_samples_of_several_sequences_have_any_length(make: Any, size: int | str) -> None:
    result = check_batch(make(cells.Form(batch=2, dynamic=True)), size)
    sample = result.inputs[0].tflite_sizes[1:]
    assert (sample[0], type(sample[1])) == (2, str)


def test_initial_state_of_one_sample_is_repeated() -> None:
    """Before the first run there is one sample of each state, which the model repeats."""
    result = convert(build_sum(), batch="n", states="required")
    (state,) = result.states
    assert state.input.sizes[0] == "n_or_1"
    assert state.initial.shape == (1, *state.input.onnx_shape[1:])
    live = Stateful(session(result.model, optimize=True))
    x = draw(4, *result.inputs[0].onnx_shape[1:])
    for times in (1, 2, 3):
        (y,) = live.run(None, {result.inputs[0].name: x})
        np.testing.assert_allclose(y, state.initial + times * x, rtol=1e-5, atol=1e-6)


# Sample by sample

LOOPED = ("a sum", "a condition", "SOFTMAX over the batch", "PAD of the batch", "a range")


@pytest.mark.parametrize("name", LOOPED)
def test_tensors_of_the_loop_have_the_shapes_that_are_inferred(name: str) -> None:
    looped = loop_samples(read_model(build(REFUSED[name][0])).graphs[0], find_operator)
    known = ShapeWalk(looped, find_operator, {}).walk()
    made = [y for op in (*looped.ops, *looped.ops[-1].graphs[0].ops) for y in op.outputs]
    assert [known[y].shape for y in made] == [y.shape for y in made]


@pytest.mark.parametrize("name", LOOPED)
@pytest.mark.parametrize("size", [3, "n"])
def test_loop_runs_networks_that_mix_samples(name: str, size: int | str) -> None:
    data = build(REFUSED[name][0])
    result, alone = convert(data, batch=f"loop:{size}"), convert(data)
    for end, one in zip(
        (*result.inputs, *result.outputs), (*alone.inputs, *alone.outputs), strict=True
    ):
        sample = one.tflite_sizes[1:] if one.tflite_sizes[:1] == (1,) else one.tflite_sizes
        assert end.tflite_sizes == (size, *sample)
    assert verify(data, result).ok


def test_verify_refuses_one_more_axis_in_outputs_of_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tflite2onnx.passes.batch.loop_samples._make_buffer",
        lambda rw, output, count: _make_buffer(rw, add_first_axis(output), count),
    )
    data = build(REFUSED["SOFTMAX over the batch"][0])
    (outcome,) = verify(data, convert(data, batch="loop:3")).outputs
    assert not outcome.ok


@pytest.mark.parametrize("name", ["SQUEEZE of the batch", "MEAN of a vector", "ABS of a scalar"])
def test_loop_runs_samples_without_batch_axis(name: str) -> None:
    data = build(NETWORKS[name])
    for size in (1, 3):
        assert verify(data, convert(data, batch=f"loop:{size}")).ok


def test_loop_runs_networks_with_states() -> None:
    assert verify(build_sum(), convert(build_sum(), batch="loop:2")).ok


def test_refuses_batches_of_outputs_of_unknown_size() -> None:
    """A loop is not proposed, because it could not join such outputs."""
    for batch in ("loop:3", 3):
        with pytest.raises(ConversionError, match=r"at run time only, .* `outputs` must") as error:
            convert(build(mix_by_where), batch=batch)
        assert "computes sample by sample" not in str(error.value)


# Options


def test_shapes_may_state_the_batch_or_one_sample() -> None:
    """A shape may have the batch, or one sample."""
    data = build(single("ABS", [1, 4, 5], [1, 4, 5]))
    for first in (1, 3):
        result = convert(data, batch=3, shapes={"x": [first, 6, 5]})
        assert result.outputs[0].sizes == (3, 6, 5)
    result = convert(data, batch="n", shapes={"x": ["n", "h", 5]})
    assert result.outputs[0].sizes == ("n", "h", 5)


def test_batch_may_have_a_dynamic_height() -> None:
    """The number of boxes follows from a dynamic height, and the batch is another size."""

    def network(m: Build) -> Sequence[Tensor]:
        x = m.input([1, 4, 2, 6], name="x")
        boxes = m.op("RESHAPE", [x, m.constant([1, -1, 3])], [[1, 16, 3]])
        return m.op("CONCATENATION", [*boxes, *boxes], [[1, 32, 3]], axis=1)

    data = build(network)
    for size in (3, "n"):
        result = convert(data, batch=size, shapes={"x": [1, "h", 2, 6]})
        assert result.outputs[0].sizes[0] == size
        assert verify(data, result).ok


def test_refuses_batches_of_models_without_inputs() -> None:
    m = Build()
    m.output(op(m, "ABS", m.constant(draw(2))))
    with pytest.raises(ConversionError, match="`batch` must be given for a model with inputs"):
        convert(m.bytes(), batch=2)


@pytest.mark.parametrize("size", ["loop:0", "loop:", "loop:a b", "0x"])
def test_refuses_malformed_batch_sizes(size: str) -> None:
    with pytest.raises(ConversionError, match="a size must be a positive number or a name"):
        convert(build(single("ABS", [1, 3], [1, 3])), batch=size)


def test_inspect_says_whether_there_is_a_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, network, words in (
        ("yes", NETWORKS["MEAN"], "batch of independent samples: yes, by --batch"),
        ("no", mix_by_sum, "batch of independent samples: no: SUM"),
    ):
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(build(network))
        assert main(["inspect", str(path)]) == 0
        assert words in capsys.readouterr().out
    assert "it mixes samples" in inspect(path).batch_problem
