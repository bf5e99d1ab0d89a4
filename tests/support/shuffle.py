"""The passes and forms of each group in another order: no test may see the difference."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from tflite2onnx import passes
from tflite2onnx.passes import Group
from tflite2onnx.targets.onnxruntime import forms


def shuffle_groups(patch: pytest.MonkeyPatch, seed: str) -> None:
    """Apply the passes of each group in an order that the seed determines."""
    random, list_groups = Random(seed), forms.list_groups

    def shuffle(groups: Iterable[Group]) -> tuple[Group, ...]:
        return tuple((*random.sample(group, len(group)),) for group in groups)

    patch.setattr(passes, "CANONICAL_GROUPS", shuffle(passes.CANONICAL_GROUPS))
    patch.setattr(forms, "list_groups", lambda options: shuffle(list_groups(options)))
