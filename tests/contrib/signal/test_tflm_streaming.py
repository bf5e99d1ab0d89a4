"""TFLite Micro's operators with state. LiteRT has no kernels: equal to tests.references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.ports import refusal_reason
from tests.references import check_reference_runs, draw_numbers, streams
from tests.support import Build
from tests.support.streams import assign, handle, initialise, read_variable, states
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.runtimes import Array
    from tflite2onnx import Result

RUNS = 12
FLAG = ((), "bool")


def random_runs(dtype: str, *shape: int) -> list[Array]:
    """Return an input of random integers for each run."""
    generator, limits = np.random.default_rng(0), np.iinfo(dtype)
    return [
        generator.integers(limits.min, limits.max, shape, dtype, endpoint=True) for _ in range(RUNS)
    ]


def model(
    code: str, x: Array, made: Sequence[tuple[Sequence[int], str]], options: dict[str, Any]
) -> Build:
    m = Build()
    outputs = [m.tensor(shape, dtype=dtype, name=f"y{i}") for i, (shape, dtype) in enumerate(made)]
    m.output(*m.custom(code, [m.input(x.shape, dtype=x.dtype.name, name="x")], outputs, options))
    return m


def check_stream(
    code: str,
    xs: Sequence[Array],
    made: Sequence[tuple[Sequence[int], str]],
    options: dict[str, Any],
    kernel: Callable[[Array], list[Array | None]],
) -> Result:
    """Compare several runs with a reference kernel that has state."""
    exact = 0 if xs[0].dtype.kind in "iu" else 1e-6
    runs = [([x], kernel(x)) for x in xs]
    return check_reference_runs(model(code, xs[0], made, options), runs, tolerance=exact)


DELAYS = [0, 3, 7, 11, 23]
# The size of frames, the distance between frames, and the number of frames in a run.
FRAMINGS = [(7, 3, 1), (7, 3, 2), (6, 3, 1), (3, 3, 2), (11, 2, 1), (11, 2, 7), (13, 13, 1)]
# Channels, frames to the left and to the right, and the distance between stacks.
STACKINGS = [
    (5, 3, 2, 1),
    (5, 3, 2, 2),
    (5, 0, 2, 3),
    (5, 2, 0, 3),
    (1, 1, 1, 2),
    (3, 4, 0, 1),
    (3, 2, 2, 5),
    (3, 1, 2, 3),
    (5, 0, 0, 1),
]
# The number of frames, their size, and the distance between frames.
ADDITIONS = [(1, 7, 3), (2, 7, 3), (5, 7, 3), (1, 5, 5), (3, 5, 5), (5, 2, 1), (3, 11, 2)]


@pytest.mark.parametrize("length", DELAYS)
@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_delay_of_every_length_equals_reference(lead: tuple[int, ...], length: int) -> None:
    shape = *lead, 7
    kernel = streams.Delay(int(np.prod(lead)), length)
    result = check_stream(
        "SignalDelay",
        random_runs("int16", *shape),
        [(shape, "int16")],
        {"delay_length": length},
        kernel,
    )
    assert states(result) == ([("y0/delayed", "y0/delayed/next")] if length else [])
    assert all(state.initial.shape == (*lead, length) for state in result.states)


@pytest.mark.parametrize(("size", "step", "count"), FRAMINGS)
@pytest.mark.parametrize("prefill", [False, True])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_framer_equals_reference_with_and_without_prefill(
    lead: tuple[int, ...], size: int, step: int, count: int, *, prefill: bool
) -> None:
    kernel = streams.Framer(int(np.prod(lead)), size, step, prefill=prefill)
    options = {"frame_size": size, "frame_step": step, "prefill": prefill}
    made = [((*lead, count, size), "int16"), FLAG]
    result = check_stream(
        "SignalFramer", random_runs("int16", *lead, step * count), made, options, kernel
    )
    names = [name for name, _ in states(result)]
    assert names == ["y0/past", "y0/steps"][: 0 if size == step else 1 if prefill else 2]


def test_framer_that_skips_samples_has_no_state() -> None:
    options = {"frame_size": 2, "frame_step": 3, "prefill": False}
    kernel = streams.Framer(1, 2, 3, prefill=False)
    xs = random_runs("int16", 15)
    assert not check_stream("SignalFramer", xs, [((5, 2), "int16"), FLAG], options, kernel).states


@pytest.mark.parametrize(("channels", "left", "right", "step"), STACKINGS)
def test_stacker_of_every_context_equals_reference(
    channels: int, left: int, right: int, step: int
) -> None:
    options = {
        "num_channels": channels,
        "stacker_left_context": left,
        "stacker_right_context": right,
        "stacker_step": step,
    }
    made = [((channels * (left + right + 1),), "int16"), FLAG]
    kernel = streams.Stacker(left, right, step)
    check_stream("SignalStacker", random_runs("int16", channels), made, options, kernel)


@pytest.mark.parametrize("dtype", ["int16", "float32"])
@pytest.mark.parametrize("lead", [(), (2, 3)])
@pytest.mark.parametrize(("count", "size", "step"), ADDITIONS)
def test_overlap_add_equals_reference_over_runs(
    count: int, size: int, step: int, lead: tuple[int, ...], dtype: str
) -> None:
    shape = *lead, count, size
    xs = [draw_numbers(*shape, seed=seed) for seed in range(RUNS)]
    xs = random_runs("int16", *shape) if dtype == "int16" else xs
    options = {"T": 7 if dtype == "int16" else 0, "frame_step": step}
    made = [((*lead, count * step), dtype)]
    check_stream("SignalOverlapAdd", xs, made, options, streams.OverlapAdd(step))


SUBTRACTION = {
    "alternate_one_minus_smoothing": 13926,
    "alternate_smoothing": 2458,
    "clamping": 0,
    "min_signal_remaining": 819,
    "num_channels": 11,
    "one_minus_smoothing": 15974,
    "smoothing": 410,
    "smoothing_bits": 10,
    "spectral_subtraction_bits": 14,
}


@pytest.mark.parametrize("bits", [0, 10])
@pytest.mark.parametrize("clamping", [0, 1])
def test_spectral_subtraction_equals_reference_over_runs(clamping: int, bits: int) -> None:
    options = {**SUBTRACTION, "clamping": clamping, "smoothing_bits": bits}
    xs = [x >> np.uint32(3 * run) for run, x in enumerate(random_runs("uint32", 11))]
    made = [((11,), "uint32")] * 2
    code = "SignalFilterBankSpectralSubtraction"
    check_stream(code, xs, made, options, streams.SpectralSubtraction(options))


SCALE: Any = {"dtype": "int8", "scale": 0.5, "zero_point": -3}


def build_circular_buffer(
    slots: int, options: Any, image: tuple[int, int] = (2, 3), **other: Any
) -> Build:
    """Return a model that stores inputs in a variable tensor, and convolves them."""
    m = Build()
    x = m.input([1, 1, *image], **SCALE)
    kept = m.tensor([1, slots, *image], variable=True, **{**SCALE, **other})
    (y,) = m.custom("CIRCULAR_BUFFER", [x], [kept], options)
    m.output(*m.op("NEG", [y], [m.tensor([1, slots, *image], **SCALE)]))
    m.output(y)
    return m


# The number of stored inputs, and options with which the following operators run each time.
SLOTS: list[tuple[int, Any]] = [
    (1, {"cycles_max": 1}),
    (7, {"cycles_max": 1}),
    (5, {"cycles_max": 0}),
    (13, b""),
    (25, b""),
]


@pytest.mark.parametrize(("slots", "options"), SLOTS)
def test_circular_buffer_equals_reference_over_runs(slots: int, options: Any) -> None:
    xs = random_runs("int8", 1, 1, 2, 3)
    kernel = streams.CircularBuffer(np.full((1, slots, 2, 3), -3, np.int8))
    result = check_reference_runs(
        build_circular_buffer(slots, options), [([x], [None, *kernel(x)]) for x in xs]
    )
    assert len(result.states) == 1
    assert np.all(result.states[0].initial == -3)


@pytest.mark.parametrize(
    "stages",
    [((2, 7),), ((3, 2), (2, 3)), ((3, 4), (1, 3), (2, 5)), ((1, 3), (2, 1), (2, 2)), ((0, 4),)],
)
def test_operators_after_an_ended_run_keep_their_states(
    stages: tuple[tuple[int, int], ...],
) -> None:
    """If a buffer ends the run, the operators after it do not run, and their states stay."""
    m, kernels = Build(), []
    x = m.input([1, 1, 2, 3], **SCALE)
    initialise(m, memory=np.zeros((1, 1, 2, 3), np.float32))
    y = x
    for cycles, slots in stages:
        kept = m.tensor([1, slots, 2, 3], variable=True, **SCALE)
        (y,) = m.custom("CIRCULAR_BUFFER", [y], [kept], {"cycles_max": cycles})
        axes, made = m.constant([1]), m.tensor([1, 1, 2, 3], **SCALE)
        (y,) = m.op("REDUCE_MAX", [y, axes], [made], keep_dims=True)
        kernels.append(streams.CircularBuffer(np.full((1, slots, 2, 3), -3, np.int8), cycles or 2))
    (real,) = m.op("DEQUANTIZE", [y], [m.tensor([1, 1, 2, 3])])
    variable = handle(m)
    before = read_variable(m, variable, (1, 1, 2, 3))
    (total,) = m.op("ADD", [before, real], [m.tensor([1, 1, 2, 3])])
    assign(m, variable, total)
    m.output(total)
    runs: list[tuple[list[Array], list[Array | None]]] = []
    want: Array = np.zeros((1, 1, 2, 3), np.float32)
    for each in random_runs("int8", 1, 1, 2, 3) * 2:
        line: Array | None = each
        for kernel in kernels:
            (kept_now,) = kernel(line) if line is not None else (None,)
            line = None if kept_now is None else kept_now.max(1, keepdims=True)
        want = want if line is None else want + (line.astype(np.float32) + 3) / 2
        runs.append(([each], [None if line is None else want]))
    assert 0 < sum(made is None for _, (made,) in runs) < len(runs)
    check_reference_runs(m, runs)


def test_circular_buffer_refuses_invalid_cycles_and_scales() -> None:
    assert "its cycles_max must be less than 2147483648, got 2147483648" in refusal_reason(
        build_circular_buffer(7, {"cycles_max": 1 << 31})
    )
    assert "it must have cycles_max" in refusal_reason(build_circular_buffer(7, b"", (2, 96)))
    assert "must have the same scale" in refusal_reason(
        build_circular_buffer(7, {"cycles_max": 1}, scale=0.25)
    )
    assert "int8[1, 7, 2, 3], got" in refusal_reason(
        build_circular_buffer(7, {}, dtype="uint8", zero_point=3)
    )


X, FRAMES, PAIR = np.zeros(6, np.int16), [((2, 7), "int16"), FLAG], [((6,), "uint32")] * 2


@pytest.mark.parametrize(
    ("code", "x", "made", "options", "reason"),
    [
        (
            "SignalDelay",
            X,
            [((6,), "int16")],
            {"delay_length": -1},
            "its delay_length must be from .*got -1",
        ),
        ("SignalDelay", np.int16(0), [((), "int16")], {}, "samples., got int16"),
        ("SignalFramer", X, FRAMES, {"frame_size": 7, "frame_step": 4}, "got 6 samples, 4 and 7"),
        (
            "SignalFramer",
            X,
            FRAMES,
            {"frame_size": 7, "frame_step": 0},
            "its frame_step must be from .*got 0",
        ),
        (
            "SignalFramer",
            X,
            FRAMES,
            {"frame_size": 2, "frame_step": 3, "prefill": True},
            "got 6 samples, 3 and 2",
        ),
        (
            "SignalFramer",
            X,
            FRAMES[:1],
            {"frame_size": 7, "frame_step": 3},
            "it must have 2 outputs, got 1",
        ),
        (
            "SignalStacker",
            X,
            [((6,), "int16"), FLAG],
            {"num_channels": 6},
            "its stacker_step must be from .*got 0",
        ),
        (
            "SignalStacker",
            X,
            [((6,), "int16"), FLAG],
            {"num_channels": 6, "stacker_step": 2},
            "its stacker_step must be from .*got 2",
        ),
        (
            "SignalOverlapAdd",
            X,
            [((6,), "int16")],
            {"frame_step": 1},
            r"must be int16\[..., frames, samples\], got int16\[6\]",
        ),
        ("SignalOverlapAdd", X[None], [((7,), "int16")], {"frame_step": 7}, "or more, 7, got 6"),
        (
            "SignalOverlapAdd",
            X[None].astype(np.int32),
            [((3,), "int32")],
            {"frame_step": 3},
            "float32 or int16, got int32",
        ),
        (
            "SignalOverlapAdd",
            np.zeros((300, 300), np.int16),
            [((300,), "int16")],
            {"frame_step": 1},
            "must be at most 256, got 300 and 300",
        ),
        (
            "SignalFilterBankSpectralSubtraction",
            X.astype(np.uint32),
            PAIR,
            SUBTRACTION,
            "its num_channels must be from .*got 11",
        ),
        (
            "SignalFilterBankSpectralSubtraction",
            X.astype(np.uint32),
            PAIR,
            {**SUBTRACTION, "num_channels": 6, "smoothing": -1},
            "its smoothing must be from .*got -1",
        ),
    ],
)
def test_refuses_invalid_options_and_shapes(
    code: str,
    x: Any,
    made: list[tuple[tuple[int, ...], str]],
    options: dict[str, Any],
    reason: str,
) -> None:
    with pytest.raises(ConversionError, match=reason):
        convert(model(code, np.asarray(x), made, options).bytes())


def test_delay_must_have_one_input() -> None:
    """A second input is not taken for the memory of the operator."""
    m = Build()
    x = m.input([7], dtype="int16")
    made = m.tensor([7], dtype="int16")
    m.output(*m.custom("SignalDelay", [x, x], [made], {"delay_length": 23}))
    assert "it must have 1 input, got 2" in refusal_reason(m)


def test_two_operators_with_equal_names_have_separate_states() -> None:
    """Two operators have separate states, even if their outputs have the same name."""
    m = Build()
    x = m.input([7], dtype="int16")
    for length in (2, 3):
        made = m.tensor([7], dtype="int16", name="y")
        m.output(*m.custom("SignalDelay", [x], [made], {"delay_length": length}))
    one, other = streams.Delay(1, 2), streams.Delay(1, 3)
    runs = [([each], [*one(each), *other(each)]) for each in random_runs("int16", 7)]
    result = check_reference_runs(m, runs)
    assert [name for name, _ in states(result)] == ["y/delayed", "y_2/delayed"]


def test_refuses_states_inside_a_branch() -> None:
    m = Build()
    x = m.input([7], dtype="int16")
    for name in ("then", "else"):
        inner = m.subgraph(name)
        (y,) = inner.custom(
            "SignalDelay",
            [inner.input([7], dtype="int16")],
            [inner.tensor([7], dtype="int16")],
            {"delay_length": 3},
        )
        inner.output(y)
    condition = m.input([1], dtype="bool")
    made = [m.tensor([7], dtype="int16")]
    m.output(*m.op("IF", [condition, x], made, then_subgraph_index=1, else_subgraph_index=2))
    assert "not supported inside a loop or a branch" in refusal_reason(m)
