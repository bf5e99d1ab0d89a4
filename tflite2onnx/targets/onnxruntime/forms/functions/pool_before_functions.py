"""Functions of single elements move from the input of a MAX_POOL_2D to its output.

    the maximum of f(x) = f(the maximum of x), for a function f that never falls

Each function then computes as many elements as the pool has outputs: a quarter for windows of 2x2
pixels. The results are the same bits where f rounds without falling. The functions are

- ELU, EXP, LOGISTIC, TANH;
- sums with constants, products with constants of at least 0, and sums of products: normalizations
  after an activation, which no convolution can absorb.

They move if

1. all tensors are float32, and nothing else reads the functions;
2. the constants have one element for each channel, or only one;
3. a shorter time is expected (`costs.py`), also if a convolution computes a function in its node.

Two 3x3 convolutions, each before such a function and a pool of 2x2, take 0.65 to 0.81 of the time
with ELU, 0.76 to 0.88 with EXP, 0.84 to 0.94 with LOGISTIC and TANH, and 0.91 to 0.97 with a
normalization (64x64 pixels of 32 channels, 96x96 of 16, 32x32 of 64): processor time of sessions
with the form and without it in turns, on one thread of an AMD EPYC (family 25, model 17, with
AVX-512).
"""

from dataclasses import replace

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import spread_over_channels
from tflite2onnx.passes.patterns.matching import Match, OneOf, Pattern
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import make_like
from tflite2onnx.targets.onnxruntime.costs import Terms, explain_nodes

_PRODUCT: Pattern = ("MUL", "x", "factors#")
_FUNCTION = OneOf(
    *((code, "x") for code in ("ELU", "EXP", "LOGISTIC", "TANH")),
    ("ADD", _PRODUCT, "offsets#"),
    ("ADD", "x", "offsets#"),
    _PRODUCT,
)


@rule(
    "functions that never fall, between a convolution and a pool",
    "MAX_POOL_2D, then the functions",
    ("MAX_POOL_2D", _FUNCTION),
)
def pool_before_functions(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    (pool, *functions), x, y = found.ops, found.x, found.output
    if any(f.outputs[0].sizes != x.sizes for f in functions):
        return "the functions must keep the sizes of the image"
    before, after = ([("function", Terms(loads=t.elements))] * len(functions) for t in (x, y))
    if loss := explain_nodes([("small", Terms()), *after], before):
        return loss
    constants = [found.tensors[name] for name in ("factors#", "offsets#") if name in found.tensors]
    if not all(spread_over_channels(each, x).size for each in constants):
        return "the constants must have a number for each channel"
    if "factors#" in found.tensors and not (found.tensors["factors#"].values >= 0).all():
        return "the factors must not be negative"
    old, new = x, make_like(y, "pooled")
    ops = [replace(pool, inputs=(x,), outputs=(new,))]
    for op in reversed(functions):
        moved = op.with_inputs({old: new})
        old, new = op.outputs[0], y if op is functions[0] else make_like(y, op.code.lower())
        ops.append(replace(moved, outputs=(new,)))
    return ops
