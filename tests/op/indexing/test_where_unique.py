"""WHERE and UNIQUE, and operators on their data-dependent sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build, Tensor
from tests.support.needs import needs_onnxruntime
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

SHAPES = [[7], [3, 5], [2, 3, 5], [2, 3, 1, 5]]


def add_where(m: Build, x: Tensor) -> Tensor:
    return m.op("WHERE", [x], [m.tensor([None, len(x.shape)], dtype="int64")])[0]


def unique(m: Build, x: Tensor, dtype: str = "int32", **fields: Any) -> list[Tensor]:
    outputs = [m.tensor([None], dtype=x.dtype, **fields), m.tensor(x.shape, dtype=dtype)]
    return m.op("UNIQUE", [x], outputs, idx_out_type=dtype)


def declared_sizes(result: Any) -> list[list[str | int]]:
    """Return the sizes of the outputs in the model; dynamic sizes are names."""
    return [
        [size.dim_param or size.dim_value for size in port.type.tensor_type.shape.dim]
        for port in result.model.graph.output
    ]


def sparse_numbers(shape: list[int], dtype: str) -> Any:
    """Return small numbers, many of them 0."""
    generator = np.random.default_rng(0)
    return (generator.integers(1, 4, shape) * (generator.random(shape) < 0.6)).astype(dtype)


@pytest.mark.parametrize("dtype", ["bool", "float32", "int8", "uint8", "int32", "uint32", "int64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_where_of_every_type_equals_litert(shape: list[int], dtype: str) -> None:
    m = Build()
    y = add_where(m, m.input(shape, dtype=dtype))
    result = check_outputs(m, y, inputs=[sparse_numbers(shape, dtype)])
    assert declared_sizes(result) == [[f"tensor_{y.index}_0", len(shape)]]


def test_equal_data_dependent_sizes_can_be_added() -> None:
    """Two data-dependent sizes that are equal at run time can be added."""
    m = Build()
    x = m.input([3, 5])
    (y,) = m.op("ADD", [add_where(m, x), add_where(m, x)], [m.tensor([None, 2], dtype="int64")])
    check_outputs(m, y, inputs=[sparse_numbers([3, 5], "float32")])


def test_empty_result_of_where_can_be_summed() -> None:
    """An empty result can be read by other operators; LiteRT does not return empty outputs."""
    m = Build()
    places = add_where(m, m.input([3, 5]))
    (total,) = m.op("SUM", [places, m.constant([0])], [[2]])
    check_outputs(m, total, inputs=[np.zeros([3, 5], np.float32)])


def test_where_of_unusual_floats_equals_litert() -> None:
    m = Build()
    y = add_where(m, m.input([6]))
    check_outputs(m, y, inputs=[np.array([np.nan, 0, -0.0, 1e-40, np.inf, 0.5], np.float32)])


@pytest.mark.parametrize("mode", [{"activations": "uint8"}, {"quantization": "float"}], ids=str)
def test_where_tests_integers_of_the_file_for_every_storage(mode: dict[str, Any]) -> None:
    """WHERE tests the file's integers, also if the model stores int8 as uint8 or as floats."""
    m = Build()
    kind: dict[str, Any] = {"dtype": "int8", "scale": 0.5, "zero_point": 3}
    (x,) = m.op("QUANTIZE", [m.input([3, 5])], [m.tensor([3, 5], **kind)])
    needs_onnxruntime(1, 24, "an optimization that leaves the graph whole")
    check_outputs(m, add_where(m, x), inputs=[sparse_numbers([3, 5], "float32") - 1.5], **mode)


def test_where_compares_stored_integers_with_0() -> None:
    """WHERE compares the stored integer with 0, not the real number."""
    m = Build()
    y = add_where(m, m.input([5], dtype="int8", scale=0.5, zero_point=3))
    check_outputs(m, y, inputs=[np.array([0, 3, -3, 1, 0], np.int8)])


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "int16", "int32", "int64"])
def test_unique_of_every_type_equals_litert(dtype: str, kind: str) -> None:
    m = Build()
    values, places = unique(m, m.input([11], dtype=dtype), kind)
    numbers = np.array([3, 0, 3, 7, 0, 5, 7, 1, 3, 2, 9]).astype(dtype)
    result = check_outputs(m, values, places, inputs=[numbers])
    assert declared_sizes(result) == [[f"tensor_{values.index}_0"], [11]]


def test_unique_of_stored_integers_equals_litert() -> None:
    m = Build()
    scale: dict[str, Any] = {"scale": 0.5, "zero_point": 3}
    outputs = unique(m, m.input([5], dtype="int8", **scale), **scale)
    check_outputs(m, *outputs, inputs=[np.array([4, -4, 4, 0, -4], np.int8)])


def test_data_dependent_sizes_stay_dynamic_in_other_operators() -> None:
    """Data-dependent sizes stay dynamic through several operators."""
    m = Build()
    x = m.input([3, 5])
    places = add_where(m, x)
    (picked,) = m.op("GATHER_ND", [x, places], [m.tensor([None])])
    (double,) = m.op("ADD", [picked, picked], [m.tensor([None])])
    (total,) = m.op("SUM", [double, m.constant([0])], [[]], dtype="float32")
    result = check_outputs(m, double, total, inputs=[sparse_numbers([3, 5], "float32")])
    assert declared_sizes(result) == [[f"tensor_{places.index}_0"], []]


def test_mask_selects_rows() -> None:
    """Rows are selected by a mask as in TensorFlow's boolean_mask."""
    m = Build()
    x, mask = m.input([7, 3]), m.input([7], dtype="bool")
    places = add_where(m, mask)
    (flat,) = m.op("SQUEEZE", [places], [m.tensor([None], dtype="int64")], squeeze_dims=[1])
    (rows,) = m.op("GATHER", [x, flat], [m.tensor([None, 3])])
    check_outputs(m, rows, seeds=[0, 1])


def test_data_dependent_outputs_stay_dynamic_in_static_models() -> None:
    m = Build()
    y = add_where(m, m.input([3, 5]))
    m.output(y)
    assert declared_sizes(convert(m.bytes(), static=True)) == [[f"tensor_{y.index}_0", 2]]


def test_where_of_dynamic_inputs_equals_litert() -> None:
    m = Build()
    x = m.input([None, 5])
    y = add_where(m, x)
    result = check_outputs(m, y, inputs=[sparse_numbers([4, 5], "float32")])
    assert declared_sizes(result) == [[f"tensor_{y.index}_0", 2]]


def test_refuses_unsupported_ranks_and_types() -> None:
    m = Build()
    m.output(*m.op("WHERE", [m.input([])], [m.tensor([None, 0], dtype="int64")]))
    m.output(add_where(m, m.input([3], dtype="int16")))
    m.output(*unique(m, m.input([3, 5])))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    for reason in (
        "must be float32[..., n], got float32[]",
        "got int16",
        "must be float32[n], got float32[3, 5]",
    ):
        assert reason in reasons


def test_number_of_boxes_may_be_dynamic() -> None:
    """The number of boxes may be dynamic."""
    m = Build()
    boxes, scores = m.input([None, 4], name="boxes"), m.input([None], name="scores")
    numbers = [m.constant(np.float32(n)) for n in (0.5, 0.1, 0.3)]
    inputs = [boxes, scores, m.constant(np.int32(3)), *numbers]
    m.output(
        *m.op(
            "NON_MAX_SUPPRESSION_V5",
            inputs,
            [
                m.tensor([3], dtype="int32"),
                m.tensor([3]),
                m.tensor([], dtype="int32"),
            ],
        )
    )
    (bits,) = m.op("BITCAST", [boxes], [m.tensor([None, 4], dtype="int32")])
    m.output(bits)
    generator = np.random.default_rng(0)
    given = [generator.random((11, 4)).astype(np.float32), generator.random(11).astype(np.float32)]
    check_outputs(m, inputs=given)


def test_batch_of_transforms_stays_dynamic() -> None:
    m = Build()
    x = m.input([None, 3, 8])
    length = m.constant(np.array([4, 8], np.int32))
    (y,) = m.op("RFFT2D", [x, length], [m.tensor([None, 4, 5], dtype="complex64")])
    (z,) = m.op("COMPLEX_ABS", [y], [m.tensor([None, 4, 5])])
    result = check_outputs(m, z, inputs=[sparse_numbers([5, 3, 8], "float32")])
    assert declared_sizes(result) == [["batch", 4, 5]]


def test_number_of_gathered_rows_may_be_dynamic() -> None:
    m = Build()
    x, indices = m.input([7, 5]), m.input([None, 1], dtype="int32")
    (y,) = m.op(
        "STABLEHLO_GATHER",
        [x, indices],
        [m.tensor([None, 5])],
        slice_sizes=[1, 5],
        offset_dims=[1],
        collapsed_slice_dims=[0],
        start_index_map=[0],
        index_vector_dim=1,
    )
    where = np.array([[3], [9], [-1], [0]], np.int32)
    result = check_outputs(m, y, inputs=[sparse_numbers([7, 5], "float32"), where])
    assert declared_sizes(result)[0][1] == 5
