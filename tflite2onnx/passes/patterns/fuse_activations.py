"""Recognise activation functions that a model spells out.

    RELU6         min(max(x, 0), 6)
    HARD_SIGMOID  relu6(x + 3) / 6, and a x + b limited to 0 and 1; relu6(x) / 6, if a convolution
                  or a dense layer computes x and applies RELU6, because its biases have the 3
    HARD_SWISH    x relu6(x + 3) / 6
    GELU          0.5 x (1 + erf(x / sqrt 2)), 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

They are replaced, in every sequence of the factors and terms, if

1. all tensors are float32, and the result has the shape of x;
2. no other operator reads the tensors between the operators;
3. the numbers are those of the function up to rounding to float32: a factor of 1/6 that was rounded
   to float16 stays.

Runtimes fuse Clip and HardSigmoid with convolutions, and HardSwish and Gelu keep the layout of
convolutions. Softplus and Mish stay spelled out, because Softplus is slower than Exp, Add and Log.
Swish stays too, because runtimes fuse Sigmoid and Mul themselves. docs/performance.md has times.
"""

from dataclasses import replace
from math import pi, sqrt

from tflite2onnx.graph import Op
from tflite2onnx.made_options import HardSigmoidOptions
from tflite2onnx.passes.operands import LAYERS
from tflite2onnx.passes.patterns.matching import Match, OneOf, Pattern, any_of
from tflite2onnx.passes.patterns.rules import Rule, Rules, replace_by
from tflite2onnx.passes.rewriter import as_builtin, make_like


def _make_hard_sigmoid(found: Match) -> Op | str:
    alpha, beta = found.number("alpha#", 1 / 6), found.number("beta#", 0.5)
    if alpha is None or beta is None:
        return "the factor and the summand must be one number each"
    made = HardSigmoidOptions(alpha=alpha, beta=beta)
    return as_builtin(found.last, "HARD_SIGMOID", found.x, made=made)


def _bound_product(found: Match) -> list[Op]:
    """Return a convolution without its activation RELU6, and a sixth of RELU6 as HardSigmoid."""
    *_, product = found.ops
    inner = make_like(product.outputs[0], "unbounded")
    plain = replace(product.with_activation("NONE"), outputs=(inner,))
    made = HardSigmoidOptions(alpha=1 / 6)
    return [plain, as_builtin(found.last, "HARD_SIGMOID", inner, made=made)]


def _make_gelu(found: Match) -> Op:
    approximate = any("TANH" in (op.code, op.activation) for op in found.ops)
    return as_builtin(found.last, "GELU", found.x, approximate=approximate)


def _multiply(a: Pattern, b: Pattern, c: Pattern) -> OneOf:
    """Return the product of three factors, which is grouped in three ways."""
    return OneOf(("MUL", ("MUL", a, b), c), ("MUL", ("MUL", a, c), b), ("MUL", ("MUL", b, c), a))


_RELU6 = OneOf(
    ("MINIMUM", ("MAXIMUM", "x", 0), 6),
    ("MAXIMUM", ("MINIMUM", "x", 6), 0),
    ("MINIMUM", ("RELU", "x"), 6),
)
_GATE: Pattern = ("RELU6", ("ADD", "x", 3))
_HARD_SWISH = OneOf(
    _multiply("x", _GATE, 1 / 6),
    ("DIV", ("MUL", "x", _GATE), 6),
    ("MUL", "x", ("DIV", _GATE, 6)),
)
# Converters add the 3 to the biases of a convolution, which applies the RELU6.
_BOUNDED: Pattern = ("RELU6", any_of(LAYERS, "data", "weights#", ...))
_LINE: Pattern = ("ADD", ("MUL", "x", "alpha#"), "beta#")
_HARD_SIGMOID = OneOf(
    ("MUL", _GATE, 1 / 6),
    ("DIV", _GATE, 6),
    ("MAXIMUM", ("MINIMUM", _LINE, 1), 0),
    ("MINIMUM", ("MAXIMUM", _LINE, 0), 1),
    ("MINIMUM", ("RELU", _LINE), 1),
    ("RELU_0_TO_1", _LINE),
)
_CUBE = OneOf(("POW", "x", 3), ("MUL", ("MUL", "x", "x"), "x"), ("MUL", ("SQUARE", "x"), "x"))
_TANH: Pattern = ("TANH", ("MUL", ("ADD", "x", ("MUL", _CUBE, 0.044715)), sqrt(2 / pi)))
_ERF: Pattern = ("FlexErf", OneOf(("MUL", "x", sqrt(0.5)), ("DIV", "x", sqrt(2))))
_GELU = _multiply("x", 0.5, ("ADD", OneOf(_TANH, _ERF), 1))

_UNLESS = "x must be float32, and have the shape of the result"

fuse_activations = Rules(
    Rule("Relu6", "RELU6", _RELU6, replace_by("RELU6"), Match.keeps_shape, _UNLESS),
    Rule(
        "HardSwish",
        "HARD_SWISH",
        _HARD_SWISH,
        replace_by("HARD_SWISH"),
        Match.keeps_shape,
        _UNLESS,
    ),
    Rule(
        "HardSigmoid",
        "HARD_SIGMOID",
        _HARD_SIGMOID,
        _make_hard_sigmoid,
        Match.keeps_shape,
        _UNLESS,
    ),
    Rule(
        "sixth of the Relu6 of a convolution or dense layer",
        "the same without Relu6, HARD_SIGMOID",
        OneOf(("MUL", _BOUNDED, 1 / 6), ("DIV", _BOUNDED, 6)),
        _bound_product,
    ),
    Rule("Gelu", "GELU", _GELU, _make_gelu, Match.keeps_shape, _UNLESS),
)
