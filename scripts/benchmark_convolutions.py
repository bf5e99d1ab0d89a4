"""The time of integer convolutions and dense layers, by type of weights, and padded.

A first convolution reads 3 channels; padded, it reads 4 from a Pad. A depthwise convolution of few
channels and the 1x1 convolution that reads it compute a multiple of 16 channels, if padded::

    python scripts/benchmark_convolutions.py
    python scripts/benchmark_convolutions.py first,3,16,320 depthwise,8,16,48

A layer is its kind, the channels that it reads and makes, and the size of its image (of a dense
layer the rows). Data are uint8. Weights are int8 (`--weights int8`) and uint8 (`auto`; `uint8` for
single depthwise convolutions, of which `auto` keeps int8). All models run in turn in one process,
on one thread. The lower quartile of the processor times counts.
"""

import usage  # noqa: F401 - packages may be missing

import sys
from typing import Any, Literal, TypeAlias

import numpy as np
import onnxruntime as ort
from inference import Inference, measure_inferences, open_onnx_runtime

import tflite2onnx
from tests.support import Build, Tensor

LAYERS = (
    "first,3,8,96 first,3,16,128 first,3,16,320 first,3,32,224 first,3,64,224"
    " depthwise,8,16,48 depthwise,8,16,112 depthwise,24,48,28 depthwise,24,48,56"
    " inner,64,64,28 pointwise,64,64,56 single,64,64,56 single,24,24,56"
    " dense,1024,1024,1 dense,512,512,64"
)
STEP = 16  # the channels of a block of ONNX Runtime's depthwise kernels
TURNS = 40
Weights: TypeAlias = Literal["auto", "int8", "uint8"]
FIELDS: dict[str, Any] = {"dtype": "uint8", "scale": 0.02, "zero_point": 128}


def build_model(kind: str, channels: int, outputs: int, size: int, *, padded: bool) -> bytes:
    """Return a model of a layer, with padded channels or with its own."""
    m = Build()
    if kind == "dense":
        x, (w, b) = m.input([size, channels], **FIELDS), add_weights(m, (outputs, channels), 0)
        m.output(*m.op("FULLY_CONNECTED", [x, w, b], [m.tensor([size, outputs], **FIELDS)]))
        return m.bytes()
    x = m.input([1, size, size, channels], **FIELDS)
    if kind == "first":
        if padded:
            shape, pads = [1, size, size, channels + 1], [[0, 0], [0, 0], [0, 0], [0, 1]]
            (x,) = m.op("PAD", [x, m.constant(pads)], [m.tensor(shape, **FIELDS)])
        y = convolve(m, "CONV_2D", x, (outputs, 3, 3, x.shape[-1]), size // 2, 2)
    elif kind == "depthwise":
        inner = -(-channels // STEP) * STEP if padded else channels
        x = convolve(m, "CONV_2D", x, (inner, 1, 1, channels), size, 1)
        x = convolve(m, "DEPTHWISE_CONV_2D", x, (1, 3, 3, inner), size, 1)
        y = convolve(m, "CONV_2D", x, (outputs, 1, 1, inner), size, 1)
    elif kind == "single":
        y = convolve(m, "DEPTHWISE_CONV_2D", x, (1, 3, 3, channels), size, 1)
    else:
        window = 3 if kind == "inner" else 1
        y = convolve(m, "CONV_2D", x, (outputs, window, window, channels), size, 1)
    m.output(y)
    return m.bytes()


def convolve(
    m: Build, code: str, x: Tensor, shape: tuple[int, ...], size: int, stride: int
) -> Tensor:
    """Return a convolution by weights of this shape."""
    depthwise = code != "CONV_2D"
    words: dict[str, Any] = {"padding": "SAME", "stride_h": stride, "stride_w": stride}
    y = m.tensor([1, size, size, shape[3 if depthwise else 0]], **FIELDS)
    w, b = add_weights(m, shape, 3 if depthwise else 0)
    if depthwise:
        words["depth_multiplier"] = 1
    return m.op(code, [x, w, b], [y], **words)[0]


def add_weights(m: Build, shape: tuple[int, ...], axis: int) -> tuple[Tensor, Tensor]:
    """Return random int8 weights with a scale for each index of an axis, and biases of 0."""
    count, generator = shape[axis], np.random.default_rng(0)
    integers = generator.integers(-127, 128, shape).astype(np.int8)
    scales = generator.uniform(0.001, 0.002, count)
    b = m.constant(np.zeros(count, np.int32), scale=(0.02 * scales).tolist())
    return m.constant(integers, scale=scales.tolist(), axis=axis), b


def main() -> None:
    """Print a row for each layer: microseconds, and the ratios of the forms."""
    print(f"ONNX Runtime {ort.__version__} | int8 | uint8 / int8 | padded, int8 | padded, uint8")
    for layer in sys.argv[1:] or LAYERS.split():
        kind, *sizes = layer.split(",")
        channels, outputs, size = map(int, sizes)
        runs: dict[str, Inference] = {}
        unsigned: Weights = "uint8" if kind == "single" else "auto"
        types: tuple[Weights, ...] = "int8", unsigned
        for padded in (False, True) if kind in ("first", "depthwise") else (False,):
            model = build_model(kind, channels, outputs, size, padded=padded)
            for weights in types:
                data = tflite2onnx.convert(model, weights=weights).skeleton.serialize()
                runs[weights + ", padded" * padded] = open_onnx_runtime(data, 1)
        times = dict(zip(runs, measure_inferences([*runs.values()], TURNS), strict=True))
        plain = times["int8"], times[unsigned]
        cells = [f"{plain[0] * 1e6:.0f} us", f"{plain[1] / plain[0]:.2f} x"]
        for weights, time_unpadded in zip(types, plain, strict=True):
            if f"{weights}, padded" in times:
                cells.append(f"{times[f'{weights}, padded'] / time_unpadded:.2f} x")
        print(layer, *cells, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
