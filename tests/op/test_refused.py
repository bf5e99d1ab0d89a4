"""Invalid models: each is a valid model with one change, and has its message."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.op.ports import refusal_reason
from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.support import Build, pack
from tests.support.facts import TENSOR_TYPES
from tflite2onnx import ConversionError, convert

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[[Form], bytes]


class ChangeableModel:
    """A model with one operator, which tests can change together with its tensors."""

    def __init__(self, data: bytes) -> None:
        self._model = schema.ModelT.InitFromPackedBuf(data)
        (self._graph,) = self._model.subgraphs
        (self.op,) = self._graph.operators
        self.options = self.op.builtinOptions
        for places in ("inputs", "outputs", "intermediates"):
            there = getattr(self.op, places)
            setattr(self.op, places, [] if there is None else [*there])

    def input(self, index: int) -> Any:
        """Return an input of the operator."""
        return self._graph.tensors[self.op.inputs[index]]

    def output(self, index: int) -> Any:
        """Return an output of the operator."""
        return self._graph.tensors[self.op.outputs[index]]

    def refusal(self) -> str:
        """Return the message of the conversion error."""
        with pytest.raises(ConversionError) as caught:
            convert(pack(self._model, []))
        return str(caught.value)


def change_shape(index: int, *shape: int) -> Callable[[ChangeableModel], None]:
    """Return a change of an input's shape."""

    def change(model: ChangeableModel) -> None:
        model.input(index).shape = list(shape)

    return change


def remove_input(index: int) -> Callable[[ChangeableModel], None]:
    """Return a change that removes an input."""

    def change(model: ChangeableModel) -> None:
        model.op.inputs[index] = -1

    return change


def remove_scale(index: int) -> Callable[[ChangeableModel], None]:
    """Return a change that removes the scale of an input."""

    def change(model: ChangeableModel) -> None:
        model.input(index).quantization = None

    return change


def change_scale(index: int, scale: float) -> Callable[[ChangeableModel], None]:
    """Return a change of the scale of an input."""

    def change(model: ChangeableModel) -> None:
        model.input(index).quantization.scale = [scale]

    return change


def join_states(model: ChangeableModel) -> None:
    """Make h (18) the cell state (19) too, as converters of 2020 did."""
    model.op.inputs[19] = model.op.inputs[18]


def change_type(index: int, dtype: str) -> Callable[[ChangeableModel], None]:
    """Return a change of an input's element type."""

    def change(model: ChangeableModel) -> None:
        model.input(index).type = TENSOR_TYPES[dtype]

    return change


def option(name: str, value: Any) -> Callable[[ChangeableModel], None]:
    """Return a change of an option."""
    return lambda model: setattr(model.options, name, value)


def shorten(places: str, count: int) -> Callable[[ChangeableModel], None]:
    """Return a change that keeps the first inputs, outputs or intermediate tensors."""
    return lambda model: setattr(model.op, places, getattr(model.op, places)[:count])


ADDED = Form(auxiliary="added")


RECURRENT: list[tuple[bytes, Callable[[ChangeableModel], None], str]] = [
    (cells.svdf(Form()), option("rank", 0), "[3, 7], [22, 7], [22, 5] and 0"),
    (
        cells.svdf(Form()),
        change_shape(1, 11, 14),
        "got [11, 14] and [22, 5] for an input of [3, 7]",
    ),
    (cells.svdf(Form()), change_shape(3, 1, 11), "must be [11], got [1, 11]"),
    (cells.integer_svdf(Form()), remove_scale(0), "must all be quantized"),
    (cells.rnn(Form()), change_shape(0, 3, 5, 7, 1), "non-empty axes, got [3, 5, 7, 1]"),
    (cells.rnn(Form()), change_shape(4, 3, 12), "must be a state float32[3, 11]"),
    (
        cells.bidirectional_rnn(ADDED),
        change_shape(9, 3, 2, 5),
        "must have the same length, batch and type",
    ),
    (
        cells.bidirectional_rnn(ADDED),
        remove_input(11),
        "auxiliary weights must be given for both directions",
    ),
    (cells.lstm(Form(projection=True)), remove_input(16), "got 11 and 13"),
    (cells.basic_lstm(), shorten("inputs", 4), "got 4 and 5"),
    (cells.basic_lstm(), change_shape(0, 3, 7, 1), "must have 2 axes, got [3, 7, 1] and [3, 11]"),
    (cells.integer_basic_lstm(), change_scale(3, 0.5), "must be the product of the scales"),
    (cells.integer_basic_lstm(), change_scale(0, 0.5), "must have the scale 0.0078125"),
    (
        cells.integer_lstm(Form()),
        shorten("intermediates", 4),
        "5 intermediate tensors, got 4",
    ),
    (
        cells.integer_lstm(Form()),
        change_type(19, "int8"),
        "h, c and output must be int8, int16 and int8",
    ),
    (cells.integer_lstm(Form()), join_states, "c must be a tensor of its own, of int16"),
    (cells.integer_lstm(Form()), remove_scale(19), "must have a single scale"),
]


@pytest.mark.parametrize(("data", "change", "reason"), RECURRENT, ids=[r for *_, r in RECURRENT])
def test_refuses_changed_recurrent_operators(
    data: bytes, change: Callable[[ChangeableModel], None], reason: str
) -> None:
    model = ChangeableModel(data)
    change(model)
    assert reason in model.refusal()


def test_refuses_wrong_numbers_of_axes() -> None:
    m = Build()
    pair = m.input([2], dtype="int32")
    crops = m.constant(np.zeros((2, 2), np.int32))
    said = refusal_reason(m, *m.op("BATCH_TO_SPACE_ND", [m.input([8, 5]), pair, crops], [[2, 10]]))
    assert "must have 3 or 4 axes, got 2" in said
    m = Build()
    lengths = m.constant(np.array([8], np.int32))
    said = refusal_reason(m, *m.op("RFFT2D", [m.input([8]), lengths], [[5]], dtype="complex64"))
    assert "must have 2 or more axes, got [8]" in said
    m = Build()
    w, b = (m.constant(np.zeros(shape, np.float32)) for shape in ((3, 1, 1, 7), (3,)))
    said = refusal_reason(
        m, *m.op("CONV_2D", [m.input([5, 5, 7]), w, b], [[1, 5, 5, 3]], padding="SAME")
    )
    assert "axes NHWC, none empty, got [5, 5, 7]" in said


def test_refuses_windows_with_missing_inputs_or_scales() -> None:
    for change, reason in (
        (shorten("inputs", 4), "it must have 5 inputs, got 4"),
        (add_scale, "must not be quantized"),
    ):
        m = Build()
        numbers = [m.constant(np.array([1, 1], np.int64)) for _ in range(3)]
        operands = [m.input([5, 7], dtype="int32"), m.constant(np.array(0, np.int32)), *numbers]
        made = m.op("REDUCE_WINDOW", operands, [[5, 7]], dtype="int32", reduce_function="ADD")
        model = ChangeableModel(build_model(m, *made))
        change(model)
        assert reason in model.refusal()


def add_scale(model: ChangeableModel) -> None:
    """Add a scale to the input."""
    model.input(0).quantization = schema.QuantizationParametersT(scale=[0.5], zeroPoint=[0])


def test_refuses_sums_of_scattered_quantized_integers() -> None:
    m = Build()
    x = m.input([7, 5], dtype="int8", scale=0.5)
    where, new = m.input([3, 1], dtype="int32"), m.input([3, 5], dtype="int8", scale=0.5)
    body = m.subgraph("body")
    a, b = (body.input([], dtype="int8") for _ in "ab")
    body.output(*body.op("STABLEHLO_ADD", [a, b], [[]], dtype="int8"))
    made = m.op(
        "STABLEHLO_SCATTER",
        [x, where, new],
        [m.tensor([7, 5], dtype="int8", scale=0.5)],
        update_window_dims=[1],
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0],
        index_vector_dim=1,
        update_computation_subgraph_index=body.index,
    )
    assert "must not be quantized" in refusal_reason(m, *made)


def test_refuses_computed_sizes_and_ends() -> None:
    """Computed operands are refused where the ONNX form needs constants."""
    m = Build()
    x, size = m.input([1, 5, 7, 3], dtype="int16", scale=0.5), m.input([2], dtype="int32")
    made = m.tensor([1, 1, 1, 3], dtype="int16", scale=0.5)
    said = refusal_reason(m, *m.op("RESIZE_NEAREST_NEIGHBOR", [x, size], [made]))
    assert "its size must be constant" in said
    m = Build()
    begin, end = (m.input([1], dtype="int32") for _ in "be")
    operands = [m.input([7]), begin, end, m.constant(np.array([1], np.int32))]
    said = refusal_reason(m, *m.op("STRIDED_SLICE", operands, [m.tensor([None])], offset=True))
    assert "must be constant if offset is set" in said


def test_refuses_skip_grams_of_no_strings() -> None:
    m = Build()
    made = m.tensor([None], dtype="string")
    said = refusal_reason(
        m, *m.op("SKIP_GRAM", [m.input([0], dtype="string")], [made], ngram_size=2)
    )
    assert "must have at least one element" in said


def test_refuses_filters_for_other_channels_than_the_image() -> None:
    """Filters for other channels than the image's are refused; there are no groups."""
    m = Build()
    w, b = (m.constant(np.zeros(shape, np.float32)) for shape in ((4, 2, 2, 2), (4,)))
    options = struct.pack("<3i", 1, 1, 1)
    said = refusal_reason(
        m, *m.custom("Convolution2DTransposeBias", [m.input([1, 5, 7, 4]), w, b], [[]], options)
    )
    assert "the 2 channels of its filters, got 4" in said


def test_refuses_fake_quant_of_integers() -> None:
    m = Build()
    x = m.input([3], dtype="int32")
    said = refusal_reason(
        m, *m.op("FAKE_QUANT", [x], [[3]], dtype="int32", min=0.0, max=1.0, num_bits=8)
    )
    assert "must be float32, got int32" in said


@pytest.mark.parametrize("of_the_output", [True, False])
def test_refuses_selections_of_real_and_complex_numbers(*, of_the_output: bool) -> None:
    """LiteRT's kernel gives the output the type of its operands, whatever the file declares."""
    m = Build()
    types = ("float32", "complex64") if of_the_output else ("complex64", "float32")
    x = m.input([3], dtype=types[0])
    made = m.op("SELECT_V2", [m.input([3], dtype="bool"), x, x], [[3]], dtype=types[1])
    assert "its operands must have one complex type, got" in refusal_reason(m, *made)


def test_refuses_ranges_of_four_numbers() -> None:
    m = Build()
    numbers = [m.input([], dtype="int32") for _ in range(4)]
    made = m.op("RANGE", numbers, [m.tensor([None], dtype="int32")])
    assert "must have 3 inputs, got 4" in refusal_reason(m, *made)


def test_refuses_complex_products_with_an_activation() -> None:
    m = Build()
    x, y = (m.input([3], dtype="complex64") for _ in "xy")
    (product,) = m.op("MUL", [x, y], [[3]], fused_activation_function="RELU")
    assert "its activation function must be NONE for complex numbers" in refusal_reason(m, product)


def test_refuses_an_unknown_combiner() -> None:
    m = Build()
    table = m.constant(np.zeros((5, 3), np.float32))
    operands = [
        m.input([4], dtype="int32"),
        m.constant(np.zeros((4, 1), np.int32)),
        m.constant(np.array([2], np.int32)),
        m.input([4]),
        table,
    ]
    model = ChangeableModel(build_model(m, *m.op("EMBEDDING_LOOKUP_SPARSE", operands, [[2, 3]])))
    model.options.combiner = 7
    assert "(SQRTN), got 7" in model.refusal()


def build_model(m: Build, *outputs: Any) -> bytes:
    """Return a model with these outputs."""
    m.output(*outputs)
    return m.bytes()
