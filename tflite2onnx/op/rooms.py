"""Which module has which operators, so that a conversion imports those alone that it needs.

A test holds the table to the classes.
"""

from __future__ import annotations

ROOMS = {
    "activation": "ELU GELU LEAKY_RELU LOGISTIC PRELU RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 TANH",
    "attention": "odml.scaled_dot_product_attention",
    "batch": "BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND",
    "bits": "BITCAST",
    "blocks": "DEPTH_TO_SPACE SPACE_TO_DEPTH",
    "broadcast": "BROADCAST_ARGS BROADCAST_TO FILL",
    "bucketize": "BUCKETIZE",
    "cache": "odml.update_external_kv_cache odml.update_kv_cache",
    "cast": "CAST DENSIFY DEQUANTIZE",
    "comparison": "EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL NOT_EQUAL",
    "composite": "CALL STABLEHLO_COMPOSITE",
    "concat": "CONCATENATION PACK SPLIT SPLIT_V TILE UNPACK",
    "control": "IF STABLEHLO_CASE WHILE",
    "conv": "CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV",
    "detection": "TFLite_Detection_PostProcess",
    "dilate": "DILATE STABLEHLO_PAD",
    "elementwise": (
        "ABS ADD ADD_N BITWISE_XOR CEIL COS DIV EXP FLOOR FLOOR_DIV FLOOR_MOD LOG LOGICAL_AND "
        "LOGICAL_NOT LOGICAL_OR MAXIMUM MINIMUM MUL NEG POW ROUND RSQRT SIGN SIN SQRT SQUARE "
        "SQUARED_DIFFERENCE SUB ZEROS_LIKE"
    ),
    "embedding": "EMBEDDING_LOOKUP EMBEDDING_LOOKUP_SPARSE KmeansEmbeddingLookup",
    "fingerprint": "LSH_PROJECTION",
    "flex": (
        "FlexAbs FlexAcos FlexAcosh FlexAdd FlexAddN FlexAddV2 FlexApproximateEqual FlexAsin "
        "FlexAsinh FlexAtan FlexAtanh FlexCeil FlexCheckNumerics FlexCheckNumericsV2 FlexCos "
        "FlexCosh FlexDeepCopy FlexDiv FlexDivNoNan FlexElu FlexEnsureShape FlexEqual FlexErf "
        "FlexExp FlexExpm1 FlexFloor FlexFloorDiv FlexFloorMod FlexGreater FlexGreaterEqual "
        "FlexIdentity FlexInv FlexIsFinite FlexIsInf FlexIsNan FlexLess FlexLessEqual FlexLog "
        "FlexLog1p FlexLogicalAnd FlexLogicalNot FlexLogicalOr FlexMaximum FlexMinimum FlexMod "
        "FlexMul FlexMulNoNan FlexNeg FlexNotEqual FlexOnesLike FlexPow FlexPreventGradient "
        "FlexRealDiv FlexReciprocal FlexRelu FlexRelu6 FlexRint FlexRound FlexRsqrt FlexSelu "
        "FlexSigmoid FlexSign FlexSin FlexSinh FlexSnapshot FlexSoftplus FlexSoftsign FlexSqrt "
        "FlexSquare FlexSquaredDifference FlexStopGradient FlexSub FlexTan FlexTanh "
        "FlexTruncateDiv FlexTruncateMod FlexXdivy FlexXlog1py FlexXlogy FlexZerosLike"
    ),
    "flex_bits": (
        "FlexBitwiseAnd FlexBitwiseOr FlexBitwiseXor FlexInvert FlexLeftShift FlexPopulationCount "
        "FlexRightShift"
    ),
    "flex_color": (
        "FlexAdjustContrastv2 FlexAdjustHue FlexAdjustSaturation FlexHSVToRGB FlexRGBToHSV"
    ),
    "flex_diagonal": (
        "FlexDiag FlexDiagPart FlexMatrixBandPart FlexMatrixDiag FlexMatrixDiagPart "
        "FlexMatrixDiagPartV2 FlexMatrixDiagPartV3 FlexMatrixDiagV2 FlexMatrixDiagV3 "
        "FlexMatrixSetDiag FlexMatrixSetDiagV2 FlexMatrixSetDiagV3"
    ),
    "flex_fourier": (
        "FlexFFT FlexFFT2D FlexFFT3D FlexIFFT FlexIFFT2D FlexIFFT3D FlexIRFFT FlexIRFFT2D "
        "FlexIRFFT3D FlexRFFT FlexRFFT2D FlexRFFT3D"
    ),
    "flex_image": "FlexCropAndResize FlexExtractImagePatches FlexResizeBicubic",
    "flex_matrix": (
        "FlexCholesky FlexLogMatrixDeterminant FlexMatrixDeterminant FlexMatrixInverse "
        "FlexMatrixSolve FlexMatrixTriangularSolve"
    ),
    "flex_product": (
        "FlexBatchMatMul FlexBatchMatMulV2 FlexBatchMatMulV3 FlexEinsum FlexL2Loss FlexMatMul"
    ),
    "flex_scan": "FlexCumprod FlexCumulativeLogsumexp FlexLinSpace",
    "flex_scatter": (
        "FlexBincount FlexDenseBincount FlexDynamicStitch FlexInvertPermutation "
        "FlexParallelDynamicStitch FlexSegmentMax FlexSegmentMean FlexSegmentMin FlexSegmentProd "
        "FlexSegmentSum FlexTensorScatterAdd FlexTensorScatterMax FlexTensorScatterMin "
        "FlexTensorScatterSub FlexTensorScatterUpdate FlexUnsortedSegmentMax "
        "FlexUnsortedSegmentMin FlexUnsortedSegmentProd FlexUnsortedSegmentSum"
    ),
    "flex_suppression": "FlexCombinedNonMaxSuppression",
    "flex_text": (
        "FlexAsString FlexRegexFullMatch FlexStaticRegexFullMatch FlexStringJoin FlexStringLower "
        "FlexStringToNumber FlexStringUpper"
    ),
    "flex_types": (
        "FlexArgMax FlexArgMin FlexCumsum FlexLeakyRelu FlexLogSoftmax FlexMax FlexMean FlexMin "
        "FlexProd FlexSoftmax FlexSum FlexTopKV2"
    ),
    "found": "UNIQUE WHERE",
    "fourier": "COMPLEX_ABS IMAG IRFFT2D REAL RFFT2D",
    "gather": "GATHER GATHER_ND",
    "gru": "GRU UNIDIRECTIONAL_SEQUENCE_GRU",
    "hard_swish": "HARD_SWISH",
    "landmarks": "Landmarks2TransformMatrix TransformLandmarks",
    "local_response": "LOCAL_RESPONSE_NORMALIZATION",
    "lstm": "BIDIRECTIONAL_SEQUENCE_LSTM LSTM UNIDIRECTIONAL_SEQUENCE_LSTM",
    "matmul": "BATCH_MATMUL FULLY_CONNECTED",
    "microfrontend": "AudioMicrofrontend",
    "ngrams": "SKIP_GRAM",
    "normalization": "L2_NORMALIZATION LOG_SOFTMAX SOFTMAX",
    "one_hot": "MATRIX_DIAG MATRIX_SET_DIAG ONE_HOT",
    "pad": "MIRROR_PAD PAD PADV2",
    "pool": "AVERAGE_POOL_2D L2_POOL_2D MAX_POOL_2D",
    "quantize": "FAKE_QUANT QUANTIZE",
    "random_bits": "STABLEHLO_RNG_BIT_GENERATOR",
    "reduce": "MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD SUM",
    "resize": "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR",
    "reverse": "REVERSE_SEQUENCE REVERSE_V2",
    "rnn": "BIDIRECTIONAL_SEQUENCE_RNN RNN UNIDIRECTIONAL_SEQUENCE_RNN",
    "roll": "Roll",
    "rotation": "NumericVerify aeq.hadamard_rotation",
    "sampling": "MULTINOMIAL RANDOM_STANDARD_NORMAL RANDOM_UNIFORM",
    "scatter": (
        "SCATTER_ND SEGMENT_SUM SPARSE_TO_DENSE UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN "
        "UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM"
    ),
    "select": "SELECT SELECT_V2",
    "sequence": "CUMSUM RANGE",
    "shape": "AS_PLANNED EXPAND_DIMS RANK RESHAPE SHAPE SQUEEZE TRANSPOSE",
    "signal": (
        "SignalEnergy SignalFftAutoScale SignalFilterBank SignalFilterBankLog "
        "SignalFilterBankSquareRoot SignalPCAN SignalWindow"
    ),
    "signal_fourier": "SignalIrfft SignalRfft",
    "signal_stream": (
        "CIRCULAR_BUFFER SignalDelay SignalFilterBankSpectralSubtraction SignalFramer "
        "SignalOverlapAdd SignalStacker"
    ),
    "slice": "SLICE STRIDED_SLICE",
    "spectrum": "AudioSpectrogram Mfcc",
    "stablehlo": (
        "ATAN2 RIGHT_SHIFT STABLEHLO_ADD STABLEHLO_AND STABLEHLO_MAXIMUM STABLEHLO_MINIMUM "
        "STABLEHLO_MULTIPLY STABLEHLO_SHIFT_LEFT"
    ),
    "stablehlo_index": "STABLEHLO_GATHER STABLEHLO_SCATTER",
    "suppression": "NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5",
    "svdf": "SVDF",
    "table": "HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_LOOKUP HASHTABLE_SIZE Table",
    "topk": "ARG_MAX ARG_MIN TOPK_V2",
    "transpose_bias": "Convolution2DTransposeBias",
    "unpool": "LiteRtMaxUnpooling2D MaxPoolWithArgmax MaxPoolingWithArgmax2D MaxUnpooling2D",
    "update": "DYNAMIC_UPDATE_SLICE",
    "variable": "ASSIGN_VARIABLE CALL_ONCE READ_VARIABLE VAR_HANDLE",
    "volume": "CONV_3D CONV_3D_TRANSPOSE",
    "volume_pool": "AvgPool3D MaxPool3D",
    "warp": "DenseImageWarp Resampler TransformTensor TransformTensorBilinear",
    "window": "REDUCE_WINDOW STABLEHLO_REDUCE_WINDOW",
}
