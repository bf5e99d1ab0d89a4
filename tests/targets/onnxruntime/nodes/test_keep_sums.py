"""A sum stays apart from its normalization, because ONNX Runtime's node of both is slow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.passes.patterns.test_fuse_normalizations import Spelled, keras
from tests.support import check
from tests.support.fusions import count_optimized_nodes

SHAPE = [1, 5, 8]


def build(*, reads_sum: bool = False) -> bytes:
    """Return the model of a sum of two inputs and of its normalization."""
    m = Spelled([-1])
    total = m.apply("ADD", m.input(SHAPE), m.input(SHAPE))
    m.output(keras(m, total))
    if reads_sum:
        m.output(m.apply("RELU", total))
    return m.bytes()


@pytest.mark.parametrize("reads_sum", [False, True])
def test_only_the_normalization_reads_the_sum(*, reads_sum: bool) -> None:
    result: Any = check(build(reads_sum=reads_sum))
    counts = count_optimized_nodes(result.model)
    assert counts["Add" if reads_sum else "Sum"] == counts["LayerNormalization"] == 1


def test_the_canonical_form_is_fused() -> None:
    result: Any = check(build(), forms="canonical")
    assert count_optimized_nodes(result.model)["SkipLayerNormalization"] == 1
