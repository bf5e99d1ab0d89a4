"""passes/resize_inputs.py: input sizes that the user chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tflite2onnx import ConversionError, convert
from tflite2onnx.cli import main
from tflite2onnx.inspection import inspect

RANDOM = np.random.default_rng(3)


def image_network(**fields: Any) -> Build:
    """Return a network with a declared batch of 1 and image size of 5 x 7."""
    m = Build()
    x = m.input([1, 5, 7, 3], name="x", **fields)
    w = m.constant(RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32))
    b = m.constant(np.zeros(4, np.float32))
    (y,) = m.op("CONV_2D", [x, w, b], [[1, 5, 7, 4]], padding="SAME", stride_h=1, stride_w=1)
    m.output(*m.op("MEAN", [y, m.constant([1, 2])], [[1, 4]]))
    return m


def flat_network() -> Build:
    """Return a network that works for its declared shape only."""
    m = Build()
    x = m.input([1, 5, 3], name="x")
    m.output(*m.op("RESHAPE", [x, m.constant([1, 15])], [[1, 15]]))
    return m


def check_shape(m: Build, shape: list[int], **options: Any) -> list[tuple[int | str, ...]]:
    """Compare a model with LiteRT for an input shape; return the sizes of inputs and outputs."""
    given = [RANDOM.standard_normal(shape).astype(np.float32)]
    result = check(m.bytes(), inputs=given, declared=False, **options)
    return [end.sizes for end in (*result.inputs, *result.outputs)]


def test_numbers_as_sizes_equal_litert() -> None:
    sizes = check_shape(
        image_network(), [2, 9, 4, 3], shapes={"x": [2, 9, 4, 3]}, io_layout="tflite"
    )
    assert sizes == [(2, 9, 4, 3), (2, 4)]
    assert check_shape(image_network(), [6, 5, 7, 3], batch=6)[1] == (6, 4)
    dynamic = image_network(shape_signature=[-1, -1, -1, 3])
    assert check_shape(dynamic, [2, 9, 4, 3], shapes={"x": [2, 9, 4, 3]})[1] == (2, 4)


def test_names_as_sizes_make_axes_dynamic() -> None:
    """A name makes a dimension dynamic, also if the file declares a number."""
    m, shapes = image_network(), {"x": ["many", "rows", "columns", 3]}
    for shape in ([1, 5, 7, 3], [2, 9, 4, 3], [3, 2, 2, 3]):
        sizes = check_shape(m, shape, shapes=shapes, io_layout="tflite")
        assert sizes == [("many", "rows", "columns", 3), ("many", 4)]
    for size in (1, 2, 5):
        assert check_shape(m, [size, 5, 7, 3], batch="n")[1] == ("n", 4)


def test_one_batch_name_is_shared_by_inputs() -> None:
    m = Build()
    a, b = m.input([1, 3], name="a"), m.input([1, 3], name="b")
    m.output(*m.op("ABS", [a], [[1, 3]]), *m.op("NEG", [b], [[1, 3]]))
    result = convert(m.bytes(), batch="n")
    assert [end.sizes[0] for end in (*result.inputs, *result.outputs)] == ["n"] * 4


def test_shapes_accept_names_of_a_signature() -> None:
    m = Build()
    x = m.input([1, 3], name="serving_default_x:0")
    (y,) = m.op("ABS", [x], [[1, 3]])
    m.output(y)
    m.signature("serving_default", {"x": x}, {"y": y})
    assert convert(m.bytes(), shapes={"x": [5, 3]}).outputs[0].sizes == (5, 3)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"shapes": {"x": [2, 5, 3]}}, "RESHAPE .*must be 30 elements"),
        ({"shapes": {"x": ["n", 5, 3]}}, "the size n cannot be dynamic because RESHAPE"),
        ({"shapes": {"y": [1]}}, "`shapes`: the model has no input y"),
        ({"shapes": {"xx": [1]}}, "did you mean x?"),
        ({"shapes": {"x": [1, 5]}}, "must have 3 sizes, as in .*, got"),
        ({"shapes": {"x": [1, 5, 0]}}, "a size must be a positive number or a name, got 0"),
        ({"shapes": {"x": [1, 5, "a b"]}}, "a size must be a positive number or a name"),
        ({"shapes": {"x": "abc"}}, "`shapes` must be such as"),
        ({"batch": -1}, "a size must be a positive number or a name, got -1"),
        ({"batch": "n", "static": True}, "`static` must not be given"),
    ],
)
def test_refuses_sizes_that_the_network_cannot_have(options: dict[str, Any], reason: str) -> None:
    """A size that the network does not support is an error that names the operator."""
    with pytest.raises(ConversionError, match=reason):
        convert(flat_network().bytes(), **options)


def test_command_line_sets_shapes_and_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(image_network().bytes())
    assert main([str(path), "--shape", "x=batch,h,w,3"]) == 0
    assert "TFLite [batch, h, w, 3]" in capsys.readouterr().out
    assert main([str(path), "--batch", "4"]) == 0
    assert "TFLite [4, 5, 7, 3]" in capsys.readouterr().out
    assert main([str(path), "--batch", "many"]) == 0
    assert "TFLite [many, 5, 7, 3]" in capsys.readouterr().out
    for words, reason in (
        (["--shape", "x"], "shape must be NAME=SIZE"),
        (["--shape", "x=1", "--shape", "x=2"], "once for each name, got x=2"),
    ):
        assert main([str(path), *words]) == 1
        assert reason in capsys.readouterr().err


def test_inspect_lists_the_axes_that_can_be_dynamic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(image_network().bytes())
    axes = inspect(path).axes
    assert [(each.input, each.axis, each.size) for each in axes] == [
        ("x", axis, size) for axis, size in enumerate([1, 5, 7, 3])
    ]
    assert [bool(each.problem) for each in axes] == [False, False, False, True]
    assert "CONV_2D" in axes[3].problem
    assert main(["inspect", str(path)]) == 0
    assert "x      3     no: CONV_2D" in capsys.readouterr().out
    reasons = [each.problem for each in inspect(flat_network().bytes()).axes]
    assert all("RESHAPE" in reason for reason in reasons)


def add_head(m: Build, x: Tensor) -> Tensor:
    """Return scores of boxes; their number depends on the image size."""
    w = m.constant(RANDOM.standard_normal((6, 1, 1, 3)).astype(np.float32))
    b = m.constant(np.zeros(6, np.float32))
    (y,) = m.op("CONV_2D", [x, w, b], [[1, 1, 1, 6]], padding="SAME", stride_h=2, stride_w=2)
    return m.op("RESHAPE", [y, m.constant([1, -1, 2])], [[1, 1, 2]])[0]


def test_number_of_boxes_follows_the_image_size() -> None:
    """The number of boxes follows from a dynamic image size; the file declares one box."""
    m = Build()
    x = m.input([1, 1, 1, 3], name="x")
    heads = [add_head(m, x), add_head(m, x)]
    m.output(*m.op("CONCATENATION", heads, [[1, 1, 2]], axis=1))
    for shape in ([1, 4, 6, 3], [1, 5, 5, 3], [1, 2, 9, 3]):
        check_shape(m, shape, shapes={"x": [1, "h", "w", 3]})
