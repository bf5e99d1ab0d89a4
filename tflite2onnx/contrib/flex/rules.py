"""The table of TensorFlow operators that have an equivalent in TFLite."""

from collections.abc import Mapping

from tflite2onnx.contrib.flex import rewrites
from tflite2onnx.contrib.flex.names import spell_as_tflite
from tflite2onnx.contrib.flex.rewrites import Same, Translation, put_channels_last
from tflite2onnx.operators import DType

_REDUCED = {"keep_dims": False}
_PLAIN = {"adj_x": False, "adj_y": False, "asymmetric_quantize_inputs": False}
_SCANNED = {"exclusive": False, "reverse": False}
_UNSEEDED = {"seed": 0, "seed2": 0}
_UNALIGNED = {"align_corners": False, "half_pixel_centers": False}
_MASKS = "begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask"
_VOLUME = {"data_format": "NDHWC"}
# Wider types for integers, whose results wrap around in the cast back, and for floats, whose
# results are rounded.
_WRAPS = {
    **dict.fromkeys((DType.INT8, DType.INT16, DType.UINT8, DType.UINT16), DType.INT32),
    **dict.fromkeys((DType.UINT32, DType.UINT64), DType.INT64),
    DType.FLOAT16: DType.FLOAT32,
}
_ROUNDS = {DType.FLOAT16: DType.FLOAT32}
# Wider types whose casts keep the order of all elements.
_ORDERS = {DType.UINT16: DType.INT32, DType.UINT32: DType.INT64, DType.FLOAT16: DType.FLOAT32}
_SORTED = {**_ORDERS, DType.INT8: DType.INT32}
_UNSIGNED = {DType.UINT8: DType.INT32, DType.UINT16: DType.INT32, DType.UINT32: DType.INT64}
_NARROWER = {**_UNSIGNED, **_ROUNDS, DType.INT8: DType.INT32, DType.INT16: DType.INT32}
# The output of resizing is float32 for every input type.
_RESIZED = dict.fromkeys(
    (DType.FLOAT16, DType.INT8, DType.INT16, DType.UINT8, DType.UINT16), DType.FLOAT32
)
_PRODUCTS = (
    *(DType.FLOAT64, DType.FLOAT16, DType.INT16, DType.INT32, DType.INT64),
    *(DType.COMPLEX64, DType.COMPLEX128),
)
_NARROW = {DType.INT16: DType.INT32, DType.UINT16: DType.INT32, DType.FLOAT16: DType.FLOAT32}
# Operators that TFLite lacks, and the wider types that hold their elements.
_CARRIED = {
    "SegmentMean SegmentProd SegmentSum UnsortedSegmentProd UnsortedSegmentSum": _WRAPS,
    "TensorScatterAdd TensorScatterSub": _WRAPS,
    "SegmentMax SegmentMin TensorScatterMax TensorScatterMin": _NARROWER,
    # The value of an empty segment is the limit of the type. Cast turns the limit of the wider type
    # into it only for these types.
    "UnsortedSegmentMax UnsortedSegmentMin": _UNSIGNED,
}


# Operators that have TFLite's name in another spelling, and its inputs and defaults.
_SAME = (
    "BatchToSpaceND Bitcast BroadcastArgs BroadcastTo ComplexAbs ExpandDims Fill GatherNd Imag Pad "
    "Range Rank Real ReverseV2 ScatterNd Select SelectV2 Shape Slice SpaceToBatchND SparseToDense "
    "Tile Transpose"
)

RULES: Mapping[str, Translation] = {
    **{name: Same(spell_as_tflite(name)) for name in _SAME.split()},
    # Shapes
    "Reshape": Same("RESHAPE", inputs=2),
    "Squeeze": Same("SQUEEZE", "squeeze_dims"),
    "ZerosLike": Same("ZEROS_LIKE", wide=True),
    # Parts
    "StridedSlice": Same(
        "STRIDED_SLICE", _MASKS, {"offset": False, **dict.fromkeys(_MASKS.split(), 0)}, wide=True
    ),
    "PadV2": Same("PADV2"),
    "MirrorPad": Same("MIRROR_PAD", "mode"),
    "ConcatV2": rewrites.move_axis_to_option("CONCATENATION", -1),
    "Pack": Same("PACK", "axis N:values_count", {"axis": 0}),
    "Unpack": Same("UNPACK", "axis num", {"axis": 0}),
    "Split": Same("SPLIT", "num_split:num_splits"),
    "SplitV": Same("SPLIT_V", "num_split:num_splits"),
    "GatherV2": rewrites.move_axis_to_option("GATHER", 2),
    "Roll": Same("Roll", custom=True),
    "Reverse": rewrites.rewrite_reverse,
    "ReverseSequence": Same(
        "REVERSE_SEQUENCE", "seq_dim batch_dim", {"batch_dim": 0}, through=_SORTED
    ),
    "ConjugateTranspose": Same("TRANSPOSE"),
    "Gather": Same("GATHER", fixed={"axis": 0, "batch_dims": 0}),
    "DataFormatVecPermute": rewrites.rewrite_format_permute,
    "ParallelConcat": Same("CONCATENATION", fixed={"axis": 0}),
    "SpaceToBatch": rewrites.repeat_block_size("SPACE_TO_BATCH_ND"),
    "BatchToSpace": rewrites.repeat_block_size("BATCH_TO_SPACE_ND"),
    "IdentityN": rewrites.apply_to_each("FlexIdentity"),
    "ShapeN": rewrites.apply_to_each("SHAPE"),
    "Where": Same("WHERE", through=_ROUNDS),
    "Unique": Same("UNIQUE", through=_ORDERS),
    "UniqueV2": rewrites.rewrite_unique,
    **{
        f"SparseSegment{name}": rewrites.rewrite_sparse_segments
        for reduction in ("Mean", "SqrtN", "Sum")
        for name in (reduction, f"{reduction}WithNumSegments")
    },
    # Operators that stay TensorFlow operators, but compute in wider types.
    **{
        name: Same(f"Flex{name}", custom=True, through=carriers)
        for names, carriers in _CARRIED.items()
        for name in names.split()
    },
    **{
        name: Same(f"Flex{name}", " ".join(_SCANNED), _SCANNED, custom=True, through=carriers)
        for name, carriers in (("Cumprod", _WRAPS), ("CumulativeLogsumexp", _ROUNDS))
    },
    **{
        name: put_channels_last(
            Same(spell_as_tflite(name), "block_size", needs={"data_format": "NHWC"})
        )
        for name in ("SpaceToDepth", "DepthToSpace")
    },
    # The option `sorted` is ignored: TensorFlow does not specify the sequence of unsorted elements.
    "TopKV2": Same("TOPK_V2", through=_ORDERS, wide=True),
    "OneHot": Same("ONE_HOT", "axis", {"axis": -1}, through={**_ORDERS, DType.INT16: DType.INT32}),
    "Cast": Same("CAST", needs={"Truncate": False}),
    # Numbers
    "Sum": Same("SUM", "keep_dims", _REDUCED, through=_WRAPS, wide=True),
    "Mean": Same("MEAN", "keep_dims", _REDUCED, through=_ROUNDS, wide=True),
    "Max": Same("REDUCE_MAX", "keep_dims", _REDUCED, through=_ORDERS, wide=True),
    "Min": Same("REDUCE_MIN", "keep_dims", _REDUCED, through=_ORDERS, wide=True),
    "Prod": Same("REDUCE_PROD", "keep_dims", _REDUCED, through=_WRAPS, wide=True),
    "All": Same("REDUCE_ALL", "keep_dims", _REDUCED),
    "Any": Same("REDUCE_ANY", "keep_dims", _REDUCED),
    "ArgMax": Same("ARG_MAX", through=_NARROW, wide=True),
    "ArgMin": Same("ARG_MIN", through=_NARROW, wide=True),
    "Cumsum": Same("CUMSUM", " ".join(_SCANNED), _SCANNED, through=_WRAPS, wide=True),
    "AddN": Same("ADD_N", wide=True),
    "Atan2": Same("ATAN2", wide=True),
    "Bucketize": Same("BUCKETIZE", "boundaries", {"boundaries": []}),
    "ClipByValue": rewrites.rewrite_clip_by_value,
    "Softmax": Same("SOFTMAX", fixed={"beta": 1.0}, wide=True),
    "LogSoftmax": Same("LOG_SOFTMAX", through=_ROUNDS, wide=True),
    "LeakyRelu": Same("LEAKY_RELU", "alpha", {"alpha": 0.2}, through=_ROUNDS, wide=True),
    **{
        name: Same("BATCH_MATMUL", "adj_x adj_y", _PLAIN, stays=_PRODUCTS)
        for name in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
    },
    "MatMul": Same("BATCH_MATMUL", "transpose_a:adj_x transpose_b:adj_y", _PLAIN, stays=_PRODUCTS),
    "FakeQuantWithMinMaxArgs": rewrites.rewrite_fake_quantization,
    "FakeQuantWithMinMaxVars": rewrites.rewrite_fake_quantization,
    "FakeQuantWithMinMaxVarsPerChannel": rewrites.rewrite_fake_quantization,
    # Random numbers
    **{
        name: Same(spell_as_tflite(name), "seed seed2", _UNSEEDED)
        for name in ("Multinomial", "RandomStandardNormal", "RandomUniform")
    },
    **dict.fromkeys(
        (
            *(f"StatelessRandom{name}" for name in ("Uniform", "Normal", "UniformInt")),
            *("StatelessRandomUniformFullInt", "StatelessTruncatedNormal"),
        ),
        rewrites.rewrite_stateless,
    ),
    "StatelessRandomGetAlg": rewrites.rewrite_seed,
    "StatelessRandomGetKeyCounterAlg": rewrites.rewrite_seed,
    # Variables and tables
    "VarHandleOp": Same("VAR_HANDLE", "container shared_name"),
    "ReadVariableOp": Same("READ_VARIABLE"),
    "AssignVariableOp": Same("ASSIGN_VARIABLE"),
    "HashTableV2": rewrites.rewrite_table,
    "LookupTableFindV2": Same("HASHTABLE_FIND", wide=True),
    "LookupTableImportV2": Same("HASHTABLE_IMPORT"),
    "LookupTableSizeV2": rewrites.rewrite_table_size,
    # Images and windows
    "FusedBatchNorm": put_channels_last(rewrites.rewrite_batch_norm),
    "FusedBatchNormV2": put_channels_last(rewrites.rewrite_batch_norm),
    "FusedBatchNormV3": put_channels_last(rewrites.rewrite_batch_norm),
    "LRN": Same(
        "LOCAL_RESPONSE_NORMALIZATION",
        "depth_radius:radius bias alpha beta",
        {"radius": 5, "bias": 1.0, "alpha": 1.0, "beta": 0.5},
    ),
    **{
        name: Same(spell_as_tflite(name), needs={"pad_to_max_output_size": True})
        for name in ("NonMaxSuppressionV4", "NonMaxSuppressionV5")
    },
    "ResizeBilinear": Same("RESIZE_BILINEAR", " ".join(_UNALIGNED), _UNALIGNED, through=_RESIZED),
    "ResizeNearestNeighbor": Same("RESIZE_NEAREST_NEIGHBOR", " ".join(_UNALIGNED), _UNALIGNED),
    "MaxPoolWithArgmax": Same(
        "MaxPoolWithArgmax",
        "ksize strides padding include_batch_in_index",
        custom=True,
        through={DType.INT64: DType.INT32},
    ),
    "Conv2DBackpropInput": put_channels_last(rewrites.rewrite_conv_backprop, 2),
    "Conv2D": put_channels_last(rewrites.rewrite_conv_2d),
    "DepthwiseConv2dNative": put_channels_last(rewrites.rewrite_conv_2d),
    "Conv3D": put_channels_last(rewrites.rewrite_conv_3d),
    "Conv3DBackpropInputV2": put_channels_last(rewrites.rewrite_conv_3d, 2),
    "MaxPool": put_channels_last(rewrites.rewrite_pool_2d),
    "AvgPool": put_channels_last(rewrites.rewrite_pool_2d),
    **{
        name: put_channels_last(Same(name, "ksize strides padding", needs=_VOLUME, custom=True))
        for name in ("MaxPool3D", "AvgPool3D")
    },
    "BiasAdd": rewrites.rewrite_bias_add,
    "BiasAddV1": rewrites.rewrite_bias_add,
}
