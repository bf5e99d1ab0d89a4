"""The table of TensorFlow operators that have an equivalent in TFLite."""

from __future__ import annotations

from collections.abc import Mapping

from tflite2onnx.passes.flex.rewrites import (
    Rule,
    Same,
    rewrite_batch_norm,
    rewrite_bias_add,
    rewrite_clip_by_value,
    rewrite_conv_2d,
    rewrite_conv_3d,
    rewrite_conv_backprop,
    rewrite_fake_quantization,
    rewrite_format_permute,
    rewrite_identity_n,
    rewrite_pool_2d,
    rewrite_reverse,
    rewrite_table,
    rewrite_table_size,
    rule_with_axis_input,
    rule_with_block_size,
)
from tflite2onnx.tensor import DType

_KEPT = {"keep_dims": "keep_dims"}
_ADJOINED = {name: name for name in ("adj_x", "adj_y")}
_PLAIN = {"adj_x": False, "adj_y": False, "asymmetric_quantize_inputs": False}
_QUANTIZED = {"min": -6.0, "max": 6.0, "num_bits": 8, "narrow_range": False}
_SCANNED = {name: name for name in ("exclusive", "reverse")}
_SCANNED_FORTH = {"exclusive": False, "reverse": False}
_SEEDS, _UNSEEDED = {"seed": "seed", "seed2": "seed2"}, {"seed": 0, "seed2": 0}
_NAMED = {"container": "container", "shared_name": "shared_name"}
_CORNERS = {name: name for name in ("align_corners", "half_pixel_centers")}
_UNALIGNED = {"align_corners": False, "half_pixel_centers": False}
# Integers whose results wrap around when they are cast back, and floats that are rounded.
_WRAPS = {
    **dict.fromkeys((DType.INT8, DType.INT16, DType.UINT8, DType.UINT16), DType.INT32),
    **dict.fromkeys((DType.UINT32, DType.UINT64), DType.INT64),
    DType.FLOAT16: DType.FLOAT32,
}
_ROUNDS = {DType.FLOAT16: DType.FLOAT32}
# Casts that keep the order of all elements.
_ORDERS = {DType.UINT16: DType.INT32, DType.UINT32: DType.INT64, DType.FLOAT16: DType.FLOAT32}
_UNSIGNED = {DType.UINT8: DType.INT32, DType.UINT16: DType.INT32, DType.UINT32: DType.INT64}
_NARROWER: Mapping[DType, DType] = {
    **_UNSIGNED,
    **_ROUNDS,
    DType.INT8: DType.INT32,
    DType.INT16: DType.INT32,
}
# The output of resizing is float32.
_RESIZED = dict.fromkeys(
    (DType.FLOAT16, DType.INT8, DType.INT16, DType.UINT8, DType.UINT16), DType.FLOAT32
)
_DOUBLE = (DType.FLOAT64,)
_PRODUCTS = (DType.FLOAT64, DType.FLOAT16, DType.INT16, DType.INT32, DType.INT64)
_NARROW = {DType.INT16: DType.INT32, DType.UINT16: DType.INT32, DType.FLOAT16: DType.FLOAT32}
_FAR = (DType.FLOAT64, DType.INT64)


def _exclude_types(*types: DType) -> tuple[DType, ...]:
    return tuple(dtype for dtype in DType if dtype not in types)


RULES: Mapping[str, Rule] = {
    # Shapes
    "Reshape": Same("RESHAPE", inputs=2),
    "Transpose": Same("TRANSPOSE"),
    "ExpandDims": Same("EXPAND_DIMS"),
    "Squeeze": Same("SQUEEZE", {"squeeze_dims": "squeeze_dims"}),
    "BroadcastTo": Same("BROADCAST_TO"),
    "Tile": Same("TILE"),
    "Fill": Same("FILL"),
    "Range": Same("RANGE"),
    "Shape": Same("SHAPE"),
    "Rank": Same("RANK"),
    "ZerosLike": Same("ZEROS_LIKE", stays=_exclude_types(DType.FLOAT32, DType.INT32, DType.INT64)),
    # Parts
    "Slice": Same("SLICE"),
    "StridedSlice": Same(
        "STRIDED_SLICE",
        {
            f"{name}_mask": f"{name}_mask"
            for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        },
        fixed={
            "offset": False,
            **{
                f"{name}_mask": 0
                for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
            },
        },
    ),
    "Pad": Same("PAD"),
    "PadV2": Same("PADV2"),
    "MirrorPad": Same("MIRROR_PAD", {"mode": "mode"}),
    "ConcatV2": rule_with_axis_input("CONCATENATION", -1),
    "Pack": Same("PACK", {"axis": "axis", "N": "values_count"}, fixed={"axis": 0}),
    "Unpack": Same("UNPACK", {"axis": "axis", "num": "num"}, fixed={"axis": 0}),
    "Split": Same("SPLIT", {"num_split": "num_splits"}),
    "SplitV": Same("SPLIT_V", {"num_split": "num_splits"}),
    "GatherV2": rule_with_axis_input("GATHER", 2),
    "GatherNd": Same("GATHER_ND"),
    "ScatterNd": Same("SCATTER_ND"),
    "ReverseV2": Same("REVERSE_V2"),
    "Roll": Same("Roll", custom=True),
    "Reverse": rewrite_reverse,
    "ReverseSequence": Same(
        "REVERSE_SEQUENCE",
        {name: name for name in ("seq_dim", "batch_dim")},
        fixed={"batch_dim": 0},
        through={**_ORDERS, DType.INT8: DType.INT32},
    ),
    "ConjugateTranspose": Same("TRANSPOSE"),
    "Gather": Same("GATHER", fixed={"axis": 0, "batch_dims": 0}),
    "DataFormatVecPermute": rewrite_format_permute,
    "ParallelConcat": Same("CONCATENATION", fixed={"axis": 0}),
    "SpaceToBatch": rule_with_block_size("SPACE_TO_BATCH_ND"),
    "SpaceToBatchND": Same("SPACE_TO_BATCH_ND"),
    "BatchToSpace": rule_with_block_size("BATCH_TO_SPACE_ND"),
    "BatchToSpaceND": Same("BATCH_TO_SPACE_ND"),
    "Bitcast": Same("BITCAST"),
    "BroadcastArgs": Same("BROADCAST_ARGS"),
    "Select": Same("SELECT"),
    "IdentityN": rewrite_identity_n,
    "Where": Same("WHERE", through=_ROUNDS),
    "Unique": Same("UNIQUE", through=_ORDERS),
    # Their own, but for the types.
    **{
        name: Same(f"Flex{name}", custom=True, through=_WRAPS)
        for name in (
            "SegmentMean",
            "SegmentProd",
            "SegmentSum",
            "UnsortedSegmentProd",
            "UnsortedSegmentSum",
            "TensorScatterAdd",
            "TensorScatterSub",
        )
    },
    **{
        name: Same(f"Flex{name}", custom=True, through=_NARROWER)
        for name in ("SegmentMax", "SegmentMin", "TensorScatterMax", "TensorScatterMin")
    },
    # The limits of these are those of what carries them once they are cut to fit.
    **{
        name: Same(f"Flex{name}", custom=True, through=_UNSIGNED)
        for name in ("UnsortedSegmentMax", "UnsortedSegmentMin")
    },
    "Cumprod": Same("FlexCumprod", _SCANNED, fixed=_SCANNED_FORTH, custom=True, through=_WRAPS),
    "CumulativeLogsumexp": Same(
        "FlexCumulativeLogsumexp", _SCANNED, fixed=_SCANNED_FORTH, custom=True, through=_ROUNDS
    ),
    "SparseToDense": Same("SPARSE_TO_DENSE"),
    "SpaceToDepth": Same("SPACE_TO_DEPTH", {"block_size": "block_size"}, {"data_format": "NHWC"}),
    "DepthToSpace": Same("DEPTH_TO_SPACE", {"block_size": "block_size"}, {"data_format": "NHWC"}),
    "SelectV2": Same("SELECT_V2"),
    # The sequence of elements that need not be sorted is unspecified.
    "TopKV2": Same("TOPK_V2", through=_ORDERS, stays=_DOUBLE),
    "OneHot": Same(
        "ONE_HOT",
        {"axis": "axis"},
        fixed={"axis": -1},
        through={**_ORDERS, DType.INT16: DType.INT32},
    ),
    "Cast": Same("CAST", needs={"Truncate": False}),
    # Numbers
    "Sum": Same("SUM", _KEPT, fixed={"keep_dims": False}, through=_WRAPS, stays=_DOUBLE),
    "Mean": Same("MEAN", _KEPT, fixed={"keep_dims": False}, through=_ROUNDS, stays=_DOUBLE),
    "Max": Same("REDUCE_MAX", _KEPT, fixed={"keep_dims": False}, through=_ORDERS, stays=_DOUBLE),
    "Min": Same("REDUCE_MIN", _KEPT, fixed={"keep_dims": False}, through=_ORDERS, stays=_DOUBLE),
    "Prod": Same("REDUCE_PROD", _KEPT, fixed={"keep_dims": False}, through=_WRAPS, stays=_DOUBLE),
    "All": Same("REDUCE_ALL", _KEPT, fixed={"keep_dims": False}),
    "Any": Same("REDUCE_ANY", _KEPT, fixed={"keep_dims": False}),
    "ArgMax": Same("ARG_MAX", through=_NARROW, stays=_FAR),
    "ArgMin": Same("ARG_MIN", through=_NARROW, stays=_FAR),
    "Cumsum": Same(
        "CUMSUM",
        {"exclusive": "exclusive", "reverse": "reverse"},
        fixed={"exclusive": False, "reverse": False},
        through=_WRAPS,
        stays=_DOUBLE,
    ),
    "AddN": Same("ADD_N", stays=_exclude_types(DType.FLOAT32, DType.INT32)),
    "Atan2": Same("ATAN2", fixed={"broadcasts": True}),
    "Bucketize": Same("BUCKETIZE", {"boundaries": "boundaries"}, fixed={"boundaries": []}),
    "ClipByValue": rewrite_clip_by_value,
    "Softmax": Same("SOFTMAX", fixed={"beta": 1.0}, stays=_DOUBLE),
    "LogSoftmax": Same("LOG_SOFTMAX", through=_ROUNDS, stays=_DOUBLE),
    "LeakyRelu": Same(
        "LEAKY_RELU", {"alpha": "alpha"}, fixed={"alpha": 0.2}, through=_ROUNDS, stays=_DOUBLE
    ),
    **{
        name: Same("BATCH_MATMUL", _ADJOINED, fixed=_PLAIN, stays=_PRODUCTS)
        for name in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
    },
    "MatMul": Same(
        "BATCH_MATMUL",
        {"transpose_a": "adj_x", "transpose_b": "adj_y"},
        fixed=_PLAIN,
        stays=_PRODUCTS,
    ),
    "ComplexAbs": Same("COMPLEX_ABS"),
    "Imag": Same("IMAG"),
    "Real": Same("REAL"),
    "FakeQuantWithMinMaxArgs": Same(
        "FAKE_QUANT", {name: name for name in _QUANTIZED}, fixed=_QUANTIZED
    ),
    "FakeQuantWithMinMaxVars": rewrite_fake_quantization,
    # Random numbers
    "Multinomial": Same("MULTINOMIAL", _SEEDS, fixed=_UNSEEDED),
    "RandomStandardNormal": Same("RANDOM_STANDARD_NORMAL", _SEEDS, fixed=_UNSEEDED),
    "RandomUniform": Same("RANDOM_UNIFORM", _SEEDS, fixed=_UNSEEDED),
    # Variables and tables
    "VarHandleOp": Same("VAR_HANDLE", _NAMED),
    "ReadVariableOp": Same("READ_VARIABLE"),
    "AssignVariableOp": Same("ASSIGN_VARIABLE"),
    "HashTableV2": rewrite_table,
    "LookupTableFindV2": Same("HASHTABLE_FIND"),
    "LookupTableImportV2": Same("HASHTABLE_IMPORT"),
    "LookupTableSizeV2": rewrite_table_size,
    # Images and windows
    "FusedBatchNorm": rewrite_batch_norm,
    "FusedBatchNormV2": rewrite_batch_norm,
    "FusedBatchNormV3": rewrite_batch_norm,
    "LRN": Same(
        "LOCAL_RESPONSE_NORMALIZATION",
        {"depth_radius": "radius", "bias": "bias", "alpha": "alpha", "beta": "beta"},
        fixed={"radius": 5, "bias": 1.0, "alpha": 1.0, "beta": 0.5},
    ),
    "NonMaxSuppressionV4": Same("NON_MAX_SUPPRESSION_V4", needs={"pad_to_max_output_size": True}),
    "NonMaxSuppressionV5": Same("NON_MAX_SUPPRESSION_V5", needs={"pad_to_max_output_size": True}),
    "ResizeBilinear": Same("RESIZE_BILINEAR", _CORNERS, fixed=_UNALIGNED, through=_RESIZED),
    "ResizeNearestNeighbor": Same("RESIZE_NEAREST_NEIGHBOR", _CORNERS, fixed=_UNALIGNED),
    "MaxPoolWithArgmax": Same(
        "MaxPoolWithArgmax",
        {name: name for name in ("ksize", "strides", "padding", "include_batch_in_index")},
        custom=True,
        through={DType.INT64: DType.INT32},
    ),
    "Conv2DBackpropInput": rewrite_conv_backprop,
    "Conv2D": rewrite_conv_2d,
    "DepthwiseConv2dNative": rewrite_conv_2d,
    "Conv3D": rewrite_conv_3d,
    "Conv3DBackpropInputV2": rewrite_conv_3d,
    "MaxPool": rewrite_pool_2d,
    "AvgPool": rewrite_pool_2d,
    "MaxPool3D": Same(
        "MaxPool3D",
        {name: name for name in ("ksize", "strides", "padding")},
        {"data_format": "NDHWC"},
        custom=True,
    ),
    "AvgPool3D": Same(
        "AvgPool3D",
        {name: name for name in ("ksize", "strides", "padding")},
        {"data_format": "NDHWC"},
        custom=True,
    ),
    "BiasAdd": rewrite_bias_add,
    "BiasAddV1": rewrite_bias_add,
}
