"""options.py: the options of a conversion."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import MISSING, asdict, fields
from typing import Any

import pytest

from tests.golden.records import Case, assets
from tests.support.project import ROOT
from tflite2onnx import convert
from tflite2onnx.builder.opsets import DEFAULT_OPSET, MIN_OPSET
from tflite2onnx.cli.parsers import make_parser
from tflite2onnx.errors import OptionError
from tflite2onnx.options import ConversionOptions
from tflite2onnx.targets.checker import check_model
from tflite2onnx.targets.table import TARGETS, Target, find_options


def test_convert_takes_every_option_with_its_default() -> None:
    """`convert` repeats all options with their defaults, for type checkers."""
    parameters = inspect.signature(convert, eval_str=True).parameters
    assert {*parameters} - {"model", "output", "external_data"} == {
        option.name for option in fields(ConversionOptions)
    }
    for option in fields(ConversionOptions):
        if option.default is not MISSING:
            parameter = parameters[option.name]
            assert (parameter.default, parameter.annotation) == (option.default, option.type)


def test_the_docstring_of_convert_describes_every_option() -> None:
    """The command line has the descriptions of the docstring, with the names of its options."""
    described = inspect.getdoc(convert) or ""
    actions = {action.dest: action.help for action in make_parser("convert")._actions}  # noqa: SLF001
    for option in fields(ConversionOptions):
        assert f"\n    {option.name}: " in described
        if option.name not in ("layouts", "shapes"):  # the command line has a form of its own
            assert actions[option.name]
    assert f"at least {MIN_OPSET} (default: the smallest opset from {DEFAULT_OPSET}" in described
    assert str(actions["float16_io"]).startswith("with --float16, inputs, outputs and states")


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_sets_options_that_are_not_given(target: Target) -> None:
    """A target changes only options that are not given and that it lists."""
    options = asdict(ConversionOptions(target=target, opset=18).with_target())
    defaults = asdict(ConversionOptions(target=target))
    assert options == {**defaults, **find_options(target), "opset": 18}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": "x"}, "`inputs` must be a list of names of tensors, got 'x'"),
        ({"outputs": []}, r"`outputs` must be a list of names of tensors, got \[\]"),
        ({"outputs": ["y", "y"]}, "`outputs` must name each tensor once, got y twice"),
        ({"rename": ["x"]}, "`rename` must be a mapping such as"),
        ({"rename": {"x": ""}}, "`rename` must be a mapping such as"),
        ({"target": "openvin"}, r"`target` must be .*, got 'openvin'; did you mean openvino\?"),
        ({"states": None}, "`states` must be auto, optional or required, got None$"),
    ],
)
def test_values_of_other_kinds_are_refused(options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        convert(assets()[0].path, **options)


def test_a_given_option_prevails_over_the_target() -> None:
    options = ConversionOptions(target="portable", forms="fastest").with_target()
    assert options.forms == "fastest"


@pytest.mark.parametrize("case", assets(), ids=lambda case: case.name)
def test_models_for_tensorrt_keep_its_rules(case: Case) -> None:
    """Models with integers keep the rules of TensorRT; networks of int16 need floats.

    TensorRT itself is not run.
    """
    result = convert(case.path, target="tensorrt")
    broken = check_model(result.skeleton.proto, "tensorrt", result.skeleton.weights)
    is_int16 = "int16" in case.name
    assert all(("int16" in breach.rule) == is_int16 for breach in broken)
    assert bool(broken) == is_int16
    assert {end.dtype for end in (*result.inputs, *result.outputs)} <= {"float32", "int32", "int64"}
    nodes = {node.op_type for node in result.skeleton.proto.graph.node}
    assert ("QuantizeLinear" in nodes) == case.name.endswith(("_int8.tflite", "_uint8.tflite"))


def test_document_lists_the_options_of_each_target() -> None:
    text = (ROOT / "docs" / "runtimes.md").read_text()
    for target in TARGETS:
        words = {n: "" if v is True else f" {v}" for n, v in find_options(target).items()}
        options = " ".join(f"--{name.replace('_', '-')}{word}" for name, word in words.items())
        assert f"| `{target}` | `{options}` |" in text


def test_a_conversion_imports_the_folder_of_its_target_only() -> None:
    """Parsing a command line and converting import no module of another target."""
    model = ROOT / "assets" / "models" / "keywords_int8.tflite"
    code = (
        "import sys; from tflite2onnx import convert;"
        "from tflite2onnx.cli.parsers import make_parser; make_parser('convert');"
        f"convert({str(model)!r}, target='qnn');"
        "print(*{name.split('.')[2] for name in sys.modules if name.count('.') > 2"
        " and name.startswith('tflite2onnx.targets.')})"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["qnn"]
