"""join_groups.py: convolutions of the parts of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.graph_text import check_unchanged, parse_graph, read_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.convolutions.join_groups import join_groups

WORDS: dict[str, Any] = {
    "float32": {"dtype": "float32"},
    "int8": {"dtype": "int8", "scale": 0.02},
    "dynamic range": {"dtype": "float32"},
}


def convolve_parts(
    kind: str = "float32",
    *,
    read: int = 1,
    order: tuple[int, ...] = (0, 1, 2, 3),
    axis: int = 3,
    read_twice: bool = False,
    activation: str = "NONE",
) -> bytes:
    """Return convolutions of the parts of an image, each with two filters."""
    rng, m, words, count = np.random.default_rng(0), Build(), WORDS[kind], len(order)
    x = m.input([1, 6, 5, count * read], **words)
    split = [m.constant(np.array(3, np.int32)), x]
    parts = m.op("SPLIT", split, [[1, 6, 5, read]] * count, num_splits=count)
    results = []
    for i in order:
        scale = 0.01 * (i + 1)
        filters = rng.standard_normal((2, 3, 3, read)).astype(np.float32)
        integers = rng.integers(-127, 127, (2, 3, 3, read)).astype(np.int8)
        if kind == "float32":
            constants = [m.constant(filters), m.constant(rng.standard_normal(2).astype("f"))]
        elif kind == "int8":
            bias = m.constant(rng.integers(-99, 99, 2).astype(np.int32), scale=0.02 * scale)
            constants = [m.constant(integers, scale=scale), bias]
        else:
            constants = [m.constant(integers, scale=[scale, 2 * scale], zero_point=[0, 0])]
            constants.append(m.constant(rng.standard_normal(2).astype("f")))
        y = m.tensor([1, 6, 5, 2], **words)
        options: Any = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
        options["fused_activation_function"] = activation
        results += m.op("CONV_2D", [parts[i], *constants], [y], **options)
    shape = [*results[0].shape]
    shape[axis] *= count
    y = m.tensor(shape, **words)
    m.output(*m.op("CONCATENATION", [*results], [y], axis=axis - 4))
    if read_twice:
        m.output(parts[0])
    return m.bytes()


def count_nodes(data: bytes, **options: Any) -> dict[str, int]:
    kinds = [node.op_type for node in convert(data, **options).model.graph.node]
    return {kind: kinds.count(kind) for kind in ("Conv", "Split", "Concat")}


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("read", [1, 3])
@pytest.mark.parametrize("activation", ["NONE", "RELU"])
def test_one_convolution_equals_litert(kind: str, read: int, activation: str) -> None:
    data = convolve_parts(kind, read=read, activation=activation)
    check(data, steps=int(kind == "int8"))
    assert count_nodes(data) == {"Conv": 1, "Split": 0, "Concat": 0}
    assert count_nodes(data, forms="canonical")["Conv"] == 4


@pytest.mark.parametrize(
    "data",
    [
        convolve_parts(order=(1, 0, 2, 3)),
        convolve_parts(read_twice=True),
        convolve_parts(axis=2),
        convolve_parts("dynamic range"),
    ],
    ids=["order", "read twice", "other axis", "rounded data"],
)
def test_other_parts_stay(data: bytes) -> None:
    check(data)
    assert count_nodes(data)["Conv"] == 4


TEXT = """
    inputs x: float32[1,6,5,2], f: float32[2,3,3,1]
    a: float32[1,6,5,1], b: float32[1,6,5,1] = SPLIT(3, x, num_splits=2)
    c: float32[1,6,5,2] = CONV_2D(a, float32[2,3,3,1], float32[2], padding=SAME)
    d: float32[1,6,5,2] = CONV_2D(b, float32[2,3,3,1], float32[2], padding=SAME)
    y: float32[1,6,5,4] = CONCATENATION(c, d, axis=3)
    return y
"""


SLICES = """
    a: float32[1,6,5,1] = SLICE(x, [0, 0, 0, 0], [1, 6, 5, 1])
    b: float32[1,6,5,1] = SLICE(x, [0, 0, 0, 1], [1, 6, 5, 1])
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(b, float32[2,3,3,1]", "(b, f"),
        ("(b, float32[2,3,3,1]", "(b, float32[3,3,3,1]"),
        ("float32[2,3,3,1], float32[2]", "float32[2,3,3,1], int32[2]"),
        ("CONV_2D(a, float32[2,3,3,1], float32[2], padding=SAME)", "TILE(a, [1, 1, 1, 2])"),
        ("a: float32[1,6,5,1], b: float32[1,6,5,1] = SPLIT(3, x, num_splits=2)", SLICES),
        ("c, d, axis=3)", "c, d, axis=3, fused_activation_function=RELU)"),
    ],
    ids=[
        "computed filters",
        "more filters",
        "another type",
        "no convolution",
        "slices",
        "activation",
    ],
)
def test_edited_parts_stay(old: str, new: str) -> None:
    """The parts become one convolution, but no longer after any of these edits."""
    assert [op.code for op in join_groups(parse_graph(TEXT)).ops] == ["CONV_2D"]
    assert old in TEXT
    place = TEXT.rindex(old)
    text = TEXT[:place] + new + TEXT[place + len(old) :]
    check_unchanged(join_groups, parse_graph(text))


def test_parts_of_dynamic_range_that_are_not_rounded_are_joined() -> None:
    graph = join_groups(read_graph(convolve_parts("dynamic range")))
    assert [op.code for op in graph.ops] == ["CONV_2D"]
    (op,) = graph.ops
    scales = op.operand(1).quantization
    assert scales is not None
    assert scales.scale.tolist() == pytest.approx([0.01, 0.02, 0.02, 0.04, 0.03, 0.06, 0.04, 0.08])


def convolve_depthwise(
    kind: str = "float32",
    *,
    rows: tuple[tuple[int, int], ...] = ((4, 11), (0, 11), (2, 10)),
    padding: str = "VALID",
    stride: int = 1,
    size: int = 11,
) -> bytes:
    """Return depthwise convolutions of some rows of each part of an image of `size` rows."""
    rng, m, words, widths = (
        np.random.default_rng(0),
        Build(),
        WORDS[kind],
        [*range(3, 3 + len(rows))],
    )
    x = m.input([1, size, 2, sum(widths)], **words)
    sizes, axis = (m.constant(np.array(n, np.int32)) for n in (widths, 3))
    shapes = [[1, size, 2, width] for width in widths]
    parts = m.op("SPLIT_V", [x, sizes, axis], shapes, num_splits=len(rows), **words)
    results = []
    height = 1 + (size - 11) // stride
    for part, width, (first, end) in zip(parts, widths, rows, strict=True):
        taken, window = size - 11 + end - first, end - first
        begin, count = (
            m.constant(np.array(n, np.int32)) for n in ([0, first, 0, 0], [1, taken, 2, width])
        )
        (kept,) = m.op("SLICE", [part, begin, count], [[1, taken, 2, width]], **words)
        filters = rng.integers(-127, 127, (1, window, 2, width)).astype(np.int8)
        if kind == "int8":
            scale = rng.uniform(0.01, 0.02, width).astype(np.float32)
            bias = rng.integers(-99, 99, width).astype(np.int32)
            constants = [
                m.constant(filters, scale=scale, axis=3),
                m.constant(bias, scale=0.02 * scale, axis=0),
            ]
        else:
            constants = [m.constant(filters.astype("f")), m.constant(np.ones(width, "f"))]
        columns = 1 if padding == "VALID" else 2
        y = m.tensor([1, height, columns, width], **words)
        options: Any = {"stride_h": stride, "stride_w": stride, "padding": padding}
        results += m.op("DEPTHWISE_CONV_2D", [kept, *constants], [y], depth_multiplier=1, **options)
    shape = [*results[0].shape[:3], sum(widths)]
    m.output(*m.op("CONCATENATION", results, [m.tensor(shape, **words)], axis=-1))
    return m.bytes()


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize(("stride", "size"), [(1, 11), (1, 13), (2, 15)])
def test_windows_of_several_heights_equal_litert(kind: str, stride: int, size: int) -> None:
    data = convolve_depthwise(kind, stride=stride, size=size)
    check(data, steps=int(kind == "int8"), tolerance=1e-5)
    assert count_nodes(data) == {"Conv": 1, "Split": 0, "Concat": 0}
    assert count_nodes(data, forms="canonical")["Conv"] == 3
