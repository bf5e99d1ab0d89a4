"""Nodes for operators that end the process of ONNX Runtime 1.17 and 1.18."""

from tflite2onnx.op.reduction.normalization import LayerNorm, Normalization


class LayerNormWithBias(LayerNorm):
    """custom_call.LayerNorm: AttentionFusion reads the third input of a LayerNormalization."""

    writes_zeros = True


class NormalizationWithBias(Normalization):
    """NORMALIZATION, as above."""

    writes_zeros = True


PATHS = dict.fromkeys(("custom_call.LayerNorm", "NORMALIZATION"), __name__)
