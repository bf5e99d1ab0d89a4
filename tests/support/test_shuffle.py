"""tests/support/shuffle.py: the order within a group changes, and no byte of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.records import ASSETS
from tests.support.shuffle import shuffle_groups
from tflite2onnx import convert, passes

MODELS = sorted(ASSETS.glob("*.tflite"))


def test_the_order_within_groups_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = passes.CANONICAL_GROUPS
    shuffle_groups(monkeypatch, "0")
    after = passes.CANONICAL_GROUPS
    assert after != before
    assert [*map(set, after)] == [*map(set, before)]


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_models_have_the_same_bytes(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = set()
    for seed in "012":
        with monkeypatch.context() as patch:
            shuffle_groups(patch, seed)
            made.add(convert(model).model.SerializeToString(deterministic=True))
    assert len(made) == 1
