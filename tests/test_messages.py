"""Messages of refusals: alternatives differ, sizes that work are named, other signatures too."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.support import Build
from tests.support.graph_text import make_model
from tflite2onnx import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.inspection import inspect
from tflite2onnx.op import list_operators
from tflite2onnx.utils.suggestions import join_alternatives

FLATTENED = make_model(
    """
    inputs x: float32[1,h,64]
    flat: float32[1,64] = RESHAPE(x, [1,-1])
    y: float32[1,4] = FULLY_CONNECTED(flat, float32[4,320], float32[4])
    return y
    """
)
ROWS = make_model(
    """
    inputs x: float32[1,h,64]
    y: float32[1,4] = FULLY_CONNECTED(x, float32[4,320], float32[4])
    return y
    """
)


def refuse(data: bytes, **options: object) -> str:
    with pytest.raises(ConversionError) as error:
        convert(data, **options)  # type: ignore[arg-type]
    return str(error.value)


def test_an_alternative_is_listed_once() -> None:
    assert join_alternatives(["int16"]) == "int16"
    assert join_alternatives(["int16", "int16"]) == "int16"
    assert join_alternatives(["int8", "int16", "int8"]) == "int8 or int16"


def test_no_declaration_repeats_an_alternative() -> None:
    for code, operator in list_operators().items():
        rows = getattr(operator, "rows", {}).values()
        listed = [re.split("[|+]", text) for text in re.findall("[a-z0-9_|+]+", operator.operands)]
        words = [(row.types, row.wide) for row in rows if hasattr(row, "wide")]
        listed += [text.split() for texts in words for text in texts]
        for types in listed:
            assert len({*types}) == len(types), code


def test_the_output_of_integer_products_must_be_int16() -> None:
    m = Build()
    x = m.input([1, 4], dtype="int16", scale=0.1)
    weights = m.constant(np.ones((2, 4), np.int8), dtype="int8", scale=0.1)
    (y,) = m.op("FULLY_CONNECTED", [x, weights], [m.tensor([1, 2], dtype="int8", scale=0.1)])
    m.output(y)
    assert "must be int16, got int8" in refuse(m.bytes())


@pytest.mark.parametrize(
    ("data", "rule"),
    [(FLATTENED, "flat must have 320 features, got [1, 64*T]"),
     (ROWS, "x must be rows of 320 elements, got [1, T, 64]")],
    ids=["features", "rows"],
)  # fmt: skip
def test_a_size_that_fits_the_weights_is_named(
    data: bytes, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The size that the message names converts; the size of the conversion is in the warning."""
    assert f"{rule} (T may be 5)" in refuse(data, shapes={"x": [1, "T", 64]})
    assert convert(data, shapes={"x": [1, 5, 64]}).outputs[0].sizes == (1, 4)
    assert convert(data).inputs[0].sizes == (1, 480, 64)
    assert "axis x_1 is fixed at 480 because" in caplog.text
    assert "(x_1 may be 5); for other sizes give --shape x=1,480,64" in caplog.text


def test_no_size_is_named_if_none_fits() -> None:
    data = make_model(
        """
        inputs x: float32[1,h,64]
        flat: float32[1,64] = RESHAPE(x, [1,-1])
        y: float32[1,4] = FULLY_CONNECTED(flat, float32[4,321], float32[4])
        return y
        """
    )
    assert refuse(data, shapes={"x": [1, "T", 64]}).endswith("got [1, 64*T]")


def test_the_batch_of_states_is_named() -> None:
    batch, *_ = inspect(cells.lstm(Form(features=5, cells=4, times=3))).axes
    assert batch.problem.endswith("must have the batch of its states, 3, got [size, 3, 5]")


def build_training(*codes: str) -> bytes:
    """Return a model with a signature for each operator; the first sub-graph is its training."""
    m = Build()
    for index, code in enumerate(codes):
        graph = m.subgraph(code) if index else m
        x = graph.input([2, 3], name=f"{code}_x")
        (y,) = (graph.op if code.isupper() else graph.custom)(
            code, [x], [graph.tensor([2, 3], name=f"{code}_y")]
        )
        graph.output(y)
        m.signature(code.lower(), {"x": x}, {"y": y})
    return m.bytes()


@pytest.mark.parametrize(
    ("codes", "hint"),
    [
        (("FlexReluGrad", "FlexSvd"), ""),
        (
            ("FlexReluGrad", "FlexSvd", "NEG"),
            'the signature neg can be converted: choose signature="neg" (--signature neg on',
        ),
        (
            ("FlexReluGrad", "ABS", "NEG"),
            'the signatures abs, neg can be converted: choose signature="abs"',
        ),
    ],
)
def test_signatures_that_can_be_converted_are_named(codes: tuple[str, ...], hint: str) -> None:
    """A model that is trained on a device has its training first."""
    message = refuse(build_training(*codes))
    assert "FlexReluGrad (operator 0, FlexReluGrad_y)" in message
    assert hint in message
    assert ("can be converted" in message) == bool(hint)
    if hint:
        assert convert(build_training(*codes), signature=codes[-1].lower())
