"""Verification at more sizes of dynamic axes than those of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from tests.support import Build, Tensor
from tflite2onnx import convert, verify
from tflite2onnx.cli import main, verdict
from tflite2onnx.errors import VerifyError

if TYPE_CHECKING:
    from pathlib import Path


def add_repeated(m: Build, parts: int) -> None:
    """Add a matrix to another one that is repeated, and of three parts has one more row."""
    more = parts == 3
    rows = parts + more

    def matrix(height: int) -> Tensor:
        return m.tensor([height, 4], shape_signature=[-1, 4])

    x, z = (
        m.input([n, 4], name=name, shape_signature=[-1, 4]) for n, name in ((rows, "x"), (1, "z"))
    )
    one = m.constant(np.ones((1, 4), np.float32))
    (wide,) = m.op("CONCATENATION", [z] * parts + [one] * more, [matrix(rows)], axis=0)
    m.output(*m.op("ADD", [x, wide], [matrix(rows)]))


@pytest.mark.parametrize(("parts", "count"), [(2, 2), (3, 0)])
def test_report_says_that_litert_runs_only_the_size_in_the_file(parts: int, count: int) -> None:
    """The report says that LiteRT runs no size but the size in the file."""
    m = Build()
    add_repeated(m, parts)
    report = verify(m.bytes())
    assert report.ok
    assert report.other_sizes is not None
    assert len(report.other_sizes) == count == len(report.to_dict()["other_sizes"])
    assert any("LiteRT runs none" in str(line) for line in verdict.list_outputs(report)) == (
        count == 0
    )


def test_output_wrong_only_at_other_sizes_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output that is wrong only at other sizes is named with these sizes."""
    m = Build()
    x = m.input([None, 3], name="x")
    m.output(*m.op("ABS", [x], [m.tensor([1, 3], name="y", shape_signature=[-1, 3])]))
    result = convert(m.bytes())
    model = onnx.ModelProto()
    model.CopyFrom(result.model)
    (node,) = model.graph.node
    first, rest = node.input[0], "y_all"
    nodes = [
        onnx.helper.make_node("Abs", [first], [rest]),
        onnx.helper.make_node("CumSum", [rest, "zero"], [node.output[0]]),
    ]
    zero = onnx.numpy_helper.from_array(np.array(0, np.int64), "zero")
    model.graph.initializer.append(zero)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    report = verify(m.bytes(), model)
    assert all(each.ok for each in report.outputs)
    assert not report.ok
    paths = tmp_path / "m.tflite", tmp_path / "m.onnx"
    paths[0].write_bytes(m.bytes())
    onnx.save(model, paths[1])
    assert main(["verify", *map(str, paths)]) == 2
    printed = capsys.readouterr()
    assert "=2 wrong" in printed.out
    assert "=2: " in printed.err


def test_error_names_other_sizes_that_onnx_runtime_refuses() -> None:
    m = Build()
    x = m.input([None, 3], name="x")
    m.output(*m.op("ABS", [x], [m.tensor([1, 3], name="y", shape_signature=[-1, 3])]))
    model = onnx.ModelProto()
    model.CopyFrom(convert(m.bytes()).model)
    (node,) = model.graph.node
    shape = onnx.numpy_helper.from_array(np.array([1, 3], np.int64), "shape")
    model.graph.initializer.append(shape)
    reshape = onnx.helper.make_node("Reshape", ["whole", "shape"], [node.output[0]])
    node.output[0] = "whole"
    model.graph.node.append(reshape)
    with pytest.raises(VerifyError, match=r"with the sizes \w+=2: ONNX Runtime cannot run"):
        verify(m.bytes(), model)
