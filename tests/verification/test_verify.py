"""tflite2onnx/verification: its inputs, its verdicts on differences, and its errors."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest

from tests.support import Build
from tests.support.small import build_flattening, chain, convolve, network
from tests.support.streams import build_sum
from tflite2onnx import Result, convert, verify, writer
from tflite2onnx.errors import ModelFileError, VerifyError
from tflite2onnx.options import IoLayout
from tflite2onnx.verification import Difference, Verdict, api, onnx_model, runner
from tflite2onnx.verification.inputs import RandomKind, draw_inputs
from tflite2onnx.verification.runtimes import open_interpreter, run_litert
from tflite2onnx.verification.tolerance import Limits, _measure_floats, compare

if TYPE_CHECKING:
    from pathlib import Path

INF, NAN = math.inf, math.nan


def damage_weight(result: Result) -> onnx.ModelProto:
    """Return the model with a small change of one weight of the last convolution."""
    model = onnx.ModelProto()
    model.CopyFrom(result.model)
    (weights,) = [i for i in model.graph.initializer if i.name == "y/biases"]
    biases = onnx.numpy_helper.to_array(weights).copy()
    biases[3] += 1
    weights.raw_data = biases.tobytes()
    return model


# Verifying


@pytest.mark.parametrize("io_layout", ["auto", "tflite", "onnx"])
@pytest.mark.parametrize("data", [network(), build_flattening(), chain("ABS")])
def test_right_conversion_is_accepted_in_all_layouts(data: bytes, io_layout: IoLayout) -> None:
    """The comparison is the same for all layouts of inputs and outputs."""
    result = convert(data, io_layout=io_layout)
    report = verify(data, result)
    assert report.ok
    assert [d.name for d in report.outputs] == [e.name for e in result.outputs]
    assert all(d.spread > 1 and d.relative < 1e-5 for d in report.outputs)
    assert (report.samples, report.seed) == (2, 0)


def test_all_ways_to_give_a_model_give_the_same_report(tmp_path: Path) -> None:
    """Paths, bytes, a ModelProto and a Result give the same report."""
    source, target = tmp_path / "model.tflite", tmp_path / "model.onnx"
    source.write_bytes(network())
    result = convert(source, target)
    want = verify(source, result)
    for model in (source, str(source), source.read_bytes()):
        for other in (result, result.model, target, str(target), target.read_bytes()):
            assert verify(model, other) == want
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "model.tflite"]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"batch": 2}, None),
        ({"batch": "batch"}, [{"batch": 4}, {"batch": 5}]),
        ({"shapes": {"x": [1, 12, 10, 3]}}, None),
        (
            {"shapes": {"x": ["batch", 9, "width", 3]}},
            [{"batch": 2, "width": 9}, {"batch": 3, "width": 10}],
        ),
        (
            {"batch": "n", "shapes": {"x": [1, "height", 40, 3]}},
            [{"n": 4, "height": 9}, {"n": 5, "height": 10}],
        ),
        ({"shapes": {"x": [1, 8, "width", 3]}}, [{"width": 9}, {"width": 10}]),
    ],
)
def test_litert_is_resized_to_other_sizes_than_in_the_file(
    options: dict[str, Any], sizes: list[dict[str, int]] | None
) -> None:
    """LiteRT is resized, and the second conversion that locates tensors has the same sizes.

    Dynamic axes are tried at two more sizes.
    """
    m = Build()
    x = m.input([1, 8, 8, 3], name="x")
    (y,) = m.op("ABS", [convolve(m, x, 4, "y")], [[1, 8, 8, 4]])
    m.output(*m.op("EXP", [y], [[1, 8, 8, 4]]))
    result = convert(m.bytes(), **options)
    for converted in (result, result.model):
        report = verify(m.bytes(), converted)
        assert report.ok
        assert len(report.tensors) == 3
        tried = report.other_sizes and [each.sizes for each in report.other_sizes]
        assert tried == sizes


@pytest.mark.parametrize("limit", [1000, 2**31])
def test_model_is_verified_from_a_file_only_if_it_is_too_large_for_memory(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """A large model is written to a temporary folder for ONNX Runtime."""
    result = convert(network())
    monkeypatch.setattr(writer, "LARGEST_FILE", limit)
    monkeypatch.setattr(onnx_model, "LARGEST_FILE", limit)
    with patch.object(Result, "save", autospec=True, side_effect=Result.save) as save:
        assert verify(network(), result).ok
    assert save.called == (limit == 1000)


def test_report_names_output_and_difference_of_wrong_conversion() -> None:
    """The report names the output and the difference."""
    result = convert(network())
    report = verify(network(), damage_weight(result))
    assert not report.ok
    (difference,) = report.outputs
    assert (difference.name, difference.dtype) == ("y", "float32")
    assert difference.largest == pytest.approx(1, abs=1e-3)
    assert difference.relative == pytest.approx(1 / difference.spread, rel=1e-3)
    assert difference.allowed == pytest.approx(1e-4 * difference.spread)
    assert verify(network(), damage_weight(result), tolerance=1).ok


def test_seed_determines_samples_and_worst_is_reported() -> None:
    """The seed determines the samples, and the worst sample is reported."""
    result = convert(network())
    one, two = (verify(network(), result, seed=s, samples=1) for s in (5, 6))
    assert one != two
    assert one == verify(network(), result, seed=5, samples=1)
    both = verify(network(), result, seed=5)
    assert both.samples == 2
    assert both.outputs[0].largest == max(r.outputs[0].largest for r in (one, two))


def test_state_continues_from_sample_to_sample() -> None:
    """State continues from sample to sample; a wrong initial state is found in the first."""
    result = convert(build_sum())
    report = verify(build_sum(), result, samples=4, per_operator=True)
    assert report.ok
    assert report.tensors
    assert report.operators
    model = result.model
    (memory,) = (each for each in model.graph.initializer if each.name == "memory")
    memory.raw_data = np.ones(30, np.float32).tobytes()
    assert not verify(build_sum(), model, samples=1).ok


# Inputs


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("float32", -4.3, 4.3),
        ("float64", -4.3, 4.3),
        ("float16", -4.3, 4.3),
        ("bool", 0, 1),
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("int16", -32768, 32767),
        ("int32", 0, 7),
        ("int64", 0, 7),
        ("uint32", 0, 7),
    ],
)
def test_random_inputs_have_type_shape_and_value_range(dtype: str, low: float, high: float) -> None:
    """Random inputs have the type and shape; integers of 8 and 16 bits take all values."""
    m = Build()
    m.output(m.input([31, 37, 41], dtype=dtype))
    (array,) = draw_inputs(open_interpreter(m.bytes()), 0)
    assert (array.dtype.name, array.shape) == (dtype, (31, 37, 41))
    close = max(0.5, high / 1000)  # 50,000 random numbers do not cover all int16 values
    assert array.min() == pytest.approx(low, abs=close)
    assert array.max() == pytest.approx(high, abs=close)


def test_complex_inputs_are_random_in_both_parts() -> None:
    """Both parts of complex inputs are random."""
    m = Build()
    m.output(m.input([31, 37], dtype="complex64"))
    (array,) = draw_inputs(open_interpreter(m.bytes()), 0)
    assert array.dtype == np.complex64
    assert array.real.std() == pytest.approx(1, abs=0.1)
    assert array.imag.std() == pytest.approx(1, abs=0.1)


def test_scalar_inputs_are_verified() -> None:
    """A scalar has the shape []."""
    m = Build()
    x = m.input([])
    m.output(*m.op("ABS", [x], [[]]))
    assert verify(m.bytes(), convert(m.bytes())).ok


def test_string_inputs_must_be_given() -> None:
    """String inputs must be given, because they have no random values."""
    m = Build()
    m.output(m.input([3], dtype="string", name="words"))
    with pytest.raises(VerifyError, match="the input words must be given"):
        draw_inputs(open_interpreter(m.bytes()), 0)


# Differences


@pytest.mark.parametrize(
    ("dtype", "want", "have", "largest", "spread", "ok"),
    [
        ("float32", [0, 1000], [0, 1000.0625], 0.0625, 1000, True),
        ("float32", [0, 1000], [0, 1000.125], 0.125, 1000, False),
        ("float32", [-500, 500], [-500, 500.0625], 0.0625, 1000, True),
        ("float32", [1000, 1000], [1000, 1000.0625], 0.0625, 1000, True),
        ("float32", [NAN, INF, -INF, 1], [NAN, INF, -INF, 1], 0, 1, True),
        ("float32", [INF, 1], [-INF, 1], INF, 1, False),
        ("float32", [NAN, 1], [1, 1], INF, 1, False),
        ("float32", [1, 1], [NAN, 1], INF, 1, False),
        ("float32", [NAN], [NAN], 0, 0, True),
        ("float32", [0, 0], [0, 1], 1, 0, False),
        ("float32", [0, 0], [0, 1e-44], 1e-44, 0, True),
        ("float32", [], [], 0, 0, True),
        ("float64", [0, 1e300], [0, -1e300], 2e300, 1e300, False),
        ("float16", [0, 1], [0, 1.001], 0.001, 1, True),
        ("float16", [0, 1], [0, 1.004], 0.004, 1, False),
        ("complex64", [0, 1000j], [0.0625, 1000j], 0.0625, 1000, True),
        ("complex64", [0, 1000j], [1, 1000j], 1, 1000, False),
        ("int8", [-128, 5], [-127, 5], 1, 133, True),
        ("int8", [-128, 5], [-126, 5], 2, 133, False),
        ("int8", [-128], [127], 255, 128, False),
        ("uint8", [0], [1], 1, 0, True),
        ("int32", [7], [7], 0, 7, True),
        ("int32", [7], [8], 1, 7, False),
        ("int64", [-(2**63)], [2**63 - 1], 2**64, 2**63, False),
        ("uint64", [2**64 - 1], [0], 2**64, 2**64, False),
        ("bool", [True, False], [True, False], 0, 1, True),
        ("bool", [True, False], [True, True], 1, 1, False),
    ],
)
def test_allowed_difference_depends_on_the_element_type(
    dtype: str, want: list[Any], have: list[Any], largest: float, spread: float, *, ok: bool
) -> None:
    """Floats have a tolerance, narrow integers may differ by a step, other types must be equal."""
    difference = compare("y", np.array(want, dtype), np.array(have, dtype))
    assert difference.largest == pytest.approx(largest, rel=0.05, abs=1e-45)
    assert (difference.spread, difference.dtype) == (spread, dtype)
    assert difference.ok == ok


def test_largest_float32_equals_infinity_of_its_sign() -> None:
    """Kernels of LiteRT limit their results to float32, other types have other largest numbers."""
    want = np.array([np.finfo(np.float32).max, np.finfo(np.float32).min], np.float32)
    have = np.array([INF, -INF], np.float32)
    assert compare("y", want, have).ok
    assert not compare("y", want, have[::-1]).ok
    assert not compare("y", want.astype(np.float64), have.astype(np.float64)).ok


@pytest.mark.parametrize("power", range(-30, 31, 4))
def test_differences_of_float32_are_those_of_float64(power: int) -> None:
    """Squares that float32 can hold are summed as float32, others as float64."""
    generator = np.random.default_rng(power + 30)
    for part in (0, 1e-3, 1e3):
        want, noise = generator.standard_normal((2, 100)) * 10.0**power
        pair = want.astype(np.float32), (want + part * noise).astype(np.float32)
        found, expected = (
            compare("y", *(each.astype(kind) for each in pair)) for kind in ("float32", "float64")
        )
        for name in ("largest", "spread", "decibels"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-4)
        sizes = [power + np.log10(each) for each in (1, part) if each]
        assert (_measure_floats(*pair) is not None) == all(-12 < size < 12 for size in sizes)


def test_difference_of_type_or_shape_has_a_reason() -> None:
    """A difference of type or shape has no number."""
    array = np.zeros((2, 3), np.float32)
    for other in (np.zeros((2, 3), np.int32), np.zeros((3, 2), np.float32)):
        difference = compare("y", array, other)
        assert not difference.ok
        assert "float32[2, 3] in LiteRT" in difference.reason
        assert f"{other.dtype}{list(other.shape)} in ONNX Runtime" in difference.reason


def test_relative_difference_is_that_of_the_spread() -> None:
    """Equal arrays have infinite dB; noise without signal has minus infinite dB."""
    assert Difference("y", "float32", 1, 4, 0).relative == 0.25
    assert Difference("y", "float32", 0, 0, 0).relative == 0
    assert Difference("y", "float32", 1, 0, 0).relative == INF


# Quantized networks, and kernels that differ


def build_quantized(*, seed: int = 0) -> bytes:
    """Return an int8 convolution and a softmax."""
    generator = np.random.default_rng(seed)
    m = Build()
    x = m.input([2, 5, 7, 3], dtype="int8", scale=0.05, zero_point=3, name="x")
    weights = generator.integers(-127, 128, (11, 3, 3, 3)).astype(np.int8)
    w = m.constant(weights, scale=0.02)
    b = m.constant(generator.integers(-999, 999, 11).astype(np.int32), scale=0.001, name="biases")
    (y,) = m.op("CONV_2D", [x, w, b], [[2, 5, 7, 11]], stride_h=1, stride_w=1, scale=0.1)
    z = m.tensor([2, 5, 7, 11], dtype="int8", scale=1 / 256, zero_point=-128, name="z")
    m.output(*m.op("SOFTMAX", [y], [z], beta=1.0))
    return m.bytes()


def shift_biases(result: Result, steps: int) -> onnx.ModelProto:
    """Return a quantized model with all biases changed by some of their steps."""
    model = onnx.ModelProto()
    model.CopyFrom(result.model)
    (biases,) = [i for i in model.graph.initializer if i.name == "biases"]
    array = onnx.numpy_helper.to_array(biases)
    wrong = array + np.where(np.arange(array.size) % 2, steps, -steps).astype(array.dtype)
    biases.raw_data = wrong.tobytes()
    return model


def test_noise_in_quantized_network_is_right_above_20_decibels() -> None:
    """Several steps are right if the noise is below a tenth of the signal."""
    result = convert(build_quantized())
    right, noisy, wrong = (
        verify(build_quantized(), shift_biases(result, steps)).outputs[0] for steps in (0, 40, 2000)
    )
    assert right.largest <= 1
    assert right.ok
    assert noisy.largest > 1
    assert 20 < noisy.decibels < right.decibels
    assert noisy.ok
    assert wrong.decibels < 20
    assert not wrong.ok
    assert wrong.complaint.endswith(f"at least 20.0 dB, got {wrong.decibels:.1f} dB")


def test_noise_in_float_network_is_a_difference() -> None:
    """In a float network noise is a difference as any other."""
    difference = verify(network(), damage_weight(convert(network()))).outputs[0]
    assert not difference.ok
    assert difference.complaint == (
        f"its difference must be at most {difference.allowed:.3g}, got {difference.largest:.3g}"
    )


def test_files_of_half_precision_have_its_limits() -> None:
    m = Build()
    (wide,) = m.op("CAST", [m.input([2, 3], dtype="float16")], [[2, 3]], dtype="float32")
    (y,) = m.op("EXP", [wide], [[2, 3]])
    m.output(*m.op("CAST", [y], [[2, 3]], dtype="float16"))
    (output,) = verify(m.bytes(), convert(m.bytes())).outputs
    assert output.ok
    assert output.allowed == pytest.approx(1e-2 * output.spread)


@pytest.mark.parametrize(("apart", "ok"), [(0.6, True), (0.4, False)])
def test_outputs_may_differ_as_much_as_litert_kernel_sets(
    monkeypatch: pytest.MonkeyPatch, apart: float, *, ok: bool
) -> None:
    """An output may differ as much as LiteRT's own kernel sets differ from each other."""
    plain, run_plain = open_interpreter(network()), run_litert

    def other(_: Any, kernels: str = "", *, inner: bool = False) -> Any:
        if kernels == "AUTO":
            raise VerifyError("an operator is missing")
        return kernels or open_interpreter(network(), inner=inner)

    def run_any(kernels: Any, inputs: Any) -> list[Any]:
        outputs = run_plain(plain if isinstance(kernels, str) else kernels, inputs)
        return [made + apart * (kernels == "BUILTIN_REF") for made in outputs]

    monkeypatch.setattr(api._ModelPair, "_open", other)  # noqa: SLF001
    monkeypatch.setattr(runner, "run_litert", run_any)
    report = verify(network(), damage_weight(convert(network())), tensors=False)
    (output,) = report.outputs
    assert output.ok == ok
    assert output.allowed == pytest.approx(2 * apart, rel=1e-3)
    assert (
        not report.ok
    )  # the operator is wrong on LiteRT's inputs, and other kernels do not excuse it
    assert report.verdicts["y"] is Verdict.WRONG


@pytest.mark.parametrize(
    ("want", "have", "decibels"),
    [
        ([3.0, -4.0], [3.0, -4.0], INF),
        ([3.0, -4.0], [3.0, -4.5], 20),
        ([0.0, 0.0], [0.0, 1.0], -INF),
        ([INF, 1.0], [INF, 1.1], 20),
        ([INF, 1.0], [1.0, 1.0], -INF),
        ([3e300, -4e300], [3e300, -4.5e300], 20),
        ([], [], INF),
    ],
)
def test_decibels_ignore_equal_infinities(
    want: list[float], have: list[float], decibels: float
) -> None:
    """Equal infinities are no difference."""
    difference = compare("y", np.array(want), np.array(have), Limits(decibels=19))
    assert difference.decibels == pytest.approx(decibels)
    assert difference.ok == (decibels > 19)


def test_real_numbers_of_neighbouring_integers_are_a_step_apart() -> None:
    """Their difference may be rounded to slightly more than a step."""
    integers, step = np.arange(-128, 127, dtype=np.float32), np.float32(0.0499)
    want, have = integers * step, (integers + 1) * step
    assert (np.abs(want - have) > step).any()
    assert compare("y", want, have, Limits(step=float(step))).ok
    assert not compare("y", want, have + step / 1000, Limits(step=float(step))).ok


def test_difference_that_is_not_allowed_is_worse() -> None:
    """A difference that is not allowed is worse, then the larger difference."""
    small, large = (Difference("y", "int8", steps, 255, 1) for steps in (1, 2))
    noisy = replace(large, largest=5, decibels=30, enough=20)
    assert small.select_worse(large) is large.select_worse(small) is large
    assert noisy.select_worse(large) is large.select_worse(noisy) is large
    assert noisy.select_worse(small) is noisy


# Models that cannot be verified


@pytest.mark.parametrize("package", ["onnxruntime", "ai_edge_litert.interpreter"])
def test_error_for_missing_package_gives_install_command(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """The message gives the command to install the package."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(VerifyError, match=r"pip install tflite2onnx\[verify\]"):
        verify(network(), convert(network()))


def test_error_has_the_reason_why_litert_fails(tmp_path: Path) -> None:
    """The message gives the reason of the system, or LiteRT's."""
    result = convert(network())
    with pytest.raises(ModelFileError, match=r"cannot read .*none\.tflite"):
        verify(tmp_path / "none.tflite", result)
    m = Build()
    m.output(*m.custom("Mystery", [m.input([2])], [[2]]))
    with pytest.raises(VerifyError, match=r"LiteRT cannot run the model: .*Mystery"):
        verify(m.bytes(), result)


def test_error_says_what_to_do_with_operators_of_tensorflow() -> None:
    m = Build()
    x = m.input([2], dtype="int32")
    m.output(*m.custom("FlexBitwiseAnd", [x, x], [[2]]))
    with pytest.raises(VerifyError, match=r"operators of TensorFlow \(Flex\).* without --verify"):
        verify(m.bytes(), convert(network()))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_small_numbers_are_tried_if_litert_refuses_inputs(dtype: str) -> None:
    """If LiteRT refuses random inputs, numbers from 0 to 1 are tried, unless they are given."""
    m = Build()
    x = m.input([5], dtype=dtype, name="x")
    index = m.op("CAST", [x], [[5]], dtype="int32")[0] if dtype == "float32" else x
    m.output(*m.op("GATHER", [m.constant(np.ones((2, 3), np.float32)), index], [[5, 3]]))
    assert verify(m.bytes(), samples=3).ok
    with pytest.raises(VerifyError, match="LiteRT cannot run the model"):
        verify(m.bytes(), inputs={"x": np.full(5, 7, dtype)})


def test_error_has_the_reason_why_onnx_runtime_fails(tmp_path: Path) -> None:
    """The message has ONNX Runtime's reason, or that the file does not exist."""
    for other, reason in (
        (tmp_path / "none.onnx", r"cannot read .*none\.onnx: No such file"),
        (b"nothing", "must be an ONNX model, got another or a damaged file"),
        (onnx.ModelProto(), "ONNX Runtime cannot run the model: "),
    ):
        with pytest.raises(VerifyError, match=reason):
            verify(network(), other)


def test_exception_without_message_is_described_by_its_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception without a message is described by its type."""

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(onnx.ModelProto, "SerializeToString", fail, raising=False)
    with pytest.raises(VerifyError, match="ONNX Runtime cannot run the model: MemoryError"):
        verify(network(), onnx.ModelProto())


@pytest.mark.parametrize("value", [None, "", "{", "5", "[5]", "{}x", '[{"name": "x"}]'])
def test_missing_or_damaged_layout_metadata_is_an_error(value: str | None) -> None:
    """Missing or damaged layouts in the metadata are an error."""
    model = convert(network()).model
    for entry in list(model.metadata_props):
        if entry.key == "tflite2onnx.inputs":
            if value is None:
                model.metadata_props.remove(entry)
            else:
                entry.value = value
    with pytest.raises(VerifyError, match="must have the metadata of tflite2onnx"):
        verify(network(), model)


def test_models_of_different_networks_are_refused() -> None:
    """A model with other inputs, or with another number of outputs, is an error."""
    m = Build()
    m.output(convolve(m, m.input((2, 5, 7, 3), name="x"), 11, "y"))
    for other in (chain("ABS"), m.bytes()):
        with pytest.raises(VerifyError, match="must be converted from this TFLite model"):
            verify(build_flattening(), convert(other))


def test_output_of_another_rank_is_a_difference() -> None:
    """An output of another rank is a difference, not an exception."""
    model = convert(chain("ABS")).model
    y = model.graph.output[0]
    model.graph.node[0].output[0] = "a"
    nodes = [
        onnx.helper.make_node("Flatten", ["a"], ["y"]),
    ]
    model.graph.node.extend(nodes)
    model.graph.value_info.clear()
    y.CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 15]))
    (difference,) = verify(chain("ABS"), model).outputs
    assert not difference.ok
    assert difference.reason == "float32[2, 3, 5] in LiteRT, float32[2, 15] in ONNX Runtime"


def test_tame_inputs_are_0_or_1_unless_quantized() -> None:
    """Tame inputs that may be indices are 0 or 1; quantized inputs stay random."""
    m = Build()
    fields: dict[str, dict[str, Any]] = {
        "float32": {},
        "int32": {},
        "bool": {},
        "int8": {"scale": 0.5},
    }
    for dtype, more in fields.items():
        m.output(m.input([50], dtype=dtype, name=dtype, **more))
    real, index, truth, stored = draw_inputs(open_interpreter(m.bytes()), 0, {}, RandomKind.UNIT)
    assert 0 <= real.min() < real.max() < 1
    assert set(index.tolist()) == {0, 1}
    assert set(truth.tolist()) == {False, True}
    assert stored.min() < -50
