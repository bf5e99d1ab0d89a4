"""Numbers between QuantizeLinear and DequantizeLinear, as compilers of NPUs read them."""

from collections.abc import Generator, Sequence

from tflite2onnx.builder.nodes import Node, Value


def requantize(x: Value, operands: Sequence[Value | None]) -> Generator[Node, None, Value]:
    """Yield nodes that quantize and dequantize numbers, and return the result."""
    stored, real = Value(), Value()
    yield Node("QuantizeLinear", (x, *operands), (stored,), {})
    yield Node("DequantizeLinear", (stored, *operands), (real,), {})
    return real
