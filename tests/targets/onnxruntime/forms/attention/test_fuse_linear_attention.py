"""gated_delta_update becomes an operator of ONNX Runtime in decoders with shared caches."""

from __future__ import annotations

import pytest

from tests.op.recurrent.test_gated_delta import SIZES, build_update, draw_operands, update
from tests.references import check_reference


@pytest.mark.parametrize("sizes", SIZES)
def test_linear_attention_gives_the_numbers_of_litert(sizes: tuple[int, ...]) -> None:
    operands = draw_operands(*sizes)
    want = update(*operands)
    result = check_reference(build_update(operands), operands, want, caches="shared")
    assert "LinearAttention" in [node.op_type for node in result.model.graph.node]
