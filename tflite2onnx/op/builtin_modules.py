"""The module of each operator: a conversion imports only the modules that it needs.

A test compares this table with the classes. A star marks an operator that no file has.
"""

import re

_TABLE = """
control_flow.control: IF STABLEHLO_CASE WHILE
control_flow.lowered: ASSIGN_VARIABLE CALL CALL_ONCE READ_VARIABLE STABLEHLO_COMPOSITE VAR_HANDLE
elementwise.activation: ELU GELU HARD_SIGMOID* LEAKY_RELU LOGISTIC PRELU RELU RELU6 RELU_0_TO_1
    RELU_N1_TO_1 TANH
elementwise.arithmetic: ABS ADD ADD_N BITWISE_XOR CEIL COS DIV EXP FLOOR FLOOR_DIV FLOOR_MOD LOG
    LOGICAL_AND LOGICAL_NOT LOGICAL_OR MAXIMUM MINIMUM MUL NEG POW ROUND RSQRT SIGN SIN SQRT SQUARE
    SQUARED_DIFFERENCE SUB ZEROS_LIKE
elementwise.cast: CAST DENSIFY DEQUANTIZE
elementwise.comparison: BUCKETIZE EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL NOT_EQUAL
elementwise.fake_quant: FAKE_QUANT QUANTIZE
elementwise.hard_swish: HARD_SWISH
elementwise.select: SELECT SELECT_V2
indexing.embedding: EMBEDDING_LOOKUP EMBEDDING_LOOKUP_SPARSE KmeansEmbeddingLookup
indexing.gather: GATHER GATHER_ND
indexing.integer_table: Table
indexing.lsh_projection: LSH_PROJECTION
indexing.one_hot: MATRIX_DIAG MATRIX_SET_DIAG ONE_HOT
indexing.scatter: SCATTER_ND SPARSE_TO_DENSE
indexing.topk: ARG_MAX ARG_MIN TOPK_V2
indexing.where_unique: SKIP_GRAM UNIQUE WHERE
linear.attention: odml.scaled_dot_product_attention
linear.experts: moe
linear.hadamard: NumericVerify aeq.hadamard_rotation
linear.kv_cache: odml.update_external_kv_cache odml.update_kv_cache
linear.matmul: BATCH_MATMUL FULLY_CONNECTED
linear.positions: custom_call.absolute_positional_embedding custom_call.rotary_positional_embedding
    odml.rope
movement.bitcast: BITCAST IS_NEGATIVE*
movement.broadcast: BROADCAST_ARGS BROADCAST_TO FILL
movement.concat_split: CONCATENATION PACK SPLIT SPLIT_V TILE UNPACK
movement.dynamic_update_slice: DYNAMIC_UPDATE_SLICE
movement.pad: MIRROR_PAD PAD PADV2
movement.reshape_transpose: AS_PLANNED* EXPAND_DIMS RANK RESHAPE SHAPE SQUEEZE TRANSPOSE
movement.reverse: REVERSE_SEQUENCE REVERSE_V2 Roll
movement.slice: SLICE STRIDED_SLICE
movement.space_to_batch: BATCH_TO_SPACE_ND DEPTH_TO_SPACE SPACE_TO_BATCH_ND SPACE_TO_DEPTH
recurrent.gated_delta: gated_delta_update gdn_tril_inv
recurrent.gru: GRU* UNIDIRECTIONAL_SEQUENCE_GRU
recurrent.lstm: BIDIRECTIONAL_SEQUENCE_LSTM LSTM UNIDIRECTIONAL_SEQUENCE_LSTM
recurrent.rnn: BIDIRECTIONAL_SEQUENCE_RNN RNN UNIDIRECTIONAL_SEQUENCE_RNN
recurrent.svdf: SVDF
reduction.cumsum_range: CUMSUM RANGE
reduction.normalization: GROUP_NORMALIZATION* LOCAL_RESPONSE_NORMALIZATION NORMALIZATION*
    RMS_NORMALIZATION* custom_call.GroupNorm custom_call.LayerNorm custom_call.RmsNorm
reduction.reduce: MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD SUM
reduction.softmax: L2_NORMALIZATION LOG_SOFTMAX SOFTMAX
unsupported: KEPT*
vision.conv: CONV_2D CONV_3D CONV_3D_TRANSPOSE Convolution2DTransposeBias DEPTHWISE_CONV_2D
    TRANSPOSE_CONV
vision.detection: TFLite_Detection_PostProcess
vision.landmarks: Landmarks2TransformMatrix TransformLandmarks
vision.non_max_suppression: NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5
vision.pool: AVERAGE_POOL_2D AvgPool3D L2_POOL_2D MAX_POOL_2D MaxPool3D
vision.resize: RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR
vision.unpool: LiteRtMaxUnpooling2D MaxPoolWithArgmax MaxPoolingWithArgmax2D MaxUnpooling2D
vision.warp: DenseImageWarp Resampler TransformTensor TransformTensorBilinear
"""
_MARKED = dict(line.split(": ") for line in re.split(r"\n(?! )", _TABLE.strip()))
MODULE_OF = {name: codes.replace("*", "") for name, codes in _MARKED.items()}
# The codes of operators that passes make (`MadeOperator`).
MADE = frozenset(re.findall(r"(\w+)\*", _TABLE))
