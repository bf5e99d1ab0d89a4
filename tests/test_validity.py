"""validity.py: invalid ONNX graphs become errors that name the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.support import Build
from tests.support.control import add_if, apply_operator
from tests.support.flex import Type, flex_options
from tests.support.small import chain
from tflite2onnx import convert
from tflite2onnx.builder.nodes import Value, require_onnx_type
from tflite2onnx.cli import main
from tflite2onnx.errors import OptionError, UnsupportedOperators
from tflite2onnx.inspection import inspect
from tflite2onnx.op import OPERATORS
from tflite2onnx.tensor import DType

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tflite2onnx.builder.builder import Builder, View

    Emit = Callable[[Builder, View], Value]

_INT8 = np.ones(3, np.int8)
FAULTS: dict[str, tuple[Emit, str]] = {
    "type": (lambda g, x: g.Sigmoid(g.cast(x, DType.INT32)), "Sigmoid does not take int32"),
    "two types": (lambda g, x: g.Add(x, _INT8), "Add must have operands of one type"),
    "made": (lambda g, x: g.cast(x, DType.INT32), "Cast computes int32, not float32"),
    "made by one type": (lambda g, x: g.NonZero(x), "NonZero computes int64, not float32"),
    "sequence": (lambda g, _: g.Abs(Value()), "Abs reads a value that is not computed before it"),
    "nothing": (lambda *_: Value(), "y is not computed as float32"),
    "opset": (lambda g, x: g.Whatever(x), "Whatever is not in opset 17"),
    "deprecated": (lambda g, x: g.Upsample(x), "Upsample is not in opset 17"),
    "integer": (lambda g, x: g.LeakyRelu(x, alpha=0), "LeakyRelu has no attribute alpha that is 0"),
    "float": (lambda g, x: g.Softmax(x, axis=1.0), "Softmax has no attribute axis that is 1.0"),
    "name": (lambda g, x: g.Abs(x, size=1), "Abs has no attribute size that is 1"),
    "attribute": (lambda g, x: g.Cast(x), "Cast lacks an attribute"),
    "input": (lambda g, x: g.Add(None, x), "Add lacks an input"),
    "few": (lambda g, x: g.Add(x), "Add has too few inputs or outputs: 1"),
    "many": (lambda g, x: g.Abs(x, x), "Abs has too many inputs or outputs: 2"),
    "many made": (lambda g, x: g.node_outputs("Abs", 2, x)[0], "too many inputs or outputs: 2"),
    "shape": (
        lambda g, x: g.Reshape(x, np.array([-1, -1])),
        "Reshape infers several sizes of [-1, -1]",
    ),
    "other domain": (
        lambda g, _: g.node("LabelEncoder", g.Identity(_INT8), domain="ai.onnx.ml"),
        "LabelEncoder does not take int8",
    ),
}  # fmt: skip


def replace_emit(monkeypatch: pytest.MonkeyPatch, code: str, emit: Emit) -> None:
    """Replace the emit method of an operator with one input."""

    def instead(_: Any, g: Builder, y: View, x: View) -> Value:
        del y
        return emit(g, x)

    monkeypatch.setattr(OPERATORS[code], "emit", instead)


@pytest.mark.parametrize("name", FAULTS)
def test_bugs_of_operator_classes_name_the_operator(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit, reason = FAULTS[name]
    replace_emit(monkeypatch, "ABS", emit)
    with pytest.raises(UnsupportedOperators, match="please report it") as caught:
        convert(chain("NEG", "ABS"))
    assert reason in str(caught.value)
    place = "main" if name == "nothing" else "ABS (operator 1, y)"
    assert f"{place}: this is a bug in the converter" in str(caught.value)


def test_invalid_graphs_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_emit(monkeypatch, "ABS", lambda g, x: g.NonZero(x))
    (tmp_path / "model.tflite").write_bytes(chain("ABS", "NEG"))
    assert main([str(tmp_path / "model.tflite")]) == 1
    assert "ABS (operator 0, inner_1): this is a bug" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]


def test_operators_in_subgraphs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_emit(monkeypatch, "ABS", lambda g, x: g.Add(x, _INT8))
    m = Build()
    condition, x = m.input([], dtype="bool"), m.input([2, 3])
    m.output(*add_if(m, condition, [x], apply_operator("ABS"), apply_operator("NEG")))
    with pytest.raises(UnsupportedOperators, match=r"ABS \(operator 0, .*: this is a bug"):
        convert(m.bytes())


def test_types_given_by_attributes_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types given by attributes are checked; types that cannot be inferred are not."""

    def emit(g: Builder, x: View) -> Value:
        value = numpy_helper.from_array(np.ones(1, np.int64))
        twos = g.Add(g.ConstantOfShape(g.Shape(x), value=value), np.ones(1, np.int64))
        drawn = g.RandomUniformLike(twos, dtype=require_onnx_type(DType.FLOAT32), seed=1.0)
        return g.Add(g.cast(g.cast(x, DType.INT32), DType.FLOAT32), drawn)

    replace_emit(monkeypatch, "ABS", emit)
    assert convert(chain("ABS")).nodes == 6


def test_node_of_a_newer_opset_raises_the_opset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer opset is chosen if the opset is not fixed."""
    replace_emit(monkeypatch, "ABS", lambda g, x: g.Swish(x))
    assert convert(chain("ABS")).opset == 24
    with pytest.raises(OptionError, match="Swish needs opset 24"):
        convert(chain("ABS"), opset=23)


# Types that few nodes support


def move_node(code: str, dtype: str) -> bytes:
    """Return an operator that moves elements of a type."""
    m = Build()
    x = m.input([1, 4, 6, 2], dtype=dtype)
    half = [1, 4, 3, 2]
    match code:
        case "PACK":
            m.output(*m.op(code, [x, x], [[2, 1, 4, 6, 2]], values_count=2))
        case "UNPACK":
            m.output(*m.op(code, [x], [[1, 6, 2]] * 4, axis=1, num=4))
        case "SPLIT":
            m.output(*m.op(code, [m.constant(np.int32(2)), x], [half] * 2, num_splits=2))
        case "SPLIT_V":
            sizes = m.constant(np.array([3, 3], np.int32))
            m.output(*m.op(code, [x, sizes, m.constant(np.int32(2))], [half] * 2, num_splits=2))
        case "FlexSplit":
            options = flex_options("Split", num_split=2, T=Type(22))
            halves = [m.tensor(half, dtype=dtype) for _ in range(2)]
            m.output(*m.custom(code, [m.constant(np.int32(2)), x], halves, options))
        case _:
            size = m.constant(np.array([8, 9], np.int32))
            m.output(*m.op(code, [x, size], [[1, 8, 9, 2]]))
    return m.bytes()


@pytest.mark.parametrize("dtype", ["int4", "float8_e5m2"])
@pytest.mark.parametrize(
    "code", ["PACK", "UNPACK", "SPLIT", "SPLIT_V", "FlexSplit", "RESIZE_NEAREST_NEIGHBOR"]
)
def test_rare_types_raise_the_opset(code: str, dtype: str) -> None:
    """The opset is new enough for rare types, and the nodes support them."""
    data = move_node(code, dtype)
    model = convert(data).model
    assert model.opset_import[0].version == (21 if dtype == "int4" else 19)
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2"])
def test_a_tensor_needs_an_opset_with_its_type(dtype: str) -> None:
    """The opset must have the types of all tensors, even if they are only reshaped."""
    m = Build()
    fields: dict[str, Any] = {"scale": 0.1, "zero_point": 0}
    x = m.input([1, 4], dtype=dtype, **fields)
    m.output(*m.op("PACK", [x], [[1, 1, 4]], values_count=1, axis=0))
    model = convert(m.bytes()).model
    assert model.opset_import[0].version == (25 if dtype == "int2" else 21)
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("name", ["FlexSpaceToBatch", "PADV2"])
def test_strings_cannot_be_padded_with_numbers(name: str) -> None:
    """Padding of strings with 0 is refused."""
    m = Build()
    x, pads = m.input([1, 4, 6, 3], dtype="string"), np.array([[0, 0], [1, 1]], np.int32)
    made = m.tensor([4, 2, 4, 3], dtype="string")
    if name == "PADV2":
        whole = m.constant(np.array([[0, 0], [1, 1], [0, 0], [0, 0]], np.int32))
        made = m.tensor([1, 6, 6, 3], dtype="string")
        m.output(*m.op(name, [x, whole, m.constant(["x"])], [made]))
    else:
        options = flex_options("SpaceToBatch", block_size=2, T=Type(7))
        m.output(*m.custom(name, [x, m.constant(pads)], [made], options))
    with pytest.raises(UnsupportedOperators, match=r"\(operator 0, tensor_"):
        convert(m.bytes())
    (operator,) = inspect(m.bytes()).subgraphs[0].operators
    assert operator.code == name
    assert "got string" in operator.problems[0]


def test_custom_operator_without_a_name_is_refused() -> None:
    m = Build()
    m.output(*m.custom("", [m.input([2])], [[2]]))
    for allow_custom in (False, True):
        with pytest.raises(UnsupportedOperators, match=r"custom \(operator 0, tensor_1\)"):
            convert(m.bytes(), allow_custom=allow_custom)
