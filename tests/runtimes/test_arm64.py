"""Networks of integers return the same bits in ONNX Runtime on ARM64, which QEMU emulates."""

from __future__ import annotations

import shutil
from contextlib import closing

import numpy as np
import onnxruntime as ort
import pytest
from ai_edge_litert import schema_py_generated as schema

from scripts.compare_arm64 import EQUAL, compare_processors, has_integers
from tests.golden.records import Case, assets, zoo
from tests.quantized.test_block_weights import build
from tests.runtimes.environments import ARM64, Runtime
from tests.runtimes.remote import RemoteSession
from tests.support import check

_SMALLEST = 10
_ADVICE = "not installed: scripts/runtimes.py --make arm64-max, on Debian 12 with qemu-user"
# ONNX Runtime adds products of floats and of int16 as floats, which processors round otherwise.
_ADDED_AS_FLOATS = (schema.TensorType.FLOAT32, schema.TensorType.INT16)


def has_floats(data: bytes) -> bool:
    """Return whether a network has tensors whose products ONNX Runtime adds as floats."""
    graph = schema.Model.GetRootAs(data).Subgraphs(0)
    return any(graph.Tensors(i).Type() in _ADDED_AS_FLOATS for i in range(graph.TensorsLength()))


def list_networks() -> list[Case]:
    """Return the networks of integers: those of the zoo, if there is one, the smallest first."""
    cases = [(case, case.path.read_bytes()) for case in zoo() or assets()]
    found = [case for case, data in cases if has_integers(data) and not has_floats(data)]
    return sorted(found, key=lambda case: case.path.stat().st_size)[:_SMALLEST]


needs_arm64 = pytest.mark.skipif(
    not ARM64[0].is_made or not shutil.which("qemu-aarch64"), reason=_ADVICE
)


@needs_arm64
@pytest.mark.nightly(cases=2)
@pytest.mark.parametrize("runtime", ARM64, ids=lambda each: each.processor)
@pytest.mark.parametrize("size", [32, 128])
def test_blocks_of_int4_weights_give_the_numbers_of_litert(runtime: Runtime, size: int) -> None:
    """With dot product ONNX Runtime quantizes whole rows; without, blocks of rows."""
    x = np.random.default_rng(size).standard_normal((1, 512)).astype(np.float32)
    result = check(build(1, (128, 512), size), inputs=[x], default_kernels=True)
    model = result.model.SerializeToString()
    with closing(RemoteSession(runtime.command, model, 600)) as session:
        # Rows of one sign have larger errors of float32 (`block_products`).
        for row, error in ((x, 1e-6), (1 + np.abs(x), 2e-6), (-1 - np.abs(x), 2e-6)):
            feeds = {result.inputs[0].name: row}
            (want,) = ort.InferenceSession(model).run(None, feeds)
            (y,) = session.run([result.outputs[0].name], feeds)
            np.testing.assert_allclose(y, want, rtol=0, atol=error * np.ptp(want))


@needs_arm64
@pytest.mark.nightly(cases=10)
@pytest.mark.parametrize("case", list_networks(), ids=lambda case: case.name)
@pytest.mark.parametrize("runtime", ARM64, ids=lambda each: each.processor)
def test_bits_equal_those_of_this_processor(case: Case, runtime: Runtime) -> None:
    assert compare_processors(case.path, [runtime]) == {runtime.processor: EQUAL}
