"""stages.py and emit.py: whole conversions."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from tests.support import Build, check
from tests.support.small import build_flattening, chain, convolve, network
from tflite2onnx import convert
from tflite2onnx.errors import ModelFileError, OperatorError, OptionError, UnsupportedOperators
from tflite2onnx.layout import Plan, plan
from tflite2onnx.op import OPERATORS
from tflite2onnx.op.base import Operator
from tflite2onnx.reader.model import read_model
from tflite2onnx.stages import convert_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tflite2onnx.layout import Site


# Opsets


@pytest.mark.parametrize("opset", [None, 9, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21])
def test_opset_is_the_requested_one_or_17(opset: int | None) -> None:
    """The default opset is 17."""
    result = check(network(), opset=opset)
    assert result.model.opset_import[0].version == (opset or 17)


@pytest.mark.parametrize("opset", [8, 0, -1, onnx.defs.onnx_opset_version() + 1, "17", 17.0])
def test_invalid_opsets_are_refused(opset: Any) -> None:
    """The message lists the valid opsets."""
    newest = onnx.defs.onnx_opset_version()
    message = rf"`opset` must be 9 to {newest}, the newest of the onnx package .*, got {opset!r}"
    with pytest.raises(OptionError, match=message):
        convert(network(), opset=opset)


def test_newest_opset_of_onnx_is_allowed() -> None:
    """All opsets of the installed onnx are allowed."""
    newest = onnx.defs.onnx_opset_version()
    assert convert(chain("ABS"), opset=newest).opset == newest


def test_newer_node_raises_the_opset_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest opset that has the node is used, unless an older opset was requested."""
    # Gelu needs opset 20; the model is not run.
    monkeypatch.setattr(OPERATORS["ABS"], "emit", lambda _self, g, _y, x: g.Gelu(x))
    assert convert(chain("ABS")).opset == 20
    assert convert(chain("ABS"), opset=20).opset == 20
    assert convert(chain("ABS"), opset=21).opset == 21
    with pytest.raises(OptionError, match=r"Gelu, for ABS \(operator 0, y\), needs opset 20"):
        convert(chain("ABS"), opset=19)


# Operators that cannot be converted


def test_long_names_are_cut_in_messages() -> None:
    """PyTorch's exporter joins the paths of modules to names of hundreds of characters."""
    m = Build()
    m.output(
        *m.custom("Unknown", [m.input([1])], [m.tensor([1], name="module/" * 60 + "Linear_q")])
    )
    with pytest.raises(UnsupportedOperators) as error:
        convert(m.bytes())
    line = str(error.value).splitlines()[1]
    assert line.startswith("  Unknown (operator 0, ...")
    assert "module/Linear_q): " in line
    assert len(line.partition("): ")[0]) < 140


def test_all_unsupported_operators_are_listed() -> None:
    """Each unsupported operator is listed with its index, its output tensor and the reason."""
    m = Build()
    x = m.input([2, 3], name="x")
    (a,) = m.op("ABS", [x], [m.tensor([2, 3], name="a")])
    (b,) = m.custom("Mystery", [a], [m.tensor([2, 3], name="b")])
    (c,) = m.op("TRANSPOSE", [b, x], [m.tensor([3, 2], name="c")])
    (d,) = m.op("CONCAT_EMBEDDINGS", [c], [m.tensor([3, 2], name="d")])
    m.output(d)
    with pytest.raises(UnsupportedOperators) as caught:
        convert(m.bytes())
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 operators cannot be converted:"
    assert lines[1] == (
        "  Mystery (operator 1, b): this custom operator is not supported: register one, or keep"
        " it with --allow-custom"
    )
    assert lines[2].startswith("  TRANSPOSE (operator 2, c): ")
    assert lines[3] == "  CONCAT_EMBEDDINGS (operator 3, d): this operator is not supported"
    assert len(caught.value.problems) == 3


def test_custom_operator_with_a_builtin_name_is_refused() -> None:
    """A custom operator with the name of a builtin or internal operator is unknown."""
    for name in ("ABS", "AS_PLANNED"):
        m = Build()
        m.output(*m.custom(name, [m.input([2])], [[2]]))
        with pytest.raises(UnsupportedOperators, match="1 operator cannot be converted:"):
            convert(m.bytes())


def test_operator_without_outputs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator without outputs is an error."""
    monkeypatch.setattr(OPERATORS["ABS"], "check", Operator.check)
    m = Build()
    x = m.input([2])
    m.op("ABS", [x], [])
    m.output(*m.op("ABS", [x], [[2]]))
    message = r"ABS \(operator 0, no output\): it must have 1 output, got 0"
    with pytest.raises(UnsupportedOperators, match=message):
        convert(m.bytes())


def test_late_error_names_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the operator, even if it has no outputs."""

    def fail(*_: object) -> None:
        raise OperatorError("it is too late")

    monkeypatch.setattr(OPERATORS["EXP"], "emit", fail)
    with pytest.raises(UnsupportedOperators, match=r"EXP \(operator 1, inner_2\): it is too late"):
        convert(chain("RELU", "EXP", "RELU"))


def test_every_operator_has_a_category() -> None:
    """Each class has a category, and is registered under its codes."""
    for code, cls in OPERATORS.items():
        assert issubclass(cls, Operator)
        assert code in cls.codes
        assert cls.category.value in {"Implicit", "Transparent", "Attribute", "Terminate"}


# Empty and contradictory models


def test_model_without_outputs_is_refused() -> None:
    """A model without outputs is an error."""
    m = Build()
    m.op("ABS", [m.input([2])], [[2]])
    with pytest.raises(ModelFileError, match="the model must have an output"):
        convert(m.bytes())


def test_memory_error_becomes_a_model_file_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A MemoryError becomes a ModelFileError."""

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(OPERATORS["ABS"], "emit", fail)
    with pytest.raises(ModelFileError, match="needs more memory than is available"):
        convert(chain("ABS"))


def test_output_that_nothing_computes_is_refused() -> None:
    """The message names the output."""
    m = Build()
    m.input([2])
    m.output(m.tensor([2], name="y"))
    with pytest.raises(OperatorError, match="y must be constant or computed"):
        convert(m.bytes())


def test_input_that_nothing_computes_is_refused() -> None:
    """The message names the input and the operator."""
    m = Build()
    m.output(*m.op("ABS", [m.tensor([2], name="a")], [m.tensor([2], name="y")]))
    with pytest.raises(UnsupportedOperators, match=r"ABS \(operator 0, y\): a must be constant"):
        convert(m.bytes())


# Quantized tensors


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6"])
@pytest.mark.parametrize("activations", ["auto", "int8", "uint8"])
def test_quantized_tensors_are_kept_as_integers(activation: str, activations: str) -> None:
    """Inputs and outputs have the file's type for every storage of activations."""
    m = Build()
    generator = np.random.default_rng(0)
    x = m.input((2, 5, 7, 3), dtype="int8", scale=0.05, zero_point=3, name="x")
    filters = generator.integers(-127, 127, (11, 3, 3, 3)).astype(np.int8)
    scales = np.linspace(0.01, 0.02, 11)
    biases = generator.integers(-999, 999, 11).astype(np.int32)
    operands = [m.constant(filters, scale=scales), m.constant(biases, scale=0.05 * scales)]
    y = m.tensor((2, 5, 7, 11), dtype="int8", scale=0.1, zero_point=-20, name="y")
    m.output(
        *m.op(
            "CONV_2D",
            [x, *operands],
            [y],
            padding="SAME",
            stride_h=1,
            stride_w=1,
            fused_activation_function=activation,
        )
    )
    result = check(m.bytes(), steps=1, activations=activations)
    assert [e.dtype for e in (*result.inputs, *result.outputs)] == ["int8", "int8"]


def test_convolution_of_a_constant_image_equals_litert() -> None:
    """A constant is stored as weights only for operands that are weights."""
    m = Build()
    m.output(m.input([1]))
    image = np.random.default_rng(0).standard_normal((1, 5, 7, 3)).astype(np.float32)
    m.output(convolve(m, m.constant(image), 11, "y"))
    check(m.bytes())


# The result


def test_result_has_counts_sizes_and_the_model() -> None:
    """The result has counts, sizes and the model."""
    result = convert(build_flattening())
    graph = result.model.graph
    assert result.nodes == len(graph.node)
    assert result.transposes == sum(n.op_type == "Transpose" for n in graph.node) == 1
    assert result.bytes_moved == 4 * 2 * 5 * 7 * 11
    assert result.size == result.model.ByteSize()
    assert result.opset == result.model.opset_import[0].version
    assert result.model is result.model


def test_planner_gets_the_interface_then_the_operators() -> None:
    """The planner gets the site of the interface, then the sites of the operators."""
    seen: list[Site] = []

    def planner(sites: Sequence[Site]) -> Plan:
        seen.extend(sites)
        return plan(sites)

    convert_model(read_model(chain("ABS", "SQRT")), planner=planner)
    assert [t.name for t in seen[0].writes] == ["x"]
    assert [t.name for t in seen[0].reads if t is not None] == ["y"]
    assert len(seen) == 3


def test_metadata_have_layouts_and_signature_names() -> None:
    """The metadata have the layouts of inputs and outputs, and their names in signatures."""
    m = Build()
    x = m.input((2, 5, 7, 3), name="x")
    y = convolve(m, x, 11, "y")
    m.output(y, y, x)
    m.signature("serve", {"image": x}, {"features": y, "same": x})
    other = m.subgraph("other")
    z = other.input([2])
    other.output(z)
    m.signature("other", {"z": z}, {"z": z})
    result = convert(m.bytes())
    props = {p.key: json.loads(p.value) for p in result.model.metadata_props}
    assert props["tflite2onnx.inputs"] == [
        {
            "name": "x",
            "dtype": "float32",
            "tflite_shape": [2, 5, 7, 3],
            "onnx_shape": [2, 3, 5, 7],
            "order": [0, 3, 1, 2],
            "tflite_layout": "NHWC",
            "onnx_layout": "NCHW",
        }
    ]
    assert [o["name"] for o in props["tflite2onnx.outputs"]] == ["y", "y_1", "x_1"]
    assert props["tflite2onnx.signatures"] == {
        "serve": {"inputs": {"image": "x"}, "outputs": {"features": "y", "same": "x_1"}}
    }
    assert "tflite2onnx.signatures" not in {
        p.key for p in convert(chain("ABS")).model.metadata_props
    }


def test_model_has_producer_opset_and_graph_name() -> None:
    """The model has its producer, its opset and the name of the TFLite graph."""
    model = convert(chain("ABS")).model
    assert model.producer_name == "tflite2onnx"
    assert model.producer_version
    assert model.graph.name == "main"
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
    m = Build()
    m.output(*m.op("ABS", [m.input([2])], [[2]]))
    m.model().subgraphs[0].name = None
    assert convert(m.bytes()).model.graph.name == "main"


def test_every_process_writes_the_same_bytes(tmp_path: Path) -> None:
    """The output does not depend on Python's hash seed."""
    m = Build()
    x = m.input((2, 5, 7, 3), name="x")
    branches = [convolve(m, x, 11, f"branch_{i}") for i in range(3)]
    (y,) = m.op("ADD", branches[:2], [(2, 5, 7, 11)])
    (z,) = m.op("ADD", [y, branches[2]], [(2, 5, 7, 11)])
    shape = m.constant(np.array([2, 385], np.int32))
    m.output(z, *m.op("RESHAPE", [z, shape], [(2, 385)]))
    source = tmp_path / "model.tflite"
    source.write_bytes(m.bytes())
    digests = set()
    for seed in ("0", "1", "2"):
        path = tmp_path / f"{seed}.onnx"
        subprocess.run(
            [sys.executable, "-m", "tflite2onnx", "-q", source, path],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    digests.add(hashlib.sha256(convert(source).skeleton.serialize()).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize("enabled", [True, False])
def test_conversion_leaves_no_reference_cycles(*, enabled: bool) -> None:
    """A conversion leaves no reference cycles, and does not enable or disable the collector."""
    data = network()
    convert(data)  # the first conversion imports modules, which have cycles
    gc.collect()
    if not enabled:
        gc.disable()
    try:
        convert(data)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
    assert gc.collect() == 0
