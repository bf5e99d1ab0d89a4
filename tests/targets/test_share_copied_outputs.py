"""targets/every_target.py: outputs that copy a quantized tensor are this tensor."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np

from tests.runtimes.environments import OLDEST
from tests.runtimes.remote import RemoteSession
from tests.support import Build, check, random_inputs
from tests.support.runtimes import reference

STORED: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}


def make_window() -> bytes:
    """Return a window of rows, which a layer reads, and which is an output too."""
    m = Build()
    parts = [m.input([1, rows, 3, 4], **STORED) for rows in (2, 1)]
    (rows,) = m.op("CONCATENATION", parts, [m.tensor([1, 3, 3, 4], **STORED)], axis=1)
    ends = [m.constant(np.array(each, np.int32)) for each in ([0, 0, 0, 0], [1, 3, 3, 4])]
    (kept,) = m.op("SLICE", [rows, *ends], [m.tensor([1, 3, 3, 4], **STORED)])
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1}
    pooled = m.tensor([1, 1, 3, 4], **STORED)
    m.op(
        "MAX_POOL_2D", [rows], [pooled], filter_height=3, filter_width=1, padding="VALID", **options
    )
    m.output(kept, pooled)
    return m.bytes()


def test_a_copied_output_is_the_tensor_that_others_read() -> None:
    data = make_window()
    result = check(data, steps=0, quantization="qdq-uniform")
    model = result.model
    made = {value for node in model.graph.node for value in node.output}
    read = {value for node in model.graph.node for value in node.input}
    kept, pooled = [port.name for port in model.graph.output]
    assert kept in made & read
    assert pooled not in read
    if not OLDEST.is_made:
        return
    inputs = random_inputs(data, 0)
    (want,), _ = reference(data, [inputs])
    pairs = zip(result.inputs, inputs, strict=True)
    feeds = {end.name: np.ascontiguousarray(x.transpose(end.order)) for end, x in pairs}
    with closing(RemoteSession(OLDEST.command, model.SerializeToString(), 60)) as session:
        for end, array in zip(result.outputs, want, strict=True):
            (have,) = session.run([end.name], feeds)
            np.testing.assert_array_equal(have, array.transpose(end.order))
