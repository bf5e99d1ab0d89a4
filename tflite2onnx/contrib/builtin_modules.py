"""The module of each operator of this package: a conversion imports only the modules that it needs.

A test compares this table with the classes.
"""

import re

_TABLE = """
flex.color: FlexAdjustContrastv2 FlexAdjustHue FlexAdjustSaturation FlexHSVToRGB FlexRGBToHSV
flex.combined_nms: FlexCombinedNonMaxSuppression
flex.diagonal: FlexDiag FlexDiagPart FlexMatrixBandPart FlexMatrixDiag FlexMatrixDiagPart
    FlexMatrixDiagPartV2 FlexMatrixDiagPartV3 FlexMatrixDiagV2 FlexMatrixDiagV3 FlexMatrixSetDiag
    FlexMatrixSetDiagV2 FlexMatrixSetDiagV3
flex.elementwise: FlexAbs FlexAcos FlexAcosh FlexAdd FlexAddV2 FlexApproximateEqual FlexAsin
    FlexAsinh FlexAtan FlexAtanh FlexBitwiseAnd FlexBitwiseOr FlexBitwiseXor FlexCeil
    FlexCheckNumerics FlexCheckNumericsV2 FlexCos FlexCosh FlexDeepCopy FlexDiv FlexDivNoNan FlexElu
    FlexEnsureShape FlexEqual FlexErf FlexExp FlexExpm1 FlexFloor FlexFloorDiv FlexFloorMod
    FlexGreater FlexGreaterEqual FlexIdentity FlexInv FlexInvert FlexIsFinite FlexIsInf FlexIsNan
    FlexLeftShift FlexLess FlexLessEqual FlexLog FlexLog1p FlexLogicalAnd FlexLogicalNot
    FlexLogicalOr FlexMaximum FlexMinimum FlexMod FlexMul FlexMulNoNan FlexNeg FlexNotEqual
    FlexOnesLike FlexPopulationCount FlexPow FlexPreventGradient FlexRealDiv FlexReciprocal FlexRelu
    FlexRelu6 FlexRightShift FlexRint FlexRound FlexRsqrt FlexSelu FlexSigmoid FlexSign FlexSin
    FlexSinh FlexSnapshot FlexSoftplus FlexSoftsign FlexSqrt FlexSquare FlexSquaredDifference
    FlexStopGradient FlexSub FlexTan FlexTanh FlexTruncateDiv FlexTruncateMod FlexXdivy FlexXlog1py
    FlexXlogy
flex.image: FlexCropAndResize FlexDilation2D FlexExtractImagePatches FlexResizeBicubic
flex.projective: FlexImageProjectiveTransformV2 FlexImageProjectiveTransformV3
flex.scan: FlexCumprod FlexCumulativeLogsumexp FlexLinSpace
flex.scatter: FlexBincount FlexDenseBincount FlexDynamicPartition FlexDynamicStitch
    FlexInvertPermutation FlexParallelDynamicStitch FlexTensorScatterAdd FlexTensorScatterMax
    FlexTensorScatterMin FlexTensorScatterSub FlexTensorScatterUpdate
flex.search: FlexCTCGreedyDecoder FlexInTopK FlexInTopKV2 FlexListDiff FlexLowerBound FlexUniqueV2
    FlexUniqueWithCounts FlexUniqueWithCountsV2 FlexUpperBound
flex.segments: FlexSegmentMax FlexSegmentMean FlexSegmentMin FlexSegmentProd FlexSegmentSum
    FlexUnsortedSegmentMax FlexUnsortedSegmentMin FlexUnsortedSegmentProd FlexUnsortedSegmentSum
    SEGMENT_SUM UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM
flex.sparse: FlexRaggedGather FlexRaggedRange FlexRaggedTensorToTensor FlexSparseFillEmptyRows
    FlexSparseReduceSum FlexSparseTensorDenseMatMul
flex.strings: FlexAsString FlexRegexFullMatch FlexStaticRegexFullMatch FlexStringJoin
    FlexStringLower FlexStringToNumber FlexStringUpper
hash_tables.hash_table: HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_LOOKUP HASHTABLE_SIZE
linear_algebra.linalg: FlexBatchMatMul FlexBatchMatMulV2 FlexBatchMatMulV3 FlexCholesky FlexEinsum
    FlexL2Loss FlexLogMatrixDeterminant FlexMatMul FlexMatrixDeterminant FlexMatrixInverse
    FlexMatrixSolve FlexMatrixTriangularSolve
random.rng_bit_generator: STABLEHLO_RNG_BIT_GENERATOR
random.sampling: MULTINOMIAL RANDOM_STANDARD_NORMAL RANDOM_UNIFORM
random.stateless: FlexStatelessRandomGetKeyCounter FlexStatelessRandomNormalV2
    FlexStatelessRandomUniformFullIntV2 FlexStatelessRandomUniformIntV2 FlexStatelessRandomUniformV2
    FlexStatelessTruncatedNormalV2
signal.microfrontend: AudioMicrofrontend
signal.rfft: COMPLEX_ABS FlexFFT FlexFFT2D FlexFFT3D FlexIFFT FlexIFFT2D FlexIFFT3D FlexIRFFT
    FlexIRFFT2D FlexIRFFT3D FlexRFFT FlexRFFT2D FlexRFFT3D IMAG IRFFT2D REAL RFFT2D
signal.spectrogram: AudioSpectrogram Mfcc
signal.tflm_fft: SignalIrfft SignalRfft
signal.tflm_frontend: SignalEnergy SignalFftAutoScale SignalFilterBank SignalFilterBankLog
    SignalFilterBankSquareRoot SignalPCAN SignalWindow
signal.tflm_streaming: CIRCULAR_BUFFER SignalDelay SignalFilterBankSpectralSubtraction SignalFramer
    SignalOverlapAdd SignalStacker
stablehlo.elementwise: ATAN2 RIGHT_SHIFT STABLEHLO_ADD STABLEHLO_AND STABLEHLO_MAXIMUM
    STABLEHLO_MINIMUM STABLEHLO_MULTIPLY STABLEHLO_SHIFT_LEFT
stablehlo.gather_scatter: STABLEHLO_GATHER STABLEHLO_SCATTER
stablehlo.pad: DILATE STABLEHLO_PAD
stablehlo.reduce_window: REDUCE_WINDOW STABLEHLO_REDUCE_WINDOW
"""
MODULE_OF = dict(line.split(": ") for line in re.split(r"\n(?! )", _TABLE.strip()))
