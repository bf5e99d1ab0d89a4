"""The TFLite schema in a short form, written by scripts/make_schema.py.

A table is its name, then its fields in the order of their slots. A field is name:type, followed by
=default if the default is not 0. [type] is a vector; "-" is the slot of a removed field.

A union has tables with the numbers 1, 2, 3... A field of a union type refers to the table; the slot
before this field has the number of the table.

An enumeration is a list of its names, which have the numbers 0, 1, 2...
"""

from tflite2onnx.reader.schema_text import parse_tables

TABLES = parse_tables("""
Model version:uint32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:string
    buffers:[Buffer] metadata_buffer:[int32] metadata:[Metadata] signature_defs:[SignatureDef]
    external_buffer_groups:[ExternalBufferGroup] external_buffers:[ExternalBuffer]
OperatorCode deprecated_builtin_code:int8 custom_code:string version:int32=1 builtin_code:int32
SubGraph tensors:[Tensor] inputs:[int32] outputs:[int32] operators:[Operator] name:string
    debug_metadata_index:int32=-1
Tensor shape:[int32] type:int8 buffer:uint32 name:string quantization:QuantizationParameters
    is_variable:bool sparsity:SparsityParameters shape_signature:[int32] has_rank:bool
    variant_tensors:[VariantSubType] external_buffer:uint32
QuantizationParameters min:[float32] max:[float32] scale:[float32] zero_point:[int64]
    details_type:uint8 details:QuantizationDetails quantized_dimension:int32
SparsityParameters traversal_order:[int32] block_map:[int32] dim_metadata:[DimensionMetadata]
DimensionMetadata format:int8 dense_size:int32 array_segments_type:uint8
    array_segments:SparseIndexVector array_indices_type:uint8 array_indices:SparseIndexVector
VariantSubType shape:[int32] type:int8 has_rank:bool
Operator opcode_index:uint32 inputs:[int32] outputs:[int32] builtin_options_type:uint8
    builtin_options:BuiltinOptions custom_options:[uint8] custom_options_format:int8
    mutating_variable_inputs:[bool] intermediates:[int32] large_custom_options_offset:uint64
    large_custom_options_size:uint64 builtin_options2_type:uint8 builtin_options2:BuiltinOptions2
    debug_metadata_index:int32=-1
Buffer data:[uint8] offset:uint64 size:uint64
Metadata name:string buffer:uint32
SignatureDef inputs:[TensorMap] outputs:[TensorMap] signature_key:string - subgraph_index:uint32
TensorMap name:string tensor_index:uint32
ExternalBufferGroup name:string
ExternalBuffer id:uint32 group:uint32 offset:uint64 length:uint64 packing:string
""")

UNIONS = {
    "BuiltinOptions": parse_tables("""
Conv2DOptions padding:int8 stride_w:int32 stride_h:int32 fused_activation_function:int8
    dilation_w_factor:int32=1 dilation_h_factor:int32=1 quantized_bias_type:int8
DepthwiseConv2DOptions padding:int8 stride_w:int32 stride_h:int32 depth_multiplier:int32
    fused_activation_function:int8 dilation_w_factor:int32=1 dilation_h_factor:int32=1
ConcatEmbeddingsOptions num_channels:int32 num_columns_per_channel:[int32]
    embedding_dim_per_channel:[int32]
LSHProjectionOptions type:int8
Pool2DOptions padding:int8 stride_w:int32 stride_h:int32 filter_width:int32 filter_height:int32
    fused_activation_function:int8
SVDFOptions rank:int32 fused_activation_function:int8 asymmetric_quantize_inputs:bool
RNNOptions fused_activation_function:int8 asymmetric_quantize_inputs:bool
FullyConnectedOptions fused_activation_function:int8 weights_format:int8 keep_num_dims:bool
    asymmetric_quantize_inputs:bool quantized_bias_type:int8 quant_spec:[uint8]
SoftmaxOptions beta:float32
ConcatenationOptions axis:int32 fused_activation_function:int8
AddOptions fused_activation_function:int8 pot_scale_int16:bool=True
L2NormOptions fused_activation_function:int8
LocalResponseNormalizationOptions radius:int32 bias:float32 alpha:float32 beta:float32
LSTMOptions fused_activation_function:int8 cell_clip:float32 proj_clip:float32 kernel_type:int8
    asymmetric_quantize_inputs:bool
ResizeBilinearOptions - - align_corners:bool half_pixel_centers:bool
CallOptions subgraph:uint32
ReshapeOptions new_shape:[int32]
SkipGramOptions ngram_size:int32 max_skip_size:int32 include_all_ngrams:bool
SpaceToDepthOptions block_size:int32
EmbeddingLookupSparseOptions combiner:int8
MulOptions fused_activation_function:int8
PadOptions
GatherOptions axis:int32 batch_dims:int32
BatchToSpaceNDOptions SpaceToBatchNDOptions TransposeOptions
ReducerOptions keep_dims:bool
SubOptions fused_activation_function:int8 pot_scale_int16:bool=True
DivOptions fused_activation_function:int8
SqueezeOptions squeeze_dims:[int32]
SequenceRNNOptions time_major:bool fused_activation_function:int8 asymmetric_quantize_inputs:bool
StridedSliceOptions begin_mask:int32 end_mask:int32 ellipsis_mask:int32 new_axis_mask:int32
    shrink_axis_mask:int32 offset:bool
ExpOptions TopKV2Options
SplitOptions num_splits:int32
LogSoftmaxOptions
CastOptions in_data_type:int8 out_data_type:int8
DequantizeOptions MaximumMinimumOptions
ArgMaxOptions output_type:int8
LessOptions NegOptions PadV2Options GreaterOptions GreaterEqualOptions LessEqualOptions
    SelectOptions SliceOptions
TransposeConvOptions padding:int8 stride_w:int32 stride_h:int32 fused_activation_function:int8
    quantized_bias_type:int8
SparseToDenseOptions validate_indices:bool
TileOptions ExpandDimsOptions EqualOptions NotEqualOptions
ShapeOptions out_type:int8
PowOptions
ArgMinOptions output_type:int8
FakeQuantOptions min:float32 max:float32 num_bits:int32 narrow_range:bool
PackOptions values_count:int32 axis:int32
LogicalOrOptions
OneHotOptions axis:int32
LogicalAndOptions LogicalNotOptions
UnpackOptions num:int32 axis:int32
FloorDivOptions SquareOptions ZerosLikeOptions FillOptions
BidirectionalSequenceLSTMOptions fused_activation_function:int8 cell_clip:float32 proj_clip:float32
    merge_outputs:bool time_major:bool=True asymmetric_quantize_inputs:bool
BidirectionalSequenceRNNOptions time_major:bool fused_activation_function:int8 merge_outputs:bool
    asymmetric_quantize_inputs:bool
UnidirectionalSequenceLSTMOptions fused_activation_function:int8 cell_clip:float32 proj_clip:float32
    time_major:bool asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool
FloorModOptions RangeOptions
ResizeNearestNeighborOptions align_corners:bool half_pixel_centers:bool
LeakyReluOptions alpha:float32
SquaredDifferenceOptions
MirrorPadOptions mode:int8
AbsOptions
SplitVOptions num_splits:int32
UniqueOptions idx_out_type:int8=2
ReverseV2Options AddNOptions GatherNdOptions CosOptions WhereOptions RankOptions
ReverseSequenceOptions seq_dim:int32 batch_dim:int32
MatrixDiagOptions QuantizeOptions MatrixSetDiagOptions HardSwishOptions
IfOptions then_subgraph_index:int32 else_subgraph_index:int32
WhileOptions cond_subgraph_index:int32 body_subgraph_index:int32
DepthToSpaceOptions block_size:int32
NonMaxSuppressionV4Options NonMaxSuppressionV5Options ScatterNdOptions SelectV2Options
    DensifyOptions SegmentSumOptions
BatchMatMulOptions adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool
CumsumOptions exclusive:bool reverse:bool
CallOnceOptions init_subgraph_index:int32
BroadcastToOptions Rfft2dOptions
Conv3DOptions padding:int8 stride_d:int32 stride_w:int32 stride_h:int32
    fused_activation_function:int8 dilation_d_factor:int32=1 dilation_w_factor:int32=1
    dilation_h_factor:int32=1
HashtableOptions table_id:int32 key_dtype:int8 value_dtype:int8
HashtableFindOptions HashtableImportOptions HashtableSizeOptions
VarHandleOptions container:string shared_name:string
ReadVariableOptions AssignVariableOptions
RandomOptions seed:int64 seed2:int64
BucketizeOptions boundaries:[float32]
GeluOptions approximate:bool
DynamicUpdateSliceOptions UnsortedSegmentProdOptions UnsortedSegmentMaxOptions
    UnsortedSegmentMinOptions UnsortedSegmentSumOptions ATan2Options SignOptions BitcastOptions
    BitwiseXorOptions RightShiftOptions
"""),
    "BuiltinOptions2": parse_tables("""
StablehloConcatenateOptions dimension:int64
StablehloBroadcastInDimOptions broadcast_dimensions:[int64]
StablehloSliceOptions start_indices:[int64] limit_indices:[int64] strides:[int64]
StablehloConvolutionOptions window_strides:[int64] padding:[int64] lhs_dilation:[int64]
    rhs_dilation:[int64] window_reversal:[bool] input_batch_dimension:int64
    input_feature_dimension:int64 input_spatial_dimensions:[int64]
    kernel_input_feature_dimension:int64 kernel_output_feature_dimension:int64
    kernel_spatial_dimensions:[int64] output_batch_dimension:int64 output_feature_dimension:int64
    output_spatial_dimensions:[int64] feature_group_count:int64 batch_group_count:int64
    precision_config:[uint32]
StablehloCustomCallOptions call_target_name:string has_side_effect:bool backend_config:string
    api_version:int32 called_computations:[int32] custom_attributes:[uint8]
StablehloReduceOptions dimensions:[int64] body_subgraph_index:int32
StablehloScatterOptions indices_are_sorted:bool update_window_dims:[int64]
    inserted_window_dims:[int64] scatter_dims_to_operand_dims:[int64] index_vector_dim:int64
    unique_indices:bool update_computation_subgraph_index:int32
StablehloCompareOptions comparison_direction:uint32 compare_type:uint32
StablehloDynamicSliceOptions slice_sizes:[int64]
StablehloPadOptions edge_padding_low:[int64] edge_padding_high:[int64] interior_padding:[int64]
StablehloIotaOptions iota_dimension:int64
StablehloDotGeneralOptions lhs_batching_dimensions:[int64] rhs_batching_dimensions:[int64]
    lhs_contracting_dimensions:[int64] rhs_contracting_dimensions:[int64] precision_config:[uint32]
StablehloReduceWindowOptions window_dimensions:[int64] window_strides:[int64] base_dilations:[int64]
    window_dilations:[int64] padding:[int64] body_subgraph_index:int32
StablehloSortOptions dimension:int64 is_stable:bool comparator_subgraph_index:int32
StablehloWhileOptions cond_subgraph_index:int32 body_subgraph_index:int32
StablehloGatherOptions offset_dims:[int64] collapsed_slice_dims:[int64] start_index_map:[int64]
    index_vector_dim:int64 slice_sizes:[int64] indices_are_sorted:bool
StablehloTransposeOptions permutation:[int64]
DilateOptions
StablehloRngBitGeneratorOptions algorithm:int8
ReduceWindowOptions reduce_function:int32
StableHLOCompositeOptions name:string decomposition_subgraph_index:int32
    composite_attributes:[uint8] composite_attributes_format:int8 version:int32
StablehloShiftLeftOptions
StablehloCaseOptions branch_subgraph_indices:[int32]
"""),
    "QuantizationDetails": parse_tables("""
CustomQuantization custom:[uint8]
BlockwiseQuantization scales:int32 zero_points:int32 block_size:int32 block_shape:[int32]
MultiAxisQuantization scales:int32 zero_points:int32 block_size:int32 quantized_dimensions:[int32]
"""),
    "SparseIndexVector": parse_tables("""
Int32Vector values:[int32]
Uint16Vector values:[uint16]
Uint8Vector values:[uint8]
"""),
}

ENUMERATIONS = {
    "ActivationFunctionType": "NONE RELU RELU_N1_TO_1 RELU6 TANH SIGN_BIT",
    "BuiltinOperator": (
        "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE "
        "EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D "
        "LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU "
        "RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH "
        "CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD "
        "UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB "
        "DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP "
        "TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX "
        "MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV "
        "SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN "
        "FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK "
        "REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE "
        "RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL "
        "REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE "
        "MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 "
        "SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES "
        "CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE "
        "HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE "
        "READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE "
        "RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD "
        "UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST "
        "BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE "
        "STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP "
        "STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE "
        "STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE "
        "STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE "
        "STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT "
        "STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT "
        "STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA "
        "STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE "
        "STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW "
        "STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE"
    ),
    "FullyConnectedOptionsWeightsFormat": "DEFAULT SHUFFLED4x16INT8",
    "MirrorPadMode": "REFLECT SYMMETRIC",
    "Padding": "SAME VALID",
    "TensorType": (
        "FLOAT32 FLOAT16 INT32 UINT8 INT64 STRING BOOL INT16 COMPLEX64 INT8 FLOAT64 COMPLEX128 "
        "UINT64 RESOURCE VARIANT UINT32 UINT16 INT4 BFLOAT16 INT2 UINT4 FLOAT8_E4M3FN FLOAT8_E5M2"
    ),
}
