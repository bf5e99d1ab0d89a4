"""Elements of float8: every operator that takes them makes a file that ONNX Runtime loads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.conformance.rows import ROWS
from tests.op.ports import FLOAT8, check_float8
from tests.support import Build
from tests.support.facts import TENSOR_TYPES
from tests.support.pack import pack
from tflite2onnx import ConversionError, convert

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]
_TABLE = Path(__file__).parents[3] / "docs" / "operators.md"

MOVES: list[tuple[str, list[Any], dict[str, Any], list[int], Callable[[Array], Array]]] = [
    ("RESHAPE", [[2, 128]], {}, [2, 128], lambda x: x.reshape(2, 128)),
    ("EXPAND_DIMS", [1], {}, [16, 1, 16], lambda x: x[:, None]),
    ("TRANSPOSE", [[1, 0]], {}, [16, 16], lambda x: x.T),
    ("BROADCAST_TO", [[2, 16, 16]], {}, [2, 16, 16], lambda x: np.stack([x, x])),
    ("PACK", [], {"axis": 1, "values_count": 1}, [16, 1, 16], lambda x: x[:, None]),
]


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize(("code", "constants", "options", "shape", "expected"), MOVES)
def test_moves_of_float8_equal_numpy(
    code: str,
    constants: list[Any],
    options: dict[str, Any],
    shape: list[int],
    expected: Callable[[Array], Array],
    dtype: str,
) -> None:
    m = Build()
    x = m.input([16, 16], dtype=dtype)
    operands = [x, *(m.constant(np.array(each, np.int32)) for each in constants)]
    m.output(*m.op(code, operands, [m.tensor(shape, dtype=dtype)], **options))
    check_float8(m, expected)


def loads(data: bytes, **options: Any) -> bool:
    """Return whether a model is converted; ONNX Runtime then loads it."""
    try:
        result = convert(data, **options)
    except ConversionError:
        return False
    onnxruntime.InferenceSession(result.model.SerializeToString())
    return True


def replace_floats(data: bytes, dtype: str) -> bytes:
    """Return a model in which all computed float32 tensors have another type."""
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    for tensor in model.subgraphs[0].tensors:
        stored = model.buffers[tensor.buffer].data
        if tensor.type == schema.TensorType.FLOAT32 and (stored is None or not len(stored)):
            tensor.type = TENSOR_TYPES[dtype]
    return pack(model)


def make_models(code: str) -> bytes:
    """Return the first model of an operator's float32 cases."""
    case = next(case for case in ROWS[code].cases() if case.kind == "float32")
    bench, made = case.bench()
    return made or bench.bytes()


def list_documented() -> list[str]:
    """Return the operators that the document says take float8."""
    (sentence,) = re.findall(r"\*\*float8\*\*.*?\n\n", _TABLE.read_text(), re.DOTALL)
    return re.findall(r"`([A-Z0-9_]+)`", sentence)


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("code", list_documented())
def test_documented_operators_take_float8(code: str, dtype: str) -> None:
    """The models load in each opset, or the opset is refused."""
    data = replace_floats(make_models(code), dtype)
    assert loads(data)
    for opset in (17, 19, 20, 21, 23, 25):
        assert loads(data, opset=opset) or opset < 21


def test_all_other_operators_refuse_float8() -> None:
    """All operators of the table that have float32 cases are tried."""
    codes = [code for code in ROWS if not code.startswith("Flex") and code.isupper()]
    codes = [c for c in codes if any(case.kind == "float32" for case in ROWS[c].cases())]
    found = {code for code in codes if loads(replace_floats(make_models(code), FLOAT8[0]))}
    assert found == set(list_documented())
