"""The time of one FULLY_CONNECTED with float data and int8 weights, in each of its forms.

The forms are the rows of the tables in tflite2onnx/quantization/rules.py: float weights that are
dequantized at load, beside data as they are and beside data that are rounded to 256 steps in each
row as LiteRT does, and integers by integers::

    python scripts/benchmark_products.py
    python scripts/benchmark_products.py 1x512x512 64x64x64

A size is rows x features x outputs. The forms run in turn in one process, on one thread. The
lower quartile of the processor times counts.
"""

import sys

import numpy as np
import onnxruntime as ort
from inference import measure_inferences, open_onnx_runtime

import tflite2onnx
from tests.support import Build
from tflite2onnx.quantization import rules

SIZES = (
    "1x64x64 1x128x128 1x192x192 1x256x256 1x360x360 1x512x512 1x1024x1024 1x2048x2048 1x4096x4096"
    " 4x64x64 16x32x32 4x256x256 2x512x400 64x64x64 64x128x128 64x512x512"
)
ALWAYS, NEVER = 0, 1 << 62
# The threshold `rules.WORTHWHILE` with which each form is chosen, and the option `quantization`.
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


def convert_form(model: bytes, form: str) -> bytes:
    """Convert a model in a form."""
    known = rules.WORTHWHILE
    rules.WORTHWHILE, quantization = FORMS[form]
    try:
        return tflite2onnx.convert(model, quantization=quantization).skeleton.serialize()
    finally:
        rules.WORTHWHILE = known


def main() -> None:
    """Print a row of the table for each size: microseconds, and the ratio to float weights."""
    print(f"ONNX Runtime {ort.__version__}", *FORMS, sep=" | ")
    for size in sys.argv[1:] or SIZES.split():
        rows, features, outputs = map(int, size.split("x"))
        model = build_model(rows, features, outputs)
        runs = [open_onnx_runtime(convert_form(model, form), 1) for form in FORMS]
        times = measure_inferences(runs, TURNS)
        cells = (f"{t * 1e6:.1f} us, {t / times[0]:.2f} x" for t in times)
        print(size, *cells, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
