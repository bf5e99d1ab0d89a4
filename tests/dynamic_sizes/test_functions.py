"""Functions as TensorFlow writes them, whose files declare 1 for unknown sizes, against LiteRT.

`scripts/make_dynamic_functions.py` makes the files.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from tests.dynamic_sizes.test_networks import compare_sizes
from tests.support import Build
from tests.support.runtimes import Array
from tflite2onnx import ConversionError, convert

MODELS = Path(__file__).parent / "functions"


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int32)


CASES: dict[str, list[list[Array]]] = {
    "stft": [[draw(1, 100)], [draw(3, 200)], [draw(2, 40)]],
    "stft_of_one_signal": [[draw(100)], [draw(45)], [draw(333)]],
    "padded_stft": [[draw(1, 100)], [draw(1, 39)], [draw(1, 7)]],
    "flat_stft": [[draw(1, 100)], [draw(3, 200)], [draw(2, 40)]],
    "rfft": [[draw(1, 64)], [draw(3, 90)], [draw(2, 20)]],
    "reshape": [[draw(2, 24), ints(1, *shape)] for shape in ((3, 4, 4), (48, 1, 1), (2, -1, 3))],
    "flatten": [[draw(2, 2, 3, 1)], [draw(1, 4, 3, 2)], [draw(5, 1, 2, 6)]],
    "concat": [[draw(2, 16, 10, 1), np.array(n, np.int32)] for n in (0, 1, 2)],
    "maximum": [[draw(1, 6, 3)], [draw(2, 4, 3)], [draw(5, 2, 3)]],
    "mean": [[draw(1, 7)], [draw(2, 3)], [draw(4, 9)]],
    "batch_to_space": [[draw(4, 4, 6, 3)], [draw(8, 2, 2, 3)], [draw(12, 1, 3, 3)]],
}


@pytest.mark.parametrize("name", CASES)
def test_functions_equal_litert_at_all_sizes(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data = (MODELS / f"{name}.tflite").read_bytes()
    with caplog.at_level(logging.WARNING):
        result = convert(data)
    assert not caplog.records  # no axis is fixed
    compare_sizes(data, result, CASES[name])


def test_every_model_file_is_tested() -> None:
    assert {path.stem for path in MODELS.iterdir()} == CASES.keys()


def test_computed_shapes_declared_as_1_equal_litert() -> None:
    """RESHAPE by a computed shape, SQUEEZE and SEGMENT_SUM, all declared as [1]."""
    m = Build()
    x, shape = m.input([4, 12]), m.input([4], dtype="int32")
    (y,) = m.op("RESHAPE", [x, shape], [m.tensor([1])])
    (z,) = m.op("SQUEEZE", [y], [m.tensor([1])], squeeze_dims=[0])
    m.output(y, z, *m.op("SEGMENT_SUM", [z, m.constant(ints(0, 0, 1))], [m.tensor([1])]))
    cases = [[draw(4, 12), ints(1, 3, *rest)] for rest in ((4, 4), (16, 1), (2, -1))]
    compare_sizes(m.bytes(), convert(m.bytes()), cases)


def test_squeeze_of_unknown_axes_is_refused() -> None:
    m = Build()
    x, shape = m.input([4, 12]), m.input([4], dtype="int32")
    (y,) = m.op("RESHAPE", [x, shape], [m.tensor([1])])
    m.output(*m.op("SQUEEZE", [y], [m.tensor([1])]))
    with pytest.raises(ConversionError, match="it must list the axes to remove"):
        convert(m.bytes())


@pytest.mark.parametrize("axis", [0, 1, -3])
def test_slices_that_the_file_declares_too_small_equal_litert(axis: int) -> None:
    m = Build()
    x, n = m.input([2, 16, 10, 1]), m.input([1], dtype="int32")
    ends = [m.constant(ints(2)), n, m.constant(ints(10, 1))]
    starts = [m.constant(ints(0)), n, m.constant(ints(0, 0))]
    (end,) = m.op("CONCATENATION", ends, [[4]], axis=0)
    (start,) = m.op("CONCATENATION", starts, [[4]], axis=0)
    first, last, step = (m.constant(ints(*each)) for each in ([0] * 4, [2, 16, 10, 1], [1] * 4))
    (head,) = m.op("STRIDED_SLICE", [x, first, end, step], [[1, 16, 10, 1]])
    (tail,) = m.op("STRIDED_SLICE", [x, start, last, step], [[1, 16, 10, 1]])
    m.output(*m.op("CONCATENATION", [head, tail], [[1, 16, 10, 1]], axis=axis))
    cases = [[draw(2, 16, 10, 1), ints(n)] for n in ((8,) if axis == 0 else (1, 5, 8))]
    compare_sizes(m.bytes(), convert(m.bytes()), cases)


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("background", [0, 1])
def test_detections_of_unknown_sizes_equal_litert(*, regular: bool, background: int) -> None:
    """The batch must be 1 and anchors have 4 numbers; all remaining sizes are dynamic."""
    m = Build()
    inputs = [m.input([None] * rank) for rank in (3, 3, 2)]
    options = {
        "max_detections": 6, "max_classes_per_detection": 1, "num_classes": 5,
        "use_regular_nms": regular, "nms_score_threshold": 0.3, "nms_iou_threshold": 0.5,
        "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0, "detections_per_class": 3,
    }  # fmt: skip
    made = [m.tensor([None] * rank) for rank in (3, 2, 2, 1)]
    m.output(*m.custom("TFLite_Detection_PostProcess", inputs, made, options))
    generator = np.random.default_rng(1)
    cases = [
        [
            generator.random((1, count, 4), np.float32),
            generator.random((1, count, 5 + background), np.float32),
            generator.random((count, 4), np.float32),
        ]
        for count in (20, 9, 50)
    ]
    result = convert(m.bytes())
    assert [sorted(end.symbols) for end in result.inputs] == [[1, 2], [1, 2], [0]]
    compare_sizes(m.bytes(), result, cases)


def test_a_size_that_the_user_names_stays_dynamic() -> None:
    """Filters of 3 channels fix an unknown number of channels, but not one that has a name."""
    m = Build()
    x, w = m.input([None] * 4, name="x"), m.constant(np.ones((4, 3, 3, 3), np.float32))
    bias = m.constant(np.zeros(4, np.float32))
    y = m.tensor([None] * 4)
    m.output(*m.op("CONV_2D", [x, w, bias], [y], stride_h=1, stride_w=1, padding="SAME"))
    result = convert(m.bytes())
    assert sorted(result.inputs[0].symbols) == [0, 1, 2]
    compare_sizes(m.bytes(), result, [[draw(1, 5, 6, 3)], [draw(2, 9, 4, 3)]])
    with pytest.raises(ConversionError, match="the size channels cannot be dynamic"):
        convert(m.bytes(), shapes={"x": ["n", "h", "w", "channels"]})


@pytest.mark.parametrize("sizes", [(None,) * 4, (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize("source", ["input", "CAST", "RESHAPE", "SLICE", "PADV2"])
def test_shape_of_unknown_length_has_the_declared_rank(
    source: str, sizes: tuple[int | None, ...]
) -> None:
    """The length is the size of an input, or computed; SQUEEZE and SEGMENT_SUM follow."""
    m = Build()
    x = m.input([4, 12])
    computed = source in ("SLICE", "PADV2")
    given = m.input([4 if computed else None], dtype="int64" if source == "CAST" else "int32")
    count = m.input([1], dtype="int32") if computed else None
    shape = m.tensor([None], dtype="int32")
    if source == "CAST":
        m.op("CAST", [given], [shape])
    elif source == "RESHAPE":
        m.op("RESHAPE", [given, m.constant([-1])], [shape])
    elif source == "SLICE":
        m.op("SLICE", [given, m.constant([0]), count], [shape])
    elif source == "PADV2":
        (pair,) = m.op("CONCATENATION", [m.constant([0]), count], [[2]], dtype="int32", axis=0)
        (pads,) = m.op("RESHAPE", [pair, m.constant([1, 2])], [[1, 2]], dtype="int32")
        m.op("PADV2", [given, pads, m.constant([1])], [shape])
    else:
        shape = given
    (y,) = m.op("RESHAPE", [x, shape], [m.tensor(sizes)])
    (z,) = m.op("SQUEEZE", [y], [m.tensor(sizes[1:])], squeeze_dims=[0])
    m.output(y, z, *m.op("SEGMENT_SUM", [z, m.constant(ints(0, 0, 1))], [m.tensor(sizes[1:])]))
    dtype = np.int64 if source == "CAST" else np.int32
    counts = {"SLICE": [ints(4)], "PADV2": [ints(0)]}.get(source, [])
    cases = [[draw(4, 12), np.array(s, dtype), *counts] for s in ((1, 3, 4, 4), (1, 3, 16, 1))]
    result = convert(m.bytes())
    assert source in ("SLICE", "PADV2") or result.inputs[1].tflite_sizes == (4,)
    compare_sizes(m.bytes(), result, cases)
