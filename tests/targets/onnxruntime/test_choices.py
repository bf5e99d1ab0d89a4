"""The forms that costs choose, beside recorded times: none is slower than the canonical form.

Each network has a form that the costs choose or refuse. With `scripts` in PYTHONPATH `python -m
tests.targets.onnxruntime.test_choices` measures networks, and prints rows of `TIMES`: all forms run
in turns, on one thread; the lower quartile counts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from unittest.mock import patch

import pytest

from tests.support.graph_text import make_model
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.costs import Gain, Times

TURNS = 40
SLOWER = 1.03  # the part of the canonical form's time that a chosen form may take
MISSED = 1.2  # the part of the time after all forms
SAME = "padding=SAME, stride_h=1, stride_w=1"
TWICE = "padding=SAME, stride_h=2, stride_w=2"


def name_type(shape: tuple[int, ...], scale: float = 0) -> str:
    """Return a type in the language of `graph_text`, float32 without a scale."""
    sizes = ",".join(map(str, shape))
    return f"int8({scale}, 0)[{sizes}]" if scale else f"float32[{sizes}]"


def write_chain(x: tuple[int, ...], *calls: tuple[str, tuple[int, ...]], scale: float = 0) -> str:
    """Return a network of calls, each of the result before; pairs of a call and a shape."""
    lines, last = [f"inputs x: {name_type(x, scale)}"], "x"
    for i, (call, shape) in enumerate(calls):
        lines.append(f"y{i}: {name_type(shape, scale)} = {call.replace('X', last)}")
        last = f"y{i}"
    return "\n".join([*lines, f"return {last}"])


def list_sizes(size: int, channels: int) -> tuple[int, ...]:
    return (1, size, size, channels)


def write_convolution(
    outputs: int, read: int, window: int = 1, steps: str = SAME, **scales: float
) -> str:
    """Return a call of CONV_2D; `weights` and `sums` are the scales of filters and biases."""
    filters = name_type((outputs, window, window, read), scales.get("weights", 0))
    bias = f"int32({scales['sums']}, 0)[{outputs}]" if "sums" in scales else f"float32[{outputs}]"
    return f"CONV_2D(X, {filters}, {bias}, {steps})"


def write_convolutions(size: int, channels: int, *more: tuple[int, int]) -> str:
    """Return convolutions from `channels` on; pairs of outputs and the size of the window."""
    calls, read = [], channels
    for outputs, window in more:
        calls.append((write_convolution(outputs, read, window), list_sizes(size, outputs)))
        read = outputs
    return write_chain(list_sizes(size, channels), *calls)


def write_quantized(size: int, read: int, outputs: int, window: int, stride: int = 1) -> str:
    """Return one convolution of 8 bits."""
    call = write_convolution(
        outputs, read, window, (SAME, TWICE)[stride - 1], weights=0.01, sums=0.001
    )
    return write_chain(
        list_sizes(size, read), (call, list_sizes(size // stride, outputs)), scale=0.1
    )


def write_hybrid(size: int, read: int, outputs: int, window: int = 1) -> str:
    """Return one convolution of floats by integers, between two of floats."""
    return write_chain(
        list_sizes(size, 16),
        (write_convolution(read, 16), list_sizes(size, read)),
        (write_convolution(outputs, read, window, weights=0.01), list_sizes(size, outputs)),
        (write_convolution(16, outputs), list_sizes(size, 16)),
    )


def write_middle(size: int, call: str, made: tuple[int, ...]) -> str:
    """Return a call on an image of 32 channels after a convolution, and one after it."""
    after = (write_convolution(32, made[-1]), (*made[:-1], 32))
    return write_chain(
        list_sizes(size, 32), (write_convolution(32, 32), list_sizes(size, 32)), (call, made), after
    )


NETWORKS = {
    "pad_channels 12": write_convolutions(112, 32, (12, 1), (48, 1), (12, 1), (32, 1)),
    "pad_channels 30": write_convolutions(28, 32, (30, 1), (64, 1), (30, 3), (32, 1)),
    "pad_channels 33": write_convolutions(28, 64, (33, 1), (33, 3), (64, 1)),
    "compose_convolutions 16 8 48": write_convolutions(112, 32, (16, 3), (8, 1), (48, 1), (32, 1)),
    "compose_convolutions 64 8 64": write_convolutions(56, 64, (64, 3), (8, 1), (64, 1), (32, 1)),
    "compose_convolutions 32 24 32": write_convolutions(28, 32, (32, 3), (24, 1), (32, 1), (32, 1)),
    "convolve_pixel_blocks 32 3 9": write_convolutions(96, 3, (32, 3), (3, 9)),
    "convolve_pixel_blocks 64 3 3": write_convolutions(96, 3, (64, 3), (3, 3)),
    "convolve_pixel_blocks 16 4 3": write_convolutions(64, 3, (16, 3), (4, 3)),
    "elu": write_middle(32, "ELU(X)", list_sizes(32, 32)),
    "resize 16 to 64": write_middle(16, "RESIZE_BILINEAR(X, [64, 64])", list_sizes(64, 32)),
    "quantize_data 128 128": write_hybrid(28, 128, 128),
    "quantize_data 24 144": write_hybrid(56, 24, 144),
    "quantize_data 256 256 3": write_hybrid(14, 256, 256, 3),
    "join_windows 128 8 3": write_hybrid(40, 128, 8, 3),
    "join_windows 32 32 3": write_hybrid(48, 32, 32, 3),
    "join_windows 64 16 5": write_hybrid(64, 64, 16, 5),
    "join_pixels 3 16 3": write_quantized(160, 3, 16, 3, 2),
    "join_pixels 1 8 3": write_quantized(96, 1, 8, 3, 2),
    "join_pixels 16 8 1": write_quantized(112, 16, 8, 1),
    "join_pixels 3 24 5": write_quantized(128, 3, 24, 5, 2),
    "join_pixels 3 24 5 1": write_quantized(96, 3, 24, 5),
    "join_pixels 4 12 3": write_quantized(128, 4, 12, 3),
    "join_pixels 1 16 5": write_quantized(64, 1, 16, 5),
    "join_pixels 3 32 3": write_quantized(112, 3, 32, 3),
    "join_pixels 3 32 7": write_quantized(112, 3, 32, 7, 2),
    "join_pixels 3 16 4": write_quantized(60, 3, 16, 4),
    "join_pixels 16 16 4": write_quantized(30, 16, 16, 4),
}


def accept_change(self: Times, other: Times, *_: Gain | Times | None) -> bool:
    return self != other


def convert_changed(model: bytes) -> bytes:
    """Return a model after all forms, whatever they are expected to take."""
    with patch.object(Times, "are_shorter", accept_change):
        made: bytes = convert(model).model.SerializeToString()
        return made


# Microseconds in the canonical form, in the form that the costs choose and after all forms; and the
# nodes of the chosen form. AMD EPYC (family 25, model 17) without AVX-512, the resize with AVX-512,
# and "join_pixels 1 8 3" with AVX-512 and uint8 filters; ONNX Runtime 1.32. For "quantize_data
# 256 256 3", "pad_channels 30" and the first two of "join_windows" scripts/hide_avx512.py hid
# AVX-512. Without VNNI the networks "join_pixels" whose nodes contain an If have the form of the
# convolution as it is.
TIMES = {
    "pad_channels 12": (1249, 492, 1917, 2),
    "pad_channels 30": (353, 316, 374, 4),
    "pad_channels 33": (437, 438, 441, 3),
    "compose_convolutions 16 8 48": (2799, 2250, 3059, 2),
    "compose_convolutions 64 8 64": (3318, 3148, 3182, 3),
    "compose_convolutions 32 24 32": (309, 253, 349, 2),
    "convolve_pixel_blocks 32 3 9": (12818, 12782, 13271, 2),
    "convolve_pixel_blocks 64 3 3": (2729, 1847, 2647, 8),
    "convolve_pixel_blocks 16 4 3": (323, 254, 343, 8),
    "elu": (184, 135, 352, 8),
    "resize 16 to 64": (168, 87, 223, 2),
    "join_pixels 3 16 3": (371, 340, 342, 21),
    "join_pixels 1 8 3": (75, 43, 43, 23),
    "join_pixels 16 8 1": (288, 262, 265, 16),
    "join_pixels 3 24 5": (437, 435, 501, 12),
    "join_pixels 3 24 5 1": (893, 738, 983, 19),
    "join_pixels 4 12 3": (1003, 813, 807, 23),
    "join_pixels 1 16 5": (261, 180, 180, 23),
    "join_pixels 3 32 3": (897, 889, 1203, 14),
    "join_pixels 3 32 7": (548, 552, 615, 12),
    "join_pixels 3 16 4": (213, 194, 225, 19),
    "join_pixels 16 16 4": (124, 124, 140, 11),
    "quantize_data 128 128": (417, 417, 562, 5),
    "quantize_data 24 144": (562, 546, 1163, 5),
    "quantize_data 256 256 3": (2099, 1533, 1780, 18),
    "join_windows 128 8 3": (828, 525, 562, 28),
    "join_windows 32 32 3": (496, 477, 681, 18),
    "join_windows 64 16 5": (3882, 2919, 3479, 23),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_chosen_form_is_no_slower_than_the_canonical_one(name: str) -> None:
    """A network whose nodes differ from those that were measured must be measured again."""
    canonical, chosen, changed, nodes = TIMES[name]
    assert len(convert(make_model(NETWORKS[name])).model.graph.node) == nodes
    assert chosen <= SLOWER * canonical
    # The fastest of several forms is another one with AVX-512.
    assert chosen <= MISSED * changed


def measure_networks(names: Sequence[str]) -> None:
    """Print the microseconds of networks: canonical, as the costs choose, and changed."""
    inference = import_module("inference")
    for name in names or NETWORKS:
        model = make_model(NETWORKS[name])
        made = [convert(model, forms="canonical").model, convert(model).model]
        forms = [*(each.SerializeToString() for each in made), convert_changed(model)]
        runs = [inference.open_onnx_runtime(form, 1) for form in forms]
        times = ", ".join(f"{1e6 * t:.0f}" for t in inference.measure_inferences(runs, TURNS))
        sys.stdout.write(f'    "{name}": ({times}, {len(made[1].graph.node)}),\n')


if __name__ == "__main__":
    measure_networks(sys.argv[1:])
