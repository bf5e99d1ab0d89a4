"""TFLite_Detection_PostProcess equals LiteRT's kernel, also for equal scores and padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check, run_onnx, run_tflite
from tests.support.layouts import random_planner
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.layout import plan
from tflite2onnx.reader.model import read_model
from tflite2onnx.stages import convert_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor
    from tests.support.runtimes import Array

BOXES, CLASSES = 97, 5
OPTIONS: dict[str, Any] = {
    "max_detections": 11,
    "max_classes_per_detection": 1,
    "detections_per_class": 7,
    "use_regular_nms": False,
    "nms_score_threshold": 0.3,
    "nms_iou_threshold": 0.5,
    "num_classes": CLASSES,
    "y_scale": 10.0,
    "x_scale": 9.0,
    "h_scale": 5.0,
    "w_scale": 4.0,
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"max_detections": 1},
    {"max_detections": 200},  # more detections than boxes
    {"nms_score_threshold": 0.0},
    {"nms_score_threshold": 1.0},  # almost no detection
    {"nms_score_threshold": -1.0},
    {"nms_iou_threshold": 1.0},
    {"nms_iou_threshold": 1e-6},
    {"y_scale": 1, "x_scale": 1, "h_scale": 1, "w_scale": 1},
    {"num_classes": CLASSES + 1},  # no background class
]
REGULAR: list[dict[str, Any]] = [
    {"detections_per_class": 1},
    {"detections_per_class": 300, "max_detections": 400},
    {"detections_per_class": None},
    {"max_classes_per_detection": 2},  # more room than detections
]


def options(**changes: Any) -> dict[str, Any]:
    return {k: v for k, v in (OPTIONS | changes).items() if v is not None}


def anchors(boxes: int = BOXES) -> Array:
    """Return centres, heights and widths of boxes, some of which overlap."""
    generator = np.random.default_rng(1)
    places = generator.uniform(0, 1, (boxes, 2))
    return np.hstack([places, generator.uniform(0.1, 0.5, (boxes, 2))]).astype(np.float32)


def add_detection(
    m: Build, operands: Sequence[Tensor], words: dict[str, Any], *, declared: bool = True
) -> list[Tensor]:
    """Add the operator; return its boxes, classes and scores, and their number."""
    room = words["max_detections"] * words["max_classes_per_detection"]
    shapes = [[1, room, 4], [1, room], [1, room], [1]] if declared else [[]] * 4
    outputs = [m.tensor(shape) for shape in shapes]
    return m.custom("TFLite_Detection_PostProcess", operands, outputs, words)


def detector(
    m: Build,
    words: dict[str, Any],
    *,
    width: int = 4,
    boxes: int = BOXES,
    declared: bool = True,
    fixed: bool = True,
) -> list[Tensor]:
    encoded = m.input([1, boxes, width], name="boxes")
    scores = m.input([1, boxes, CLASSES + 1], name="scores")
    given = m.constant(anchors(boxes)) if fixed else m.input([boxes, 4], name="anchors")
    outputs = add_detection(m, [encoded, scores, given], words, declared=declared)
    m.output(*outputs)
    return outputs


def draw_detections(seed: int, width: int = 4, boxes: int = BOXES, levels: int = 31) -> list[Array]:
    """Return encoded boxes, and scores with many equal values."""
    generator = np.random.default_rng(seed)
    encoded = generator.normal(0, 1, (1, boxes, width))
    scores = generator.integers(0, levels, (1, boxes, CLASSES + 1)).astype(np.float32)
    return [encoded.astype(np.float32), scores / np.float32(levels)]


def check_detections(m: Build, inputs: list[Array], words: dict[str, Any]) -> int:
    """Compare detections with LiteRT's, check that all other elements are 0; return their number.

    LiteRT does not write the other elements.
    """
    want = run_tflite(m.bytes(), inputs)
    found, classes = int(want[3][0]), words["max_classes_per_detection"]
    if words["use_regular_nms"]:
        classes = 1
    for planner in (plan, random_planner(0), random_planner(1)):
        result = convert_model(read_model(m.bytes()), planner=planner)
        feeds = {
            end.name: each.transpose(end.order)
            for end, each in zip(result.inputs, inputs, strict=True)
        }
        for optimize in (True, False):
            stored = run_onnx(result.model, feeds, optimize=optimize)
            pairs = zip(result.outputs, stored, strict=True)
            have = [x.transpose(np.argsort(end.order)) for end, x in pairs]
            assert [x.shape for x in have] == [x.shape for x in want]
            np.testing.assert_array_equal(have[3], want[3])
            for a, b in zip(want[:3], have[:3], strict=True):
                shape = a.shape[1] // classes, classes, -1
                check_padding(a.reshape(shape), b.reshape(shape), found)
    return found


def check_padding(want: Array, have: Array, found: int) -> None:
    np.testing.assert_array_equal(have[:found, :CLASSES], want[:found, :CLASSES])
    assert not have[found:].any()
    assert not have[:, CLASSES:].any()


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_all_options_equal_litert(changes: dict[str, Any], *, regular: bool) -> None:
    m, words = Build(), options(use_regular_nms=regular, **changes)
    detector(m, words)
    for seed in (0, 1):
        check_detections(m, draw_detections(seed), words)


@pytest.mark.parametrize("changes", REGULAR, ids=str)
def test_options_of_regular_suppression_equal_litert(changes: dict[str, Any]) -> None:
    m, words = Build(), options(use_regular_nms=True, **changes)
    detector(m, words)
    check_detections(m, draw_detections(0), words)


@pytest.mark.parametrize(("regular", "found"), [(False, 11), (True, 7)])
def test_a_score_at_the_threshold_counts(found: int, *, regular: bool) -> None:
    m, words = Build(), options(use_regular_nms=regular, nms_score_threshold=0.5)
    detector(m, words)
    boxes, scores = draw_detections(0)
    scores[:] = np.float32(0.25)
    scores[0, ::3, 2] = np.float32(0.5)
    assert check_detections(m, [boxes, scores], words) == found


@pytest.mark.parametrize("classes", [2, 3, CLASSES, CLASSES + 2])
def test_box_may_have_several_classes(classes: int) -> None:
    """Output elements that the kernel does not write are 0."""
    m = Build()
    words = options(
        max_classes_per_detection=classes,
        max_detections=53,
        nms_iou_threshold=0.01,
        nms_score_threshold=0.8,
    )
    detector(m, words)
    boxes, scores = draw_detections(0)
    # The kernel's order of equal classes of one box is arbitrary.
    apart = np.float32(1e-3) * np.random.default_rng(0).random(scores.shape, np.float32)
    assert 0 < check_detections(m, [boxes, scores + apart], words) < 53


def test_key_points_after_the_boxes_are_not_read() -> None:
    m = Build()
    detector(m, options(), width=7)
    check(m.bytes(), inputs=draw_detections(0, width=7), tolerance=0)


@pytest.mark.parametrize("classes", [CLASSES + 1, None])
def test_number_of_key_points_may_be_dynamic(classes: int | None) -> None:
    """The declared size of a dynamic axis may be less than the number of elements that are read."""
    m = Build()
    scores = m.input([1, BOXES, classes], name="scores")
    encoded = m.input([1, BOXES, None], name="boxes")
    m.output(*add_detection(m, [encoded, scores, m.constant(anchors())], options()))
    assert check_detections(m, draw_detections(3, 6)[::-1], options()) == 11


def test_single_box_is_detected() -> None:
    m, words = Build(), options(nms_score_threshold=0.0)
    detector(m, words, boxes=1)
    assert check_detections(m, draw_detections(0, boxes=1), words) == 1


def test_single_class_without_background_is_detected() -> None:
    m, words = Build(), options(num_classes=1)
    operands = [m.input([1, BOXES, 4], name="boxes"), m.input([1, BOXES, 1], name="scores")]
    m.output(*add_detection(m, [*operands, m.constant(anchors())], words))
    boxes, scores = draw_detections(0)
    assert check_detections(m, [boxes, scores[..., :1]], words) == 11


def test_computed_anchors_equal_litert() -> None:
    m = Build()
    detector(m, options(use_regular_nms=True), fixed=False)
    check(m.bytes(), inputs=[*draw_detections(0), anchors()], tolerance=0)


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("quantization", ["qdq", "float"])
def test_quantized_detections_equal_litert(quantization: str, *, regular: bool) -> None:
    m = Build()
    words = options(use_regular_nms=regular)
    stored = np.clip(np.rint(anchors() * 200), 0, 255).astype(np.uint8)
    encoded = m.input([1, BOXES, 4], dtype="uint8", scale=0.07, zero_point=131)
    scores = m.input([1, BOXES, CLASSES + 1], dtype="uint8", scale=1 / 256, zero_point=3)
    given = m.constant(stored, scale=1 / 200, zero_point=0)
    m.output(*add_detection(m, [encoded, scores, given], words))
    if quantization == "qdq":
        check(m.bytes(), tolerance=0)
    else:
        generator = np.random.default_rng(0)
        feeds: list[Array] = [
            generator.integers(0, 256, t.shape, np.uint8) for t in (encoded, scores)
        ]
        scales = [(0.07, 131), (1 / 256, 3)]
        real = [
            np.float32(scale) * (x.astype(np.float32) - np.float32(zero))
            for x, (scale, zero) in zip(feeds, scales, strict=True)
        ]
        model = convert(m.bytes(), quantization="float").model
        names = [each.name for each in model.graph.input]
        have = run_onnx(model, dict(zip(names, real, strict=True)))
        for a, b in zip(run_tflite(m.bytes(), feeds), have, strict=True):
            np.testing.assert_allclose(b, a, rtol=0, atol=1e-6)


def test_scores_after_logistic_equal_litert() -> None:
    """The Transpose of the scores is placed before LOGISTIC, and agrees with LiteRT."""
    m = Build()
    x = m.input([1, BOXES, CLASSES + 1])
    (scores,) = m.op("LOGISTIC", [x], [x.shape])
    encoded, given = m.input([1, BOXES, 4]), m.constant(anchors())
    m.output(*add_detection(m, [encoded, scores, given], options()))
    check(m.bytes(), tolerance=1e-6)


def test_missing_output_shapes_are_computed() -> None:
    """Output shapes are computed if the file has none, as converters leave custom operators."""
    m = Build()
    boxes, *_ = detector(m, options(), declared=False)
    m.output(*m.op("ABS", [boxes], [[1, 11, 4]]))
    result = convert(m.bytes())
    inputs = draw_detections(0)
    feeds = {"boxes": inputs[0], "scores": inputs[1]}
    want = run_tflite(m.bytes(), inputs)
    for a, b in zip(want, run_onnx(result.model, feeds), strict=True):
        np.testing.assert_array_equal(b, a)
    assert [end.onnx_shape for end in result.outputs[:2]] == [(1, 11, 4), (1, 11)]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_detections": 0}, "must be positive, got 0 and 1"),
    ({"max_detections": None}, "must be positive, got 0 and 1"),  # the option is missing
    ({"max_classes_per_detection": -1}, "must be positive, got 11 and -1"),
    ({"max_detections": 1 << 30}, "a constant must have"),
    ({"nms_iou_threshold": 0.0}, "at most 1, got 0.0"),
    ({"nms_iou_threshold": 1.5}, "at most 1, got 1.5"),
    ({"nms_iou_threshold": float("nan")}, "at most 1, got nan"),
    ({"num_classes": 4}, "the 4 classes (num_classes)"),
    ({"num_classes": 0}, "the 0 classes (num_classes)"),
    (
        {"use_regular_nms": True, "detections_per_class": 0},
        "detections_per_class must be positive, got 0",
    ),
    ({"max_detections": "many"}, "contradict each other"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=str)
def test_detection_refuses_invalid_options(changes: dict[str, Any], reason: str) -> None:
    m = Build()
    encoded, scores = m.input([1, BOXES, 4]), m.input([1, BOXES, CLASSES + 1])
    operands = [encoded, scores, m.constant(anchors())]
    outputs = [m.tensor(shape) for shape in ([1, 11, 4], [1, 11], [1, 11], [1])]
    given = {k: v for k, v in (OPTIONS | changes).items() if v is not None}
    m.output(*m.custom("TFLite_Detection_PostProcess", operands, outputs, given))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("encoded", "dtype", "number", "reason"),
    [
        ([1, BOXES, 3], "float32", BOXES, r"float32\[1, 97, 3\]"),
        ([2, BOXES, 4], "float32", BOXES, r"float32\[2, 97, 4\]"),
        ([1, BOXES, 4], "float32", 96, r"float32\[96, 4\]"),
        ([1, 0, 4], "float32", 0, r"float32\[0, 4\]"),
        (
            [BOXES, 4],
            "float32",
            BOXES,
            r"boxes, scores and anchors must be .* got float32\[97, 4\]",
        ),
        ([1, BOXES, 4], "int8", BOXES, "must be float32 or quantized uint8, got int8"),
    ],
)
def test_detection_refuses_unsupported_operands(
    encoded: list[int], dtype: str, number: int, reason: str
) -> None:
    m = Build()
    operands = [
        m.input(encoded, dtype=dtype),
        m.input([1, number, CLASSES + 1]),
        m.constant(anchors(number)),
    ]
    outputs = [m.tensor(shape) for shape in ([1, 11, 4], [1, 11], [1, 11], [1])]
    m.output(*m.custom("TFLite_Detection_PostProcess", operands, outputs, OPTIONS))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


def test_boxes_of_a_dynamic_number_have_that_of_the_anchors() -> None:
    m = Build()
    operands = [m.input([1, None, 4]), m.input([1, None, CLASSES + 1]), m.constant(anchors())]
    outputs = [m.tensor(shape) for shape in ([1, 11, 4], [1, 11], [1, 11], [1])]
    m.output(*m.custom("TFLite_Detection_PostProcess", operands, outputs, OPTIONS))
    shapes = [end.onnx_shape for end in convert(m.bytes()).inputs]
    assert shapes == [(1, BOXES, 4), (1, BOXES, CLASSES + 1)]


def test_refuses_wrong_numbers_of_outputs() -> None:
    m = Build()
    operands = [m.input([1, BOXES, 4]), m.input([1, BOXES, 6]), m.constant(anchors())]
    m.output(*m.custom("TFLite_Detection_PostProcess", operands, [[1, 11, 4]], OPTIONS))
    with pytest.raises(ConversionError, match="must have 4 outputs, got 1"):
        convert(m.bytes())
