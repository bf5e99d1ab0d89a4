"""builder/qdq.py: quantized storage to real numbers and back, in the nodes of each opset."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support import run_onnx
from tflite2onnx.builder.nodes import NeedsOpset, Value
from tflite2onnx.builder.qdq import QdqNodes
from tflite2onnx.errors import OperatorError
from tflite2onnx.quantization.storage import Storage, decode_constant
from tflite2onnx.tensor import DType, Quantization

DATA = np.arange(-12, 12, dtype=np.int8).reshape(2, 12)
GENERATOR = np.random.default_rng(0)
SCALES = GENERATOR.uniform(0.1, 1, (2, 3)).astype(np.float32)
ZEROS = GENERATOR.integers(-3, 4, (2, 3))
ONE = Quantization(SCALES[0, :1], ZEROS[0, :1])
EACH = Quantization(SCALES[:, 0], ZEROS[:, 0])
BLOCKS = Quantization(SCALES, ZEROS, 1, 4)


def model(g: QdqNodes, made: Value, shape: tuple[int, ...]) -> onnx.ModelProto:
    """Return the nodes with their constants as a model without inputs."""
    names: dict[Value, str] = {made: "y"}
    constants = []

    def name(value: Value | None) -> str:
        if value is None:
            return ""
        if value not in names:
            names[value] = f"v{len(names)}"
            if value.data is not None:
                constants.append(onnx.numpy_helper.from_array(value.data, names[value]))
        return names[value]

    nodes = [
        helper.make_node(
            n.op_type, [name(i) for i in n.inputs], [name(o) for o in n.outputs], **n.attributes
        )
        for n in g.nodes
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [], [y], constants)
    opset = [helper.make_opsetid("", g.opset)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("quantization", [ONE, EACH, BLOCKS], ids=["one", "each", "blocks"])
def test_dequantize_equals_decoded_constants(
    quantization: Quantization, opset: int, order: tuple[int, int], *, folds: bool
) -> None:
    """Every form and every order of the axes gives the numbers of `decode_constant`."""
    g = QdqNodes(opset, opset_is_fixed=True)
    kept = Storage(DType.INT8, quantization, folds=folds)
    x = g.store_constant(DATA.transpose(order), DType.INT8, kept, "x")
    made = g.dequantize(x, kept, order)
    types = [n.op_type for n in g.nodes]
    older = folds or (quantization is BLOCKS and opset < 21)
    assert ("DequantizeLinear" in types) == (not older)
    want = decode_constant(DATA, quantization).transpose(order)
    for optimize in (True, False):
        (have,) = run_onnx(model(g, made, want.shape), {}, optimize=optimize)
        np.testing.assert_allclose(have, want, rtol=1e-6)


def test_scalars_of_16_bits_are_dequantized() -> None:
    """Opset 13 has no QuantizeLinear to int16; a scalar has no axis to which a scale belongs."""
    kept = Storage(DType.INT16, ONE)
    data = np.asarray(-300, np.int16)
    g = QdqNodes(13, opset_is_fixed=True)
    made = g.dequantize(g.store_constant(data, DType.INT16, kept, "x"), kept, ())
    (have,) = run_onnx(model(g, made, ()), {})
    np.testing.assert_allclose(have, decode_constant(data, ONE), rtol=1e-6)


def test_scales_of_blocks_request_opset_21() -> None:
    """Scales of blocks request opset 21 if the opset is not fixed."""
    kept = Storage(DType.INT8, BLOCKS)
    g = QdqNodes(17)
    with pytest.raises(NeedsOpset) as need:
        g.dequantize(g.store_constant(DATA, DType.INT8, kept, "x"), kept, (0, 1))
    assert need.value.version == 21


@pytest.mark.parametrize(("dtype", "version"), [("INT4", 21), ("UINT4", 21), ("INT2", 25)])
def test_narrow_types_request_their_first_opset(dtype: str, version: int) -> None:
    kept = Storage(DType[dtype], ONE)
    with pytest.raises(NeedsOpset) as need:
        QdqNodes(17, opset_is_fixed=True).quantize(Value(), kept, (0, 1))
    assert need.value.version == version


def test_refuses_to_dequantize_without_a_scale() -> None:
    with pytest.raises(OperatorError, match="the int8 tensor must have a scale"):
        QdqNodes(17).dequantize(Value(), Storage(DType.INT8), (0, 1))


def test_4_bit_constants_are_stored_as_opset_allows() -> None:
    """4-bit constants are stored as 4 bits if the opset has the type, and as 8 bits otherwise.

    A constant without a scale has the type that the operators need.
    """
    narrow, wide = Storage(DType.INT4, ONE), Storage(DType.INT8, ONE)
    new, old = QdqNodes(21), QdqNodes(13, opset_is_fixed=True)
    assert new.widen_storage(narrow) is narrow
    assert old.widen_storage(narrow).dtype is DType.INT8
    assert old.widen_storage(Storage(DType.INT4)).dtype is DType.INT4
    assert new.store_constant(DATA, DType.INT4, narrow, "x").dtype is DType.INT4
    assert not new.nodes
    assert new.store_constant(DATA, DType.INT4, wide, "x").dtype is None
    assert [n.op_type for n in new.nodes] == ["Cast"]
    assert old.store_constant(DATA, DType.INT4, wide, "x").dtype is DType.INT8
    assert not old.nodes
