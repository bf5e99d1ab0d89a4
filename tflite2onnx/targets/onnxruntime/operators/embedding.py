"""EMBEDDING_LOOKUP of 4 bits with a scale for each row, as one node.

The table may be the weights of the last product, too, which reads elements. Gather of ONNX Runtime
has no elements of 4 bits, so it reads bytes, a second constant of the same bytes in the file.
GatherBlockQuantized reads the elements, and is one node in place of six. A block is a row here: it
may be larger than the row.
"""

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.indexing import embedding
from tflite2onnx.tensor import DType

_MATRIX = 2  # axes
_LEAST_BLOCK = 16


class PackedEmbedding(embedding.EmbeddingLookup):
    """EMBEDDING_LOOKUP."""

    def emit(self, g: Builder, y: View, ids: View, table: View) -> Value:
        scales = table.tensor.quantization
        if (
            y.dtype is table.dtype
            or scales is None
            or scales.block_size
            or not scales.per_axis
            or table.dtype is not DType.INT4
            or table.rank != _MATRIX
            or table.shape[1] % 2
            or not g.has_type(DType.INT4)
        ):
            return super().emit(g, y, ids, table)
        size = max(_LEAST_BLOCK, 1 << (table.shape[1] - 1).bit_length())
        rows = g.node(
            "GatherBlockQuantized",
            *(g.constant(table.constant, DType.INT4, table.tensor.name), ids),
            g.constant(scales.scale.reshape(-1, 1)),
            domain="com.microsoft",
            gather_axis=0,
            quantize_axis=1,
            block_size=size,
        )
        return g.recast(rows, DType.FLOAT32, y.dtype)
