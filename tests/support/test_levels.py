"""tests/support/levels.py: the sample that the first level of the tests runs."""

from __future__ import annotations

import pytest

from tests.support.levels import SEED, draw, draw_forms, find_commit, find_seed, runs_all


def test_a_seed_draws_the_same_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed draws the same cases in their order; another seed draws others."""
    drawn = {}
    for seed in ("a", "b"):
        monkeypatch.setenv(SEED, seed)
        assert (find_seed(), runs_all()) == (seed, False)
        drawn[seed] = draw(range(100), 8, "name")
        assert drawn[seed] == draw(range(100), 8, "name") == sorted(drawn[seed])
        assert len(drawn[seed]) == 8
        assert draw(range(5), 8, "name") == [*range(5)]
        assert draw(range(5), 0, "name") == []
    assert drawn["a"] != drawn["b"]


@pytest.mark.parametrize("seed", ["a", "b"])
def test_every_value_of_a_parameter_is_drawn_once(
    seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As few cases as the longest parameter has values run each value of both parameters."""
    monkeypatch.setenv(SEED, seed)
    cases = [(letter, number) for letter in "abcdefgh" for number in range(4)]
    values = [{("letter", letter), ("number", number)} for letter, number in cases]
    drawn = draw(cases, 8, "name", values)
    assert {letter for letter, _ in drawn} == {*"abcdefgh"}
    assert {number for _, number in drawn} == {*range(4)}
    assert drawn == draw(cases, 8, "name", values) == sorted(drawn)


def test_the_second_level_runs_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED, "")
    assert (find_seed(), runs_all()) == (find_commit(), True)
    assert draw(range(100), 0, "name") == [*range(100)]
    assert draw_forms("abc", "name") == ["a", "b", "c"]


def test_each_form_of_a_case_is_drawn_at_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first form is always run, and one in ten of the others."""
    monkeypatch.setenv(SEED, "a")
    drawn = [draw_forms("abc", str(number)) for number in range(300)]
    assert all(forms[0] == "a" for forms in drawn)
    assert all(10 < sum(form in forms for forms in drawn) < 60 for form in "bc")
