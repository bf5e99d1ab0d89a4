"""odml.update_external_kv_cache, beside LiteRT's own kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from ai_edge_litert import pywrap_genai_ops
from ai_edge_litert.interpreter import InterpreterWithCustomOps

from tests.references import drawn, hold
from tests.toolkit import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.toolkit.runtimes import Array

CODE = "odml.update_external_kv_cache"
Shape = tuple[int, ...]


def run(data: bytes, inputs: Sequence[Array]) -> list[Array]:
    interpreter = InterpreterWithCustomOps(
        custom_op_registerers=[pywrap_genai_ops.GenAIOpsRegisterer], model_content=data,
        num_threads=1,
    )  # fmt: skip
    interpreter.allocate_tensors()
    for port, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(port["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(port["index"]) for port in interpreter.get_output_details()]


def caching(cache: Shape, new: Shape, count: int) -> Build:
    m = Build()
    operands = [
        m.input(cache), m.input(cache), m.input([count], dtype="int32"), m.input(new), m.input(new),
    ]  # fmt: skip
    m.output(*m.custom(CODE, operands, [m.tensor(cache), m.tensor(cache)]))
    return m


@pytest.mark.parametrize(
    "positions",
    [[0], [10], [3, 4, 5], [7, 8, 0, 0], [0, 0, 0], [2, 5, 5, 9], [10, 3, 11, 12], [4, 4, 3]],
    ids=str,
)
def test_new_rows(positions: list[int]) -> None:
    """Where the positions fall, what is left is padding; the later of two rows stays."""
    cache, new = (1, 11, 3, 5), (1, len(positions), 3, 5)
    m = caching(cache, new, len(positions))
    inputs = [
        drawn(*cache), drawn(*cache, seed=1), np.array(positions, np.int32),
        drawn(*new, seed=2), drawn(*new, seed=3),
    ]  # fmt: skip
    hold(m, inputs, run(m.bytes(), inputs), tolerance=0)


@pytest.mark.parametrize(
    ("cache", "new", "count", "reason"),
    [
        ((11, 3, 5), (1, 2, 3, 5), 2, "are not [1, time, heads, depth]"),
        ((2, 11, 3, 5), (2, 2, 3, 5), 2, "are not [1, time, heads, depth]"),
        ((1, 11, 3, 5), (1, 2, 7, 5), 2, "[1, 2, 3, 5] is expected"),
        ((1, 11, 3, 5), (1, 2, 3, 5), 3, "int32[2] is expected"),
    ],
)
def test_refuses(cache: Shape, new: Shape, count: int, reason: str) -> None:
    with pytest.raises(ConversionError) as error:
        convert(caching(cache, new, count).bytes())
    assert reason in str(error.value)


def test_refuses_other_than_two_outputs() -> None:
    m = Build()
    operands = [
        m.input([1, 7, 3, 5]), m.input([1, 7, 3, 5]), m.input([2], dtype="int32"),
        m.input([1, 2, 3, 5]), m.input([1, 2, 3, 5]),
    ]  # fmt: skip
    m.output(*m.custom(CODE, operands, [m.tensor([1, 7, 3, 5])]))
    with pytest.raises(ConversionError, match="1 outputs; keys and values"):
        convert(m.bytes())
