"""Functions whose kernels in ONNX Runtime are slow are spelled out by operators that are fast.

    ELU               max(x, exp(min(x, 0)) - 1)
    LRN               x / (bias + alpha (the sum of squares of near channels)) ** beta
    1 / (1 + exp x)   (1 / e) ** softplus(x)

ONNX Runtime computes Elu with 4 floats at once, and Exp with as many as the processor has. LRN
raises each number to a power; its sum of squares is a convolution with 1x1 filters, and the powers
0.5 and 0.75 are square roots. A function is spelled out if all tensors are float32, and

1. ELU has enough elements, about 700: four nodes for fewer take longer than Elu (`costs.py`);
2. LOCAL_RESPONSE_NORMALIZATION has a known number of channels, at most 512, and beta is neither 0
   nor 1: LRN has a fast path for 1. With a bias below 1e-20 all powers are Pow: LRN subtracts
   squares from a running sum, which may then be negative;
3. DIV has few elements, about 30. Softplus is slow, but a dense layer applies it without a node:
   one score of a layer takes 3.8 us in place of 4.1, 16 take 4.1 in place of 4.2.

exp(x) - 1 is rounded to 1e-7, also for x near 0. A sum with relu(x) would take a node more, and
between convolutions a reorder, because Relu computes in their blocks: 1.02 of the time of two
convolutions of 64 x 64 pixels and 32 channels. An infinite channel of LRN gives NaN in all.
"""

from math import exp, prod

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.targets.onnxruntime.costs import Terms, explain_nodes
from tflite2onnx.tensor import Tensor

_MOST = 512  # channels: the filters have their square
_LEAST_BIAS = 1e-20  # a product of a much smaller sum and its root is 0 in float32
_IMAGE = 4  # axes


def _spell_elu(found: Match) -> list[Op] | str:
    x, y = found.x, found.output
    known = prod(size for axis, size in enumerate(y.shape) if axis not in y.symbols)
    numbers = Terms(loads=known)
    if not is_float(x):
        return "x must be float32"
    if loss := explain_nodes([("exponentials", numbers)], [("elu", numbers)]):
        return loss
    rw = Rewriter(found.last)
    negative = rw.op("MINIMUM", x, 0, like=y)
    power = rw.op("EXP", negative, like=y)
    bounded = rw.op("SUB", power, 1, like=y)
    rw.op("MAXIMUM", x, bounded, output=y)
    return rw.ops


def _spell_sigmoid(found: Match) -> list[Op] | str:
    x, y = found.x, found.output
    if not is_float(x) or x.sizes != y.sizes:
        return "x must be float32, with the shape of the result"
    numbers = Terms(loads=y.elements)
    # POW, beside EXP, ADD and DIV.
    functions = [("function", numbers)] * 3
    if loss := explain_nodes([("softplus", numbers), functions[0]], functions):
        return loss
    rw = Rewriter(found.last)
    rw.op("POW", exp(-1), rw.op("FlexSoftplus", x, like=y, name="softplus"), output=y)
    return rw.ops


def _spell_normalization(found: Match) -> list[Op] | str:
    options, x, y = found.last.options, found.x, found.output
    beta, channels = float(options.beta), y.shape[-1] if y.rank else 0
    if not is_float(x) or y.rank != _IMAGE or _IMAGE - 1 in y.symbols or channels > _MOST:
        return "x must be a float32 image of few channels"
    if beta in (0, 1) or beta < 0 or options.alpha < 0 or options.radius < 0:
        return "the exponent must be positive, and neither 0 nor 1"
    distances = np.subtract.outer(np.arange(channels), np.arange(channels))
    near = np.where(np.abs(distances) <= options.radius, options.alpha, 0).astype(np.float32)
    biases = np.full(channels, options.bias, np.float32)
    rw = Rewriter(found.last)
    square = rw.op("MUL", x, x, like=y, name="square")
    filters = near.reshape(channels, 1, 1, channels)
    total = rw.convolve("CONV_2D", square, filters, biases, like=y, name="sum")
    is_tiny = options.bias < _LEAST_BIAS
    power = rw.op("POW", total, beta, like=total) if is_tiny else _raise(rw, total, beta)
    rw.op("DIV", x, power, output=y)
    return rw.ops


def _raise(rw: Rewriter, x: Tensor, beta: float) -> Tensor:
    """Return a tensor to a power: square roots for 0.5 and 0.75."""
    if beta == 0.75:
        x = rw.op("MUL", x, rw.op("SQRT", x, like=x), like=x)
    if beta in (0.5, 0.75):
        return rw.op("SQRT", x, like=x, name="root")
    return rw.op("POW", x, beta, like=x)


spell_out = Rules(
    Rule("ELU", "MINIMUM, EXP, SUB, MAXIMUM", ("ELU", "x"), _spell_elu),
    Rule(
        "LOCAL_RESPONSE_NORMALIZATION",
        "MUL, CONV_2D, SQRT or POW, DIV",
        ("LOCAL_RESPONSE_NORMALIZATION", "x"),
        _spell_normalization,
    ),
    Rule(
        "1 / (1 + exp x) of few elements",
        "FlexSoftplus, POW",
        ("DIV", 1, ("ADD", ("EXP", "x"), 1)),
        _spell_sigmoid,
    ),
)
