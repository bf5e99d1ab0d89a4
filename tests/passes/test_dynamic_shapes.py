"""passes/dynamic_shapes: which dimensions stay dynamic; the model then works for all sizes.

`check` resizes the inputs in LiteRT to the shapes of the given arrays.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.support import Build, Tensor, check
from tflite2onnx import Endpoint, convert
from tflite2onnx.cli import main
from tflite2onnx.errors import FixedSizeError, OptionError, UnsupportedOperators
from tflite2onnx.op import find_operator
from tflite2onnx.passes.dynamic_shapes import name_dynamic_axes
from tflite2onnx.passes.shape_walk import InferredTensors, ShapeWalk
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType, Shape, Tensor as FileTensor

WINDOW: dict[str, Any] = {"stride_h": 2, "stride_w": 1, "padding": "SAME"}
KEPT = np.random.default_rng(7).standard_normal
Made = tuple[Tensor, ...] | list[Tensor]


@pytest.mark.parametrize(
    ("signature", "axes"),
    [((), set()), ((1, 7), set()), ((-1, 7), {0}), ((-1, -1), {0, 1}), ((-1,), set())],
)
def test_negative_sizes_of_a_signature_are_dynamic_axes(signature: Shape, axes: set[int]) -> None:
    tensor = FileTensor("x", (1, 7), DType.FLOAT32, shape_signature=signature)
    assert tensor.dynamic_axes == axes


def test_dynamic_axes_are_read_from_a_file() -> None:
    m = Build()
    x = m.input([None, 7])
    m.output(*m.op("RELU", [x], [[1, 7]]))
    graph = read_model(m.bytes()).graphs[0]
    assert graph.inputs[0].dynamic_axes == {0}
    assert graph.outputs[0].dynamic_axes == set()


def test_signature_is_dynamic_only_where_a_size_has_a_name() -> None:
    """A file may declare a dynamic size that is computed as a constant."""
    m = Build()
    y = m.tensor([None, 7], name="y")
    m.op("RELU", [m.input([None, 7])], [y])
    m.output(*m.op("MEAN", [y, m.constant([0])], [[None, 7]], keep_dims=True))
    (graph,) = read_model(m.bytes()).graphs
    relu, mean = name_dynamic_axes(graph, find_operator).graph.ops
    assert (relu.outputs[0].shape_signature, mean.outputs[0].shape_signature) == ((-1, 7), (1, 7))


def test_sizes_show_names_of_dynamic_axes() -> None:
    tensor = FileTensor("x", (1, 1, 7), DType.FLOAT32, symbols={0: "batch"})
    assert tensor.sizes == ("batch", 1, 7)
    assert tensor.layout_shape == (2, 1, 7)
    assert tensor.reshape_constant((7,)).sizes == (7,)


def test_long_names_of_sizes_are_shortened_but_differ() -> None:
    """Names of at most 40 characters, which differ if only the ends of the inputs' names differ."""
    m, names = Build(), ["x" * 50 + end for end in "ab"] + ["y" * 38]
    for name in names:
        m.output(*m.op("ABS", [m.input([1, None, None], name=name)], [[1, 1, 1]]))
    symbols = [[*end.symbols.values()] for end in convert(m.bytes()).outputs]
    assert symbols[2] == ["y" * 38 + "_1", "y" * 38 + "_2"]
    generated = {symbol for each in symbols for symbol in each}
    assert len(generated) == 6
    assert max(map(len, generated)) == 40


def test_long_names_of_computed_sizes_are_shortened() -> None:
    """Names of sizes that are known at run time only, and of rows of a product, are shortened."""
    m = Build()
    places = m.tensor([None, 2], dtype="int64", name="places" * 10)
    m.output(*m.op("WHERE", [m.input([3, 4])], [places]))
    image = m.input([None, None, None, 3])
    weights = m.constant(KEPT((5, 3)).astype(np.float32))
    y = m.tensor([1, 1, 1, 5], name="products" * 10)
    m.output(*m.op("FULLY_CONNECTED", [image, weights, None], [y], keep_num_dims=True))
    model = convert(m.bytes()).model
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    names = {dim.dim_param for v in values for dim in v.type.tensor_type.shape.dim}
    assert max(map(len, names)) == 40


def check_dynamic_model(m: Build, *shapes: Sequence[int], **options: Any) -> list[Endpoint]:
    """Compare a dynamic model with LiteRT for given input shapes; return its outputs."""
    types = [np.dtype(end.dtype) for end in convert(m.bytes()).inputs]
    arrays = [(5 * KEPT(shape)).astype(dtype) for shape, dtype in zip(shapes, types, strict=True)]
    result = check(m.bytes(), inputs=arrays, **options)
    assert any(end.symbols for end in result.inputs)
    check(m.bytes(), static=True)
    return list(result.outputs)


def conv(m: Build, x: Tensor) -> Made:
    w, b = m.constant(KEPT((11, 3, 3, 3)).astype(np.float32)), m.constant(np.ones(11, np.float32))
    return m.op("CONV_2D", [x, w, b], [[1, 3, 7, 11]], **WINDOW)


def depthwise(m: Build, x: Tensor) -> Made:
    w, b = m.constant(KEPT((1, 3, 3, 6)).astype(np.float32)), m.constant(np.ones(6, np.float32))
    return m.op("DEPTHWISE_CONV_2D", [x, w, b], [[1, 3, 7, 6]], depth_multiplier=2, **WINDOW)


def add_flattening(m: Build, x: Tensor) -> Made:
    (flat,) = m.op("RESHAPE", [x], [[1, 105]], new_shape=[-1, 105])
    w, b = m.constant(KEPT((11, 105)).astype(np.float32)), m.constant(np.ones(11, np.float32))
    return m.op("FULLY_CONNECTED", [flat, w, b], [[1, 11]])


def after_shape_arithmetic(m: Build, x: Tensor) -> Made:
    (shape,) = m.op("SHAPE", [x], [[4]], dtype="int32", out_type="int32")
    one = [m.constant([1]), m.constant([1])]
    (batch,) = m.op("STRIDED_SLICE", [shape, m.constant([0]), *one], [[]], shrink_axis_mask=1)
    (target,) = m.op("PACK", [batch, m.constant(-1), m.constant(3)], [[3]], values_count=3)
    return m.op("RESHAPE", [x, target], [[1, 35, 3]])


def mean(m: Build, x: Tensor) -> Made:
    (y,) = m.op("MEAN", [x, m.constant([1, 2])], [[1, 3]])
    w, b = m.constant(KEPT((11, 3)).astype(np.float32)), m.constant(np.ones(11, np.float32))
    (y,) = m.op("FULLY_CONNECTED", [y, w, b], [[1, 11]])
    return m.op("SOFTMAX", [y], [[1, 11]], beta=1.0)


def add_slices(m: Build, x: Tensor) -> Made:
    made = m.tensor([None, 3, 5, 2])  # the kernel takes the declared size
    (y,) = m.op("SLICE", [x, m.constant([0, 1, 2, 0]), m.constant([-1, 3, -1, 2])], [made])
    bounds = [m.constant(numbers) for numbers in ([0, -1, 4], [0, 0, 0], [1, 1, -2])]
    return m.op(
        "STRIDED_SLICE",
        [y, *bounds],
        [[1, 3, 2]],
        begin_mask=1,
        end_mask=5,
        shrink_axis_mask=2,
        new_axis_mask=0,
    )


def halves(m: Build, x: Tensor) -> Made:
    one, other = m.op("SPLIT", [m.constant(1), x], [[1, 5, 7, 3]], num_splits=1) * 2
    (y,) = m.op("CONCATENATION", [one, other], [[1, 10, 7, 3]], axis=1)
    (y,) = m.op("TRANSPOSE", [y, m.constant([1, 0, 3, 2])], [[10, 1, 3, 7]])
    return m.op("PAD", [y, m.constant([[0, 1], [0, 0], [2, 0], [0, 0]])], [[11, 1, 5, 7]])


def broadcast(m: Build, x: Tensor) -> Made:
    row = m.constant(KEPT((1, 5, 1, 3)).astype(np.float32))
    (y,) = m.op("MUL", [x, row], [[1, 5, 7, 3]])
    (y,) = m.op("ADD", [y, m.constant(KEPT(3).astype(np.float32))], [[1, 5, 7, 3]])
    (z,) = m.op("SUM", [y, m.constant([1, 2, 3])], [[1, 1, 1, 1]], keep_dims=True)
    return m.op("SUB", [y, z], [[1, 5, 7, 3]])


def add_pools(m: Build, x: Tensor) -> Made:
    window: dict[str, Any] = {"filter_height": 3, "filter_width": 2, **WINDOW}
    (y,) = m.op("MAX_POOL_2D", [x], [[1, 3, 7, 3]], **window)
    (y,) = m.op("RESIZE_BILINEAR", [y, m.constant([6, 11])], [[1, 6, 11, 3]])
    return m.op("AVERAGE_POOL_2D", [y], [[1, 3, 11, 3]], **window)


def add_arg_max(m: Build, x: Tensor) -> Made:
    (i,) = m.op("ARG_MAX", [x, m.constant(3)], [[1, 5, 7]], dtype="int32", output_type="int32")
    one, zero = m.constant(np.float32(1)), m.constant(np.float32(0))
    return m.op("ONE_HOT", [i, m.constant(3), one, zero], [[1, 5, 7, 3]], dtype="float32", axis=-1)


def blocks(m: Build, x: Tensor) -> Made:
    arguments = [m.constant([2, 4]), m.constant([[0, 1], [1, 0]])]
    (y,) = m.op("SPACE_TO_BATCH_ND", [x, *arguments], [[8, 3, 2, 3]])
    (y,) = m.op("ABS", [y], [[8, 3, 2, 3]])
    return m.op("BATCH_TO_SPACE_ND", [y, *arguments], [[1, 5, 7, 3]])


NETWORKS = [
    conv,
    depthwise,
    add_flattening,
    after_shape_arithmetic,
    mean,
    add_slices,
    halves,
    broadcast,
    add_pools,
    add_arg_max,
    blocks,
]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("batch", [1, 5])
def test_dynamic_batch_stays_dynamic(network: Callable[[Build, Tensor], Made], batch: int) -> None:
    """A dynamic batch stays dynamic, also if other tensors declare a batch of 1."""
    m = Build()
    m.output(*network(m, m.input([None, 5, 7, 3], name="x")))
    (y,) = check_dynamic_model(m, [batch, 5, 7, 3])
    assert list(y.symbols.values()) == ["batch"]


def add_mirror_pad(m: Build, x: Tensor) -> Made:
    amounts = m.constant([[0, 1], [2, 3], [0, 0], [1, 0]])
    return m.op("MIRROR_PAD", [x, amounts], [[2, 10, 7, 4]], mode="SYMMETRIC")


@pytest.mark.parametrize("size", [4, 5, 9])
def test_pad_of_a_dynamic_image_is_fused(size: int) -> None:
    """A PAD of a dynamic image is fused into the convolution."""
    m = Build()
    x = m.input([1, 5, 7, 3], shape_signature=[-1, -1, -1, 3])
    (y,) = m.op("PAD", [x, m.constant([[0, 0], [0, 1], [2, 0], [0, 0]])], [[1, 6, 9, 3]])
    w, b = m.constant(KEPT((11, 3, 3, 3)).astype(np.float32)), m.constant(np.ones(11, np.float32))
    window = WINDOW | {"padding": "VALID"}
    m.output(*m.op("CONV_2D", [y, w, b], [[1, 2, 7, 11]], **window))
    check_dynamic_model(m, [2, size, size + 1, 3])
    assert "Pad" not in {node.op_type for node in convert(m.bytes()).model.graph.node}


@pytest.mark.parametrize("height", [5, 7, 11])
def test_diagonals_of_any_height_equal_litert(height: int) -> None:
    m = Build()
    x, y = m.input([2, 7, 5], shape_signature=[2, -1, 5]), m.input([2, 5])
    m.output(*m.op("MATRIX_SET_DIAG", [x, y], [[2, 7, 5]]))
    check_dynamic_model(m, [2, height, 5], [2, 5])


def test_blocks_of_any_size_equal_litert() -> None:
    m = Build()
    m.output(*blocks(m, m.input([1, 5, 7, 3], shape_signature=[-1, -1, -1, 3])))
    for shape in ([1, 5, 7, 3], [2, 9, 15, 3], [3, 1, 3, 3]):
        check_dynamic_model(m, shape)


@pytest.mark.parametrize(
    ("dtype", "axes"), [("float32", [0, 1, 2]), ("float32", [2]), ("int32", [0]), ("int8", [0])]
)
def test_pixel_blocks_of_any_size_equal_litert(dtype: str, axes: list[int]) -> None:
    """For types that ONNX Runtime's nodes lack, only the batch stays dynamic."""
    m = Build()
    signature = [-1 if axis in axes else size for axis, size in enumerate([1, 2, 4, 12])]
    x = m.input([1, 2, 4, 12], shape_signature=signature, dtype=dtype)
    m.output(*m.op("DEPTH_TO_SPACE", [x], [[1, 4, 8, 3]], dtype=dtype, block_size=2))
    m.output(*m.op("SPACE_TO_DEPTH", [x], [[1, 1, 2, 48]], dtype=dtype, block_size=2))
    for larger in ([1, 2, 4, 12], [3, 10, 14, 12]):
        pairs = zip(larger, signature, strict=True)
        deep, flat = check_dynamic_model(m, [new if size == -1 else size for new, size in pairs])
        assert [*deep.symbols, *flat.symbols] == axes * 2


def add_dilate(m: Build, x: Tensor) -> Made:
    arguments = [m.constant([1, 2, 3, 2]), m.constant(np.float32(7))]
    return m.op("DILATE", [x, *arguments], [[1, 9, 19, 5]])


def diagonals(m: Build, x: Tensor) -> Made:
    (y,) = m.op("TRANSPOSE", [x, m.constant([0, 3, 1, 2])], [[1, 3, 5, 7]])
    return m.op("MATRIX_DIAG", [y], [[1, 3, 5, 7, 7]])


def add_resizes(m: Build, x: Tensor) -> Made:
    (y,) = m.op("RESIZE_NEAREST_NEIGHBOR", [x, m.constant([10, 3])], [[1, 10, 3, 3]])
    (z,) = m.op("RESIZE_BILINEAR", [x, m.constant([10, 3])], [[1, 10, 3, 3]])
    return m.op("ADD", [y, z], [[1, 10, 3, 3]])


def add_update(m: Build, x: Tensor) -> Made:
    update = m.constant(KEPT((1, 2, 3, 3)).astype(np.float32))
    return m.op("DYNAMIC_UPDATE_SLICE", [x, update, m.constant([0, 4, -2, 0])], [[1, 5, 7, 3]])


def rows(m: Build, x: Tensor) -> Made:
    (total,) = m.op("SUM", [x, m.constant([1, 2, 3])], [[1]])
    (condition,) = m.op("GREATER", [total, m.constant(np.float32(0))], [[1]], dtype="bool")
    (negative,) = m.op("NEG", [x], [[1, 5, 7, 3]])
    return m.op("SELECT", [condition, x, negative], [[1, 5, 7, 3]])


@pytest.mark.parametrize(
    "network",
    [conv, depthwise, mean, add_mirror_pad, add_dilate, diagonals, add_resizes, add_update, rows],
)
@pytest.mark.parametrize("io_layout", ["auto", "onnx"])
def test_images_of_any_size_equal_litert(
    network: Callable[[Build, Tensor], Made], io_layout: str
) -> None:
    """SAME padding is computed at run time if it depends on a dynamic size."""
    m = Build()
    m.output(*network(m, m.input([1, 5, 7, 3], shape_signature=[-1, -1, -1, 3])))
    for shape in ([1, 5, 7, 3], [2, 8, 13, 3], [3, 9, 4, 3]):
        check_dynamic_model(m, shape, io_layout=io_layout)


def test_declared_size_may_be_smaller_than_the_window() -> None:
    """A dynamic size may be declared as 1 although the window is larger; then static=True fails."""
    m = Build()
    x = m.input([1, 1, 1, 3], shape_signature=[-1, -1, -1, 3])
    w, b = m.constant(KEPT((11, 5, 7, 3)).astype(np.float32)), m.constant(np.ones(11, np.float32))
    options = WINDOW | {"padding": "VALID"}
    m.output(*m.op("CONV_2D", [x, w, b], [[1, 1, 1, 11]], **options))
    for shape in ([1, 5, 7, 3], [2, 13, 9, 3]):
        check(m.bytes(), inputs=[KEPT(shape).astype(np.float32)])
    with pytest.raises(UnsupportedOperators, match="must fit into the image"):
        convert(m.bytes(), static=True)


def fixed_reshape(m: Build, x: Tensor) -> Made:
    return m.op("RESHAPE", [x], [[1, 105]], new_shape=[1, 105])


def test_single_supported_size_is_fixed_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A dimension becomes static if an operator supports a single size only; a warning says so."""
    m = Build()
    m.output(*fixed_reshape(m, m.input([None, 5, 7, 3], name="x")))
    with caplog.at_level(logging.WARNING):
        result = check(m.bytes())
    assert not any(end.symbols for end in (*result.inputs, *result.outputs))
    code = read_model(m.bytes()).graphs[0].ops[0].code
    assert f"axis x_0 is fixed as in the file because {code}" in caplog.text


def test_refusal_of_the_size_1_of_a_dynamic_axis_asks_for_the_size() -> None:
    """The size of which features are computed cannot be found, unlike that of a RESHAPE."""
    m = Build()
    x = m.input([1], shape_signature=[-1], name="wave")
    (length,) = m.op("SHAPE", [x], [[1]], dtype="int32", out_type="int32")
    (more,) = m.op("ADD", [length, m.constant([9])], [[1]])
    (features,) = m.op("FLOOR_DIV", [more, m.constant([3])], [[1]])
    (sizes,) = m.op("CONCATENATION", [m.constant([1]), features], [[2]], axis=0)
    (ones,) = m.op("FILL", [sizes, m.constant(np.array(1, np.float32))], [[1, 3]])
    (total,) = m.op("SUM", [x, m.constant([0])], [[1]], keep_dims=True)
    (scaled,) = m.op("MUL", [ones, total], [[1, 3]])
    w = m.constant(np.ones((3, 20), np.float32))
    m.output(*m.op("FULLY_CONNECTED", [scaled, w, None], [[1, 3]]))
    with pytest.raises(UnsupportedOperators, match=r"give --shape wave=N$"):
        convert(m.bytes())
    check(m.bytes(), inputs=[np.ones(51, np.float32)], shapes={"wave": [51]})


def test_static_option_fixes_the_batch() -> None:
    m = Build()
    m.output(*conv(m, m.input([None, 5, 7, 3], name="x")))
    result = convert(m.bytes(), static=True)
    assert [end.sizes for end in (*result.inputs, *result.outputs)] == [(1, 3, 5, 7), (1, 11, 3, 7)]


def test_combined_inputs_share_one_batch_name() -> None:
    """Batches of inputs that are combined share one name; other batches have their own names."""
    m = Build()
    a, b = m.input([None, 3], name="a"), m.input([None, 3], name="b")
    m.output(*m.op("ADD", [a, b], [[1, 3]]))
    (y,) = check_dynamic_model(m, [5, 3], [5, 3])
    assert y.sizes == ("batch", 3)
    m = Build()
    a, b = m.input([None, 3], name="a"), m.input([None, 3], name="b")
    m.output(*m.op("ABS", [a], [[1, 3]]), *m.op("NEG", [b], [[1, 3]]))
    assert [end.sizes for end in check_dynamic_model(m, [5, 3], [2, 3])] == [("a_0", 3), ("b_0", 3)]


def test_graph_with_many_states_is_not_walked_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Joining the batches of a streaming network one by one would walk its graph for each state."""

    def count_walks(states: int) -> int:
        m, walks = Build(), list[ShapeWalk]()
        y = m.input([None, 3], name="x")
        for i in range(states):
            state = m.input([None, 3], name=f"state_{i}")
            (y,) = m.op("ADD", [y, state], [[1, 3]])
        m.output(y)
        (graph,) = read_model(m.bytes()).graphs
        walk = ShapeWalk.walk

        def count(self: ShapeWalk) -> InferredTensors:
            walks.append(self)
            return walk(self)

        with monkeypatch.context() as patch:
            patch.setattr(ShapeWalk, "walk", count)
            opened = name_dynamic_axes(graph, find_operator)
        assert [*opened.axes] == ["batch"]
        return len(walks)

    assert count_walks(9) == count_walks(2)


@pytest.mark.parametrize("before", [4, 2, 1])
def test_sizes_that_must_equal_a_fixed_size_are_fixed_at_once(before: int) -> None:
    """A walk for each of a hundred states would take a minute.

    The states are joined before an operator that fixes the batch, or after it.
    """
    m = Build()
    states = [m.input([None, 3], name=name) for name in "abcd"]
    width = 3 * before
    (y,) = m.op("CONCATENATION", states[:before], [[1, width]], axis=1)
    (y,) = m.op("RESHAPE", [y, m.constant([1, width])], [[1, width]])
    m.output(*m.op("CONCATENATION", [y, *states[before:]], [[1, 12]], axis=1))
    (graph,) = read_model(m.bytes()).graphs
    with pytest.raises(FixedSizeError) as caught:
        name_dynamic_axes(graph, find_operator)
    assert {*caught.value.axes} == {"a_0", "b_0", "c_0", "d_0"}
    assert [end.sizes for end in convert(m.bytes()).inputs] == 4 * [(1, 3)]


def test_a_size_that_the_user_names_is_not_fixed() -> None:
    m = Build()
    a, b = (m.input([None, 3], name=name) for name in "ab")
    (y,) = m.op("RESHAPE", [a, m.constant([1, 3])], [[1, 3]])
    m.output(*m.op("CONCATENATION", [y, b], [[1, 6]], axis=1))
    with pytest.raises(OptionError, match=r"^the size N cannot be dynamic because CONCATENATION"):
        convert(m.bytes(), shapes={"b": ["N", 3]})


def test_equal_dynamic_sizes_share_one_name() -> None:
    """Dynamic dimensions that must be equal have one name."""
    m = Build()
    a, b, c = (m.input([1, None, 3], shape_signature=[1, -1, 3], name=name) for name in "abc")
    (y,) = m.op("ADD", [a, b], [[1, 1, 3]])
    m.output(*m.op("CONCATENATION", [y, c], [[2, 1, 3]], axis=0))
    (made,) = check_dynamic_model(m, [1, 5, 3], [1, 5, 3], [1, 5, 3])
    assert made.sizes == (2, "a_1", 3)


def test_returned_input_keeps_its_dynamic_size() -> None:
    """A called sub-graph that returns its input keeps the dynamic dimension."""
    m = Build()
    inner = m.subgraph("inner")
    x = inner.input([None, 3])
    (y,) = inner.op("ABS", [x], [[1, 3]])
    inner.output(x, y)
    made = m.op(
        "STABLEHLO_COMPOSITE",
        [m.input([None, 3])],
        2 * [[1, 3]],
        name="some.thing",
        decomposition_subgraph_index=inner.index,
        composite_attributes=bytes(flexbuffers.Dumps({})),
    )
    m.output(*made)
    assert [end.sizes for end in check_dynamic_model(m, [5, 3])] == 2 * [("batch", 3)]


def test_dynamic_batch_declared_as_1_is_transposed() -> None:
    """A dynamic batch declared as 1 is moved by Transpose, not by Reshape."""
    m = Build()
    x = m.input([None, 5, 3], name="x")
    (y,) = m.op("TRANSPOSE", [x, m.constant([1, 0, 2])], [[5, 1, 3]])
    m.output(*m.op("RESHAPE", [y], [[5, 3]], new_shape=[-1, 3]))
    check_dynamic_model(m, [7, 5, 3])
    assert convert(m.bytes(), static=True).transposes < convert(m.bytes()).transposes


def test_dynamic_sizes_are_printed_and_kept_in_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    m = Build()
    m.output(*conv(m, m.input([None, 5, 7, 3], name="x")))
    path = tmp_path / "model.tflite"
    path.write_bytes(m.bytes())
    assert main([str(path)]) == 0
    assert "TFLite [batch, 5, 7, 3] NHWC   ONNX [batch, 3, 5, 7]" in capsys.readouterr().out
    assert main([str(path), "--static"]) == 0
    assert "TFLite [1, 5, 7, 3] NHWC" in capsys.readouterr().out
    result = convert(path)
    kept = {p.key: p.value for p in result.model.metadata_props}
    (described,) = json.loads(kept["tflite2onnx.inputs"])
    assert described["onnx_sizes"] == ["batch", 3, 5, 7]
    assert described["onnx_shape"] == [1, 3, 5, 7]


def test_counted_rows_of_sequences_stay_dynamic() -> None:
    """The shape arithmetic of Keras for a dense layer on sequences: batch times time rows."""
    m = Build()
    x = m.input([None, None, 3])
    (shape,) = m.op("SHAPE", [x], [[3]], dtype="int32", out_type="int32")
    (outer,) = m.op("GATHER", [shape, m.constant([0, 1])], [[2]])
    (rows,) = m.op("REDUCE_PROD", [outer, m.constant([0])], [[]])
    (columns,) = m.op("GATHER", [shape, m.constant(np.array(2, np.int32))], [[]])
    (sizes,) = m.op("PACK", [rows, columns], [[2]], values_count=2)
    (matrix,) = m.op("RESHAPE", [x, sizes], [m.tensor([None, None])])
    w = m.constant(KEPT((5, 3)).astype(np.float32))
    m.output(*m.op("FULLY_CONNECTED", [matrix, w, None], [m.tensor([None, 5])]))
    (end,) = check_dynamic_model(m, [2, 7, 3])
    assert end.symbols.keys() == {0}
