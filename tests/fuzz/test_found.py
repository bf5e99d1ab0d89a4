"""Models that a version converted wrongly, or refused without a reason: what holds of them now.

A model that is converted equals LiteRT at the sizes of its file, at other sizes and in a batch. A
refusal says what is wrong. The files of `found` are damaged and may crash LiteRT, so that other
processes run them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.contrib.flex.test_scatter import build_category_encoding
from tests.contrib.tensor_lists.test_lower_tensor_lists import build_loop
from tests.dynamic_sizes.test_dilated_convolutions import dilate
from tests.fuzz.campaign import Judge
from tests.fuzz.test_campaign import file_case
from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.passes.batch.test_add_batch import build
from tests.passes.batch.test_independent import normalize_steps
from tests.passes.patterns.test_fuse_bits import SHAPE, make_keras
from tests.quantized.test_batch_matmul import make_product_of_constants
from tests.support import Build, sparsify
from tests.support.flex import flex_options
from tests.support.torch_layers import Torch
from tests.targets.openvino.test_faults import build_bounded_layer, build_product
from tests.verification.test_other_kernels import build_narrow_product, draw_weights
from tflite2onnx import ConversionError, convert, verify
from tflite2onnx.verification.results import Verdict

FOUND = Path(__file__).parent / "found"
INT4: dict[str, Any] = {"dtype": "int4", "scale": 0.01}
INT16: dict[str, Any] = {"dtype": "int16", "scale": 0.01}


class Fault(NamedTuple):
    """A model that was handled wrongly, and what holds of it.

    Attributes:
        build: returns the model.
        options: options of the conversion.
        sizes: other shapes of the first input.
        batch: whether samples are independent, so that `batch` converts them.
        refused: what the refusal says; empty if the model is converted.
        twin: returns a model with the same meaning, if LiteRT lacks an operator of the model.
        verdict: the worst that verification may say.
    """

    build: Callable[[], bytes]
    options: Mapping[str, Any] = {}
    sizes: Sequence[Sequence[int]] = ()
    batch: bool = True
    refused: str = ""
    twin: Callable[[], bytes] | None = None
    verdict: Verdict = Verdict.RIGHT


def find_largest() -> bytes:
    m = Build()
    operands = [m.input(SHAPE), m.constant(np.int32(1))]
    m.output(*m.op("ARG_MAX", operands, [SHAPE[:1]], dtype="int64", output_type=4))
    return m.bytes()


def encode_categories() -> bytes:
    """Return CategoryEncoding of Keras by operators that LiteRT has."""
    m = Build()
    numbers = [m.constant(n) for n in (np.int32(9), np.float32(1), np.float32(0))]
    (rows,) = m.op("ONE_HOT", [m.input([1, 4], dtype="int32"), *numbers], [[1, 4, 9]], axis=-1)
    m.output(*m.op("REDUCE_MAX", [rows, m.constant([1])], [[1, 9]]))
    return m.bytes()


def multiply_without_bias() -> bytes:
    m = Build()
    weights = np.random.default_rng(0).integers(-127, 128, (4, 6)).astype(np.int8)
    x = m.input([2, 6], dtype="int8", scale=0.05, zero_point=-5)
    w = m.constant(weights, scale=[0.01, 0.02, 0.03, 0.04], zero_point=[0] * 4)
    made = m.tensor([2, 4], dtype="int8", scale=0.3, zero_point=3)
    m.output(*m.op("FULLY_CONNECTED", [x, w, None], [made]))
    return m.bytes()


def decode_beams() -> bytes:
    m = Build()
    outputs = [m.tensor([1, 2], dtype="int64"), m.tensor([1], dtype="int64")]
    outputs += [m.tensor([2], dtype="int64"), m.tensor([1, 1])]
    operands = [m.input([10, 1, 5]), m.constant([10])]
    m.output(*m.custom("FlexCTCBeamSearchDecoder", operands, outputs, flex_options("CTCBeam")))
    return m.bytes()


def add_scales_of_an_axis() -> bytes:
    """Return a sum that broadcasting moves away from the axis of its scales."""
    m = Build()
    inputs = [m.input([1, 1, 10, 64], **INT16), m.input([2, 1, 1, 10, 64], **INT16)]
    scales: dict[str, Any] = {
        "scale": np.linspace(0.01, 0.05, 64),
        "zero_point": [0] * 64,
        "axis": 3,
    }
    made = m.tensor([1, 1, 10, 64], dtype="int16", **scales)
    m.output(*m.op("ADD", inputs, [made], pot_scale_int16=False))
    return m.bytes()


def add_sparse_constant() -> bytes:
    """Return a sum of two constants; the sparse one has fewer values than its shape needs."""
    m = Build()
    values, sparsity = sparsify(np.eye(6, dtype=np.float32), ["dense", "csr"])
    sparse = m.constant(values, shape=[360, 6], sparsity=sparsity)
    m.output(*m.op("ADD", [sparse, m.constant(np.ones((1, 6), np.float32))], [[360, 6]]))
    return m.bytes()


def slice_one_row() -> bytes:
    """Return STRIDED_SLICE that removes axes; the file knows no size."""
    m = Build()
    x = m.input([None] * 4, **INT16)
    bounds = [m.constant(each) for each in ([0, -2, 0, 0], [0, 0, 0, 8], [1] * 4)]
    masks: dict[str, Any] = {"begin_mask": 13, "end_mask": 1, "shrink_axis_mask": 3}
    m.output(*m.op("STRIDED_SLICE", [x, *bounds], [m.tensor([None, None], **INT16)], **masks))
    return m.bytes()


def convolve_int4() -> bytes:
    m = Build()
    weights = m.constant(np.ones((4, 3, 3, 2), np.int8), scale=[0.01] * 4, zero_point=[0] * 4)
    inputs = [m.input([1, 3, 5, 2], **INT4), weights, m.constant(np.zeros(4, np.int64))]
    made = m.tensor([1, 1, 3, 4], **INT4)
    m.output(*m.op("CONV_2D", inputs, [made], padding="VALID", stride_h=1, stride_w=1))
    return m.bytes()


def convolve_by_computed_filter() -> bytes:
    m = Build()
    inputs = [m.input([1, 6, 5, 4], **INT16), m.input([1, 3, 3, 4], **INT16)]
    inputs.append(m.constant(np.zeros(4, np.int64), scale=1e-4))
    made = m.tensor([1, 4, 3, 4], **INT16)
    options: dict[str, Any] = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    m.output(*m.op("DEPTHWISE_CONV_2D", inputs, [made], **options))
    return m.bytes()


def build_list(*, listed: bool) -> bytes:
    return build_loop(Build(), listed=listed, batch=2, first=5, grows=listed).bytes()


FAULTS = {
    "argmax of Keras": Fault(
        partial(make_keras, "ARG_MAX"), sizes=[(5, 4), (2, 7)], twin=find_largest
    ),
    "argmax of Keras for OpenVINO": Fault(
        partial(make_keras, "ARG_MAX"), {"target": "openvino"}, twin=find_largest
    ),
    "dilated convolution of any length": Fault(
        partial(dilate, "Conv1D", 2, same=True), sizes=[(1, 19, 4), (1, 33, 4)]
    ),
    "LSTM of int8 whose hidden values have a scale of their own": Fault(
        partial(cells.integer_lstm, Form(rescaled=True, batch=1)), sizes=[(1, 9, 7), (1, 2, 7)]
    ),
    "LSTM of int8 as floats": Fault(
        partial(cells.integer_lstm, Form(rescaled=True, batch=1)), {"quantization": "float"}
    ),
    "symmetric layer without bias": Fault(
        multiply_without_bias, {"quantization": "symmetric"}, verdict=Verdict.CLOSE
    ),
    "LayerNorm of PyTorch": Fault(partial(build, normalize_steps), sizes=[(1, 5, 3), (1, 5, 12)]),
    "CategoryEncoding of Keras": Fault(
        lambda: build_category_encoding(9, 9).bytes(),
        sizes=[(1, 3), (1, 7)],
        twin=encode_categories,
    ),
    "list that grows": Fault(
        partial(build_list, listed=True),
        sizes=[(2, 4, 3), (3, 5, 3)],
        batch=False,
        twin=partial(build_list, listed=False),
    ),
    "decoding of beams": Fault(
        decode_beams, refused="make its input, the logits, the output of the model"
    ),
    "HardSigmoid of beta 0 for OpenVINO": Fault(
        build_bounded_layer, {"target": "openvino"}, sizes=[(1, 5, 4, 4), (2, 1, 1, 4)]
    ),
    "attention of int8 for OpenVINO": Fault(build_product, {"target": "openvino"}, batch=False),
    "GRU of PyTorch": Fault(Torch("GRU", times=40).model().bytes),
    "product of two int8 constants": Fault(lambda: make_product_of_constants(2, 1)[0]),
    "weights of -8 beside LiteRT's kernel": Fault(
        lambda: build_narrow_product(draw_weights(-8)), sizes=[(1, 64), (5, 64)]
    ),
    "scales along an axis that moves": Fault(
        add_scales_of_an_axis, {"opset": 13}, refused="one for each scale.*correct the scales"
    ),
    "sparse constant of another shape": Fault(
        add_sparse_constant, {"quantization": "float"}, refused="sparse tensor .* is damaged"
    ),
    "slice without known sizes": Fault(
        slice_one_row, sizes=[(2, 5, 6, 8), (1, 3, 7, 9)], batch=False
    ),
    "computed depthwise filter of int16": Fault(
        convolve_by_computed_filter, refused="must be int8 beside int16 data, got int16, which"
    ),
    "convolution of int4 data": Fault(
        convolve_int4, refused="must be uint8, int8 or int16, got int4"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_model_equals_litert_or_is_refused_with_a_reason(name: str) -> None:
    fault = FAULTS[name]
    data = fault.build()
    if fault.refused:
        with pytest.raises(ConversionError, match=fault.refused):
            convert(data, **fault.options)
        return
    name = convert(data, **fault.options).inputs[0].name
    changes: list[dict[str, Any]] = [{}, *({"shapes": {name: [*each]}} for each in fault.sizes)]
    changes += [{"batch": 3}] * fault.batch
    for change in changes:
        result = convert(data, **fault.options, **change)
        report = verify(fault.twin() if fault.twin else data, result)
        assert report.verdict in (Verdict.RIGHT, fault.verdict), (change, report)


# The verdict on each file, or what its refusal says.
OUTCOMES = {
    "arg_min_output_type.tflite": "it must have 2 inputs, got 1",
    "average_pool_3d_without_window.tflite": "options, shapes or constants contradict each other",
    # The kernel counts elements by the bytes of bools, so that some rows are never written.
    "bool_bytes_where.tflite": "converted",
    "broadcast_to_one_input.tflite": "it must have 2 inputs, got 3",
    "bundle_deletes_old.task": "File name too long; choose a shorter name",
    "cast_complex_shape.tflite": "the model must have an output, got none",
    "constant_input.tflite": "converted, same numbers",
    "cumsum_int64_scale.tflite": "converted, LiteRT refuses",
    "custom_empty_code.tflite": "it must have a name for the ONNX node, got none",
    "densify_without_input.tflite": "it must have 19 values, got 5",
    "depth_to_space_variant.tflite": "tensor_0 must hold numbers or text, got variant",
    "depthwise_zero_point.tflite": "tensor_0 must have the axes NHWC, none empty, got []",
    "dilate_overflow.tflite": "the sizes of tensor_4 must be 0 to 2147483647",
    "embedding_negative_index.tflite": "tensor_4 must be float32[rows, width, ...], got float32[3]",
    "embedding_sums_unsorted.tflite": "the indices tensor_1 must be sorted",
    "expand_dims_axis.tflite": "converted, same numbers",
    "foreign_options_add.tflite": "converted, same numbers",
    "fourier_lengths_of_three_axes.tflite": "tensor_1 must be int32[2], got float32[1, 4, 4]",
    "fully_connected_many_rows.tflite": "converted, LiteRT refuses",
    "gather_float8.tflite": "ONNX's Gather does not take float8_e5m2",
    "hang_strided_slice.tflite": "t1 must have an element for each axis, got 2147483647",
    "hard_swish_scale.tflite": "converted, LiteRT refuses",
    "if_output_shape.tflite": "tensor_2 must be constant or computed before it is read",
    "int64_scale_cumsum.tflite": "converted, same numbers",
    "irfft2d_empty.tflite": "tensor_0 must have non-empty axes and pairs, got [5, 0, 2]",
    "look_up_int4.tflite": "converted, not compared",
    "lrn_no_options.tflite": "converted, same numbers",
    "lstm_turned_state.tflite": "tensor_0 must have the batch of its states, 11, got [5, 1, 7]",
    "lstm_uint16_weights.tflite": "the model must have an output, got none",
    "lstm_unknown_activation.tflite": "the model must have an output, got none",
    "matrix_diag_two_inputs.tflite": "it must have 1 input, got 2",
    "maximum_of_three.tflite": "it must have 2 inputs, got 1",
    "mean_complex_constant.tflite": "converted, LiteRT refuses",
    "mean_without_elements.tflite": "converted, same numbers",
    "mfcc_unsorted_keys.tflite": "dct_coefficient_count must be from 1 to filterbank_channel_count",
    "minimum_many_inputs.tflite": "input 10 is missing",
    "mixed_scale_add.tflite": "must all be float32, float16, int16, int32 or int64, got int8",
    "mixed_scale_add_int16.tflite": "t1 must have a scale, because other operands have one",
    "mixed_scale_maximum.tflite": "converted, same numbers",
    "mixed_scale_sum.tflite": "t2 must have a scale, because other operands have one",
    "nul_name.task": "the path of a file in the bundle must be inside the bundle, got ''",
    "output_variant.tflite": "tensor_0 must hold numbers or text, got variant",
    "pack_int4.tflite": "converted, LiteRT refuses",
    "quantize_bfloat16.tflite": "it must convert float32 or quantized integers to quantized",
    "quantize_float16.tflite": "it must convert float32 or quantized integers to quantized",
    "quantize_scale_overflow.tflite": "converted, differs in extreme numbers",
    "range_warning.tflite": "a constant must have 16,777,216 elements at most, got inf",
    "reshape_by_missing_shape.tflite": "tensor_14 must be constant or computed before it is read",
    "reshape_no_output.tflite": "it must have an output, got none",
    "reshape_shape.tflite": "converted, same numbers",
    "resize_bilinear_far.tflite": "converted, same numbers",
    "rfft2d_output_rank.tflite": "tensor_0 must be float32 or float64, got uint8",
    "select_v2_rank.tflite": "converted, same numbers",
    "shift_left_broadcast.tflite": "its inputs must have one shape, got [2] and []",
    "signal_stacker_output_shape.tflite": "converted",
    "skip_gram_output_rank.tflite": "tensor_0 must be string, got int8",
    "space_to_batch_output_type.tflite": "tensor_3 must be bfloat16, got float32",
    "space_to_batch_padding.tflite": "the padded sizes must have at most 2**62 elements",
    "split_without_equal_sizes.tflite": "converted",
    "state_uint64.tflite": "converted, LiteRT refuses",
    "state_without_elements.tflite": "converted, LiteRT refuses",
    "string_pad_typeerror.tflite": "its tensors must hold numbers, got string",
    "svdf_float16_state.tflite": "the model must have an output, got none",
    "tile_repeats_of_two_axes.tflite": "converted",
    "transpose_conv_shape_of_five.tflite": "stack must be int32[4], got int32[5]",
    "unpack_many_slices.tflite": "it must have an output for each of 16777216 slices, got 2",
    "while_condition_of_one_axis.tflite": "converted, same numbers",
    "empty_output_for_npus.tflite": "converted",
    "kept_cast_without_output.tflite": "tensor_5 must be constant or computed",
    "kept_declared_shape.tflite": "converted, same numbers",
    "kept_less_of_one_input.tflite": "converted",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "average_pool_3d_without_window.tflite": {"target": "tensorrt"},
    "custom_empty_code.tflite": {"allow_custom": True},
    "empty_output_for_npus.tflite": {"target": "qnn"},
    "kept_cast_without_output.tflite": {"allow_custom": True},
    "kept_declared_shape.tflite": {"allow_custom": True},
    "kept_less_of_one_input.tflite": {"allow_custom": True},
    "transpose_conv_shape_of_five.tflite": {"opset": 15},
}


@pytest.mark.parametrize("path", sorted(FOUND.iterdir()), ids=lambda path: path.name)
def test_files_of_fixed_faults_are_judged_as_recorded(path: Path, judge: Judge) -> None:
    """The minimised files of fixed faults are converted or refused as recorded."""
    case = file_case(path.read_bytes(), **OPTIONS.get(path.name, {}))
    verdict, outcome = judge.judge(case), OUTCOMES[path.name]
    assert verdict.kind.startswith("converted" if outcome.startswith("converted") else "refused")
    assert outcome in (verdict.kind if verdict.kind.startswith("converted") else verdict.text)
