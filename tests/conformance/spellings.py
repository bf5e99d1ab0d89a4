"""How exporters spell what users write, and the tests that build these spellings.

A layer becomes several operators, in a form of each exporter. The tests write the form down with
the builders of tests/support, so that they need no exporter. docs/operators.md has this table, and
this command runs all of the tests:

    python -m pytest --all $(python -m tests.conformance.spellings)
"""

from __future__ import annotations

import sys
from typing import NamedTuple


class Spelling(NamedTuple):
    """What a user writes for an exporter, the operators in the file, and the test that has them."""

    exporter: str
    written: str
    operators: tuple[str, ...]
    test: str


SPELLINGS = (
    Spelling(
        "Keras 3",
        "`ops.argmax`, `ops.argmin`, `ops.signbit`",
        ("BITCAST", "FlexBitwiseAnd", "LESS", "EQUAL", "LOGICAL_AND", "SELECT_V2", "ARG_MAX"),
        "passes/patterns/test_fuse_bits.py",
    ),
    Spelling(
        "Keras 3",
        "`Conv1D`, `SeparableConv1D`, `DepthwiseConv2D` with `dilation_rate`",
        ("FLOOR_MOD", "SPACE_TO_BATCH_ND", "CONV_2D", "DEPTHWISE_CONV_2D", "BATCH_TO_SPACE_ND"),
        "dynamic_sizes/test_dilated_convolutions.py",
    ),
    Spelling(
        "Keras 3",
        "`Conv2DTranspose`, whose bias has the shape [1, 1, 1, filters]",
        ("TRANSPOSE_CONV",),
        "quantized/test_biases.py",
    ),
    Spelling(
        "Keras 3",
        "`CategoryEncoding`, and `math.bincount` of tf.function",
        ("REDUCE_MAX", "MAXIMUM", "FlexDenseBincount"),
        "contrib/flex/test_scatter.py",
    ),
    Spelling(
        "Keras 3",
        "random augmentation, `affine_transform`",
        ("FlexImageProjectiveTransformV3",),
        "contrib/flex/test_projective.py",
    ),
    Spelling(
        "Keras 3",
        "`UpSampling2D`, channel shuffles",
        ("RESHAPE", "TRANSPOSE", "BROADCAST_TO", "TILE"),
        "passes/patterns/test_fuse_rearrangements.py",
    ),
    Spelling(
        "tf.function",
        "`TensorArray`, also with `dynamic_size`",
        ("WHILE", "IF"),
        "contrib/tensor_lists/test_lower_tensor_lists.py",
    ),
    Spelling(
        "tf.function",
        "`unique_with_counts`, `in_top_k`, `searchsorted`",
        ("FlexUniqueWithCounts", "FlexInTopKV2", "FlexUpperBound"),
        "contrib/flex/test_search.py",
    ),
    Spelling(
        "tf.function",
        "`dynamic_partition`, `dynamic_stitch`",
        ("FlexDynamicPartition", "FlexDynamicStitch"),
        "contrib/flex/test_scatter.py",
    ),
    Spelling(
        "tf.function",
        "ragged and sparse tensors, `safe_embedding_lookup_sparse`",
        (
            "FlexRaggedTensorToTensor",
            "FlexRaggedRange",
            "FlexRaggedGather",
            "FlexSparseTensorDenseMatMul",
            "FlexSparseFillEmptyRows",
            "FlexSparseReduceSum",
        ),
        "contrib/flex/test_sparse.py",
    ),
    Spelling(
        "litert-torch",
        "`nn.LayerNorm`, `nn.TransformerEncoderLayer` with a batch",
        ("MEAN", "SQUARED_DIFFERENCE", "RSQRT", "MUL", "SUB"),
        "passes/batch/test_independent.py",
    ),
    Spelling(
        "litert-torch",
        "`nn.GRU`, `nn.LSTM`",
        ("FULLY_CONNECTED", "SLICE", "LOGISTIC", "TANH", "CONCATENATION"),
        "passes/recurrent/test_torch_layers.py",
    ),
    Spelling(
        "litert-torch",
        "`nn.ConvTranspose3d`",
        ("CONV_3D", "CONV_3D_TRANSPOSE"),
        "contrib/stablehlo/test_lower_products.py",
    ),
    Spelling(
        "litert-torch",
        "Mamba, from `torch` and from `einsum`",
        ("BATCH_MATMUL", "MUL", "ADD", "SLICE", "CONCATENATION"),
        "targets/onnxruntime/forms/products/test_join_states.py",
    ),
    Spelling(
        "litert-torch",
        "attention of one head with a batch (SegFormer)",
        ("FULLY_CONNECTED", "RESHAPE", "SOFTMAX"),
        "passes/batch/test_add_batch.py",
    ),
    Spelling(
        "litert-torch",
        "`avg_pool2d` with `ceil_mode`, `local_response_norm`, with a batch",
        ("STABLEHLO_REDUCE_WINDOW",),
        "contrib/stablehlo/test_reduce_window.py",
    ),
    Spelling(
        "litert-torch",
        "`scatter_add`, `fold`",
        ("STABLEHLO_SCATTER",),
        "contrib/stablehlo/test_gather_scatter.py",
    ),
    Spelling(
        "quantizers",
        "TensorFlow: `Bidirectional(LSTM)` of int8",
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", "REVERSE_V2"),
        "quantized/test_recurrent.py",
    ),
    Spelling(
        "quantizers",
        "TensorFlow: layers without bias, scales for each channel",
        ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"),
        "passes/stored_numbers/test_make_symmetric.py",
    ),
    Spelling(
        "quantizers",
        "AI Edge Quantizer: products of two constants, and of a constant query (DETR, SigLIP)",
        ("BATCH_MATMUL",),
        "quantized/test_batch_matmul.py",
    ),
    Spelling(
        "quantizers",
        "AI Edge Quantizer: `dynamic_wi8_afp32`",
        ("CONV_2D", "FULLY_CONNECTED", "EMBEDDING_LOOKUP"),
        "quantized/test_hybrid.py",
    ),
    Spelling(
        "quantizers",
        "AI Edge Quantizer: `nn.GRU`, `nn.LSTM` of int4, and of weights alone",
        ("DEQUANTIZE", "FULLY_CONNECTED"),
        "passes/recurrent/test_torch_layers.py",
    ),
)


if __name__ == "__main__":
    sys.stdout.write(" ".join(f"tests/{spelling.test}" for spelling in SPELLINGS) + "\n")
