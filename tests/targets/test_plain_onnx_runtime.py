"""Files of every target are right in ONNX Runtime's CPU provider, with its optimizations."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import onnxruntime
import pytest

from tests.golden.closeness import ConvertedModel, Distance, compare_with_litert
from tests.golden.records import Case, assets
from tests.support import random_inputs
from tflite2onnx import Result, Stateful, convert
from tflite2onnx.targets.table import TARGETS, Target

_LEVELS = onnxruntime.GraphOptimizationLevel
_STEPS = 3  # the number of runs of a model that has a state
_DECIBELS = 25.0
# Ends of these targets are floats, and most of them compute no integers as LiteRT does.
FLOAT_ENDS = ("coreml", "hailo", "tensorrt")
# These runtimes take int8 weights only, whose products saturate on x86-64 without VNNI.
INT8_WEIGHTS = ("nnapi", "tensorrt")


def load(
    converted: ConvertedModel,
    target: Target,
    level: onnxruntime.GraphOptimizationLevel = _LEVELS.ORT_ENABLE_ALL,
) -> onnxruntime.InferenceSession:
    """Return a session on one thread, in which int8 weights do not saturate if they must be int8.

    Without this option the files of the other targets are right on every processor.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = 1
    is_exact = str(int(target in INT8_WEIGHTS))
    options.add_session_config_entry("session.x64quantprecision", is_exact)
    return onnxruntime.InferenceSession(converted.model, options, ["CPUExecutionProvider"])


def convert_for(case: Case, target: Target) -> tuple[Result, ConvertedModel]:
    """Return a model for a target, with few runs if it has a state."""
    result = convert(case.path, target=target)
    converted = ConvertedModel.from_result(result)
    return result, replace(converted, steps=min(converted.steps, _STEPS))


@pytest.mark.parametrize("case", assets(), ids=lambda case: case.name)
@pytest.mark.parametrize("target", [name for name in TARGETS if name not in FLOAT_ENDS])
def test_outputs_equal_litert(case: Case, target: Target) -> None:
    converted = convert_for(case, target)[1]
    compare_with_litert(case.path.read_bytes(), converted, partial(load, target=target))


@pytest.mark.parametrize("case", assets(), ids=lambda case: case.name)
@pytest.mark.parametrize("target", FLOAT_ENDS)
def test_optimizations_change_nothing(case: Case, target: Target) -> None:
    """The file without optimizations is what the options mean."""
    result, converted = convert_for(case, target)
    arrays = random_inputs(case.path.read_bytes(), 0, float32=(-2, 2), int32=(0, 3))
    feeds = {
        end.name: np.ascontiguousarray(x.transpose(end.order)).astype(end.dtype)
        for end, x in zip(result.inputs, arrays, strict=True)
    }
    levels = (_LEVELS.ORT_DISABLE_ALL, _LEVELS.ORT_ENABLE_ALL)
    live = [load(converted, target, level) for level in levels]
    outputs = [Stateful(each).run(None, feeds) for each in live]
    for want, have in zip(*outputs, strict=True):
        distance = Distance.measure(np.asarray(want), np.asarray(have))
        assert distance.decibels >= _DECIBELS, distance
