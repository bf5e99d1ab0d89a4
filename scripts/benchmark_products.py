"""The time of one product of float data and int8 weights, in each of its forms.

The forms are the rows of the tables in tflite2onnx/quantization/rules.py: float weights that are
dequantized at load, beside data as they are and beside data that are rounded to 256 steps in each
row as LiteRT does, and integers by integers::

    python scripts/benchmark_products.py
    python scripts/benchmark_products.py 1x512x512 64x64x64

A size is rows x features x outputs of FULLY_CONNECTED, or height x width x channels x filters of a
convolution of single pixels between two depthwise convolutions, which are measured with it. A fifth
number is the height and width of the filters::

    python scripts/benchmark_products.py 28x28x128x128 80x80x32x16x3

The forms run in turn in one process, on one thread. The
lower quartile of the processor times counts.
"""

import sys
from unittest.mock import patch

import numpy as np
import onnxruntime as ort
from inference import measure_inferences, open_onnx_runtime

import tflite2onnx
from tests.support import Build, Tensor
from tflite2onnx.quantization import rules
from tflite2onnx.targets.onnxruntime.forms.dynamic_range import join_windows, quantize_data

SIZES = (
    "1x64x64 1x128x128 1x192x192 1x256x256 1x360x360 1x512x512 1x1024x1024 1x2048x2048 1x4096x4096"
    " 4x64x64 16x32x32 4x256x256 2x512x400 64x64x64 64x128x128 64x512x512"
)
PIXELS = (
    "112x112x16x96 56x56x24x144 56x56x96x24 28x28x64x128 28x28x128x128 14x14x384x96 14x14x96x576"
    " 14x14x256x256 14x14x512x512 7x7x576x160 7x7x160x960"
)
WINDOWS = (
    "80x80x16x3x9 80x80x16x16x3 80x80x16x32x3 80x80x32x16x3 80x80x32x32x3 80x80x64x64x3"
    " 40x40x128x8x3 40x40x128x32x3 40x40x128x128x3 20x20x64x64x3 20x20x256x256x3"
)
ALWAYS, NEVER = 0, 1 << 62
# The threshold `rules.WORTHWHILE` and the option `quantization` with which the converter chooses
# each form.
FORMS = {
    "real": (NEVER, "float"),
    "rounded": (NEVER, "qdq"),
    "integers": (ALWAYS, "qdq"),
}
TURNS = 30


def build_model(rows: int, features: int, outputs: int) -> bytes:
    """Return a model of one layer with a bias and a scale for each output."""
    generator, m = np.random.default_rng(0), Build()
    integers = generator.integers(-127, 128, (outputs, features)).astype(np.int8)
    w = m.constant(integers, scale=generator.uniform(0.01, 0.02, outputs).tolist())
    b = m.constant(generator.standard_normal(outputs).astype(np.float32))
    m.output(*m.op("FULLY_CONNECTED", [m.input([rows, features]), w, b], [[rows, outputs]]))
    return m.bytes()


def build_images(height: int, width: int, channels: int, filters: int, window: int = 1) -> bytes:
    """Return a model of a convolution between two of each channel."""
    generator, m = np.random.default_rng(0), Build()

    def convolve(x: Tensor, code: str, w: Tensor, outputs: int) -> Tensor:
        b = m.constant(generator.standard_normal(outputs).astype(np.float32))
        y = [[1, height, width, outputs]]
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
        return m.op(code, [x, w, b], y, fused_activation_function="RELU6", **options)[0]

    def make_filters(count: int) -> Tensor:
        return m.constant(generator.standard_normal((1, 3, 3, count)).astype(np.float32))

    x = m.input([1, height, width, channels])
    x = convolve(x, "DEPTHWISE_CONV_2D", make_filters(channels), channels)
    integers = generator.integers(-127, 128, (filters, window, window, channels)).astype(np.int8)
    w = m.constant(integers, scale=generator.uniform(0.001, 0.002, filters).tolist())
    x = convolve(x, "CONV_2D", w, filters)
    m.output(convolve(x, "DEPTHWISE_CONV_2D", make_filters(filters), filters))
    return m.bytes()


def convert_form(model: bytes, form: str, *, has_windows: bool) -> bytes:
    """Convert a model in a form; single pixels are rounded as matrices."""
    threshold, quantization = FORMS[form]
    loss = "floats" if has_windows and threshold == NEVER else ""
    with (
        patch.object(rules, "WORTHWHILE", threshold),
        patch.object(join_windows, "explain_floats", lambda *_: loss),
        patch.object(quantize_data, "explain_floats", lambda *_: loss),
    ):
        return tflite2onnx.convert(model, quantization=quantization).skeleton.serialize()


def main() -> None:
    """Print a row of the table for each size: microseconds, and the ratio to float weights."""
    print(f"ONNX Runtime {ort.__version__}", *FORMS, sep=" | ")
    for size in sys.argv[1:] or f"{SIZES} {PIXELS} {WINDOWS}".split():
        numbers = [*map(int, size.split("x"))]
        model = (build_images if len(numbers) >= len("HWIO") else build_model)(*numbers)
        forms = [convert_form(model, f, has_windows=len(numbers) > len("HWIO")) for f in FORMS]
        runs = [open_onnx_runtime(form, 1) for form in forms]
        times = measure_inferences(runs, TURNS)
        cells = (f"{t * 1e6:.1f} us, {t / times[0]:.2f} x" for t in times)
        print(size, *cells, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
