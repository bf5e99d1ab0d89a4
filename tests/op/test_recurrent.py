"""LSTM, RNN and SVDF of real numbers: what they make of many sequences, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.op import cells
from tests.op.cells import Form
from tests.toolkit import check

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[Form], bytes]

BOUNDED = ["RELU", "RELU6", "RELU_N1_TO_1", "SIGN_BIT"]
ALL = Form(
    peephole=True, projection=True, projection_bias=True, normalized=True, cell_clip=0.4,
    proj_clip=0.5,
)  # fmt: skip


def changed(form: Form, **fields: Any) -> Form:
    return Form(**{**vars(form), **fields})


LSTMS = [
    Form(),
    Form(time_major=True),
    Form(batch=1),
    Form(times=1),
    Form(flat=True),
    Form(peephole=True),
    Form(coupled=True),
    Form(coupled=True, peephole=True),
    Form(diagonal=True),
    Form(projection=True),
    Form(projection=True, projection_bias=True),
    Form(projection=True, proj_clip=0.1),
    Form(cell_clip=0.4),
    Form(cell_clip=10),
    Form(normalized=True),
    *(Form(activation=name) for name in BOUNDED),
    ALL,
    changed(ALL, coupled=True, time_major=True),
]
SINGLE = [
    Form(),
    Form(flat=True),
    Form(coupled=True, peephole=True),
    Form(activation="RELU6"),
    ALL,
    changed(ALL, coupled=True),
]
# Of batches after the first the kernel mixes up the states if their outputs are merged.
BIDIRECTIONAL = [
    Form(),
    Form(time_major=True, merged=True),
    Form(batch=1, merged=True),
    Form(peephole=True, coupled=True),
    Form(projection=True, projection_bias=True, cell_clip=0.4, proj_clip=0.3),
    Form(activation="RELU"),
    *(
        Form(auxiliary=kind, time_major=major, coupled=major)
        for kind in ("added", "crossed")
        for major in (False, True)
    ),
    Form(auxiliary="added", cell_clip=0.4),
    Form(auxiliary="crossed", cell_clip=0.4, merged=True, time_major=True),
]
RNNS = [
    Form(),
    Form(time_major=True),
    Form(batch=1),
    *(Form(activation=name) for name in ("NONE", *BOUNDED)),
]
RNNS_OF_TWO = [
    Form(),
    Form(merged=True),
    Form(time_major=True, merged=True),
    Form(activation="RELU6"),
    Form(auxiliary="added"),
    Form(auxiliary="added", activation="RELU6"),
    Form(auxiliary="added", time_major=True, more=7),
    Form(auxiliary="crossed"),
    Form(auxiliary="crossed", time_major=True),
    Form(auxiliary="crossed", time_major=True, activation="RELU6"),
]
CASES = [
    *((cells.lstm, form) for form in LSTMS),
    *((cells.lstm, changed(form, single=True)) for form in SINGLE),
    *((cells.bidirectional_lstm, form) for form in BIDIRECTIONAL),
    *((cells.rnn, form) for form in RNNS),
    *((cells.rnn, Form(single=True, activation=name)) for name in ("NONE", "TANH", *BOUNDED)),
    *((cells.bidirectional_rnn, form) for form in RNNS_OF_TWO),
    *((cells.svdf, Form(activation=name)) for name in ("NONE", "TANH", *BOUNDED)),
]


@pytest.mark.parametrize(("make", "form"), CASES)
def test_forms(make: Make, form: Form) -> None:
    check(make(form), runs=3, seeds=[0], ranges={"float32": (-2, 2)})
