"""Files in ONNX Runtime's own format, .ort, which builds for phones load, compute the same.

The tool that makes them leaves out the layouts of one processor, so that floats are rounded
otherwise.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.golden.closeness import Distance
from tests.golden.records import Case, assets
from tests.support import random_inputs
from tflite2onnx import Stateful, convert
from tflite2onnx.targets.table import Target


def load(path: Path) -> onnxruntime.InferenceSession:
    """Return a session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])


@pytest.mark.nightly(cases=2)
@pytest.mark.parametrize("case", assets(), ids=lambda case: case.name)
@pytest.mark.parametrize("target", ["onnxruntime", "portable", "qnn", "rknn"])
def test_outputs_are_close_to_those_of_the_onnx_file(
    case: Case, target: Target, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    result = convert(case.path, target=target)
    result.save(path)
    tool = [sys.executable, "-m", "onnxruntime.tools.convert_onnx_models_to_ort", str(path)]
    subprocess.run([*tool, "--optimization_style", "Fixed"], check=True, capture_output=True)
    arrays = random_inputs(case.path.read_bytes(), 0, int32=(0, 3))
    pairs = zip(result.inputs, arrays, strict=True)
    feeds = {end.name: np.ascontiguousarray(x.transpose(end.order)) for end, x in pairs}
    plain, own = load(path), load(path.with_suffix(".ort"))
    feeds |= Stateful(plain).state
    for want, have in zip(plain.run(None, feeds), own.run(None, feeds), strict=True):
        distance = Distance.measure(want, have)
        is_integer = np.issubdtype(want.dtype, np.integer)
        assert distance.largest <= 1 if is_integer else distance.relative <= 1e-4, distance
