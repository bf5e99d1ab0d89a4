"""Names of custom operators of TensorFlow."""

from __future__ import annotations

PREFIX = "Flex"
# Operators that are builtin now, and were custom operators in files of 2021. Their only options
# were seeds, which the kernels of random operators ignored.
EARLIER_NAMES = {
    "Atan2": "ATAN2",
    "Sign": "SIGN",
    "Multinomial": "MULTINOMIAL",
    "RandomStandardNormal": "RANDOM_STANDARD_NORMAL",
    "RandomUniform": "RANDOM_UNIFORM",
}
