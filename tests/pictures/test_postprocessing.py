"""pictures/: boxes, scores, labels and key points as the outputs of a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.pictures.support import (
    PICTURES,
    build_network,
    build_outputs,
    decode_yolo,
    draw_faces,
    draw_picture,
    normalization,
    pack_files,
    run_model,
    run_outputs,
    suppress,
    to_pixels,
)
from tests.support import Build
from tests.support.metadata import pack_metadata
from tflite2onnx import ConversionError, convert, verify
from tflite2onnx.cli import main
from tflite2onnx.pictures.anchors import AnchorOptions, make_anchors
from tflite2onnx.pictures.mediapipe import DETECTORS

if TYPE_CHECKING:
    from pathlib import Path

SSD = AnchorOptions(
    (64, 96), (16, 32, 64, 128, 256, 512), (0.2, 0.95), (1, 2, 0.5, 3, 0.3333), 1, False, True
)


@pytest.mark.parametrize(("form", "iou"), [("yolov8", 0.7), ("yolov5", 0.45)])
def test_yolo_boxes_equal_the_numpy_reference(form: str, iou: float) -> None:
    """Boxes equal a reference in numpy, and labels come from the file that Ultralytics packs."""
    random = np.random.default_rng(1)
    n = (64 * 64) // 64 + (64 * 64) // 256 + (64 * 64) // 1024
    n *= 3 if form == "yolov5" else 1
    columns = random.uniform(0, 1, (4 + (form == "yolov5") + 3, n)).astype(np.float32)
    columns[2:4] = columns[2:4] / 2 + 0.2
    columns[4:] **= 3
    output = columns[None] if form == "yolov8" else columns.T[None]
    names = {"names": {"0": "cat", "1": "dog", "2": "bird"}, "task": "detect"}
    files = {"metadata.json": json.dumps(names).encode()}
    if form == "yolov5":
        files = {"temp_meta.txt": str({**names, "names": {0: "cat", 1: "dog", 2: "bird"}}).encode()}
    network = build_outputs((64, 64), [output.shape], files)
    result = convert(network, preprocess=True, postprocess="max=20")
    in_pixels = convert(network, preprocess=True, postprocess="max=20,coordinates=pixels")
    wide = columns.copy()
    wide[:4] *= 64
    picture = draw_picture(*PICTURES[0])
    want = run_outputs(result, [output], picture)["boxes"]
    got = run_outputs(in_pixels, [wide[None] if form == "yolov8" else wide.T[None]], picture)
    np.testing.assert_allclose(got["boxes"], want, atol=1e-3)
    boxes, scores = decode_yolo(output.astype(float), form)
    for height, width in PICTURES:
        picture = draw_picture(height, width)
        corners = to_pixels(boxes.reshape(-1, 2, 2), picture, centred=False)
        pixels = np.clip(corners, 0, (width, height)).reshape(-1, 4)
        assert (pixels != corners.reshape(-1, 4)).any()
        kept = suppress(boxes, scores, 0.25, iou, 20)
        assert len(kept) == 20
        got = run_outputs(result, [output], picture)
        np.testing.assert_allclose(got["boxes"], pixels[[i for i, _ in kept]], atol=1e-3)
        np.testing.assert_array_equal(got["classes"], [c for _, c in kept])
        np.testing.assert_allclose(got["scores"], [scores[c, i] for i, c in kept], atol=1e-5)
        assert got["labels"].tolist() == [("cat", "dog", "bird")[c] for _, c in kept]


@pytest.mark.parametrize("how", ["sigmoid", "softmax", "none"])
def test_ssd_boxes_equal_the_numpy_reference(how: str) -> None:
    """Encodings of boxes are decoded with the anchors of MediaPipe; class 0 is the background."""
    anchors = make_anchors(SSD)
    random = np.random.default_rng(2)
    shape = (1, len(anchors), 4)
    raw = random.normal(0, 1, shape).astype(np.float32)
    logits = random.uniform(0, 1, (*shape[:2], 3)).astype(np.float32)
    network = build_outputs(SSD.size, [logits.shape, raw.shape])
    y, x, h, w = (raw[0] / [10, 10, 5, 5]).T
    middle = np.stack([x, y], 1) * anchors[:, 2:] + anchors[:, :2]
    half = np.exp(np.stack([w, h], 1)) * anchors[:, 2:] / 2
    boxes = np.concatenate([middle - half, middle + half], 1)
    share = np.exp(logits[0].astype(float))
    share /= share.sum(1, keepdims=True)
    every = {"sigmoid": 1 / (1 + np.exp(-logits[0].astype(float))), "softmax": share}
    scores = every.get(how, logits[0].astype(float))[:, 1:].T
    threshold = float(np.quantile(scores, 0.8))
    settings = {"scores": how, "threshold": threshold, "iou": 0.5}
    result = convert(network, preprocess="std=1", postprocess=settings)
    kept = suppress(boxes, scores, threshold, 0.5, 100)
    got = run_outputs(result, [logits, raw], draw_picture(30, 50))
    want = boxes[[i for i, _ in kept]] * [50, 30, 50, 30]
    np.testing.assert_array_equal(got["classes"], [c for _, c in kept])
    np.testing.assert_allclose(got["boxes"], want, atol=1e-3)


def test_ssd_scores_get_only_one_sigmoid() -> None:
    """Scores that the network itself makes with a LOGISTIC are not changed again."""
    shape = (1, len(make_anchors(SSD)), 4)
    for last, count in (("LOGISTIC", 0), ("LOGISTIC RESHAPE", 0), ("RESHAPE", 1), ("NEG", 1)):
        network = build_outputs(SSD.size, [shape, (*shape[:2], 3)], last=last)
        after = convert(network, postprocess=True).parts["postprocessing"].model
        kinds = [node.op_type for node in after.graph.node]
        assert kinds.count("Sigmoid") == count


def test_anchor_counts_equal_those_of_mediapipe() -> None:
    """The numbers of anchors equal those of the published graphs; scales follow the options."""
    counts = [DETECTORS[i].boxes for i in range(len(DETECTORS))]
    options = [
        AnchorOptions((each.size,) * 2, each.strides, interpolated=each.interpolated)
        for each in DETECTORS
    ]
    assert [len(make_anchors(each)) for each in options] == counts
    whole = SSD._replace(size=(300, 300))
    anchors = make_anchors(whole)
    assert len(anchors) == 1917
    np.testing.assert_allclose(anchors[0], [0.5 / 19, 0.5 / 19, 0.1, 0.1], rtol=1e-6)
    root = np.sqrt(0.95)
    np.testing.assert_allclose(anchors[-1], [0.5, 0.5, root, root], rtol=1e-6)
    single = AnchorOptions((8, 8), (8,), (0.2, 0.4), interpolated=0, fixed=False)
    np.testing.assert_allclose(make_anchors(single), [[0.5, 0.5, 0.3, 0.3]], rtol=1e-6)


def build_detection_operator(labels: bytes = b"") -> bytes:
    """Return a network with TFLite_Detection_PostProcess, its outputs in another sequence."""
    m = Build()
    m.input((1, 8, 8, 3), name="pixels")
    boxes = m.input((1, 6, 4), name="raw_0")
    scores = m.input((1, 6, 3), name="raw_1")
    anchors = m.constant(np.full((6, 4), 0.5, np.float32))
    outputs = [
        m.tensor(s, name=f"output_{i}") for i, s in enumerate(((1, 4, 4), (1, 4), (1, 4), (1,)))
    ]
    options = {
        "max_detections": 4,
        "max_classes_per_detection": 1,
        "num_classes": 2,
        "nms_score_threshold": 0.1,
        "nms_iou_threshold": 0.5,
        **{f"{axis}_scale": 1.0 for axis in "xywh"},
    }
    m.custom("TFLite_Detection_PostProcess", [boxes, scores, anchors], outputs, options)
    m.output(*(outputs[i] for i in (2, 0, 3, 1)))
    if labels:
        file = {"name": "labels.txt", "type": 3}
        graph = {"output_tensor_metadata": [{"associated_files": [file]}]}
        m.metadata("TFLITE_METADATA", pack_metadata({"subgraph_metadata": [graph]}))
    return m.bytes() + pack_files({"labels.txt": labels} if labels else {})


def test_detections_become_pixels_above_the_threshold() -> None:
    """Boxes become pixels of the picture; boxes below the threshold are left out."""
    network = build_detection_operator(b"cat\ndog\n")
    boxes = np.zeros((1, 6, 4), np.float32)
    boxes[0, :, 0] = np.arange(6) * 2
    boxes[0, :, 2:] = np.log(0.4)
    scores = np.zeros((1, 6, 3), np.float32)
    scores[0, :, 1] = [0.2, 0.9, 0.3, 0.1, 0.8, 0.05]
    scores[0, 4, 2] = 0.85
    feeds = {"raw_0": boxes, "raw_1": scores}
    result = convert(network, preprocess="std=1", postprocess="threshold=0.25")
    got = run_model(result, {"image": draw_picture(10, 20), **feeds})
    np.testing.assert_allclose(got["scores"], [0.9, 0.85, 0.3])
    assert got["labels"].tolist() == ["cat", "dog", "cat"]
    np.testing.assert_allclose(got["boxes"][0], [8, 14, 12, 16], atol=1e-4)
    bare = convert(network, postprocess="labels=none")
    assert [end.name for end in bare.outputs] == ["boxes", "scores", "classes"]


def test_best_classes_of_a_classifier_come_first(tmp_path: Path) -> None:
    """The best classes come first, with labels of the metadata or of a file."""
    logits = np.array([[0.5, 3, -1, 2, 0, 1]], np.float32)
    network = build_outputs(None, [logits.shape])
    labels = tmp_path / "labels.txt"
    labels.write_text("a\nb\nc\nd\ne\nf\n")
    settings: dict[str, Any] = {"decoder": "scores", "scores": "softmax"}
    settings |= {"labels": str(labels), "max": 3}
    got = run_outputs(convert(network, postprocess=settings), [logits])
    want = np.exp(logits[0]) / np.exp(logits[0]).sum()
    assert got["labels"].tolist() == ["b", "d", "f"]
    np.testing.assert_array_equal(got["classes"], [1, 3, 5])
    np.testing.assert_allclose(got["scores"], want[[1, 3, 5]], rtol=1e-5)
    given = {"labels": ["u", "v", "w", "x", "y", "z"], "threshold": 0.8}
    got = run_outputs(
        convert(network, postprocess={**settings, "scores": "sigmoid", **given}), [logits]
    )
    assert got["labels"].tolist() == ["v", "x"]
    plain = run_outputs(convert(network, postprocess="decoder=scores"), [logits])
    np.testing.assert_array_equal(plain["scores"], [3, 2, 1, 0.5, 0])
    assert "labels" not in plain


def test_quantized_scores_are_read_in_any_layout() -> None:
    """Integers are read as numbers, and outputs in any order as in TFLite's."""
    network = build_network((1, 1, 1, 5), dtype="int8", scale=0.5, zero_point=-3)
    result = convert(network, postprocess="max=2")
    stored = np.array([5, 40, -7, 9, 20], np.int8).reshape(1, 1, 1, 5)
    got = run_model(result, {"pixels": stored.reshape(result.inputs[0].onnx_shape)})
    np.testing.assert_array_equal(got["classes"], [1, 4])
    np.testing.assert_allclose(got["scores"], [21.5, 11.5])
    layouts = {"pixels": ("NHWC", "NHWC"), "tensor_1": ("NHWC", "NCHW")}
    moved = convert(build_network((1, 1, 1, 5)), layouts=layouts, postprocess=True)
    numbers = np.array([5, 4, 3, 2, 1], np.float32).reshape(1, 1, 1, 5)
    assert run_model(moved, {"pixels": numbers})["classes"].tolist() == [4, 3, 2, 1, 0]


def test_parts_are_merged_and_verified() -> None:
    """onnx.compose makes the whole model of three parts; verify compares the network."""
    detector = DETECTORS[0]
    raw, logits = draw_faces(detector)
    network = build_outputs((128, 128), [raw.shape, logits.shape])
    result = convert(network, preprocess=True, postprocess=True)
    parts = {name: part.model for name, part in result.parts.items()}
    for model in (result.model, *parts.values()):
        onnx.checker.check_model(model, full_check=True)
    prepared = onnx.compose.add_prefix(parts["preprocessing"], "before/", rename_inputs=False)
    start = onnx.compose.merge_models(
        prepared,
        parts["network"],
        [("before/pixels", "pixels")],
        outputs=["before/image_size", "output_0", "output_1"],
    )
    merged = onnx.compose.merge_models(
        start,
        onnx.compose.add_prefix(parts["postprocessing"], "after/", rename_outputs=False),
        [
            (name, f"after/{name.rpartition('/')[2]}")
            for name in ("before/image_size", "output_0", "output_1")
        ],
    )
    session = onnxruntime.InferenceSession(merged.SerializeToString())
    picture = draw_picture(33, 64)
    feeds = {"image": picture, "raw_0": -raw, "raw_1": -logits}
    want = run_model(result, feeds)
    for name, array in want.items():
        np.testing.assert_array_equal(session.run([name], feeds)[0], array)
    assert verify(network, result).ok
    report = verify(network, result.model)
    assert report.ok
    assert len(report.outputs) == 2


WRONG: tuple[tuple[Any, str], ...] = (
    ("decoder=yolov8", "decoder=yolov8 does not fit outputs of [1, 6, 8, 3]"),
    ("decoder=yolo", "decoder must be mediapipe, yolov5, yolov8, ssd, detections or scores"),
    (True, "no decoder is known for the outputs"),
    ("threshold=2", "threshold must be a number from 0 to 1"),
    ("max=0", "max must be a positive integer"),
    ({"labels": [1]}, "labels must be a file with a label on each line"),
    ({"labels": 1}, "labels must be a file with a label on each line"),
)


@pytest.mark.parametrize(("value", "message"), WRONG)
def test_wrong_settings_are_refused(value: object, message: str) -> None:
    with pytest.raises(ConversionError) as caught:
        convert(build_network(), postprocess=value)  # type: ignore[arg-type]
    assert f"`postprocess`: {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"units": "pixels"}, "units=pixels must be given with `preprocess`"),
        ({"labels": ["a"]}, "one for each of 6 classes, got 1"),
        ({"labels": "/none/labels.txt"}, "cannot read /none/labels.txt"),
    ],
)
def test_settings_that_contradict_the_network_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConversionError) as caught:
        convert(build_outputs(None, [(1, 6)]), postprocess={"decoder": "scores", **settings})
    assert message in str(caught.value)


@pytest.mark.parametrize("opset", [14, 18, 21])
def test_boxes_are_equal_in_all_opsets(opset: int) -> None:
    """The boxes are equal, although the opsets need different nodes."""
    detector = DETECTORS[0]
    raw, logits = draw_faces(detector)
    network = build_outputs((128, 128), [raw.shape, logits.shape])
    settings: dict[str, Any] = {"preprocess": True, "postprocess": True}
    picture = draw_picture(20, 31)
    want = run_outputs(convert(network, **settings), [raw, logits], picture)
    result = convert(network, opset=opset, **settings)
    assert result.opset == opset
    onnx.checker.check_model(result.model, full_check=True)
    got = run_outputs(result, [raw, logits], picture)
    np.testing.assert_allclose(got["boxes"], want["boxes"], atol=1e-3)


def test_an_old_opset_is_refused() -> None:
    with pytest.raises(ConversionError, match="`opset` must be at least 14"):
        convert(build_network(), preprocess="std=1", opset=13)


def test_boxes_and_scores_are_float32_in_half_precision() -> None:
    """Boxes and scores are float32, also if the outputs of the network are float16."""
    network = build_network((1, 1, 1, 3))
    for ends in (False, True):
        options: dict[str, Any] = {"float16": True, "float16_io": ends}
        result = convert(network, postprocess=True, **options)
        pixels = np.array([1, 3, 2]).reshape(result.inputs[0].onnx_shape)
        got = run_model(result, {"pixels": pixels.astype(result.inputs[0].dtype)})
        assert got["scores"].dtype == np.float32
        np.testing.assert_array_equal(got["scores"], [-1, -2, -3])


def test_labels_and_threshold_come_from_the_metadata() -> None:
    """A classifier of pictures has the labels and the least score of its metadata."""
    unit = ("ScoreThresholdingOptions", {"global_score_threshold": 1.5})
    output = {
        "associated_files": [{"name": "labels.txt", "type": 2}],
        "process_units": [{"options": unit}],
    }
    metadata = pack_metadata({"subgraph_metadata": [{"output_tensor_metadata": [output]}]})
    files = {"labels.txt": b"a\nb\nc\n"}
    network = build_outputs((4, 4), [(1, 3)], files, metadata=metadata)
    scores = np.array([[1, 2, 3]], np.float32)
    result = convert(network, preprocess="std=1", postprocess=True)
    assert run_outputs(result, [scores], draw_picture(5, 6))["labels"].tolist() == ["c", "b"]
    result = convert(network, preprocess="std=1", postprocess="threshold=0.5")
    assert len(run_outputs(result, [scores], draw_picture(5, 6))["labels"]) == 3


def test_a_batch_is_refused() -> None:
    with pytest.raises(ConversionError, match="`postprocess` must be given without `batch`"):
        convert(build_outputs(None, [(1, 6)]), postprocess=True, batch=2)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"metadata.json": b'{"names": {"0": "a"}, "task": "obb"}'},
            "task of YOLO must be detect, got obb",
        ),
        ({"metadata.json": b'{"names": [}'}, ""),
        ({"temp_meta.txt": b"names of [classes"}, ""),
        ({"temp_meta.txt": b"['names']"}, ""),
    ],
)
def test_ultralytics_networks_without_boxes_are_refused(
    files: dict[str, bytes], message: str
) -> None:
    """Networks for segments, poses and rotated boxes are refused; damaged files have no labels."""
    network = build_outputs((32, 32), [(1, 6, 21)], files)
    if message:
        with pytest.raises(ConversionError, match=message):
            convert(network, preprocess=True, postprocess=True)
        assert convert(network, preprocess=True).inputs[0].name == "image"
    else:
        result = convert(network, preprocess=True, postprocess=True)
        assert [end.name for end in result.outputs] == ["boxes", "scores", "classes"]


def test_bundle_models_without_boxes_convert_without_decoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Models of a bundle that take no pictures or make no boxes get no preprocessing or decoder."""
    detector = DETECTORS[0]
    shapes = [(1, detector.boxes, detector.numbers), (1, detector.boxes, 1)]
    files = {
        "detector.tflite": build_outputs((128, 128), shapes),
        "mesh.tflite": build_network(notes=normalization([0], [255])),
        "shapes.tflite": build_outputs(None, [(1, 2, 3)]),
    }
    # MediaPipe's bundles may begin with zeros.
    (tmp_path / "face.task").write_bytes(b"\0\0" + pack_files(files))
    words = [str(tmp_path / "face.task"), str(tmp_path / "out"), "--preprocess", "--postprocess"]
    assert main(words) == 0
    printed = capsys.readouterr().err
    assert "shapes.tflite is converted without --preprocess" in printed
    assert "mesh.tflite is converted without --postprocess" in printed
    ends = {
        path.name: [end.name for end in (*model.graph.input, *model.graph.output)]
        for path in (tmp_path / "out").glob("*.onnx")
        for model in [onnx.load(path)]
    }
    assert ends == {
        "detector.onnx": ["image", "raw_0", "raw_1", "boxes", "scores", "keypoints"],
        "mesh.onnx": ["image", "tensor_1"],
        "shapes.onnx": ["raw_0", "output_0"],
    }
