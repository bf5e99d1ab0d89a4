"""The nodes of `--target webgpu`: sums and products that the GPU computes right."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.golden.records import Case, assets
from tests.op.linear.test_positions import build, draw_positions
from tests.op.vision.test_detection import detector, draw_detections, options
from tests.quantized.values import unary
from tests.references import draw_numbers
from tests.runtimes.environments import BROWSER, RUNTIMES
from tests.runtimes.remote import Refused, RemoteSession
from tests.runtimes.serve import encode_arrays
from tests.support import Build, random_inputs, run_onnx, run_tflite
from tests.support.small import chain
from tflite2onnx import convert
from tflite2onnx.targets.checker import check_model

WEBGPU = RUNTIMES["onnxruntime-webgpu"]
INTEGERS = [case for case in assets() if "int" in case.name]
F = np.float32


def make_feeds(model: onnx.ModelProto, case: Case) -> dict[str, np.ndarray]:
    """Return random inputs of a model with TFLite's layout."""
    names = [end.name for end in model.graph.input]
    integers = random_inputs(case.path.read_bytes(), 0)
    return {name: x / F(256) for name, x in zip(names, integers, strict=True)}


def test_sums_round_halves_to_even() -> None:
    """Numbers under 2 ** 22 are rounded exactly, larger ones change by 2e-7 of themselves."""
    model = convert(chain("ROUND", shape=(4, 1000)), target="webgpu").model
    assert [node.op_type for node in model.graph.node] == ["Add", "Sub"]
    halves = np.arange(-500, 500, dtype=F) + F(0.5)
    beside = np.nextafter(halves, F(0))
    large = np.linspace(-(2.0**22), 2.0**22, 1000, dtype=F)
    huge = np.float32(1.7) ** np.linspace(0, 160, 1000, dtype=F)
    x = np.stack([halves, beside, large, huge])
    (y,) = run_onnx(model, {"x": x})
    np.testing.assert_array_equal(y[:3], np.round(x[:3]))
    np.testing.assert_allclose(y[3], np.round(huge), rtol=2.0**-22)


ANGLES = np.random.default_rng(0).uniform(-100, 100, (4, 1000)).astype(F)
SINES = {"SIN": np.sin, "COS": np.cos}


@pytest.mark.parametrize("code", SINES)
def test_sines_are_sums_and_products(code: str) -> None:
    """The error is that of the float32 sums, also after a thousand turns."""
    model = convert(chain(code, shape=ANGLES.shape), target="webgpu").model
    assert {node.op_type for node in model.graph.node} == {"Add", "Mul", "Sub"}
    for x in (ANGLES / 100, ANGLES, ANGLES * 100):
        (y,) = run_onnx(model, {"x": x})
        np.testing.assert_allclose(y, SINES[code](x.astype(float)), rtol=0, atol=1e-6)
    small = ANGLES / 10_000
    want = SINES[code](small.astype(float))
    np.testing.assert_allclose(run_onnx(model, {"x": small})[0], want, rtol=1e-6)


def test_rotations_by_positions_have_no_sines() -> None:
    """Their angles are products of floats, which are no tensors of the file."""
    data = build("odml.rope", [(1, 3, 5, 16), (1, 1, 5, 1)], "int32", {}).bytes()
    plain, model = (convert(data, target=target).model for target in ("portable", "webgpu"))
    assert len(check_model(plain, "webgpu")) == 2
    assert not check_model(model, "webgpu")
    arrays = (draw_numbers(1, 3, 5, 16), draw_positions(1, 5, "int32"))
    feeds = {end.name: x for end, x in zip(model.graph.input, arrays, strict=True)}
    for want, have in zip(run_onnx(plain, feeds), run_onnx(model, feeds), strict=True):
        np.testing.assert_allclose(have, want, rtol=0, atol=1e-5)


@pytest.mark.skipif(not WEBGPU.is_made, reason="scripts/runtimes.py --make onnxruntime-webgpu")
@pytest.mark.parametrize("code", SINES)
def test_the_gpu_has_exact_sums_and_inexact_sines(code: str) -> None:
    errors = []
    for target in ("portable", "webgpu"):
        result = convert(chain(code, shape=ANGLES.shape), target=target)
        assert bool(check_model(result.model, "webgpu")) == (target == "portable")
        with closing(RemoteSession(WEBGPU.command, result.skeleton.serialize(), 120)) as session:
            (y,) = session.run(["y"], {"x": ANGLES})
        errors.append(np.abs(y - SINES[code](ANGLES.astype(float))).max())
    assert errors[0] > 1e-4
    assert errors[1] < 1e-6


def build_detector() -> bytes:
    m = Build()
    detector(m, options())
    return m.bytes()


def test_boxes_are_decoded_in_float32() -> None:
    data, arrays = build_detector(), draw_detections(0)
    result = convert(data, target="webgpu")
    assert not check_model(result.model, "webgpu")
    assert check_model(convert(data, target="portable").model, "webgpu")
    have = run_onnx(result.model, dict(zip(("boxes", "scores"), arrays, strict=True)))
    for want, y in zip(run_tflite(data, arrays), have, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


def test_int32_with_a_scale_is_quantized_in_float32() -> None:
    """The largest results are those below 2 ** 31 that float32 has."""
    x = np.linspace(-32768, 32767, 1000).astype(np.int16)[None]
    for step in (1e-3, 1e-9):
        model = convert(unary("QUANTIZE", x, (0.01, 0), (step, 0), "int32"), target="webgpu").model
        assert not check_model(model, "webgpu")
        assert "Round" not in {node.op_type for node in model.graph.node}
        (y,) = run_onnx(model, {model.graph.input[0].name: x * F(0.01)})
        want = np.clip(x * (0.01 / step), -(2.0**31), 2.0**31 - 128)
        np.testing.assert_allclose(y, want, rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.skipif(not BROWSER.is_made, reason="scripts/runtimes.py --make onnxruntime-web")
def test_browsers_load_detectors() -> None:
    data = build_detector()
    feeds = dict(zip(("boxes", "scores"), draw_detections(0), strict=True))
    refused, made = (convert(data, target=target) for target in ("portable", "webgpu"))
    names = [end.name for end in made.outputs]
    with pytest.raises(Refused):
        RemoteSession(BROWSER.command, refused.skeleton.serialize(), 60)
    with closing(RemoteSession(BROWSER.command, made.skeleton.serialize(), 60)) as page:
        for want, y in zip(run_onnx(made.model, feeds), page.run(names, feeds), strict=True):
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", INTEGERS, ids=lambda case: case.name)
def test_outputs_are_those_of_round(case: Case) -> None:
    rounded = convert(
        case.path,
        target="portable",
        quantization="rounded",
        io_layout="tflite",
        io_type="float",
    )
    summed = convert(case.path, target="webgpu", io_layout="tflite")
    assert "Round" not in {node.op_type for node in summed.model.graph.node}
    feeds = make_feeds(summed.model, case)
    for want, have in zip(*(run_onnx(r.model, feeds) for r in (rounded, summed)), strict=True):
        np.testing.assert_array_equal(want, have)


def test_half_precision_keeps_the_sums_in_float32() -> None:
    """Float16 has no number so large that a sum with it has no fraction."""
    (case,) = (case for case in INTEGERS if case.name.startswith("keywords_int8"))
    plain, half = (
        convert(case.path, target="webgpu", io_layout="tflite", float16=float16).model
        for float16 in (False, True)
    )
    feeds = make_feeds(plain, case)
    for want, have in zip(run_onnx(plain, feeds), run_onnx(half, feeds), strict=True):
        np.testing.assert_allclose(have, want, rtol=0, atol=1 / 256)  # a step of the output


@pytest.mark.nightly(cases=1)
@pytest.mark.skipif(not WEBGPU.is_made, reason="scripts/runtimes.py --make onnxruntime-webgpu")
@pytest.mark.parametrize("case", INTEGERS, ids=lambda case: case.name)
def test_the_gpu_computes_all_nodes(case: Case, tmp_path: Path) -> None:
    result = convert(case.path, tmp_path / "model.onnx", target="webgpu")
    shapes = {
        end.name: [d.dim_value for d in end.type.tensor_type.shape.dim]
        for end in result.model.graph.input
    }
    line = json.dumps(encode_arrays({name: np.ones(s, F) for name, s in shapes.items()}))
    command = [*WEBGPU.command, str(tmp_path / "model.onnx")]
    done = subprocess.run(
        command,
        input=line,
        capture_output=True,
        text=True,
        check=True,
        env={"PROFILE": str(tmp_path / "profile")},
    )
    assert '"outputs"' in done.stdout
    (profile,) = tmp_path.glob("profile*.json")
    nodes = [each for each in json.loads(profile.read_text()) if each["cat"] == "Node"]
    places = Counter(
        each["args"]["provider"] for each in nodes if each["name"].endswith("_kernel_time")
    )
    assert [*places] == ["WebGpuExecutionProvider"]


def make_casts(kind: int) -> onnx.ModelProto:
    """Return a Relu of float32 numbers, and casts of them to a type and back."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=kind),
        helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


REFUSED: dict[int, bool] = {
    TensorProto.INT32: False,
    TensorProto.INT16: True,
    TensorProto.DOUBLE: True,
}


@pytest.mark.parametrize("kind", REFUSED)
def test_the_check_names_types_that_browsers_lack(kind: int) -> None:
    rules = check_model(make_casts(kind), "webgpu")
    assert bool(rules) == REFUSED[kind]
    assert all(rule.consequence == "browsers do not load the model" for rule in rules)


@pytest.mark.nightly
@pytest.mark.skipif(not BROWSER.is_made, reason="scripts/runtimes.py --make onnxruntime-web")
@pytest.mark.parametrize("kind", REFUSED)
def test_the_browser_decides_as_the_check(kind: int) -> None:
    model, x = make_casts(kind), np.arange(4, dtype=F)[None]
    try:
        with closing(RemoteSession(BROWSER.command, model.SerializeToString(), 60)) as page:
            (y,) = page.run(["y"], {"x": x})
    except Refused:
        assert REFUSED[kind]
    else:
        assert not REFUSED[kind]
        np.testing.assert_array_equal(y, x)
