"""TensorFlow's bitwise operators. LiteRT has no kernels for them, so numpy is the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runtimes import Array

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def shift_by(shift: Callable[..., Any]) -> Callable[[Array, Array], Array]:
    """Return the shift limited to 0 ... bits - 1, as in TensorFlow."""

    def shift_bounded(a: Array, b: Array) -> Array:
        most = a.dtype.itemsize * 8 - 1
        return np.asarray(shift(a, np.clip(b, 0, most).astype(a.dtype)))

    return shift_bounded


OPERATORS: dict[str, Callable[[Array, Array], Any]] = {
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "LeftShift": shift_by(np.left_shift),
    "RightShift": shift_by(np.right_shift),
}


def count_bits(x: Array) -> Array:
    """Return the number of set bits of each element."""
    octets = x.reshape(*x.shape, 1).view(np.uint8)
    return np.asarray(np.unpackbits(octets, axis=-1).sum(-1), np.uint8)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_bitwise_operators_of_two_integers_equal_numpy(name: str, dtype: str) -> None:
    limits = np.iinfo(dtype)
    a = np.random.default_rng(0).integers(limits.min, limits.max, (2, 3, 7), dtype, endpoint=True)
    b = random_numbers(dtype, 7, low=-2, high=70)
    want = OPERATORS[name](a, b)
    check_reference(build_flex(name, [a, b], [want]), [a, b], [want])


@pytest.mark.parametrize("dtype", TYPES)
def test_invert_and_population_count_equal_numpy(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (3, 5), dtype, endpoint=True)
    check_reference(build_flex("Invert", [x], [~x]), [x], [~x])
    want = count_bits(x)
    check_reference(build_flex("PopulationCount", [x], [want]), [x], [want])
