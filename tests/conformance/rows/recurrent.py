"""Recurrent cells, which are built by tests/op/recurrent/cells.py and run three times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.bench import Bench
from tests.conformance.table import Bound, Row, coarse
from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form

Choice = dict[str, Any]

_GATES: tuple[Choice, ...] = ({}, {"peephole": True}, {"coupled": True}, {"cell_clip": 0.4})
_PROJECTIONS: tuple[Choice, ...] = (
    {},
    {"projection": True},
    {"projection": True, "projection_bias": True, "proj_clip": 0.3},
)
_TIMES = {"time_major": (False, True), "batch": (3, 1)}
_BOUNDED = ("TANH", "RELU", "RELU6", "RELU_N1_TO_1", "SIGN_BIT")
_REAL = ("float32", "float32 by int8", "float32 by uint8")
_TRIED = ()
_WITH_ROUNDED_DATA = "LiteRT quantizes data and states at run time; the ONNX model does not"
_OF_WEIGHTS = {kind: Bound(2e-2, 0, _WITH_ROUNDED_DATA) for kind in _REAL[1:]}
_OF_INTEGERS = {
    "int8 by int8": "the kernel reads its functions from tables and rounds each gate",
    "uint8 by uint8": "the kernel rounds the gates of the cell to 12 bits",
}


def _lstm_bounds(code: str, *kinds: str) -> dict[str, Bound]:
    return _OF_WEIGHTS | {kind: coarse(code, kind, _OF_INTEGERS[kind]) for kind in kinds}


def _form(kind: str, *parts: Choice, **fields: Any) -> Form:
    weights = kind.partition(" by ")[2] or "float32"
    merged = {key: value for part in parts for key, value in part.items()}
    return Form(weights=weights, **merged, **fields)


def lstm(b: Bench, code: str, /, *, gates: Choice, projection: Choice, **fields: Any) -> bytes:
    """Build LSTM with one step or a sequence; integer models have int8 data and int16 cells."""
    if b.kind == "int8 by int8" and projection:
        gates = {**gates, "peephole": False}  # the kernel ignores the value in this case
    form = _form(b.kind, gates, projection, single=code == "LSTM", **fields)
    if b.kind == "uint8 by uint8":
        return cells.integer_basic_lstm()
    return (cells.integer_lstm if b.kind == "int8 by int8" else cells.lstm)(form)


def build_forms(make: Callable[[Form], bytes]) -> Callable[..., bytes]:
    """Return a function that builds cells of forms with these fields and gates."""

    def build(b: Bench, code: str, /, *, gates: Choice | None = None, **fields: Any) -> bytes:
        if make is cells.bidirectional_rnn and " by " in b.kind:
            fields["time_major"] = False  # LiteRT iterates several times over these sequences
        return make(_form(b.kind, gates or {}, single=code == "RNN", more=7, **fields))

    return build


def svdf(b: Bench, code: str, *, rank: int, bias: bool, activation: str) -> bytes:
    """Build SVDF; integer models have int8 data and int16 states."""
    del code
    make = cells.integer_svdf if b.kind == "int8 by int8" else cells.svdf
    return make(_form(b.kind, activation=activation), rank=rank, bias=bias)


_LSTM: dict[str, Any] = {"gates": _GATES, "projection": _PROJECTIONS}
_TWO = {"merged": (False,), "auxiliary": ("", "added", "crossed")}
_RNN = {"activation": ("TANH", "NONE", *_BOUNDED[1:])}

ROWS = (
    Row(
        "LSTM",
        lstm,
        (*_REAL, "int8 by int8", "uint8 by uint8"),
        _LSTM,
        ("random",),
        runs=3,
        bounds=_lstm_bounds("LSTM", *_OF_INTEGERS),
        tried=_TRIED,
    ),
    Row(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        lstm,
        (*_REAL, "int8 by int8"),
        {**_LSTM, **_TIMES},
        ("random",),
        runs=3,
        bounds=_lstm_bounds("UNIDIRECTIONAL_SEQUENCE_LSTM", "int8 by int8"),
        tried=_TRIED,
    ),
    Row(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        build_forms(cells.bidirectional_lstm),
        _REAL,
        {"gates": _GATES[:3], **_TIMES, **_TWO},
        ("random",),
        runs=3,
        bounds=_OF_WEIGHTS,
        tried=_TRIED,
        limits="with merged outputs LiteRT's states are wrong for all batches but the first",
    ),
    Row(
        "RNN",
        build_forms(cells.rnn),
        _REAL,
        _RNN,
        ("random",),
        runs=3,
        bounds=_OF_WEIGHTS,
        tried=_TRIED,
    ),
    Row(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        build_forms(cells.rnn),
        _REAL,
        {**_RNN, **_TIMES},
        ("random",),
        runs=3,
        bounds=_OF_WEIGHTS,
        tried=_TRIED,
    ),
    Row(
        "BIDIRECTIONAL_SEQUENCE_RNN",
        build_forms(cells.bidirectional_rnn),
        _REAL,
        {
            "activation": ("TANH", "RELU6"),
            **_TIMES,
            "merged": (False, True),
            "auxiliary": ("", "added", "crossed"),
        },
        ("random",),
        runs=3,
        bounds=_OF_WEIGHTS,
        tried=_TRIED,
        limits="time-major sequences are not converted with integer weights, because LiteRT's"
        " result is wrong, nor with an auxiliary input of another shape than the input",
    ),
    Row(
        "SVDF",
        svdf,
        (*_REAL, "int8 by int8"),
        {"rank": (2, 1), "bias": (True, False), "activation": ("NONE", *_BOUNDED)},
        ("random",),
        runs=3,
        bounds=_OF_WEIGHTS,
        tried=_TRIED,
    ),
)
