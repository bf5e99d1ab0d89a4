"""The images that ONNX Runtime stores in blocks of channels.

Convolutions of floats store channels in blocks, of 16 with AVX-512 and of 8 with AVX2. Some
operators after a convolution keep the blocks (nchwc_transformer.cc); all others take an image out
of the blocks, and the next convolution puts it back.
"""

from tflite2onnx.graph import Graph
from tflite2onnx.op.facts import Fact
from tflite2onnx.passes.operands import has
from tflite2onnx.planning import has_channels_first
from tflite2onnx.tensor import Tensor

# Operators whose nodes keep the blocks, and PAD, which keeps_blocks.py makes a convolution.
_KEEPS_BLOCKS = (
    *("ADD", "AVERAGE_POOL_2D", "CONCATENATION", "MAX_POOL_2D", "MEAN", "MUL", "PAD"),
    *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SUB"),
)

NOT_IN_BLOCKS = "the image is not in blocks of channels"  # a reason why a form does not apply


def is_blocked(graph: Graph, image: Tensor) -> bool:
    """Return whether a planned graph stores an image with channels first, and in blocks."""
    op = graph.producers.find(image)
    keeps = op.is_builtin(*_KEEPS_BLOCKS) or has(op, Fact.ACTIVATION) or has(op, Fact.CONVOLVES)
    return keeps and has_channels_first(graph, image)
