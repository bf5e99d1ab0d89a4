"""The time and the nodes of computations that a model spells out, with and without their pass.

Each row is a small model in the spelling of an exporter. It is converted twice, without the pass
and with it, and both models run in turn in one process, on one thread of ONNX Runtime::

    python scripts/benchmark_patterns.py
    python scripts/benchmark_patterns.py softmax lstm

The words select the rows whose names begin with one of them. The lower quartile of the processor
times counts.
"""

import usage  # noqa: F401 - packages may be missing

import sys
from collections.abc import Callable
from typing import NamedTuple
from unittest.mock import patch

from inference import bind_onnx_runtime, measure_inferences

import tflite2onnx
from tests.contrib.signal import test_rfft as rfft
from tests.passes.patterns import (
    test_fuse_group_normalizations as groups,
    test_fuse_normalizations as layers,
    test_fuse_rearrangements as rearrangements,
    test_fuse_repeats as repeats,
    test_fuse_rms_normalizations as rms,
    test_fuse_softmax as softmax,
)
from tests.passes.patterns.convolutions import test_compute_images as sequences
from tests.support import Build, keras
from tests.support.fusions import count_optimized_nodes
from tests.targets.onnxruntime.forms.attention import test_fuse_attention as attention
from tests.targets.onnxruntime.forms.movement import (
    test_flatten_packs as packs,
    test_slice_before_transpose as packed,
    test_split_slices as slices,
)
from tflite2onnx import passes

TURNS = 40


class Row(NamedTuple):
    """The path of a pass, a function that builds a model, and the opset of the ONNX model.

    The path may be that of a function that returns None where another form is better.
    """

    path: str
    build: Callable[[], bytes]
    opset: int | None = None


def spell_shuffle(size: int, channels: int, *, splits: bool) -> bytes:
    """Return the channel shuffle of ShuffleNet between convolutions, as Keras or PyTorch has it."""
    m, image = Build(), (1, size, size)
    x = rearrangements.convolve(m, m.input([*image, channels]), channels)
    shape = (*image, 2, channels // 2)
    parts = (
        rearrangements.shuffle_and_split(m, x)
        if splits
        else [rearrangements.rearrange(m, x, shape, (0, 1, 2, 4, 3), *image, channels)]
    )
    m.output(*(rearrangements.convolve(m, part, channels) for part in parts))
    return m.bytes()


def spell_upsampling(size: int, channels: int) -> bytes:
    """Return images with repeated rows and columns between convolutions, as Keras has it."""
    m = repeats.Repeats()
    x = rearrangements.convolve(m, m.input([1, size, size, channels]), channels)
    m.output(rearrangements.convolve(m, m.upsample(x, 2, 2), channels))
    return m.bytes()


def spell_pixel_shuffle(size: int, channels: int) -> bytes:
    """Return a convolution whose channels become pixels of blocks of 2 by 2."""
    m, c = Build(), channels // 4
    x = rearrangements.convolve(m, m.input([1, size, size, 8]), channels)
    shape, end = (1, size, size, c, 2, 2), (1, 2 * size, 2 * size, c)
    m.output(rearrangements.rearrange(m, x, shape, (0, 1, 4, 2, 5, 3), *end))
    return m.bytes()


def spell_groups(size: int, channels: int, count: int) -> bytes:
    """Return Keras's GroupNormalization."""
    m = layers.Spelled([1, 2, 4])
    x = m.input([1, size, size, channels])
    split = [count, channels // count]
    y = groups.keras(m, groups.reshape(m, x, [1, size, size, *split]), [1, 1, 1, *split])
    m.output(groups.reshape(m, y, [1, size, size, channels]))
    return m.bytes()


def spell_attention(
    rows: int, heads: int, depth: int, *, masked: bool = False, batch: int = 1
) -> bytes:
    """Return attention as ai-edge-torch writes it."""
    m = attention.Spelled(batch, rows, heads, depth)
    attention.spell_torch(m, masked=masked)
    return m.bytes()


def spell_transform(*shape: int) -> bytes:
    """Return the magnitudes of the Fourier transform of rows."""
    m = Build()
    m.output(
        *m.op(
            "COMPLEX_ABS",
            [rfft.spectrum(m, [*shape])],
            [[*shape[:-1], shape[-1] // 2 + 1]],
            dtype="float32",
        )
    )
    return m.bytes()


def unroll_layer(cell: str, times: int, units: int) -> bytes:
    """Return an unrolled recurrent layer, whose items have as many numbers as it has units."""
    with patch.object(keras, "UNITS", units):
        m, form = Build(), keras.Keras(cell, batch=1)
        states = [m.input([1, units]) for _ in range(form.states)]
        x = m.input([times, 1, units])
        for item in m.op("UNPACK", [x], [[1, units]] * times, axis=0, num=times):
            states = keras.Cell(form, m).step(item, states[0], states[1:])
        m.output(*states)
    return m.bytes()


NORMALIZATIONS = "patterns"
ATTENTIONS = [(16, 1, 64), (16, 4, 32), (64, 4, 32), (196, 12, 64), (512, 8, 64), (1500, 4, 64)]
STEPS = "recurrent.raise_recurrent_steps"
REARRANGEMENTS = "patterns.fuse_rearrangements"
ROWS: dict[str, Row] = {
    **{
        f"softmax, {shape}": Row(
            f"{NORMALIZATIONS}.fuse_normalizations:fuse_softmax",
            lambda shape=shape: softmax.spell(softmax.softmax, [*shape]),
        )
        for shape in ((1, 1000), (64, 64))
    },
    "log-softmax, (1, 1000)": Row(
        f"{NORMALIZATIONS}.fuse_normalizations:fuse_softmax",
        lambda: softmax.spell(softmax.log_softmax, [1, 1000]),
    ),
    **{
        f"RMS normalization, {shape}": Row(
            f"{NORMALIZATIONS}.fuse_normalizations:fuse_rms_normalizations",
            lambda shape=shape: rms.spell(rms.reshape_sum, [*shape]),
        )
        for shape in ((1, 64), (64, 256), (128, 2048))
    },
    **{
        f"group normalization, {size}": Row(
            f"{NORMALIZATIONS}.fuse_normalizations:fuse_group_normalizations",
            lambda size=size: spell_groups(*size),
        )
        for size in ((8, 32, 8), (32, 64, 8))
    },
    **{
        f"attention, batch 2, {rows} rows, {heads} heads of {depth}"
        f"{', opset 23' if opset else ''}": Row(
            "attention.fuse_attention",
            lambda size=(rows, heads, depth): spell_attention(*size, batch=2),
            opset,
        )
        for opset in (None, 23)
        for rows, heads, depth in ATTENTIONS[2:4]
    },
    **{
        f"attention, {rows} rows, {heads} heads of {depth}, {'with' if masked else 'no'} mask"
        f"{', opset 23' if opset else ''}": Row(
            "attention.fuse_attention",
            lambda size=(rows, heads, depth), masked=masked: spell_attention(*size, masked=masked),
            opset,
        )
        for opset in (None, 23)
        for rows, heads, depth in ATTENTIONS
        for masked in (False, True)
    },
    **{
        f"attention, packed, {rows} rows, {heads} heads of {depth}": Row(
            "movement.split_slices:slice_before_transpose",
            lambda size=(rows, heads, depth): packed.spell("SLICE", 1, *size).bytes(),
        )
        for rows, heads, depth in ATTENTIONS
    },
    **{
        f"channel shuffle, {'PyTorch' if splits else 'Keras'}, {size}": Row(
            REARRANGEMENTS,
            lambda size=size, splits=splits: spell_shuffle(*size, splits=splits),
        )
        for splits in (False, True)
        for size in ((28, 116), (14, 232))
    },
    **{
        f"pixel shuffle, {size}": Row(REARRANGEMENTS, lambda size=size: spell_pixel_shuffle(*size))
        for size in ((32, 12), (24, 48))
    },
    **{
        f"upsampling, {size}": Row(REARRANGEMENTS, lambda size=size: spell_upsampling(*size))
        for size in ((16, 128), (64, 32))
    },
    **{
        f"PACK of {count}": Row(
            "movement.flatten_packs",
            lambda count=count: packs.pack_negated([1, 64], 1, count),
        )
        for count in (2, 16)
    },
    **{
        f"WaveNet, {times} samples, {channels} channels": Row(
            "patterns.convolutions.compute_images",
            lambda size=(times, channels): sequences.spell_layers(
                sequences.ROW, *size, [1, 2, 4, 8]
            ),
        )
        for times, channels in ((200, 16), (1000, 32), (4000, 64))
    },
    **{
        f"Fourier transform of {length} numbers, {rows} rows": Row(
            "tflite2onnx.contrib.signal.rfft.transform_real",
            lambda size=(rows, 1, length): spell_transform(*size),
        )
        for length, rows in ((256, 100), (512, 1), (512, 96), (2048, 300))
    },
    "four states of 128 numbers in one tensor": Row(
        "movement.split_slices", lambda: slices.spell_states(128)
    ),
    **{
        f"{cell}, {times} steps, {units} units": Row(
            STEPS,
            lambda cell=cell, times=times, units=units: unroll_layer(cell, times, units),
        )
        for cell in ("LSTM", "GRU")
        for times, units in ((1, 64), (1, 128), (2, 64), (4, 64), (16, 64))
    },
}


def convert_without(path: str, data: bytes, opset: int | None) -> bytes:
    """Convert a model without the pass of a path, or with the other form of a function."""
    if path.startswith("tflite2onnx."):
        with patch(path, lambda *_: None):
            return convert_model(data, opset)
    found = passes.find_pass

    def find_other(each: str, *arguments: str) -> Callable[[object], object]:
        return (lambda value: value) if each == path else found(each, *arguments)

    with patch.object(passes, "find_pass", find_other):
        return convert_model(data, opset)


def convert_model(data: bytes, opset: int | None) -> bytes:
    """Convert a model with static sizes."""
    return tflite2onnx.convert(data, static=True, opset=opset).model.SerializeToString()


def measure_row(name: str) -> str:
    """Return a row of the table."""
    path, build, opset = ROWS[name]
    data = build()
    models = [convert_without(path, data, opset), convert_model(data, opset)]
    before, after = measure_inferences([bind_onnx_runtime(model) for model in models], TURNS)
    nodes = [sum(count_optimized_nodes(model).values()) for model in models]
    share = f"{after / before:.2f}"
    return (
        f"| {name} | {before * 1e6:.1f} | {after * 1e6:.1f} | {share} | {nodes[0]} | {nodes[1]} |"
    )


def main(words: list[str]) -> None:
    """Print the table."""
    print("| computation | µs without | µs with | x | nodes without | nodes with |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in ROWS:
        if not words or name.lower().startswith(tuple(words)):
            print(measure_row(name), flush=True)


if __name__ == "__main__":
    main([word.lower() for word in sys.argv[1:]])
