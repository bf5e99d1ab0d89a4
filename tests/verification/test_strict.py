"""tflite2onnx/verification: each operator has an allowed number of steps, and causes are named.

A wrong operator makes the verdict wrong, even if the signal-to-noise ratio of the output is high.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support import Build
from tests.verification.test_inner_tensors import build_deep, damage_model, find_node, wrong_pad
from tests.verification.test_verify import build_quantized, shift_biases
from tflite2onnx import convert, verify
from tflite2onnx.cli import main
from tflite2onnx.errors import VerifyError
from tflite2onnx.options import ActivationType, WeightType
from tflite2onnx.reader.model import read_model
from tflite2onnx.utils import processor
from tflite2onnx.utils.processor import describe_sets, list_instructions
from tflite2onnx.verification import Report, Verdict, inner_tensors, onnx_model
from tflite2onnx.verification.inner_tensors import match_places
from tflite2onnx.verification.runtimes import make_session

MODELS = Path(__file__).parents[2] / "assets/models"
QEMU = "qemu-x86_64"
Captured = pytest.CaptureFixture[str]


# Steps


def test_operator_beyond_its_steps_makes_verdict_wrong() -> None:
    """An operator beyond its steps makes the verdict wrong, although the output is close."""
    report = verify(build_quantized(), shift_biases(convert(build_quantized()), 200))
    (output,) = report.outputs
    assert output.ok
    assert output.decibels > 20
    convolution, softmax = report.operators
    assert convolution.difference.largest > 1
    assert convolution.difference.decibels > 20
    assert (convolution.difference.allowed, softmax.difference.allowed) == (1, 1)
    assert not report.ok
    assert report.diverging is convolution
    # Noise would excuse the output if no operator were wrong.
    assert list(report.verdicts.values()) == [Verdict.WRONG, Verdict.DIFFERS]


def test_output_difference_of_steps_makes_operators_run_alone() -> None:
    """If only outputs are compared, a difference of some steps makes the operators run alone."""
    report = verify(build_quantized(), shift_biases(convert(build_quantized()), 200), tensors=False)
    assert report.tensors == ()
    assert report.diverging is not None
    assert report.diverging.operator == "CONV_2D"
    assert verify(build_quantized(), tensors=False).operators == ()


@pytest.mark.parametrize(("scale", "unit"), [(2e-4, 2e-4), (2e-5, 5.6e-5), (2e-4, 4e-5)])
@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("EXP", {}),
        ("GELU", {"approximate": True}),
        ("GELU", {"approximate": False}),
        ("LOG", {}),
        ("RSQRT", {}),
    ],
)
def test_steps_of_interpolated_tables_are_the_largest_error_of_the_kernel(
    code: str, options: dict[str, Any], scale: float, unit: float
) -> None:
    """Over all inputs, the kernel differs from the function by the allowed steps, or one less.

    The ONNX model has the table itself of LOG and RSQRT, unless compilers read one scale a tensor.
    """
    x = np.arange(1 if code == "RSQRT" else -32768, 32768).astype(np.int16)
    m = Build()
    y = m.tensor(x.shape, dtype="int16", scale=unit, name="y")
    m.output(*m.op(code, [m.input(x.shape, dtype="int16", scale=scale, name="x")], [y], **options))
    result = convert(m.bytes(), quantization="qdq-uniform")
    report = verify(m.bytes(), result, inputs={"x": x}, per_operator=True)
    (alone,) = report.operators
    assert report.ok
    assert alone.difference.allowed - 2 <= alone.difference.largest <= alone.difference.allowed
    if code in ("LOG", "RSQRT"):
        (alone,) = verify(m.bytes(), inputs={"x": x}, per_operator=True).operators
        assert alone.difference.largest == 0


def moving(code: str, **options: Any) -> bytes:
    """Return a convolution and an operator that only moves int8."""
    m = Build()
    kept: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
    x = m.input((1, 6, 6, 4), name="x", **kept)
    w = m.constant(np.full((4, 1, 1, 4), 40, np.int8), scale=0.01)
    b = m.constant(np.zeros(4, np.int32), scale=0.0005)
    kept["scale"] = 0.08  # so that a step of x changes y by a step
    y = m.tensor((1, 6, 6, 4), name="y", **kept)
    (y,) = m.op("CONV_2D", [x, w, b], [y], stride_h=1, stride_w=1)
    m.output(*m.op(code, [y], [m.tensor((1, 6, 6, 4), name="moved", **kept)], **options))
    return m.bytes()


def test_operators_that_only_move_data_must_be_exact() -> None:
    """An operator that only moves may not differ by a step."""
    data = moving(
        "MAX_POOL_2D", padding="SAME", stride_h=1, stride_w=1, filter_height=3, filter_width=3
    )
    result = convert(data, activations="int8")
    report = verify(data, result, per_operator=True)
    assert report.ok
    assert [each.difference.allowed for each in report.operators] == [1, 0]

    def narrow(model: onnx.ModelProto) -> None:
        """Use a smaller window, whose maximum is slightly smaller."""
        (kernel,) = [a for a in find_node(model, "MaxPool").attribute if a.name == "kernel_shape"]
        kernel.ints[:] = [3, 2]
        (pads,) = [a for a in find_node(model, "MaxPool").attribute if a.name == "pads"]
        pads.ints[:] = [1, 0, 1, 1]

    x = np.zeros((1, 6, 6, 4), np.int8)
    x[:, :, ::2] = 1
    report = verify(
        data, damage_model(result, narrow), inputs={"x": x}, samples=1, per_operator=True
    )
    assert [each.difference.largest for each in report.operators] == [0, 1]
    assert report.verdicts["moved"] is Verdict.WRONG


def test_operators_without_tensors_run_with_the_next_operator() -> None:
    """Operators without a tensor in the ONNX model run together with the next, and steps add up."""
    m = Build()
    kept: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
    x = m.input((2, 7, 8), name="x", **kept)
    w = m.constant(np.random.default_rng(0).integers(-99, 99, (5, 8)).astype(np.int8), scale=0.01)
    flat = m.tensor((14, 5), name="flat", **kept)
    (flat,) = m.op("FULLY_CONNECTED", [x, w], [flat])
    shape = m.constant(np.array([2, 7, 5], np.int32))
    m.output(*m.op("RESHAPE", [flat, shape], [m.tensor((2, 7, 5), name="y", **kept)]))
    graph = read_model(m.bytes()).graphs[0]
    result = convert(m.bytes())
    ports = tuple(p for p in result.skeleton.tensors if p.tensor.name != "flat")
    hidden = replace(result.skeleton, tensors=ports)
    (place,) = match_places(graph, hidden)
    assert [op.code for op in place.ops] == ["RESHAPE", "FULLY_CONNECTED"]
    report = verify(m.bytes(), replace(result, skeleton=hidden), per_operator=True)
    assert report.ok
    assert [each.difference.allowed for each in report.operators] == [1]


def test_step_bounds_depend_on_the_element_type() -> None:
    """The bound of an operator class holds for its element type only."""
    m = Build()
    for dtype in ("int16", "int8"):
        x = m.input((1, 4096), dtype=dtype, scale=2.0**-12 if dtype == "int16" else 0.05)
        y = m.tensor((1, 4096), dtype=dtype, scale=2.0**-15 if dtype == "int16" else 2.0**-7)
        m.output(*m.op("TANH", [x], [y]))
    report = verify(m.bytes(), per_operator=True)
    assert [each.difference.allowed for each in report.operators] == [16, 1]
    assert report.ok


def test_hybrid_operators_have_a_bound_relative_to_range() -> None:
    """Hybrid operators have a bound as a fraction of the range."""
    report = verify(MODELS / "keywords_dynamic_range.tflite", per_operator=True)
    assert report.ok
    (product, *_) = [c.difference for c in report.operators if c.operator == "CONV_2D"]
    assert product.allowed == pytest.approx(0.05 * product.spread)
    assert product.enough == np.inf


# Verdicts


def test_all_lists_have_the_same_verdict_on_a_tensor(tmp_path: Path, capsys: Captured) -> None:
    """The lists of outputs, tensors and operators have the same verdict on a tensor."""
    source, target = tmp_path / "model.tflite", tmp_path / "model.onnx"
    source.write_bytes(build_deep(scale=0.05, zero_point=3))
    onnx.save(damage_model(convert(source), wrong_pad), target)
    assert main(["verify", str(source), str(target), "--per-operator"]) == 2
    lines = capsys.readouterr().out.splitlines()
    verdicts: dict[str, set[str]] = {name: set() for name in ("first", "pooled", "last", "soft")}
    for line in lines:
        words = line.split()
        for name in verdicts.keys() & set(words[:3]):
            verdicts[name].add(words[-1])
    assert verdicts == {"first": set(), "pooled": set(), "last": {"wrong"}, "soft": {"differs"}}
    data = verify(source, target).to_dict()
    for name in verdicts:
        listed = [*data["outputs"], *data["tensors"], *data["operators"]]
        assert len({each["verdict"] for each in listed if each["name"] == name}) == 1


def test_verdict_on_renamed_output_is_that_of_its_tensor() -> None:
    """The verdict on an output is the verdict on its tensor, also if the signature renames it."""
    m = Build()
    x = m.input([2, 3], name="x")
    (y,) = m.op("EXP", [x], [m.tensor([2, 3], name="y")])
    m.output(y)
    m.signature("main", {"in": x}, {"out": y})
    report = verify(m.bytes(), convert(m.bytes(), names="signature"))
    assert report.outputs[0].name == "out"
    assert report.verdicts == {"y": Verdict.RIGHT}
    assert Report(report.outputs, 1, 0).verdicts == {"out": Verdict.RIGHT}


# The runtime's kernels


def faulty(*, unoptimized: bool = False, runs_unoptimized: bool = True) -> Any:
    """Return a function that opens sessions whose optimizations make convolutions wrong."""

    def session(model: bytes, *, arena: bool = True, optimize: bool = True) -> Any:
        if not (optimize or runs_unoptimized):
            raise VerifyError("there is no kernel")
        proto = onnx.load_from_string(model)
        for each in proto.graph.initializer:
            if each.name == "biases" and (optimize or unoptimized):
                array = onnx.numpy_helper.to_array(each)
                each.raw_data = (array + np.int32(4000)).tobytes()
        return make_session(proto.SerializeToString(), arena=arena, optimize=optimize)

    return session


@pytest.mark.parametrize(
    ("kept", "caused"),
    [({}, True), ({"unoptimized": True}, False), ({"runs_unoptimized": False}, False)],
)
def test_onnx_runtime_is_named_if_right_without_optimizations(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: Captured,
    kept: dict[str, bool],
    *,
    caused: bool,
) -> None:
    """If a model is right without optimizations, the message names ONNX Runtime as the cause."""
    for module in (onnx_model, inner_tensors):
        monkeypatch.setattr(module, "make_session", faulty(**kept))
    report = verify(build_quantized())
    assert not report.ok
    assert report.right_unoptimized == caused
    assert report.to_dict()["right_unoptimized"] == caused
    path = tmp_path / "model.tflite"
    path.write_bytes(build_quantized())
    assert main(["verify", str(path)]) == 2
    said = "With its optimizations disabled ONNX Runtime computes the right numbers"
    advice = "--weights auto or --weights uint8"
    err = capsys.readouterr().err
    assert (said in err, advice in err) == (caused, caused)


def why_not_emulated() -> str:
    """Return why a processor without VNNI cannot be emulated here, or ""."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return "ONNX Runtime is not one for x86-64"
    return "" if shutil.which(QEMU) else f"{QEMU} is not installed (apt-get install qemu-user)"


@pytest.mark.nightly
@pytest.mark.skipif(bool(why_not_emulated()), reason=why_not_emulated())
@pytest.mark.parametrize(("weights", "right"), [("int8", False), ("auto", True)])
def test_saturated_products_without_vnni_are_found(
    tmp_path: Path, weights: WeightType, *, right: bool
) -> None:
    """Saturated products are found, and the message names ONNX Runtime as the cause."""
    source, target = MODELS / "keywords_int8.tflite", tmp_path / "model.onnx"
    convert(source, target, weights=weights)
    python = str(Path(sys.executable).resolve())
    script = "import sys; from tflite2onnx.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["-c", script, "verify", str(source), str(target), "--samples", "1"]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [QEMU, "-cpu", "Haswell", python, *words],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == (0 if right else 2), done.stderr
    # /proc/cpuinfo is that of the host: without a contradiction to numpy its facts are used.
    assert re.search("AVX2 yes, AVX-512 no, VNNI no, AMX (unknown|no)", done.stdout)
    assert ("0 wrong" in done.stdout) == right
    assert ("differs is the output of CONV_2D (operator 1, " in done.stderr) != right
    assert ("With its optimizations disabled ONNX Runtime" in done.stderr) != right


# The processor


def test_report_describes_the_processor() -> None:
    """The report describes the processor, and the command prints a line about it."""
    sets = verify(build_deep()).processor
    assert sets == list_instructions()
    assert describe_sets({"AVX2": True, "VNNI": False, "AMX": None}) == (
        "AVX2 yes, VNNI no, AMX unknown"
    )
    assert describe_sets({}) == "unknown"


X86 = {"AVX2": True, "AVX512BW": False, "AVX512VNNI": False}
NO = {"AVX2": True, "AVX-512": False, "VNNI": False, "AMX": False}


@pytest.mark.parametrize(
    ("machine", "features", "cpuinfo", "want"),
    [
        ("x86_64", X86, "processor: 0\nflags\t\t: sse avx2", NO),
        ("x86_64", X86, "flags: avx2 avx_vnni amx_int8", NO | {"VNNI": True, "AMX": True}),
        # An emulator shows the flags of the host, which has AVX-512.
        ("x86_64", X86, "flags: avx2 avx512bw avx512_vnni amx_int8", NO | {"AMX": None}),
        ("AMD64", X86, None, NO | {"VNNI": None, "AMX": None}),
        ("AMD64", X86, "no such line", NO | {"VNNI": None, "AMX": None}),
        ("x86_64", None, "flags: avx2", NO),
        ("x86_64", None, None, dict.fromkeys(NO)),
        ("arm64", {"ASIMDDP": True}, None, {"dot product": True, "i8mm": None}),
        ("aarch64", {}, "Features: asimd asimddp i8mm", {"dot product": True, "i8mm": True}),
        ("riscv64", {}, "isa: rv64", {}),
    ],
)
def test_features_come_from_numpy_else_from_linux(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    machine: str,
    features: dict[str, bool] | None,
    cpuinfo: str | None,
    want: dict[str, bool | None],
) -> None:
    """Features come from numpy, or from Linux; a feature that neither reports is unknown."""

    class Module:
        __cpu_features__ = features

    def numpy_module(name: str) -> Any:
        if features is None or name.startswith("numpy._core"):
            raise ImportError(name)
        return Module

    file = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        file.write_text(cpuinfo)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(processor, "import_module", numpy_module)
    monkeypatch.setattr(processor, "_CPUINFO", file)
    assert list_instructions() == want


# Files of all options

OPTIONS: tuple[list[str], ...] = (
    [],
    ["--io-layout", "tflite"],
    ["--io-layout", "onnx"],
    ["--layout", "mapping.json"],
    ["--quantization", "float"],
    ["--names", "signature"],
    ["--opset", "21"],
    ["--static"],
    ["--signature", "serving_default"],
    ["--activations", "int8"],
    ["--activations", "uint8"],
    ["--weights", "int8"],
    ["--weights", "uint8"],
    ["--weights", "int8", "--activations", "int8", "--io-layout", "tflite"],
)
KINDS = ("float32", "int8", "uint8", "int16x8", "dynamic_range")


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_all_options_are_recognized_and_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, kind: str, words: list[str]
) -> None:
    """Files of all options are recognised, and each operator is right on LiteRT's inputs.

    int8 weights with uint8 data are wrong on x86-64 processors without VNNI, as documented. There
    `verify` must name the kernels as the cause.
    """
    monkeypatch.chdir(tmp_path)
    model = str(MODELS / f"keywords_{kind}.tflite")
    first = convert(model).inputs[0]
    letters = "ABCDE"[: len(first.tflite_shape)]
    mapping = f'{{"{first.name}": ["{letters}", "{letters[0] + letters[:0:-1]}"]}}'
    Path("mapping.json").write_text(mapping)
    assert main([model, "model.onnx", "-q", *words]) == 0
    status = main(["verify", model, "model.onnx", "--per-operator", "--samples", "1"])
    out, err = capsys.readouterr()
    if status and words == ["--weights", "int8"]:
        assert "VNNI no" in out
        assert "the cause is its kernels on this processor, not the conversion" in err
        return
    assert status == 0
    assert " right, 0 differ, 0 wrong" in out
    assert " operators, each on LiteRT's own inputs: 0 wrong" in out


@pytest.mark.parametrize("kept", ["int8", "uint8"])
def test_int8_storage_is_found_between_float_inputs_and_outputs(
    tmp_path: Path, kept: ActivationType
) -> None:
    """The storage of int8 is found in the element types of values, if inputs are floats."""
    m = Build()
    x = m.input((2, 3, 5), name="x")
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
    (q,) = m.op("QUANTIZE", [x], [m.tensor((2, 3, 5), name="q", **fields)])
    (y,) = m.op("ABS", [q], [m.tensor((2, 3, 5), name="y", **fields)])
    m.output(*m.op("DEQUANTIZE", [y], [m.tensor((2, 3, 5), name="z")]))
    convert(m.bytes(), tmp_path / "model.onnx", activations=kept)
    report = verify(m.bytes(), tmp_path / "model.onnx", per_operator=True)
    assert report.ok
    assert len(report.operators) == 3
