"""passes/flex/translate.py: Flex operators become the equivalent TFLite operators."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tests.references import check_reference, check_reference_runs, flex as references, images
from tests.support import Build, Tensor, difference, run_onnx
from tests.support.flex import flex_options
from tflite2onnx import convert, register, unregister
from tflite2onnx.contrib.flex.elementwise import FlexUnary
from tflite2onnx.contrib.flex.names import OTHER_NAMES
from tflite2onnx.errors import ConversionError, UnsupportedOperators

IMAGE = [2, 5, 7, 3]
I32 = "int32"


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int32)


def scalar(number: int) -> np.ndarray[Any, Any]:
    return np.array(number, np.int32)


WINDOW: dict[str, Any] = {"strides": [1, 2, 1, 1], "padding": "SAME", "data_format": "NHWC"}
OURS: dict[str, Any] = {"stride_h": 2, "stride_w": 1, "padding": "SAME"}
# The Flex operator, its attributes and constants; the TFLite operator, its options and constants;
# the shape of the input, and the shapes of the outputs.
Case = tuple[str, dict[str, Any], list[Any], str, dict[str, Any], list[Any], list[int], list[Any]]
CASES: list[Case] = [
    ("Reshape", {}, [ints(6, 35)], "RESHAPE", {}, [ints(6, 35)], IMAGE, [[6, 35]]),
    ("Transpose", {}, [ints(0, 3, 1, 2)], "TRANSPOSE", {}, [ints(0, 3, 1, 2)], IMAGE,
     [[2, 3, 5, 7]]),
    ("ExpandDims", {}, [scalar(1)], "EXPAND_DIMS", {}, [scalar(1)], [3, 5], [[3, 1, 5]]),
    ("Squeeze", {"squeeze_dims": [1]}, [], "SQUEEZE", {"squeeze_dims": [1]}, [], [3, 1, 5],
     [[3, 5]]),
    ("Squeeze", {}, [], "SQUEEZE", {}, [], [3, 1, 5, 1], [[3, 5]]),
    ("BroadcastTo", {}, [ints(2, 3, 5)], "BROADCAST_TO", {}, [ints(2, 3, 5)], [3, 1],
     [[2, 3, 5]]),
    ("Tile", {}, [ints(2, 1, 3)], "TILE", {}, [ints(2, 1, 3)], [2, 3, 5], [[4, 3, 15]]),
    ("ZerosLike", {}, [], "ZEROS_LIKE", {}, [], [2, 3], [[2, 3]]),
    ("Slice", {}, [ints(1, 0), ints(1, 2)], "SLICE", {}, [ints(1, 0), ints(1, 2)], [3, 5],
     [[1, 2]]),
    ("StridedSlice", {"begin_mask": 1, "shrink_axis_mask": 2},
     [ints(0, 2), ints(2, 3), ints(1, 1)], "STRIDED_SLICE",
     {"begin_mask": 1, "shrink_axis_mask": 2}, [ints(0, 2), ints(2, 3), ints(1, 1)], [3, 5], [[2]]),
    ("Pad", {}, [ints(1, 2, 0, 3).reshape(2, 2)], "PAD", {}, [ints(1, 2, 0, 3).reshape(2, 2)],
     [3, 5], [[6, 8]]),
    ("MirrorPad", {"mode": "SYMMETRIC"}, [ints(1, 2, 0, 3).reshape(2, 2)], "MIRROR_PAD",
     {"mode": "SYMMETRIC"}, [ints(1, 2, 0, 3).reshape(2, 2)], [3, 5], [[6, 8]]),
    ("ConcatV2", {"N": 2}, [floats(3, 2), scalar(-1)], "CONCATENATION", {"axis": -1},
     [floats(3, 2)], [3, 5], [[3, 7]]),
    ("Pack", {"axis": 1, "N": 2}, [floats(3, 5)], "PACK", {"axis": 1, "values_count": 2},
     [floats(3, 5)], [3, 5], [[3, 2, 5]]),
    ("Unpack", {"axis": 1, "num": 2}, [], "UNPACK", {"axis": 1, "num": 2}, [], [3, 2],
     [[3], [3]]),
    ("GatherV2", {"batch_dims": 0}, [ints(2, 0), scalar(1)], "GATHER", {"axis": 1},
     [ints(2, 0)], [4, 3, 5], [[4, 2, 5]]),
    ("GatherNd", {}, [ints(2, 0).reshape(1, 2)], "GATHER_ND", {}, [ints(2, 0).reshape(1, 2)],
     [4, 3, 5], [[1, 5]]),
    ("ReverseV2", {}, [ints(1)], "REVERSE_V2", {}, [ints(1)], [3, 5], [[3, 5]]),
    ("SpaceToDepth", {"block_size": 2, "data_format": "NHWC"}, [], "SPACE_TO_DEPTH",
     {"block_size": 2}, [], [1, 4, 6, 3], [[1, 2, 3, 12]]),
    ("DepthToSpace", {"block_size": 2}, [], "DEPTH_TO_SPACE", {"block_size": 2}, [],
     [1, 2, 3, 12], [[1, 4, 6, 3]]),
    *((f, {"keep_dims": keep}, [ints(1, 2)], code, {"keep_dims": keep}, [ints(1, 2)], IMAGE,
       [[2, 1, 1, 3] if keep else [2, 3]])
      for f, code in (("Sum", "SUM"), ("Mean", "MEAN"), ("Max", "REDUCE_MAX"),
                      ("Min", "REDUCE_MIN"), ("Prod", "REDUCE_PROD"))
      for keep in (True, False)),
    ("Mean", {}, [ints(0)], "MEAN", {}, [ints(0)], [3, 5], [[5]]),
    ("Cumsum", {"exclusive": True}, [scalar(1)], "CUMSUM", {"exclusive": True}, [scalar(1)],
     [3, 5], [[3, 5]]),
    ("AddN", {"N": 2}, [floats(3, 5)], "ADD_N", {}, [floats(3, 5)], [3, 5], [[3, 5]]),
    ("Softmax", {}, [], "SOFTMAX", {"beta": 1.0}, [], [3, 5], [[3, 5]]),
    ("LogSoftmax", {}, [], "LOG_SOFTMAX", {}, [], [3, 5], [[3, 5]]),
    ("LeakyRelu", {"alpha": 0.5}, [], "LEAKY_RELU", {"alpha": 0.5}, [], [3, 5], [[3, 5]]),
    ("BatchMatMulV2", {"adj_y": True}, [floats(7, 5)], "BATCH_MATMUL", {"adj_y": True},
     [floats(7, 5)], [2, 3, 5], [[2, 3, 7]]),
    ("MatMul", {"transpose_a": True}, [floats(3, 7)], "BATCH_MATMUL", {"adj_x": True},
     [floats(3, 7)], [3, 5], [[5, 7]]),
    ("Conv2D", WINDOW, [floats(3, 2, 3, 4)], "CONV_2D", OURS,
     [floats(3, 2, 3, 4).transpose(3, 0, 1, 2)], IMAGE, [[2, 3, 7, 4]]),
    ("DepthwiseConv2dNative", {**WINDOW, "strides": [1, 2, 2, 1]}, [floats(3, 2, 3, 2)],
     "DEPTHWISE_CONV_2D", {**OURS, "stride_w": 2, "depth_multiplier": 2},
     [floats(3, 2, 3, 2).reshape(1, 3, 2, 6)], IMAGE, [[2, 3, 4, 6]]),
    ("Conv3D", {"strides": [1, 2, 1, 1, 1], "padding": "VALID"}, [floats(2, 3, 1, 2, 3)],
     "CONV_3D", {"stride_d": 2, "stride_h": 1, "stride_w": 1, "padding": "VALID"},
     [floats(2, 3, 1, 2, 3)], [1, 5, 7, 4, 2], [[1, 2, 5, 4, 3]]),
    ("MaxPool", {**WINDOW, "ksize": [1, 3, 2, 1]}, [], "MAX_POOL_2D",
     {**OURS, "filter_height": 3, "filter_width": 2}, [], IMAGE, [[2, 3, 7, 3]]),
    ("AvgPool", {**WINDOW, "ksize": [1, 3, 2, 1]}, [], "AVERAGE_POOL_2D",
     {**OURS, "filter_height": 3, "filter_width": 2}, [], IMAGE, [[2, 3, 7, 3]]),
    ("BiasAdd", {"data_format": "NHWC"}, [floats(3)], "ADD", {}, [floats(3)], IMAGE, [IMAGE]),
    ("BiasAdd", {"data_format": "NCHW"}, [floats(5)], "ADD", {},
     [floats(5).reshape(5, 1, 1)], IMAGE, [IMAGE]),
    ("BiasAddV1", {}, [floats(3)], "ADD", {}, [floats(3)], IMAGE, [IMAGE]),
    ("Reverse", {}, [np.array([False, True])], "REVERSE_V2", {}, [ints(1)], [3, 5], [[3, 5]]),
    ("ReverseSequence", {"seq_dim": 1}, [ints(2, 5, 1)], "REVERSE_SEQUENCE",
     {"seq_dim": 1, "batch_dim": 0}, [ints(2, 5, 1)], [3, 5], [[3, 5]]),
    ("Gather", {}, [ints(2, 0)], "GATHER", {"axis": 0}, [ints(2, 0)], [4, 3], [[2, 3]]),
    ("ParallelConcat", {}, [floats(1, 5)], "CONCATENATION", {"axis": 0}, [floats(1, 5)], [1, 5],
     [[2, 5]]),
    ("SpaceToBatchND", {}, [ints(2, 2), ints(0, 0, 1, 1).reshape(2, 2)], "SPACE_TO_BATCH_ND", {},
     [ints(2, 2), ints(0, 0, 1, 1).reshape(2, 2)], [1, 4, 6, 3], [[4, 2, 4, 3]]),
    ("SpaceToBatch", {"block_size": 2}, [ints(0, 0, 1, 1).reshape(2, 2)], "SPACE_TO_BATCH_ND", {},
     [ints(2, 2), ints(0, 0, 1, 1).reshape(2, 2)], [1, 4, 6, 3], [[4, 2, 4, 3]]),
    ("BatchToSpace", {"block_size": 2}, [ints(0, 0, 1, 0).reshape(2, 2)], "BATCH_TO_SPACE_ND", {},
     [ints(2, 2), ints(0, 0, 1, 0).reshape(2, 2)], [4, 2, 3, 3], [[1, 4, 5, 3]]),
    ("FakeQuantWithMinMaxArgs", {"min": -1.0, "max": 2.0}, [], "FAKE_QUANT",
     {"min": -1.0, "max": 2.0, "num_bits": 8, "narrow_range": False}, [], [3, 5], [[3, 5]]),
    ("FakeQuantWithMinMaxVars", {"num_bits": 4}, [np.float32(-1), np.float32(2)], "FAKE_QUANT",
     {"min": -1.0, "max": 2.0, "num_bits": 4, "narrow_range": False}, [], [3, 5], [[3, 5]]),
    ("DataFormatVecPermute", {"src_format": "NHWC", "dst_format": "NCHW"}, [], "GATHER",
     {"axis": 0}, [ints(0, 3, 1, 2)], [4, 2], [[4, 2]]),
    ("Bucketize", {"boundaries": [0.0, 1.0]}, [], "BUCKETIZE", {"boundaries": [0.0, 1.0]}, [],
     [3, 5], [[3, 5]]),
    ("LRN", {"depth_radius": 2, "bias": 2.0, "alpha": 0.5, "beta": 0.75}, [],
     "LOCAL_RESPONSE_NORMALIZATION", {"radius": 2, "bias": 2.0, "alpha": 0.5, "beta": 0.75}, [],
     IMAGE, [IMAGE]),
    *((f, {"align_corners": True}, [ints(11, 13)], code,
       {"align_corners": True, "half_pixel_centers": False}, [ints(11, 13)], IMAGE,
       [[2, 11, 13, 3]])
      for f, code in (("ResizeBilinear", "RESIZE_BILINEAR"),
                      ("ResizeNearestNeighbor", "RESIZE_NEAREST_NEIGHBOR"))),
]  # fmt: skip


# Output types, if they differ from the input type.
MAKES = {"BUCKETIZE": "int32"}


def cast_operand(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Return a constant in another type, unless it is an index."""
    return array.astype(dtype) if array.dtype == np.float32 else array


def model(case: Case, *, flex: bool, dtype: str = "float32") -> bytes:
    name, attributes, theirs, code, options, ours, shape, made = case
    m = Build()
    constants = (m.constant(cast_operand(c, dtype)) for c in (theirs if flex else ours))
    operands = [m.input(shape, dtype=dtype), *constants]
    outputs = [m.tensor(s, dtype=MAKES.get(code, dtype)) for s in made]
    if flex:
        m.output(*m.custom(f"Flex{name}", operands, outputs, flex_options(name, **attributes)))
    else:
        m.output(*m.op(code, operands, outputs, **options))
    return m.bytes()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_flex_operators_equal_tflite_operators(case: Case) -> None:
    """A Flex operator gives the same nodes and outputs as the TFLite operator."""
    theirs, ours = (convert(model(case, flex=flex)) for flex in (True, False))
    nodes = [[n.op_type for n in made.model.graph.node] for made in (theirs, ours)]
    assert nodes[0] == nodes[1]
    (port,) = ours.inputs
    x = np.random.default_rng(0).standard_normal(port.onnx_shape).astype(np.float32)
    results = [run_onnx(made.model, {made.inputs[0].name: x}) for made in (theirs, ours)]
    for a, b in zip(*results, strict=True):
        assert not difference(a, b, tolerance=0)


def test_empty_ellipsis_is_no_axis() -> None:
    """tf.signal.overlap_and_add slices x[..., :n, :] of two axes; TFLite's kernel cannot."""
    m = Build()
    x, end = m.input([None, 5], name="x"), m.input([3], dtype="int32", name="end")
    bounds = [m.constant(ints(0, 0, 0)), end, m.constant(ints(1, 1, 1))]
    options = flex_options("StridedSlice", begin_mask=4, ellipsis_mask=1, end_mask=4)
    m.output(*m.custom("FlexStridedSlice", [x, *bounds], [[None, 5]], options))
    model, rows = convert(m.bytes(), io_layout="tflite").model, floats(7, 5)
    for n in (1, 4, -2):
        (found,) = run_onnx(model, {"x": rows, "end": ints(0, n, 0)})
        np.testing.assert_array_equal(found, rows[..., :n, :])


def build_flex(
    name: str, shapes: list[Any], made: list[int], dtype: str = "float32", **attributes: Any
) -> bytes:
    m = Build()
    operands: list[Tensor] = [
        m.input(each) if isinstance(each, list) else m.constant(each) for each in shapes
    ]
    outputs = [m.tensor(made, dtype=dtype)]
    m.output(*m.custom(f"Flex{name}", operands, outputs, flex_options(name, **attributes)))
    return m.bytes()


def test_operators_of_integers_or_constants_are_converted() -> None:
    """Operators with integer outputs, or with constant operands only, are converted."""
    for name, shapes, made, dtype in (
        ("ArgMax", [[3, 5], scalar(1)], [3], "int64"), ("ArgMin", [[3, 5], scalar(1)], [3], I32),
        ("Shape", [[3, 5]], [2], I32), ("Rank", [[3, 5]], [], I32),
        ("Cast", [[3, 5]], [3, 5], I32),
        ("Fill", [ints(2, 3), np.float32(1)], [2, 3], "float32"),
        ("SplitV", [[3, 5], ints(5), scalar(1)], [3, 5], "float32"),
        ("Split", [scalar(1), [3, 5]], [3, 5], "float32"),
    ):  # fmt: skip
        assert convert(build_flex(name, shapes, made, dtype, num_split=1)).outputs


def test_clipping_becomes_min_and_max() -> None:
    result = convert(build_flex("ClipByValue", [[3, 5], np.float32(-1), np.float32(2)], [3, 5]))
    assert [node.op_type for node in result.model.graph.node] == ["Min", "Max"]


PADDED: dict[str, Any] = {**WINDOW, "padding": "EXPLICIT"}


@pytest.mark.parametrize(
    ("name", "shapes", "attributes"),
    [
        ("Conv2D", [[1, 3, 5, 7], floats(1, 1, 3, 2)], {**WINDOW, "data_format": "NCHW_VECT_C"}),
        ("Conv2D", [[1, 5, 7, 3], floats(1, 1, 3, 2)], PADDED),
        ("Conv2D", [[1, 5, 7, 3], floats(1, 1, 3, 2)], {**WINDOW, "strides": [2, 1, 1, 1]}),
        ("Conv2D", [[1, 5, 7, 3]], WINDOW),
        ("MaxPool", [[5, 7, 3]], {**WINDOW, "ksize": [1, 1, 3, 2], "data_format": "NCHW"}),
        ("Conv3D", [[1, 5, 7, 3, 2], floats(1, 1, 1, 2, 3)], {"strides": [1, 1]}),
        ("MaxPool", [[1, 5, 7, 3]], WINDOW),
        ("ConcatV2", [[3], [3], [1]], {}),
        ("Conv2DBackpropInput", [[1, 5, 7, 3], floats(1, 1, 2, 3)], WINDOW),
        ("BiasAdd", [[1, 3, 5, 7]], {"data_format": "NCHW"}),
        ("Conv2D", [[1, 5, 7, 3], floats(1, 1, 3, 2)], PADDED | {"explicit_paddings": [-1] * 8}),
        ("Conv2DBackpropInput", [ints(1, 5, 7, 3), floats(1, 2, 3), [1, 5, 7, 3]], WINDOW),
        ("Conv2DBackpropInput", [ints(1, 5, 7, 3), floats(1, 1, 3, 3), [1, 5, 7, 3]],
         PADDED | {"explicit_paddings": [1] * 8}),
        ("FusedBatchNormV3", [[1, 5, 7, 3], *[floats(3)] * 4], {"is_training": True}),
        ("Reverse", [[3], [1]], {}),
        ("SpaceToBatch", [[1, 4, 6, 3]], {"block_size": 2}),
        ("IdentityN", [[3], [3]], {}),
        ("DataFormatVecPermute", [[3]], {}),
        ("FusedBatchNormV3", [[1, 5, 7, 3]], {"is_training": False}),
        ("Reshape", [[3]], {}),
        ("ClipByValue", [[3]], {}),
        ("LRN", [[1, 5, 7, 3]], {"depth_radius": 1.0}),
        ("Qr", [[3, 3]], {}),
    ],
    ids=str,
)  # fmt: skip
def test_refuses_forms_without_a_counterpart(
    name: str, shapes: list[Any], attributes: dict[str, Any]
) -> None:
    message = f"Flex{name} .*: TensorFlow operator {name}, run by the Flex delegate"
    if name != "Qr":
        message += ", is converted, but not with these"
    with pytest.raises(UnsupportedOperators, match=message):
        convert(build_flex(name, shapes, [3], **attributes))


def test_the_form_that_has_no_counterpart_is_named() -> None:
    attributes = {**WINDOW, "data_format": "NCHW_VECT_C", "T": 1}
    with pytest.raises(UnsupportedOperators) as error:
        convert(build_flex("Conv2D", [[1, 3, 5, 7], floats(1, 1, 3, 2)], [3], **attributes))
    form = "attributes (strides=[1, 2, 1, 1], padding='SAME', data_format='NCHW_VECT_C'): convert"
    assert form in str(error.value)


@pytest.mark.parametrize("raw", [b"", b"\x01\x02", flex_options("Pad")[:-3]])
def test_unreadable_options_count_as_empty(raw: bytes) -> None:
    """Unreadable options count as empty."""
    m = Build()
    operands = [m.input([3]), m.constant(ints(1, 1).reshape(1, 2))]
    m.output(*m.custom("FlexPad", operands, [[5]], raw))
    assert convert(m.bytes()).nodes == 1
    m = Build()
    m.output(*m.custom("FlexConv2D", [m.input([3])], [[5]], raw))
    with pytest.raises(ConversionError):
        convert(m.bytes())


def test_registered_class_replaces_the_translation() -> None:
    """A registered class for a Flex operator replaces the translation, and reads the attributes."""

    class Own(FlexUnary):
        def check(self) -> None:
            assert dict(self.options) == {"squeeze_dims": [0], "T": "x"}

        def infer_outputs(self) -> Any:
            return [self.output.shape]

        def emit(self, g: Any, y: Any, *xs: Any) -> Any:
            return g.reshape(*xs, y.shape)

    register("FlexSqueeze")(Own)
    try:
        data = build_flex("Squeeze", [[1, 3]], [3], squeeze_dims=[0], T="x")
        assert [node.op_type for node in convert(data).model.graph.node] == ["Reshape"]
    finally:
        unregister("FlexSqueeze")


_POOL = struct.pack("<5i", 1, 2, 2, 2, 2)  # TfLitePoolParams: SAME, strides and window of 2 x 2
_VOLUME = {
    "data_format": "NDHWC",
    "padding": "SAME",
    "strides": [1, 2, 2, 2, 1],
    "ksize": [1, 2, 2, 2, 1],
}
_IMAGE = [1, 4, 6, 8]
# The shapes of the inputs of operators that have another name, and their options.
OPERANDS: dict[str, tuple[list[list[int]], Any]] = {
    "ATAN2": ([[3, 5], [3, 5]], {}),
    "SIGN": ([[3, 5]], {}),
    "AvgPool3D": ([[1, 4, 4, 4, 3]], _VOLUME),
    "MaxUnpooling2D": ([_IMAGE, _IMAGE], _POOL),
    "DEPTH_TO_SPACE": ([_IMAGE], {"block_size": 2}),
    "gated_delta_update": (
        [[1, 2, 4, 3], [1, 2, 4, 3], [1, 2, 4, 5], [1, 2, 4], [1, 2, 4], [1, 2, 3, 5]],
        {"mode": 0},
    ),
    "gdn_tril_inv": ([[1, 3, 3]], {}),
    "odml.scaled_dot_product_attention": (
        [[1, 5, 4, 8], [1, 7, 2, 8], [1, 7, 2, 8], [1, 1, 5, 7]],
        {"scale": 0.5, "logit_cap": 3.0},
    ),
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_of_operators_give_equal_nodes(name: str) -> None:
    """Random operators have tests in test_sampling.py, the inverse RFFT in test_inverse_rfft.py."""
    code = OTHER_NAMES[name]
    if code not in OPERANDS:
        assert code.startswith(("RANDOM", "MULTI", "IRFFT2D"))
        return
    shapes, options = OPERANDS[code]
    graphs = []
    for called in (name, code):
        m = Build()
        operands = [m.input(shape) for shape in shapes]
        outputs = [m.tensor([]) for _ in range(1 + (code == "gated_delta_update"))]
        if called.isupper():
            m.output(*m.op(called, operands, outputs, **options))
        else:
            m.output(*m.custom(called, operands, outputs, options))
        graphs.append(convert(m.bytes()).model.graph.node)
    assert graphs[0] == graphs[1]


def test_variables_become_states() -> None:
    """TensorFlow variables become states of the model."""
    m = Build()
    (handle,) = m.custom(
        "FlexVarHandleOp", [], [m.tensor([], dtype="resource")],
        flex_options("VarHandleOp", shared_name="v", container=""),
    )  # fmt: skip
    (old,) = m.custom(
        "FlexReadVariableOp", [handle], [m.tensor([3])], flex_options("ReadVariableOp")
    )
    (new,) = m.op("ADD", [old, m.input([3])], [[3]])
    m.custom("FlexAssignVariableOp", [handle, new], [], flex_options("AssignVariableOp"))
    m.output(new)
    made = convert(m.bytes())
    x, state = floats(3), floats(3) + 1
    y, after = run_onnx(made.model, dict(zip([e.name for e in made.model.graph.input], (x, state),
                                             strict=True)))  # fmt: skip
    assert not difference(x + state, y)
    assert not difference(y, after)


def test_named_tables_become_numbered_tables() -> None:
    """TensorFlow hash tables, which have names, become TFLite tables, which have numbers."""
    m = Build()
    inner = m.subgraph("init")
    handles = []
    for graph in (inner, m):
        (handle,) = graph.custom(
            "FlexHashTableV2", [], [graph.tensor([], dtype="resource")],
            flex_options("HashTableV2", shared_name="words", container=""),
        )  # fmt: skip
        handles.append(handle)
    keys, values = inner.constant(np.array([5, -3])), inner.constant(["five", "minus"])
    options = flex_options("LookupTableImportV2")
    inner.custom("FlexLookupTableImportV2", [handles[0], keys, values], [], options)
    m.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)
    made = [m.tensor([3], dtype="string")]
    wanted = m.input([3], dtype="int64")
    m.output(
        *m.custom(
            "FlexLookupTableFindV2", [handles[1], wanted, m.constant(["?"])], made,
            flex_options("LookupTableFindV2"),
        )
    )  # fmt: skip
    result = convert(m.bytes())
    (y,) = run_onnx(result.model, {result.inputs[0].name: np.array([-3, 4, 5])})
    assert y.tolist() == ["minus", "?", "five"]


def test_refuses_a_table_without_a_name() -> None:
    m = Build()
    options = flex_options("HashTableV2", shared_name="")
    m.output(*m.custom("FlexHashTableV2", [], [m.tensor([], dtype="resource")], options))
    with pytest.raises(ConversionError, match="HashTableV2, run by the Flex delegate, is conv"):
        convert(m.bytes())


def test_transposed_convolution_equals_tflite() -> None:
    """Conv2DBackpropInput equals TRANSPOSE_CONV with transposed weights."""
    weights, sizes = floats(3, 2, 4, 3), ints(2, 10, 14, 4)
    results = []
    for flex in (True, False):
        m = Build()
        filters = weights if flex else weights.transpose(2, 0, 1, 3)
        operands = [m.constant(sizes), m.constant(filters), m.input(IMAGE)]
        outputs = [m.tensor([2, 10, 14, 4])]
        window = {**WINDOW, "strides": [1, 2, 2, 1]}
        options = flex_options("Conv2DBackpropInput", **window)
        m.output(
            *m.custom("FlexConv2DBackpropInput", operands, outputs, options) if flex
            else m.op("TRANSPOSE_CONV", operands, outputs, stride_h=2, stride_w=2, padding="SAME")
        )  # fmt: skip
        made = convert(m.bytes())
        shape = made.inputs[0].onnx_shape
        x = np.arange(np.prod(np.array(shape, int))).reshape(shape).astype(np.float32) % 11
        results.append(run_onnx(made.model, {made.inputs[0].name: x})[0])
    assert not difference(results[0], results[1], tolerance=0)


STRIDES = {"strides": [1, 2, 1, 1], "padding": "SAME"}
MOVES = {"strides": [1, 1, 2, 1, 1], "padding": "SAME"}
POOLS = {**STRIDES, "ksize": [1, 3, 2, 1]}
VOLUME = [2, 4, 6, 5, 3]
NORMALIZED = [floats(3), floats(3), floats(3), np.abs(floats(3)) + 1]
EXPLICIT = {**STRIDES, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]}


@pytest.mark.parametrize(
    ("name", "attributes", "operands", "made"),
    [
        ("Conv2D", STRIDES, ["x", floats(3, 2, 3, 4)], [2, 3, 6, 4]),
        ("Conv2D", {**STRIDES, "strides": [1] * 4, "dilations": [1, 2, 1, 1]},
         ["x", floats(3, 2, 3, 4)], [2, 5, 6, 4]),
        ("Conv2D", EXPLICIT, ["x", floats(3, 2, 3, 4)], [2, 3, 6, 4]),
        ("DepthwiseConv2dNative", STRIDES, ["x", floats(3, 2, 3, 2)], [2, 3, 6, 6]),
        ("Conv2DBackpropInput", STRIDES, [ints(2, 10, 6, 4), floats(3, 2, 4, 3), "x"],
         [2, 10, 6, 4]),
        ("Conv2DBackpropInput", STRIDES, [ints(10, 6), floats(3, 2, 4, 3), "x"], [2, 10, 6, 4]),
        ("MaxPool", POOLS, ["x"], [2, 3, 6, 3]),
        ("AvgPool", POOLS, ["x"], [2, 3, 6, 3]),
        ("FusedBatchNormV3", {"is_training": False, "epsilon": 1e-3}, ["x", *NORMALIZED],
         [2, 5, 6, 3]),
        ("SpaceToDepth", {"block_size": 2}, ["x"], [2, 2, 3, 12]),
        ("DepthToSpace", {"block_size": 2}, ["x"], [2, 8, 12, 2]),
        ("Conv3D", MOVES, ["x", floats(2, 2, 3, 3, 4)], [2, 4, 3, 5, 4]),
        ("MaxPool3D", {**MOVES, "ksize": [1, 2, 3, 1, 1]}, ["x"], [2, 4, 3, 5, 3]),
    ],
    ids=str,
)  # fmt: skip
def test_images_with_channels_first_equal_those_with_channels_last(
    name: str, attributes: dict[str, Any], operands: list[Any], made: list[int]
) -> None:
    """TensorFlow's optimizer for GPUs makes NCHW operators of NHWC ones."""
    shape = {"SpaceToDepth": [2, 4, 6, 3], "DepthToSpace": [2, 4, 6, 8]}.get(name, [2, 5, 6, 3])
    shape = VOLUME if "3D" in name else shape
    rank = len(shape)
    first = [0, rank - 1, *range(1, rank - 1)]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    results = []
    for order, layout in ((range(rank), "NHWC"), (first, "NCHW")):
        told: dict[str, Any] = {"data_format": layout if rank == 4 else layout.replace("H", "DH")}
        for key, value in attributes.items():
            rows = np.reshape(value, (rank, -1)) if isinstance(value, list) else value
            told[key] = rows[[*order]].ravel().tolist() if isinstance(value, list) else value
        given = [
            [shape[i] for i in order] if isinstance(each, str)
            else each[[*order]] if each.dtype == np.int32 and each.size == rank else each
            for each in operands
        ]  # fmt: skip
        model = convert(
            build_flex(name, given, [made[i] for i in order], **told), io_layout="tflite"
        )
        feed = {model.inputs[0].name: x.transpose(order)}
        (y,) = run_onnx(model.model, feed)
        results.append(y.transpose(np.argsort(order)))
    assert results[0].shape == (*made,)
    assert not difference(results[0], results[1], tolerance=1e-6)


def test_explicit_paddings_become_a_pad() -> None:
    """Explicit paddings become a PAD before the operator."""
    attributes = {**WINDOW, "padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]}
    theirs = build_flex("Conv2D", [IMAGE, floats(3, 2, 3, 4)], [2, 3, 7, 4], **attributes)
    m = Build()
    pads = m.constant(np.reshape(ints(0, 0, 1, 2, 0, 1, 0, 0), (4, 2)))
    (padded,) = m.op("PAD", [m.input(IMAGE), pads], [[2, 8, 8, 3]])
    weights = m.constant(floats(3, 2, 3, 4).transpose(3, 0, 1, 2))
    m.output(*m.op("CONV_2D", [padded, weights, None], [[2, 3, 7, 4]], stride_h=2, stride_w=1,
                   padding="VALID"))  # fmt: skip
    made = [convert(data) for data in (theirs, m.bytes())]
    x = np.random.default_rng(0).standard_normal(made[0].inputs[0].onnx_shape).astype(np.float32)
    one, other = (run_onnx(each.model, {each.inputs[0].name: x})[0] for each in made)
    assert not difference(one, other, tolerance=0)


def quantize(x: Any, low: Any, high: Any, bits: int, first: int) -> Any:
    """Return x rounded to the steps of a range, which is shifted so that 0 is a step."""
    last = 2**bits - 1
    scale = (high - low) / (last - first)
    zero_point = np.floor(np.clip(first - low / scale, first, last) + 0.5)
    minimum, maximum = (first - zero_point) * scale, (last - zero_point) * scale
    steps = np.floor((np.clip(x, minimum, maximum) - minimum) / scale + 0.5)
    return (steps * scale + minimum).astype(np.float32)


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_fake_quantization_of_each_channel_equals_reference(bits: int, *, narrow: bool) -> None:
    x = 3 * floats(2, 5, 3)
    low, high = (np.array(each, np.float32) for each in ([-1, -0.3, 0], [2, 0.7, 3]))
    told: dict[str, Any] = {"num_bits": bits, "narrow_range": narrow}
    name = "FakeQuantWithMinMaxVars"
    want = quantize(x, low, high, bits, int(narrow))
    model = references.build_flex(f"{name}PerChannel", [x], [want], [low, high], **told)
    check_reference(model, [x], [want])
    want = quantize(x, low[0], high[0], bits, int(narrow))
    check_reference(
        references.build_flex(name, [x], [want], [low[0], high[0]], **told), [x], [want]
    )
    told |= {"min": -1.0, "max": 2.0}
    model = references.build_flex("FakeQuantWithMinMaxArgs", [x], [want], **told)
    check_reference(model, [x], [want])


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("bits", [2, 8, 16])
@pytest.mark.parametrize("channels", [(), (3,)])
def test_fake_quantization_with_computed_bounds_equals_reference(
    channels: tuple[int, ...], bits: int, *, narrow: bool
) -> None:
    """Without a range all elements become 0."""
    x, name = 3 * floats(2, 5, 3), "FakeQuantWithMinMaxVars" + "PerChannel" * len(channels)
    runs = []
    for low, high in ((-1.0, 2.0), (0.25, 1.5), (-3.5, -0.5), (0.0, 0.0)):
        first, last = (np.full(channels, each, np.float32) for each in (low, high))
        none = np.zeros_like(x)
        want = quantize(x, first, last, bits, int(narrow)) if low < high else none
        runs.append(([x, first, last], [want]))
    told: dict[str, Any] = {"num_bits": bits, "narrow_range": narrow}
    model = references.build_flex(name, runs[0][0], runs[0][1], **told)
    check_reference_runs(model, runs)


def test_filters_of_a_computed_number_of_channels_equal_litert() -> None:
    """`tf.image.ssim` repeats one filter for all channels, which it counts at run time."""
    m, filters = Build(), floats(3, 2, 1, 1)
    x = m.input([1, 5, 7, 3])
    (sizes,) = m.op("SHAPE", [x], [[4]], dtype="int32", out_type="int32")
    bounds = [m.constant(ints(n)) for n in (3, 4, 1)]
    (count,) = m.op("STRIDED_SLICE", [sizes, *bounds], [[1]], dtype="int32")
    parts = [m.constant(ints(1, 1)), count, m.constant(ints(1))]
    (multiples,) = m.op("CONCATENATION", parts, [[4]], dtype="int32", axis=0)
    repeated = m.tensor([3, 2, None, 1])
    m.op("TILE", [m.constant(filters), multiples], [repeated])
    options = flex_options("DepthwiseConv2dNative", strides=[1] * 4, padding="VALID")
    m.output(*m.custom("FlexDepthwiseConv2dNative", [x, repeated], [[1, 3, 6, 3]], options))
    image = floats(1, 5, 7, 3)
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 2), (1, 2))
    want = np.einsum("nhwcij,ij->nhwc", windows, filters[:, :, 0, 0])
    check_reference(m, [image], [want])


def test_explicit_padding_of_max_pool_is_less_than_any_number() -> None:
    told: dict[str, Any] = {
        "ksize": [1, 2, 2, 1], "strides": [1, 2, 1, 1], "padding": "EXPLICIT",
        "explicit_paddings": [0, 0, 1, 0, 0, 2, 0, 0],
    }  # fmt: skip
    x = -1 - np.abs(floats(1, 5, 7, 3))
    padded = np.pad(x, [(0, 0), (1, 0), (0, 2), (0, 0)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (1, 2))[:, ::2]
    want = windows.max((-1, -2))
    check_reference(references.build_flex("MaxPool", [x], [want], **told), [x], [want])


def test_channels_without_a_range_become_zero() -> None:
    x, bounds = floats(5, 2), np.array([[0, -1], [0, 2]], np.float32)
    want = quantize(x, np.float32(-1), np.float32(2), 8, 0)
    want[:, 0] = 0
    model = references.build_flex("FakeQuantWithMinMaxVarsPerChannel", [x], [want], [*bounds])
    check_reference(model, [x], [want])


@pytest.mark.parametrize("told", [{"num_bits": 1}, {"num_bits": 99}, {"bounds": [2, -1]}])
def test_refuses_fake_quantization_without_steps(told: dict[str, Any]) -> None:
    x, attributes = floats(5, 2), dict(told)
    low, high = attributes.pop("bounds", [-1, 2])
    further = [np.full(2, low, np.float32), np.full(2, high, np.float32)]
    name = "FakeQuantWithMinMaxVarsPerChannel"
    model = references.build_flex(name, [x], [x], further, **attributes)
    with pytest.raises(ConversionError, match="PerChannel, run by the Flex delegate, is converted"):
        convert(model.bytes())


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 2, 0, 1), (1, 1, 1, 1)])
def test_explicit_padding_of_a_transposed_convolution_is_cropped(pads: tuple[int, ...]) -> None:
    top, bottom, left, right = pads
    x, filters = floats(1, 4, 5, 3), floats(3, 2, 2, 3)
    full = images.transpose_conv(
        x, filters.transpose(2, 0, 1, 3), np.zeros(2, np.float32), (2, 1), same=False
    )
    want = full[:, top : full.shape[1] - bottom, left : full.shape[2] - right]
    told: dict[str, Any] = {
        "strides": [1, 2, 1, 1],
        "padding": "EXPLICIT",
        "explicit_paddings": [0, 0, *pads, 0, 0],
    }
    for size in (want.shape, want.shape[1:3]):
        m = Build()
        operands = [m.constant(ints(*size)), m.constant(filters), m.input(x.shape)]
        options = flex_options("Conv2DBackpropInput", **told)
        m.output(*m.custom("FlexConv2DBackpropInput", operands, [m.tensor(want.shape)], options))
        check_reference(m, [x], [want])
