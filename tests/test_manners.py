"""The library in programs of others: representations, type hints, threads and notebooks."""

from __future__ import annotations

import gc
import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tests.golden.records import ASSETS
from tests.support import Build
from tests.support.small import chain, network
from tests.support.streams import build_sum
from tflite2onnx import convert
from tflite2onnx.options import CHOICES


def test_repr_of_a_result_is_a_short_line() -> None:
    """The repr of a result is a short line for any model and any names."""
    size = convert(network()).size
    assert repr(convert(network())) == (
        f"<Result x float32[2,3,5,7] -> y float32[2,13,5,7]: 3 nodes, {size:,} bytes, opset 17>"
    )
    m = Build()
    m.output(*(m.op("ABS", [m.input([2], name=f"x {i}")], [[2]])[0] for i in range(99)))
    short = repr(convert(m.bytes()))
    assert len(short) <= 200
    assert short.endswith(" ...>")


def test_notebook_html_escapes_names() -> None:
    """The HTML for notebooks shows names of the file as text."""
    m = Build()
    (y,) = m.op("ABS", [m.input([2], name="<script>")], [m.tensor([2], name="y")])
    m.output(y)
    html = convert(m.bytes())._repr_html_()
    assert "<script>" not in html
    assert "<td>input</td><td>&lt;script&gt;</td><td>float32</td><td>[2] 0</td>" in html
    assert "1 node, 0 bytes moved by 0 Transposes" in html
    assert "<td>state</td>" in convert(build_sum())._repr_html_()


@pytest.mark.parametrize("wrong", [123, None, 1.5, ["a.tflite"], object()])
def test_argument_that_is_no_model_is_refused(wrong: Any) -> None:
    """An argument that is not a model raises an error that names the argument."""
    message = f"model must be a path or bytes, got {type(wrong).__name__}"
    with pytest.raises(TypeError, match=message):
        convert(wrong)


def test_argument_that_is_no_output_path_is_refused(tmp_path: Path) -> None:
    wrong: Any = 123
    with pytest.raises(TypeError, match="output must be a path or None, got int"):
        convert(chain("ABS"), wrong)
    changing: Any = bytearray(chain("ABS"))
    convert(changing, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").exists()


def test_type_hints_list_the_choices_of_options() -> None:
    """The type hints of `convert` list the same choices as the options."""
    hints = get_type_hints(inspect.unwrap(convert))
    assert {name: get_args(hints[name]) for name in CHOICES} == CHOICES


def test_conversions_in_threads_equal_single_ones() -> None:
    """Eight conversions in threads give the results of single conversions."""
    models = [path.read_bytes() for path in sorted(ASSETS.glob("*.tflite"))[:8]]
    want = [convert(model).skeleton.serialize() for model in models]
    with ThreadPoolExecutor(8) as pool:
        made = [result.skeleton.serialize() for result in pool.map(convert, models)]
    assert made == want
    assert gc.isenabled()
