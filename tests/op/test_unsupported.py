"""Unknown custom operators: they are kept on request, or the error explains them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support import Build, Tensor
from tests.support.small import convolve
from tflite2onnx import cli, convert
from tflite2onnx.errors import ConversionError

# A name of each kind of TensorFlow's operators for training.
_TRAINING = (
    "ReluGrad",
    "FusedBatchNormGradV3",
    "MaxPoolGradGradWithArgmax",
    "SparseSegmentMeanGradV2",
    "FakeQuantWithMinMaxVarsGradient",
    "FakeQuantWithMinMaxVarsPerChannelGradient",
    "BroadcastGradientArgs",
    "Conv2DBackpropFilter",
    "Conv3DBackpropFilterV2",
    "DepthwiseConv2dNativeBackpropInput",
    "CudnnRNNBackpropV3",
    "ResourceApplyAdam",
    "ResourceSparseApplyAdagradV2",
    "SparseSoftmaxCrossEntropyWithLogits",
    "CTCLossV2",
)


def model(code: str, options: Any = b"", **fields: Any) -> bytes:
    m = Build()
    x, z = m.input([1, 5, 7, 3], name="x", **fields), m.input([2], name="z", dtype="int64")
    outputs = [m.tensor([1, 5, 7, 3], name="y", **fields), m.tensor([3], dtype="bool")]
    m.output(*m.custom(code, [x, None, z], outputs, options))
    return m.bytes()


def convert_custom_node(data: bytes, **options: Any) -> onnx.NodeProto:
    made = convert(data, allow_custom=True, **options).model
    onnx.checker.check_model(made)
    node: onnx.NodeProto
    (node,) = [node for node in made.graph.node if node.domain]
    assert [(o.domain, o.version) for o in made.opset_import][1:] == [("tflite.custom", 1)]
    return node


def test_kept_operator_has_attributes_inputs_and_types() -> None:
    """A kept operator has its options as attributes, its inputs in place, and typed outputs."""
    options = {
        "domain": 7,
        "op_type": "x",
        "number": 3,
        "ratio": 0.5,
        "on": True,
        "name": "sum",
        "sizes": [1, 2],
        "of": [1.5],
    }
    data = model("Mystery", options)
    node = convert_custom_node(data)
    assert (node.op_type, node.domain) == ("Mystery", "tflite.custom")
    assert list(node.input) == ["x", "", "z"]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert attributes == {**options, "op_type": b"x", "on": 1, "name": b"sum"}
    ports = convert(data, allow_custom=True).outputs
    assert [(end.dtype, end.onnx_shape) for end in ports] == [
        ("float32", (1, 5, 7, 3)),
        ("bool", (3,)),
    ]


@pytest.mark.parametrize(
    "options", [b"\x01\x02\x03", {"nested": {"a": 1}}, {"mixed": [1, "a"]}, {"empty": []}]
)
def test_options_with_bytes_or_nested_values_become_one_attribute(options: Any) -> None:
    (attribute,) = convert_custom_node(model("Mystery", options)).attribute
    assert attribute.name == "custom_options"
    assert isinstance(options, dict) or attribute.s == options


def test_kept_operator_without_options_has_no_attributes() -> None:
    assert not convert_custom_node(model("Mystery")).attribute


def test_stored_integers_of_the_file_are_not_changed() -> None:
    """Custom operators read and write the file's integers, whatever the storage options are."""
    data = model("Mystery", dtype="int8", scale=0.5, zero_point=3)
    made = convert(data, allow_custom=True)
    assert made.nodes == 1
    assert [end.dtype for end in made.inputs] == ["int8", "int64"]
    for options in ({"activations": "uint8"}, {"quantization": "float"}):
        made = convert(data, allow_custom=True, **options)  # type: ignore[arg-type]  # the values are str
        (node,) = [node for node in made.model.graph.node if node.domain]
        types = {v.name: v.type.tensor_type.elem_type for v in made.model.graph.value_info}
        assert types[node.input[0]] == types[node.output[0]] == onnx.TensorProto.INT8


def test_images_are_passed_in_tflite_order() -> None:
    m = Build()
    x = convolve(m, m.input([1, 5, 7, 3]), 4, "first")
    (x,) = m.custom("Mystery", [x], [[1, 5, 7, 4]])
    m.output(convolve(m, x, 3, "second"))
    made = convert(m.bytes(), allow_custom=True).model
    types = [node.op_type for node in made.graph.node]
    assert types.count("Transpose") >= 2
    where = types.index("Mystery")
    assert types[where - 1 : where + 2] == ["Transpose", "Mystery", "Transpose"]


def test_command_line_option_keeps_custom_operators(tmp_path: Path) -> None:
    source = tmp_path / "model.tflite"
    source.write_bytes(model("Mystery"))
    assert cli.main([str(source)]) == 1
    assert cli.main([str(source), "--allow-custom"]) == 0
    assert onnx.load(tmp_path / "model.onnx").graph.node[0].domain == "tflite.custom"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("Mystery", "register one, or keep it with --allow-custom"),
        ("edgetpu-custom-op", "compiled for the Edge TPU, and runs nowhere else: convert the"),
        ("ethos-u", "compiled for an Arm Ethos-U"),
        ("NeutronGraph", "compiled for an NXP Neutron NPU"),
        ("XC_conv2d_v2", "compiled for an XMOS xcore"),
        ("MTKEXT_CONV_2D", "compiled for a MediaTek NPU"),
        ("cros-mtk-pre-compile", "compiled for a MediaTek NPU"),
        ("odml.moe_experts", "export the model with composites as STABLEHLO_COMPOSITE"),
        ("RandomUniformInt", "it uses a random generator"),
        ("BroadcastGradientArgs", "it is part of training"),
        ("LceBconv2d", "without larq_compute_engine"),
        ("PosenetDecoderOp", "convert the network without it"),
        ("TFLM_DECODE", "weights that were compressed for tflite-micro"),
        ("AlignmentPointsToTransformMatrix", "only a GPU delegate runs it"),
        ("DISPATCH_OP", "the model before its compilation"),
        ("TFSentencepieceTokenizeOp", "it works on text"),
        ("WhitespaceTokenizeWithOffsetsV2", "it works on text"),
        ("NGramHash", "it works on text"),
        ("CTCBeamSearchDecoder", "make its input, the logits, the output of the model"),
        ("FlexBesselI0e", "operator BesselI0e, run by the Flex delegate, is not"),
        ("FlexDecodeJpeg", "DecodeJpeg, run by the Flex delegate, reads or writes a file format"),
        ("FlexParseExample", "decodes or encodes bytes"),
        ("FlexStringLength", "ONNX has no operator: count them before the model runs"),
        ("FlexStringSplit", "works on text"),
        ("FlexStaticRegexReplace", "works on text"),
        ("FlexRandomShuffle", "uses a random generator that ONNX does not have"),
        *((f"Flex{name}", "is part of training") for name in _TRAINING),
        *((name, "it is part of training") for name in _TRAINING),
        ("FlexMutableHashTableV2", "hash table of TensorFlow"),
        ("FlexLookupTableInsertV2", "hash table of TensorFlow"),
        ("FlexAssignAddVariableOp", "changes a variable in place"),
        ("FlexTensorSliceDataset", "something outside of the model"),
        ("FlexRaggedTensorToSparse", "ragged or sparse tensors"),
        ("FlexSelfAdjointEigV2", "decomposes matrices"),
        ("FlexSvd", "decomposes matrices"),
        ("FlexTensorListResize", "keeps a list of tensors"),
        ("FlexStatefulPartitionedCall", "calls functions that are not in the file"),
        ("Flex", "register one"),
    ],
)
def test_refusals_explain_each_kind_of_operator(code: str, words: str) -> None:
    with pytest.raises(ConversionError) as error:
        convert(model(code))
    assert f"{code} (operator 0, y): " in str(error.value)
    assert words in str(error.value)


def add_where(m: Build, x: Tensor) -> Tensor:
    """Return indices, whose number is data-dependent."""
    return m.op("WHERE", [x], [m.tensor([None, 1], dtype="int64")])[0]


def test_kept_operator_may_stand_beside_dynamic_sizes() -> None:
    """A custom operator with static operands is kept beside dynamic and data-dependent sizes."""
    m = Build()
    m.output(*m.op("ABS", [m.input([None, 3], name="x")], [m.tensor([None, 3])]))
    m.output(add_where(m, m.input([7])), *m.custom("Mystery", [m.input([2])], [[2]]))
    result = convert(m.bytes(), allow_custom=True)
    assert [end.sizes[0] for end in result.inputs] == ["batch", 7, 2]
    assert [isinstance(end.sizes[0], str) for end in result.outputs] == [True, True, False]


@pytest.mark.parametrize("allow_custom", [True, False])
def test_dynamic_inputs_get_fixed_sizes_or_are_refused(
    caplog: pytest.LogCaptureFixture, *, allow_custom: bool
) -> None:
    """An input of a custom operator gets a fixed size; a data-dependent size is refused."""
    m = Build()
    x = m.input([None, 3], name="x")
    m.output(*m.custom("Mystery", [x], [m.tensor([None, 3], name="y")]))
    if allow_custom:
        result = convert(m.bytes(), allow_custom=True)
        assert [end.sizes for end in (*result.inputs, *result.outputs)] == [(1, 3), (1, 3)]
        assert "it needs the size of axis 0 of x as a constant" in caplog.text
    indices = add_where(m, m.input([7]))
    m.output(*m.custom("Mystery", [indices, indices], [[2]]))
    count = "1 operator" if allow_custom else "2 operators"  # one that reads two sizes counts once
    with pytest.raises(ConversionError, match=f"^{count} cannot be converted:\n  Mystery"):
        convert(m.bytes(), allow_custom=allow_custom)


def test_builtin_operators_are_kept_without_a_class_too() -> None:
    m = Build()
    m.output(*m.op("CONCAT_EMBEDDINGS", [m.input([2])], [[2]]))
    with pytest.raises(ConversionError, match="this operator is not supported"):
        convert(m.bytes())
    (node,) = convert(m.bytes(), allow_custom=True).model.graph.node
    assert (node.op_type, node.domain) == ("CONCAT_EMBEDDINGS", "tflite.builtin")


def test_a_constant_operand_is_an_initializer() -> None:
    m = Build()
    operands = [m.input([2], name="x"), m.constant(np.ones(2, np.float32))]
    m.output(*m.custom("Mystery", operands, [[2]]))
    made = convert(m.bytes(), allow_custom=True).model
    assert [list(each.dims) for each in made.graph.initializer] == [[2]]


def test_builtin_operators_that_cannot_be_converted_are_kept_too() -> None:
    """With allow_custom, a built-in operator without an ONNX form is a node with its options."""
    m = Build()
    x, y = m.input([2, 3], name="x"), m.tensor([2, 3])
    m.op("ABS", [x], [y])
    m.output(*m.op("LOCAL_RESPONSE_NORMALIZATION", [y], [m.tensor([2, 3])], radius=2, alpha=0.5))
    with pytest.raises(ConversionError):
        convert(m.bytes())
    made = convert(m.bytes(), allow_custom=True).model
    onnx.checker.check_model(made)
    first, kept = made.graph.node
    assert (first.op_type, first.domain) == ("Abs", "")
    assert (kept.op_type, kept.domain) == ("LOCAL_RESPONSE_NORMALIZATION", "tflite.builtin")
    attributes = {a.name: helper.get_attribute_value(a) for a in kept.attribute}
    assert attributes == {"radius": 2, "bias": 0.0, "alpha": 0.5, "beta": 0.0}


def test_passes_read_no_options_of_operators_that_are_kept() -> None:
    """A custom operator with the options of a reduction keeps them, and the RESHAPE after it."""
    m = Build()
    operands = [m.input([2, 3, 4], name="x"), m.constant([1])]
    (y,) = m.custom("Mystery", operands, [[2, 4]], {"keep_dims": False})
    m.output(*m.op("RESHAPE", [y], [[2, 1, 4]], new_shape=[2, 1, 4]))
    kept, reshape = convert(m.bytes(), allow_custom=True).model.graph.node
    assert (kept.op_type, reshape.op_type) == ("Mystery", "Reshape")
    assert [(a.name, a.i) for a in kept.attribute] == [("keep_dims", 0)]


@pytest.mark.parametrize(
    ("options", "size"), [({"shapes": {"x": [3, 4]}}, 3), ({"batch": 3}, 3), ({"batch": "N"}, "N")]
)
def test_operators_that_fit_other_sizes_are_not_kept(
    options: dict[str, Any], size: int | str
) -> None:
    m = Build()
    (y,) = m.op("ABS", [m.input([1, 4], name="x")], [[1, 4]])
    m.output(*m.op("NEG", [y], [[1, 4]]))
    result = convert(m.bytes(), allow_custom=True, **options)
    assert [node.op_type for node in result.model.graph.node] == ["Abs", "Neg"]
    assert result.outputs[0].sizes == (size, 4)
