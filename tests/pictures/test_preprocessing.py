"""pictures/: a picture as the input of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from tests.pictures.support import (
    add_margins,
    build_network,
    center,
    draw_picture,
    normalization,
    prepare,
    resize,
    run_model,
)
from tests.support import Build
from tests.support.control import loop, number, op
from tests.support.streams import assign, handle, initialise, read_variable
from tflite2onnx import ConversionError, convert, verify
from tflite2onnx.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Subgraph, Tensor

SIZES = ((6, 8), (20, 9), (7, 31), (3, 2), (1, 1))
HALF = "mean=127.5,std=127.5"


@pytest.mark.parametrize("size", SIZES)
def test_a_picture_is_resized_and_normalized(size: tuple[int, int]) -> None:
    """Pixels are interpolated between their centres; the metadata have the normalization."""
    network = build_network(notes=normalization([1, 2, 3], [4]))
    result = convert(network, preprocess=True)
    picture = draw_picture(*size)
    want = (resize(picture.astype(float), 6, 8) - [1, 2, 3]) / 4
    got = prepare(result, picture)
    np.testing.assert_allclose(got, want[None], atol=1e-4)
    (whole,) = run_model(result, {"image": picture}).values()
    np.testing.assert_array_equal(whole, -got)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", [(6, 8), (8, 8), (9, 4)])
def test_a_picture_keeps_its_ratio_between_margins(
    size: tuple[int, int], target: tuple[int, int]
) -> None:
    """Margins of whole pixels fill the input if its ratio differs from the picture's."""
    picture = draw_picture(*size)
    network = build_network((1, *target, 3))
    got = prepare(convert(network, preprocess="std=255,resize=letterbox,pad=114"), picture)
    margins = add_margins(picture, *target, pad=114)
    want = resize(margins.astype(float), *target) / 255
    np.testing.assert_allclose(got[0], want, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", [(6, 8), (8, 8)])
@pytest.mark.parametrize("layout", ["HWC", "NCHW"])
def test_picture_is_centered_between_black_margins(
    size: tuple[int, int], target: tuple[int, int], layout: str
) -> None:
    """With resize=center margins may be half pixels, and are black."""
    picture = draw_picture(*size)
    settings = {"std": 255, "resize": "center", "layout": layout}
    given = picture if layout == "HWC" else picture.transpose(2, 0, 1)[None]
    got = prepare(convert(build_network((1, *target, 3)), preprocess=settings), given)
    np.testing.assert_allclose(got[0], center(picture, *target) / 255, atol=1e-4)


def test_picture_and_input_may_have_other_orders() -> None:
    """The picture and the input may have other orders; an input with one channel gets luminance."""
    picture = draw_picture(5, 7)
    want = resize(picture.astype(float), 6, 8)
    swapped = prepare(convert(build_network(), preprocess="std=1,channels=bgr"), picture)
    np.testing.assert_allclose(swapped[0], want[..., ::-1], atol=1e-4)
    gray = prepare(convert(build_network((1, 6, 8, 1)), preprocess={"std": 1}), picture)
    luminance = want @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(gray[0, ..., 0], luminance, atol=1e-3)
    first = prepare(convert(build_network((1, 3, 6, 8)), preprocess={"std": 1}), picture)
    np.testing.assert_allclose(first[0].transpose(1, 2, 0), want, atol=1e-4)
    forms = {"CHW": (2, 0, 1), "NHWC": (None, 0, 1, 2), "NCHW": (None, 2, 0, 1)}
    for layout, order in forms.items():
        axes = [axis for axis in order if axis is not None]
        given = picture.transpose(axes)[(None,) * (len(order) - len(axes))]
        result = convert(build_network(), preprocess=f"std=1,layout={layout}")
        np.testing.assert_allclose(prepare(result, given)[0], want, atol=1e-4)
        assert result.inputs[0].layout == (layout, layout)


def test_channels_first_network_needs_no_transpose_of_floats() -> None:
    """A network whose input is channels first takes the picture without a Transpose of floats."""
    layouts = {"pixels": ("NHWC", "NCHW")}
    result = convert(build_network(), layouts=layouts, preprocess="std=1")
    picture = draw_picture(5, 7)
    want = resize(picture.astype(float), 6, 8).transpose(2, 0, 1)
    np.testing.assert_allclose(prepare(result, picture)[0], want, atol=1e-4)


def test_network_with_dynamic_batch_gets_one_picture() -> None:
    """A network for any number of pictures gets one."""
    network = build_network((None, 6, 8, 3))
    result = convert(network, preprocess="std=255")
    assert result.parts["network"].inputs[0].symbols
    picture = draw_picture(6, 8)
    (got,) = run_model(result, {"image": picture}).values()
    np.testing.assert_allclose(got[0], -(picture / 255), atol=1e-6)
    assert verify(network, result.model).ok


def test_float_pictures_of_one_size_are_accepted() -> None:
    """type=float32 takes numbers from 0 to 255; size=HxW fixes the sizes."""
    result = convert(
        build_network(), preprocess="mean=0,std=255,type=float32,size=5x7,resize=letterbox"
    )
    assert (result.inputs[0].dtype, result.inputs[0].sizes) == ("float32", (5, 7, 3))
    picture = draw_picture(5, 7).astype(np.float32)
    want = resize(add_margins(picture, 6, 8).astype(float), 6, 8) / 255
    np.testing.assert_allclose(prepare(result, picture)[0], want, atol=1e-5)


@pytest.mark.parametrize(("dtype", "lowest"), [("uint8", 0), ("int8", -128)])
def test_integer_inputs_are_pixels_or_quantized_numbers(dtype: str, lowest: int) -> None:
    """Integers are the pixels, or with a normalization the quantized numbers."""
    network = build_network(dtype=dtype, scale=0.02, zero_point=3)
    picture = draw_picture(6, 8)
    got = prepare(convert(network, preprocess=True), picture)
    np.testing.assert_array_equal(got[0], picture.astype(int) + lowest)
    got = prepare(convert(network, preprocess=HALF), picture)
    numbers = np.rint((picture - 127.5) / np.float32(127.5) / np.float32(0.02)) + 3
    np.testing.assert_allclose(got[0], np.clip(numbers, lowest, lowest + 255), atol=1)
    floats = convert(network, preprocess=HALF, quantization="float")
    np.testing.assert_allclose(prepare(floats, picture)[0], (picture - 127.5) / 127.5, atol=1e-6)


def test_half_precision_takes_the_same_pictures() -> None:
    """A network in half precision takes pictures of uint8, as a network of float32 does."""
    picture = draw_picture(6, 8)
    for ends in (False, True):
        result = convert(build_network(), preprocess=HALF, float16=True, float16_io=ends)
        got = prepare(result, picture)
        assert got.dtype == (np.float16 if ends else np.float32)
        np.testing.assert_allclose(got[0], (picture - 127.5) / 127.5, atol=1e-3)


def test_the_parts_are_models_that_can_be_merged() -> None:
    """onnx.compose makes the whole model of its parts, and each part is a valid model."""
    result = convert(build_network(), preprocess=HALF)
    parts = {name: part.model for name, part in result.parts.items()}
    for model in (result.model, *parts.values()):
        onnx.checker.check_model(model, full_check=True)
    merged = onnx.compose.merge_models(
        parts["preprocessing"],
        parts["network"],
        [("pixels", "pixels")],
        outputs=[result.outputs[0].name],
    )
    session = pytest.importorskip("onnxruntime").InferenceSession(merged.SerializeToString())
    picture = draw_picture(9, 5)
    want = run_model(result, {"image": picture})[result.outputs[0].name]
    np.testing.assert_array_equal(session.run(None, {"image": picture})[0], want)


def test_network_inside_the_model_is_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verify compares the network in the model, tensor by tensor, from any form of the model."""
    network = build_network(code="LOGISTIC")
    file, onnx_file = tmp_path / "a.tflite", tmp_path / "a.onnx"
    file.write_bytes(network)
    assert main([str(file), str(onnx_file), "--preprocess", HALF, "--verify"]) == 0
    printed = capsys.readouterr().out
    assert "right" in printed
    assert "TFLite [image_height" not in printed
    result = convert(network, preprocess=HALF)
    for each in (result, result.model, onnx_file, onnx_file.read_bytes()):
        report = verify(network, each)
        assert report.ok
        assert len(report.tensors) == 1
    empty = tmp_path / "empty.onnx"
    empty.touch()
    with pytest.raises(ConversionError):
        verify(network, empty)


def test_parts_option_writes_each_part_to_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--parts writes each part to a file of its own."""
    source, target = str(tmp_path / "a.tflite"), str(tmp_path / "a.onnx")
    Path(source).write_bytes(build_network())
    assert main([source, target, "--preprocess", HALF, "--parts"]) == 0
    printed = capsys.readouterr().out
    for name in ("preprocessing", "network"):
        assert f"a.{name}.onnx" in printed
        onnx.checker.check_model(onnx.load(tmp_path / f"a.{name}.onnx"), full_check=True)
    for words, message in (
        ([source, target, "--parts"], "--parts must be given with --preprocess"),
        ([source, "-", "--parts", "--preprocess", HALF], "--parts must be given with OUT.onnx"),
        (
            [str(tmp_path), "-o", str(tmp_path / "out"), "--parts", "--preprocess", HALF],
            "one model",
        ),
    ):
        assert main(words) == 1
        assert message in capsys.readouterr().err


def test_network_with_loop_and_input_named_image_converts() -> None:
    """The network may have nested graphs, and an input called image."""
    m = Build()
    x = m.input([1, 4, 4, 3], name="image")

    def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [op(inner, "ADD", xs[0], number(inner, 1)), op(inner, "SUB", xs[1], xs[1])]

    m.output(loop(m, [number(m, 0), x], change)[1])
    network = m.bytes()
    result = convert(network, preprocess="std=1", rename={"image": "photo"})
    assert [end.name for end in result.inputs] == ["photo"]
    result = convert(network, preprocess="std=1")
    assert verify(network, result.model).ok


def test_states_stay_inputs_and_outputs_of_the_model() -> None:
    """States stay inputs and outputs of the model, and of the network in it."""
    shape = (1, 4, 4, 3)
    m = Build()
    x = m.input(shape, name="pixels")
    initialise(m, memory=np.zeros(shape, np.float32))
    memory = handle(m)
    y = op(m, "ADD", read_variable(m, memory, shape), x)
    assign(m, memory, y)
    m.output(y)
    network = m.bytes()
    for states in ("optional", "required"):
        result = convert(network, preprocess="std=1", states=states)
        assert [end.name for end in result.inputs] == ["image"]
        assert len(result.states) == 1
        assert verify(network, result.model).ok


WRONG: tuple[tuple[Any, str], ...] = (
    ("mean=127.5,std=0", "std must be a number other than 0"),
    ("mean=nan", "mean must be a number"),
    ("mean=x", "mean must be a number"),
    ("mean=1,2", "mean must have 1 or 3 numbers"),
    ("channels=cmyk", "channels must be rgb, bgr or gray"),
    ("channels=gray,std=1", "channels must be rgb or bgr for an input of"),
    ("size=5", "size must be a height and a width"),
    ("size=0x5", "size must be a height and a width"),
    ({"size": 5}, "size must be a height and a width"),
    ("pad=3,resize=center,std=1", "pad must be 0 with resize=center, got 3"),
    ("pad=300", "pad must be an integer from 0 to 255"),
    ("meen=1", "no key meen; did you mean mean"),
    ("colour=1", "known keys are mean, std"),
    ("out.onnx", "`preprocess`=auto"),
    (3, '`preprocess` must be True or such as {"mean": ...}, got 3'),
    (True, "the mean and the std of pixels must be given"),
)


@pytest.mark.parametrize(("value", "message"), WRONG)
def test_wrong_settings_are_refused(value: object, message: str) -> None:
    with pytest.raises(ConversionError, match="preprocess") as caught:
        convert(build_network(), preprocess=value)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((1, 6), {}, "one input for pictures"),
        ((1, 6, 8, 7), {}, "one input for pictures"),
        ((2, 6, 8, 3), {}, "one input for pictures"),
        ((1, None, None, 3), {}, "--shape fixes sizes"),
        ((1, 6, 8, 3), {"batch": 2}, "without `batch`"),
    ],
)
def test_models_without_a_picture_input_are_refused(
    shape: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConversionError) as caught:
        convert(build_network(shape), preprocess="std=1", **options)
    assert message in str(caught.value)


def test_metadata_that_do_not_fit_are_refused() -> None:
    """The metadata must have a mean for each channel, and integers need a scale."""
    for notes, message in (
        (normalization([1, 2], [1]), "mean must have 1 or 3 numbers, got 2"),
        (normalization([1], [0]), "std must not be 0"),
    ):
        with pytest.raises(ConversionError) as caught:
            convert(build_network(notes=notes), preprocess=True)
        assert message in str(caught.value)
    m = build_network(dtype="int8")
    with pytest.raises(ConversionError, match="must have a scale"):
        convert(m, preprocess=HALF)
