"""Recognise what a model computes of the bits of floats.

    IS_NEGATIVE   bits < 0; bits & m compared with 0 or m, or cast to bool, where m is the sign bit;
                  bits >> n likewise, where n is the position of the sign bit
    IS_NEGATIVE of zeros only     x == 0 && IS_NEGATIVE(x)

They are replaced if the bits are integers of the size of the floats. Keras 3 writes `signbit` so,
and `argmax` and `argmin`, for which -0 is less than 0; JAX shifts the bits. BITCAST of floats needs
a node of opset 26. Comparisons do not.

This pass runs before a batch is added, and before sizes become dynamic.
"""

from tflite2onnx.graph import Op
from tflite2onnx.made_options import SignOptions
from tflite2onnx.passes.patterns.matching import Match, Named, OneOf, Shared, any_of
from tflite2onnx.passes.patterns.rules import Rule, Rules, replace_by
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import DType

_FLOATS = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)

_BITS = Named("bits", Shared(("BITCAST", "x")))
_MASKED = Shared(any_of(("FlexBitwiseAnd", "STABLEHLO_AND"), _BITS, "mask#"))
_SHIFTED = Shared(any_of(("FlexRightShift", "RIGHT_SHIFT"), _BITS, "shift#"))
_LESS = OneOf(*(("LESS", each, 0) for each in (_BITS, _MASKED, _SHIFTED)))
_SIGN = OneOf(
    ("EQUAL", _MASKED, "mask#"),
    *(
        pattern
        for each in (_MASKED, _SHIFTED)
        for pattern in (("NOT_EQUAL", each, 0), ("CAST", each))
    ),
)


def _is_of_bits(found: Match) -> bool:
    """Return whether x is a float, its bits are integers of its size, and the result is as long."""
    x, bits = found.x, found.tensors["bits"]
    fits = x.dtype in _FLOATS and bits.dtype.is_integer and bits.dtype.bits == x.dtype.bits
    return fits and found.output.sizes == x.sizes


def _find_mask(found: Match) -> int | None:
    """Return the bits that a mask or a shift keeps, None if elements differ."""
    size = found.x.dtype.bits
    for name, unit in (("mask#", 1), ("shift#", -1)):
        numbers = {*found.list_integers(name)}
        if numbers:
            number = numbers.pop()
            known = not numbers and (unit > 0 or 0 <= number < size)
            return (number if unit > 0 else -1 << number) % (1 << size) if known else None
    return -1 % (1 << size)


def _find_sign_bit(found: Match) -> int:
    return 1 << found.x.dtype.bits - 1


def _keeps_sign(found: Match) -> bool:
    mask = _find_mask(found)
    signed = found.tensors["bits"].dtype.name.startswith("INT")
    return _is_of_bits(found) and signed and bool((mask or 0) & _find_sign_bit(found))


def _keeps_sign_alone(found: Match) -> bool:
    is_mask = _is_of_bits(found) and _find_mask(found) == _find_sign_bit(found)
    return is_mask and found.output.dtype is DType.BOOL


def _keep_zeros(found: Match) -> list[Op]:
    rw = Rewriter(found.last)
    made = SignOptions(zeros_only=True)
    negative = rw.op("IS_NEGATIVE", found.x, like=found.output, made=made)
    rw.op("LOGICAL_AND", found.tensors["zero"], negative, output=found.output)
    return rw.ops


fuse_bits = Rules(
    Rule(
        "bits of a float, compared with 0",
        "IS_NEGATIVE",
        _LESS,
        replace_by("IS_NEGATIVE"),
        _keeps_sign,
        "the bits must be signed integers as wide as the floats, masked to keep the sign",
        dtype=None,
    ),
    Rule(
        "sign bit of a float",
        "IS_NEGATIVE",
        _SIGN,
        replace_by("IS_NEGATIVE"),
        _keeps_sign_alone,
        "the bits must be integers as wide as the floats, masked to the sign alone",
        dtype=None,
    ),
    Rule(
        "negative zero",
        "EQUAL, IS_NEGATIVE of zeros, LOGICAL_AND",
        ("LOGICAL_AND", Named("zero", Shared(("EQUAL", "x", 0))), Shared(("IS_NEGATIVE", "x"))),
        _keep_zeros,
        lambda found: found.x.sizes == found.output.sizes,
        "x must have the shape of the result",
        dtype=None,
        needs=("IS_NEGATIVE",),
    ),
)
