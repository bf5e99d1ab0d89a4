"""SVDF with int8 states, which LiteRT cannot run: it reads and writes them as int16.

The reference is in numpy. It equals LiteRT's kernel exactly for int16 states, and for int8 states
if no number exceeds 8 bits.
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
    """Return inputs; `small` inputs keep all states within 8 bits."""
    (x,) = read_model(data).graphs[0].inputs
    given = [random_inputs(data, seed)[0] for seed in range(RUNS)]
    if not small or x.quantization is None:
        return given
    zero = int(x.quantization.zero_point[0])
    return [np.clip(zero + each.astype(int) // 42, -128, 127).astype(np.int8) for each in given]


def litert(data: bytes, given: Sequence[Array]) -> list[Array]:
    """Return LiteRT's outputs for the model with int16 states."""
    made, _ = reference(widen_states(data), [[each] for each in given])
    return [y for (y,) in made]


def check_filter(data: bytes, *, optimize: bool = True) -> None:
    """Compare a model of one SVDF with the reference."""
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
def test_states_of_eight_bits_equal_the_reference(rank: int, *, optimize: bool) -> None:
    check_filter(cells.integer_svdf(Form(), rank=rank, dtype="int8"), optimize=optimize)
