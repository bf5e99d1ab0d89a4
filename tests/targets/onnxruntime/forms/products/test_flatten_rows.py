"""flatten_rows.py: operators between dense layers compute matrices."""

from __future__ import annotations

import re

import pytest

from tests.support import check
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx import convert
from tflite2onnx.graph_text import write_graph
from tflite2onnx.targets.onnxruntime.forms.products.flatten_rows import flatten_rows

LAYERS = """
    inputs x: float32[2,3,4]
    a: float32[2,3,4] = FULLY_CONNECTED(x, float32[4,4], none, keep_num_dims=True)
    b: float32[2,3,4] = FULLY_CONNECTED(x, float32[4,4], none, keep_num_dims=True)
    scaled: float32[2,3,4] = MUL(a, [0.5, 1.0, 2.0, 4.0])
    sum: float32[2,3,4] = ADD(scaled, b)
    normal: float32[2,3,4] = RMS_NORMALIZATION(sum, [1.0, 2.0, 3.0, 4.0], epsilon=0.1)
    y: float32[2,3,4] = FULLY_CONNECTED(normal, float32[4,4], none, keep_num_dims=True)
    return y
"""


def test_operators_between_dense_layers_compute_matrices() -> None:
    after = """
    inputs x: float32[2,3,4]
    a: float32[2,3,4] = FULLY_CONNECTED(x, float32[4,4], none, keep_num_dims=True)
    b: float32[2,3,4] = FULLY_CONNECTED(x, float32[4,4], none, keep_num_dims=True)
    a2: float32[6,4] = RESHAPE(a)
    m2: float32[6,4] = MUL(a2, [0.5, 1.0, 2.0, 4.0])
    m: float32[2,3,4] = RESHAPE(m2)
    m3: float32[6,4] = RESHAPE(m)
    b2: float32[6,4] = RESHAPE(b)
    s2: float32[6,4] = ADD(m3, b2)
    s: float32[2,3,4] = RESHAPE(s2)
    s3: float32[6,4] = RESHAPE(s)
    n2: float32[6,4] = RMS_NORMALIZATION(s3, [1.0, 2.0, 3.0, 4.0], epsilon=0.1)
    n: float32[2,3,4] = RESHAPE(n2)
    y: float32[2,3,4] = FULLY_CONNECTED(n, float32[4,4], none, keep_num_dims=True)
    return y
    """
    assert_rewritten(flatten_rows, LAYERS, after)


def test_reshapes_are_left_at_both_ends_only() -> None:
    """Reshapes are left at both ends only."""
    data = make_model(
        LAYERS.replace("RMS_NORMALIZATION(sum, [1.0, 2.0, 3.0, 4.0], epsilon=0.1)", "TANH(sum)")
    )
    check(data)
    nodes = [node.op_type for node in convert(data).model.graph.node]
    assert nodes.count("Reshape") == 2


def test_product_by_a_scalar_is_flattened() -> None:
    text = write_graph(flatten_rows(parse_graph(LAYERS.replace("[0.5, 1.0, 2.0, 4.0]", "0.5"))))
    assert text.count("[6,4] = MUL") == 1


def test_product_by_factors_of_rows_is_not_flattened() -> None:
    """A factor for each row of a sample is none for each row of the matrix."""
    text = LAYERS.replace("[0.5, 1.0, 2.0, 4.0]", "[[[0.5], [1.0], [2.0]]]")
    text = text.replace("RMS_NORMALIZATION(sum, [1.0, 2.0, 3.0, 4.0], epsilon=0.1)", "TANH(sum)")
    assert write_graph(flatten_rows(parse_graph(text))).count("[6,4] = MUL") == 0
    check(make_model(text))


def test_only_normalization_along_the_last_axis_is_flattened() -> None:
    """A matrix has only the last axis of the tensor as an axis of its own."""
    text = LAYERS.replace("RMS_NORMALIZATION(sum, [1.0, 2.0, 3.0, 4.0], epsilon=0.1)", "{}(sum)")
    normal = "NORMALIZATION(sum, none, none, axes=({},), epsilon=0.1)"
    along = [text.replace("{}(sum)", normal.format(axis)) for axis in (1, 2)]
    counts = [write_graph(flatten_rows(parse_graph(each))).count("RESHAPE") for each in along]
    assert counts[0] < counts[1]
    assert "[2,3,4] = NORMALIZATION" in write_graph(flatten_rows(parse_graph(along[0])))


def test_product_by_computed_factors_is_not_flattened() -> None:
    """A computed factor of another shape would have to be repeated for the rows of the matrix."""
    text = LAYERS.replace("x: float32[2,3,4]", "x: float32[2,3,4], f: float32[2,3,1]", 1)
    text = text.replace("MUL(a, [0.5, 1.0, 2.0, 4.0])", "MUL(a, f)")
    text = text.replace("RMS_NORMALIZATION(sum, [1.0, 2.0, 3.0, 4.0], epsilon=0.1)", "TANH(sum)")
    changed = write_graph(flatten_rows(parse_graph(text)))
    assert "[2,3,4] = MUL" in changed
    assert "[6,4] = ADD" in changed
    check(make_model(text))


def test_layers_with_a_dynamic_batch_stay_unflattened() -> None:
    check_unchanged(flatten_rows, parse_graph(LAYERS.replace("[2,3,4]", "[n,3,4]")))


def test_layers_of_matrices_stay_unchanged() -> None:
    check_unchanged(flatten_rows, parse_graph(LAYERS.replace("[2,3,4]", "[6,4]")))


STEP = """
    inputs h: int8(0.01, 0)[1,1,4], x: int8(0.02, 3)[3,1,8]
    x0: int8(0.02, 3)[1,1,8] = SLICE(x, [1, 0, 0], [1, 1, 8])
    a: int8(0.02, 5)[1,8] = FULLY_CONNECTED(h, int8(0.01, 0)[8,4], none)
    s: int8(0.04, 1)[1,1,8] = ADD(a, x0)
    l: int8(0.04, 1)[1,1,4], r: int8(0.04, 1)[1,1,4] = SPLIT(2, s, num_splits=2)
    g: int8(0.0078125, 0)[1,1,4] = TANH(l)
    m: int8(0.02, 0)[1,1,4] = MUL(g, r)
    y: int8(0.03, 0)[1,4] = FULLY_CONNECTED(m, int8(0.01, 0)[4,4], none)
    return y
"""


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_step_of_a_recurrent_layer_of_integers_has_no_reshape(kind: str) -> None:
    text = STEP
    if kind == "int16":  # 16 bits have no zero points, and TANH has one scale
        text = re.sub(r"int8(\(0\.\d+), \d\)\[(?=1|3)", r"int16\1, 0)[", text)
        text = text.replace("0.0078125", repr(2.0**-15))
    data = make_model(text)
    check(data, steps=2, default_kernels=True)
    nodes = [node.op_type for node in convert(data).model.graph.node]
    assert nodes.count("Reshape") == 2  # of the inputs


@pytest.mark.parametrize(
    "part",
    [
        "SLICE(c, [0, 1, 0], [2, 2, 4])",
        "SLICE(c, [0, 0, 1], [2, 3, 3])",
        "SLICE(c, [1, 0, 0], [1, 3, 4])",
    ],
)
def test_ranges_of_samples_and_features_are_flattened(part: str) -> None:
    """A range of rows in each sample is no range of rows of the matrix."""
    first = [int(n) for n in re.findall(r"\d", part)][3:]
    shape = ",".join(map(str, first))
    text = f"""
        inputs x: float32[2,3,4]
        c: float32[2,3,4] = FULLY_CONNECTED(x, float32[4,4], none, keep_num_dims=True)
        p: float32[{shape}] = {part}
        y: float32[{shape}] = TANH(p)
        return y
    """
    changed = write_graph(flatten_rows(parse_graph(text)))
    assert ("[0, 1, 0]" in changed) == ("[0, 1, 0]" in part)
    check(make_model(text))


def test_parts_along_the_samples_are_flattened() -> None:
    text = """
        inputs x: float32[2,3,4]
        c: float32[2,3,4] = FULLY_CONNECTED(x, float32[4,4], none, keep_num_dims=True)
        a: float32[1,3,4], b: float32[1,3,4] = SPLIT(0, c, num_splits=2)
        y: float32[1,3,4] = MUL(a, b)
        return y
    """
    after = """
        inputs x: float32[2,3,4]
        c: float32[2,3,4] = FULLY_CONNECTED(x, float32[4,4], none, keep_num_dims=True)
        c2: float32[6,4] = RESHAPE(c)
        a2: float32[3,4], b2: float32[3,4] = SPLIT(0, c2, num_splits=2)
        a: float32[1,3,4] = RESHAPE(a2)
        b: float32[1,3,4] = RESHAPE(b2)
        a3: float32[3,4] = RESHAPE(a)
        b3: float32[3,4] = RESHAPE(b)
        y2: float32[3,4] = MUL(a3, b3)
        y: float32[1,3,4] = RESHAPE(y2)
        return y
    """
    assert_rewritten(flatten_rows, text, after)
    middle = text.replace("[2,3,4]", "[2,4,4]").replace("[1,3,4]", "[2,2,4]")
    middle = middle.replace("SPLIT(0", "SPLIT(1").replace("MUL(a, b)", "POW(a, b)")
    check_unchanged(flatten_rows, parse_graph(middle))
