"""Names of custom operators of TensorFlow."""

import re

PREFIX = "Flex"
# Other names of custom operators that have the same operands and options.
OTHER_CUSTOM_NAMES = {
    # Names by which LiteRT's tests register kernels.
    "AveragePool3D": "AvgPool3D",
    "Irfft2d": "IRFFT2D",
    # Calls of stablehlo.custom_call, which GPU delegates run.
    "custom_call.gated_delta_update": "gated_delta_update",
    "custom_call.gdn_tril_inv": "gdn_tril_inv",
    "custom_call.MaxUnpooling2D": "MaxUnpooling2D",
    "custom_call.scaled_dot_product_attention": "odml.scaled_dot_product_attention",
}
# These names, and those of custom operators with the operands and options of a builtin operator.
OTHER_NAMES = {
    **OTHER_CUSTOM_NAMES,
    # Operators that are builtin now, and were custom operators in files of 2021.
    "Atan2": "ATAN2",
    "atan2": "ATAN2",
    "Sign": "SIGN",
    "Multinomial": "MULTINOMIAL",
    "RandomStandardNormal": "RANDOM_STANDARD_NORMAL",
    "RandomUniform": "RANDOM_UNIFORM",
    "custom_call.PixelShuffle": "DEPTH_TO_SPACE",
    "custom_call.pixel_shuffle": "DEPTH_TO_SPACE",
}


def spell_as_tflite(name: str) -> str:
    """Return the name of an operator as TFLite spells it: EXPAND_DIMS for ExpandDims."""
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper()
