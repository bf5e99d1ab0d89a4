"""Names of custom operators that are TensorFlow's."""

from __future__ import annotations

PREFIX = "Flex"
# Builtin operators that were custom operators in files from 2021. Their only options were seeds of
# random operators, which the kernels ignored.
EARLIER_NAMES = {
    "Atan2": "ATAN2",
    "Sign": "SIGN",
    "Multinomial": "MULTINOMIAL",
    "RandomStandardNormal": "RANDOM_STANDARD_NORMAL",
    "RandomUniform": "RANDOM_UNIFORM",
}
