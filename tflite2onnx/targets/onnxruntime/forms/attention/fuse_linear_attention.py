"""gated_delta_update becomes LINEAR_ATTENTION, with which ONNX Runtime computes all tokens.

The tokens move in front of the heads, where litert-torch's exporters have them. Padding, a token
with a rate below 0 or a decay above 1, has the rate or the logarithm 0, as in LiteRT.

An operator is replaced if all tensors are float32 and have fixed sizes.
"""

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import are_fixed_floats
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Tensor

_VECTORS = 4  # axes of queries, keys and values


@rule("gated_delta_update", "LINEAR_ATTENTION", ("gated_delta_update", ...), dtype=None)
def fuse_linear_attention(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    op = found.last
    query, key, value, rate, decay, state = op.present
    if not are_fixed_floats(*op.present, *op.outputs):
        return "all tensors must be float32, of known sizes"
    rw, (y, after) = Rewriter(op), op.outputs
    rate = rw.op("MAXIMUM", rate, 0.0, like=rate)
    decay = rw.op("MINIMUM", decay, 0.0, like=decay)
    rows = [_move_tokens(rw, t) for t in (query, key, value, rate, decay)]
    batch, heads, tokens, width = y.shape
    flat = Tensor(f"{y.name}/tokens", (batch, tokens, heads * width), y.dtype)
    rw.ops.append(Op("LINEAR_ATTENTION", op.index, (*rows, state), (flat, after)))
    split = rw.reshape(flat, (batch, tokens, heads, width), like=y, name="heads")
    rw.transpose(split, (0, 2, 1, 3), like=y, output=y)
    return rw.ops


def _move_tokens(rw: Rewriter, x: Tensor) -> Tensor:
    """Return [batch, heads, tokens, ...] as [batch, tokens, heads * ...]."""
    order = (0, 2, 1, 3) if x.rank == _VECTORS else (0, 2, 1)
    moved = rw.transpose(x, order, like=x, name="moved")
    batch, tokens, *sizes = moved.shape
    if x.rank < _VECTORS:
        return moved
    return rw.reshape(moved, (batch, tokens, sizes[0] * sizes[1]), like=x, name="flat")
