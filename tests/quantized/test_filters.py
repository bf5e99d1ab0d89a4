"""SVDF with states of 8 bits, which LiteRT cannot run: it reads and writes them as 16.

A kernel in NumPy says what they are. It is LiteRT's own to the bit where the same integers are
kept as 16 bits, and where no number is too large for 8 the two are one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.references.filters import filter_frames, largest_step, widen_states
from tests.support import random_inputs
from tests.support.runtimes import reference, session
from tflite2onnx import Stateful, convert
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, Any]

RUNS = 50


def frames(data: bytes, *, small: bool = False) -> list[Array]:
    """Return inputs; small ones are so near to 0 that no state needs more than 8 bits."""
    (x,) = read_model(data).graphs[0].inputs
    given = [random_inputs(data, seed)[0] for seed in range(RUNS)]
    if not small or x.quantization is None:
        return given
    zero = int(x.quantization.zero_point[0])
    return [np.clip(zero + each.astype(int) // 42, -128, 127).astype(np.int8) for each in given]


def litert(data: bytes, given: Sequence[Array]) -> list[Array]:
    """Return LiteRT's outputs for states of 16 bits."""
    made, _ = reference(widen_states(data), [[each] for each in given])
    return [y for (y,) in made]


def check_filter(data: bytes, *, optimize: bool = True) -> None:
    """Hold a model of one SVDF to the kernels."""
    (op,) = read_model(data).graphs[0].ops
    result = convert(data)
    for small in (False, True):
        given = frames(data, small=small)
        wanted = list(filter_frames(op, given, 8))
        wide = list(filter_frames(op, given, 16))
        np.testing.assert_array_equal(wide, litert(data, given))
        assert np.array_equal(wanted, wide) is small
        live = Stateful(session(result.model, optimize=optimize))
        for each, want in zip(given, wanted, strict=True):
            (made,) = live.run(None, {result.inputs[0].name: each})
            assert np.abs(made.astype(int) - want).max() <= largest_step(op)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("optimize", [False, True])
def test_states_of_eight_bits(rank: int, *, optimize: bool) -> None:
    check_filter(cells.integer_svdf(Form(), rank=rank, dtype="int8"), optimize=optimize)
