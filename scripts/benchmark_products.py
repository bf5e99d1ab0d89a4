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

An s after the size makes the data signed: no layer limits them to positive numbers. `--fit` prints
the factors of `costs.py` for products of integers, from all convolutions that are measured. They
are divided by the ratio of this processor's factor of 1x1 convolutions (`fit_convolutions.py`) to
that of `costs.py`.

The forms run in turn in one process, on one thread. The
lower quartile of the processor times counts.
"""

import usage  # noqa: F401 - packages may be missing

import argparse
from math import prod
from unittest.mock import patch

import numpy as np
import onnxruntime as ort
from fit_convolutions import CHAINS, find_block, fit_factors, fit_kernels
from inference import measure_inferences, open_onnx_runtime

import tflite2onnx
from tests.support import Build, Tensor
from tflite2onnx.quantization import rules
from tflite2onnx.targets.onnxruntime.costs import FACTORS, estimate_convolution
from tflite2onnx.targets.onnxruntime.forms.dynamic_range import join_windows, quantize_data

SIZES = (
    "1x64x64 1x128x128 1x192x192 1x256x256 1x360x360 1x512x512 1x1024x1024 1x2048x2048 1x4096x4096"
    " 4x64x64 16x32x32 4x256x256 2x512x400 64x64x64 64x128x128 64x512x512"
)
PIXELS = (
    "112x112x16x96 56x56x24x144 56x56x96x24 28x28x64x128 28x28x128x128 14x14x384x96 14x14x96x576"
    " 14x14x256x256 14x14x512x512 7x7x576x160 7x7x160x960 28x28x256x256 20x20x256x256"
    " 7x7x512x512 7x7x320x1280 5x5x192x192 4x4x512x512 3x3x320x1280 3x3x112x1280 2x2x512x512"
    " 14x14x96x576s 14x14x256x256s 7x7x160x960s 3x3x320x1280s 3x3x112x1280s"
)
WINDOWS = (
    "80x80x16x3x9 80x80x16x16x3 80x80x16x32x3 80x80x32x16x3 80x80x32x32x3 80x80x64x64x3"
    " 40x40x32x8x3 40x40x128x8x3 40x40x128x32x3 40x40x128x128x3 20x20x64x64x3 20x20x128x128x3"
    " 20x20x256x256x3 10x10x128x128x3 5x5x128x128x3 3x3x256x256x3"
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
LARGE = 9  # rows and columns of a window


def build_model(rows: int, features: int, outputs: int) -> bytes:
    """Return a model of one layer with a bias and a scale for each output."""
    generator, m = np.random.default_rng(0), Build()
    integers = generator.integers(-127, 128, (outputs, features)).astype(np.int8)
    w = m.constant(integers, scale=generator.uniform(0.01, 0.02, outputs).tolist())
    b = m.constant(generator.standard_normal(outputs).astype(np.float32))
    m.output(*m.op("FULLY_CONNECTED", [m.input([rows, features]), w, b], [[rows, outputs]]))
    return m.bytes()


def build_images(
    height: int, width: int, channels: int, filters: int, window: int = 1, *, signed: bool
) -> bytes:
    """Return a model of a convolution between two of each channel."""
    generator, m = np.random.default_rng(0), Build()

    def convolve(x: Tensor, code: str, w: Tensor, outputs: int) -> Tensor:
        b = m.constant(generator.standard_normal(outputs).astype(np.float32))
        y = [[1, height, width, outputs]]
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
        activation = "NONE" if signed else "RELU6"
        return m.op(code, [x, w, b], y, fused_activation_function=activation, **options)[0]

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
        patch.object(join_windows, "explain_floats", lambda *_, **_options: loss),
        patch.object(quantize_data, "explain_floats", lambda *_, **_options: loss),
    ):
        return tflite2onnx.convert(model, quantization=quantization).skeleton.serialize()


def list_terms(block: int, sizes: list[int], *, signed: bool) -> tuple[float, tuple[float, ...]]:
    """Return the expected time of a convolution of floats, and the terms of the one of integers.

    The terms are a node, the millions of products, of numbers that are quantized or summed, of the
    same numbers and bytes if there are windows, of bytes of filters, and a node for signed data.
    """
    height, width, channels, filters, *window = sizes
    size = tuple(2 * window) or (1, 1)
    pixels, outputs, x = height * width, -(-filters // 16) * 16, (1, height, width, channels)
    floats = estimate_convolution(block, (channels, *size), x, (1, height, width, filters))
    copied, columns = pixels * prod(size) * channels, prod(size) * channels * outputs
    numbers, copies = pixels * (channels + outputs), bool(window)
    millions = (pixels * columns, numbers, copies * numbers, copies * copied, columns)
    return floats, (1, *(1e-6 * n for n in millions), signed)


def fit_integers(times: dict[str, list[float]]) -> None:
    """Print the factors of products of integers, and the median error."""
    block = find_block()
    scale = fit_kernels(CHAINS, block)["pointwise"].products / FACTORS[block]["pointwise"].products
    rows, expected = [], []
    for size, (real, _, integers) in times.items():
        numbers = [*map(int, size.removesuffix("s").split("x"))]
        # The nodes of windows of 9 rows and columns are those of `join_windows`.
        if len(numbers) >= len("HWIO") and max(numbers[4:], default=1) < LARGE:
            floats, terms = list_terms(block, numbers, signed=size.endswith("s"))
            rows.append(terms)
            expected.append(floats - (real - integers) * 1e6 / scale)
    terms, each = np.array(rows), np.array(expected)
    factors = fit_factors(terms, each)
    names = ("node", "products", "loads", "gathered", "windows", "filters", "extremes")
    print(f"blocks of {block}:", *(f"{n} {f:.4g}" for n, f in zip(names, factors, strict=True)))
    print(f"median error {np.median(np.abs(terms @ factors / each - 1)):.0%}")


def main() -> None:
    """Print a row of the table for each size: microseconds, and the ratio to float weights."""
    parser = argparse.ArgumentParser(description="The time of products of float data.")
    parser.add_argument("sizes", nargs="*", default=f"{SIZES} {PIXELS} {WINDOWS}".split())
    parser.add_argument("--fit", action="store_true", help="print the factors of costs.py")
    options = parser.parse_args()
    print(f"ONNX Runtime {ort.__version__}", *FORMS, sep=" | ")
    measured = {}
    for size in options.sizes:
        numbers, signed = [*map(int, size.removesuffix("s").split("x"))], size.endswith("s")
        is_image, has_windows = len(numbers) >= len("HWIO"), len(numbers) > len("HWIO")
        model = build_images(*numbers, signed=signed) if is_image else build_model(*numbers)
        forms = [convert_form(model, form, has_windows=has_windows) for form in FORMS]
        runs = [open_onnx_runtime(form, 1) for form in forms]
        times = measured[size] = measure_inferences(runs, TURNS)
        cells = (f"{t * 1e6:.1f} us, {t / times[0]:.2f} x" for t in times)
        print(size, *cells, sep=" | ", flush=True)
    if options.fit:
        fit_integers(measured)


if __name__ == "__main__":
    main()
