"""options.py: the options of a conversion."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, asdict, fields

import pytest
from onnx import TensorProto

from tests.golden.records import Case, assets
from tflite2onnx import convert
from tflite2onnx.options import TARGETS, ConversionOptions, Target, describe_target


def test_convert_takes_every_option_with_its_default() -> None:
    """`convert` repeats all options with their defaults, for type checkers."""
    parameters = inspect.signature(convert).parameters
    assert {*parameters} - {"model", "output", "external_data"} == {
        option.name for option in fields(ConversionOptions)
    }
    for option in fields(ConversionOptions):
        if option.default is not MISSING:
            parameter = parameters[option.name]
            assert (parameter.default, parameter.annotation) == (option.default, option.type)


def test_every_option_has_a_help_text() -> None:
    """Each option has a help text for the command line."""
    assert all(option.metadata["help"] for option in fields(ConversionOptions))


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_sets_options_that_are_not_given(target: Target) -> None:
    """A target changes only options that are not given and that it lists."""
    options = asdict(ConversionOptions(target=target, opset=18).with_target())
    defaults = asdict(ConversionOptions(target=target))
    assert options == {**defaults, **TARGETS[target], "opset": 18}


def test_a_given_option_prevails_over_the_target() -> None:
    options = ConversionOptions(target="portable", forms="fastest").with_target()
    assert options.forms == "fastest"


@pytest.mark.parametrize("case", assets(), ids=lambda case: case.name)
def test_rules_of_tensorrt(case: Case) -> None:
    """The target follows TensorRT's documentation: no uint8, zero points of 0, opset 9 to 20.

    TensorRT itself is not run.
    """
    model = convert(case.path, target="tensorrt").model
    assert model.opset_import[0].version <= 20
    kinds = {node.op_type for node in model.graph.node}
    assert not kinds & {"QuantizeLinear", "DequantizeLinear", "MatMulInteger", "QLinearConv"}
    ports = (*model.graph.input, *model.graph.output)
    types = {port.type.tensor_type.elem_type for port in ports}
    assert not types & {TensorProto.UINT8, TensorProto.INT16}


def test_a_target_is_described_as_on_the_command_line() -> None:
    described = "--forms fastest --states optional --weights adaptive"
    assert describe_target("onnxruntime") == described
