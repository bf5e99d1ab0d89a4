"""stateful.py: sessions that pass the state from run to run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.support.small import chain
from tests.support.streams import SHAPE, build_sum
from tflite2onnx import ConversionError, Stateful, convert

FIRST = np.arange(30, dtype=np.float32).reshape(SHAPE)
ONES = np.ones(SHAPE, np.float32)


def session(data: bytes) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session of the converted model."""
    return onnxruntime.InferenceSession(convert(data).model.SerializeToString())


def test_each_run_continues_from_the_last_state() -> None:
    """Each run continues from the last run; the outputs are the model's own."""
    live = Stateful(session(build_sum()))
    for step in (1, 2, 3):
        (y,) = live.run(None, {"x": ONES})
        np.testing.assert_array_equal(y, FIRST + step)


@pytest.mark.parametrize("kind", [str, Path])
def test_model_file_opens_without_warnings(
    kind: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file is opened in ONNX Runtime, which prints no warnings."""
    path = tmp_path / "sum.onnx"
    convert(build_sum(), path)
    live = Stateful(kind(path))
    for step in (1, 2):
        (y,) = live.run(None, {"x": ONES})
        np.testing.assert_array_equal(y, FIRST + step)
    assert capfd.readouterr() == ("", "")


def test_error_names_the_missing_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the package."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConversionError, match=r"sum\.onnx: pip install onnxruntime"):
        Stateful("sum.onnx")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "`session` must be a session or the path of a file, got int"),
        ("none.onnx", "`session` must be the path of a file, got none.onnx"),
    ],
)
def test_error_names_what_is_no_session(given: Any, message: str) -> None:
    """The error says what is expected."""
    with pytest.raises(ConversionError, match=message):
        Stateful(given)


def test_plain_session_starts_from_the_initial_state_each_run() -> None:
    """In a plain session each run starts anew, and the next state is an output."""
    plain = session(build_sum())
    for _ in range(2):
        y, after = plain.run(None, {"x": ONES})
        np.testing.assert_array_equal(y, FIRST + 1)
        np.testing.assert_array_equal(after, FIRST + 1)


def test_reset_restores_the_initial_state() -> None:
    live = Stateful(session(build_sum()))
    for _ in range(2):
        (y,) = live.run(None, {"x": ONES})
        np.testing.assert_array_equal(y, FIRST + 1)
        live.reset()
        assert live.state == {}


@pytest.mark.parametrize(
    ("names", "count"), [([], 0), (["y"], 1), (("y", "y"), 2), (["memory/next", "y"], 2)]
)
def test_state_is_passed_on_whatever_outputs_are_requested(names: Any, count: int) -> None:
    """The state is passed on even if it is not a requested output."""
    live = Stateful(session(build_sum()))
    live.run(names, {"x": ONES})
    outputs = live.run(names, {"x": ONES})
    assert len(outputs) == count
    assert all(np.array_equal(each, FIRST + 2) for each in outputs)
    np.testing.assert_array_equal(live.state["memory"], FIRST + 2)


def test_state_stays_in_the_runtime() -> None:
    """From the second run on, states are not copied; reading them changes nothing."""
    live = Stateful(session(build_sum()))
    calls: list[str] = []
    plain = live.session.run

    def count_run(names: Any, feeds: Any) -> list[Any]:
        calls.append("run")
        return plain(names, feeds)

    live.session.run = count_run  # type: ignore[method-assign]
    outputs = [live.run(None, {"x": ONES})[0] for _ in range(4)]
    assert calls == ["run"]
    for step, y in enumerate(outputs, start=1):
        np.testing.assert_array_equal(y, FIRST + step)
    kept = live.state
    (y,) = live.run(None, {"x": ONES})
    np.testing.assert_array_equal(y, FIRST + 5)
    np.testing.assert_array_equal(kept["memory"], FIRST + 4)


@pytest.mark.parametrize("feeds", [{"x": ONES.tolist()}, {"x": ONES[..., ::-1]}, {"memory": FIRST}])
def test_other_feeds_run_after_bound_runs(feeds: dict[str, Any]) -> None:
    """Inputs that cannot be bound are passed to the session, which may refuse them."""
    live, plain = (Stateful(session(build_sum())) for _ in range(2))
    results = []
    for each, names in ((live, None), (plain, ["y"])):  # Only runs of all outputs are bound.
        each.run(names, {"x": ONES})
        each.run(names, {"x": ONES})
        try:
            results.append(each.run(names, feeds)[0].tolist())
        except Exception as error:  # noqa: BLE001 - the session's
            results.append(str(error))
        results.append(each.run(names, {"x": ONES})[0].tolist())
    assert results[:2] == results[2:]


def test_outputs_of_bound_runs_keep_their_numbers() -> None:
    live = Stateful(session(build_sum()))
    outputs = [live.run(None, {"x": ONES})[0] for _ in range(6)]
    for step, y in enumerate(outputs, start=1):
        np.testing.assert_array_equal(y, FIRST + step)


def test_kept_state_can_be_set_again() -> None:
    live = Stateful(session(build_sum()))
    live.run(None, {"x": ONES})
    kept = live.state
    live.run(None, {"x": ONES})
    live.state = kept
    (y,) = live.run(None, {"x": ONES})
    np.testing.assert_array_equal(y, FIRST + 2)


def test_given_state_replaces_the_stored_state() -> None:
    """A state that is given as an input replaces the stored state."""
    live = Stateful(session(build_sum()))
    live.run(None, {"x": ONES})
    for feeds, want in (({"memory": 5 * ONES}, 6), ({}, 7)):
        (y,) = live.run(None, {"x": ONES, **feeds})
        np.testing.assert_array_equal(y, want * ONES)


def test_a_run_that_fails_changes_nothing() -> None:
    live = Stateful(session(build_sum()))
    live.run(None, {"x": ONES})
    with pytest.raises(Exception, match="x"):
        live.run(None, {})
    (y,) = live.run(None, {"x": ONES})
    np.testing.assert_array_equal(y, FIRST + 2)


def test_models_without_state_run_unchanged() -> None:
    live = Stateful(session(chain("ABS")))
    for _ in range(2):
        np.testing.assert_array_equal(live.run(None, {"x": -FIRST})[0], FIRST)
    assert live.state == {}


def test_required_states_start_from_the_metadata() -> None:
    """With states="required" initial values come from the metadata, not from initializers."""
    model = convert(build_sum(), states="required").model
    assert not {port.name for port in model.graph.input} & {t.name for t in model.graph.initializer}
    live = Stateful(onnxruntime.InferenceSession(model.SerializeToString()))
    for begun in range(2):
        for step in (1, 2):
            (y,) = live.run(None, {"x": ONES})
            np.testing.assert_array_equal(y, FIRST + step, err_msg=f"reset {begun} times")
        live.reset()


def test_equal_initial_values_are_one_number() -> None:
    """A uniform initial value is stored as a single number in the metadata."""
    (state,) = convert(build_sum()).states
    assert np.array_equal(state.to_dict(initial=True)["initial"], FIRST)
    zeros = replace(state, initial=np.zeros(SHAPE, np.int8))
    assert zeros.to_dict(initial=True)["initial"] == 0
    assert "initial" not in zeros.to_dict()
