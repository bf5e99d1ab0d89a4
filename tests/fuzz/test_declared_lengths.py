"""Lengths and sizes that a file only declares do not cause large allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.fuzz.test_fuzz import run_fuzzer, save_models
from tests.support import Build
from tests.support.flex import flex_options
from tests.support.reading import int32
from tflite2onnx import convert
from tflite2onnx.builder.nodes import Nodes
from tflite2onnx.errors import OperatorError, UnsupportedOperators
from tflite2onnx.op.common.checks import check_element_count
from tflite2onnx.utils.constant_budget import ConstantBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

LONG, LONGEST = 1 << 28, 2**31 - 1


def build_list(code: str, *lengths: int | None, first: bool = False) -> bytes:
    """Return an operator with lists of declared lengths besides its data."""
    m = Build()
    data = [m.input([4])]
    lists = [m.input([length], dtype="int32") for length in lengths if length is not None]
    inputs = [*lists, *data] if first else [*data, *lists]
    m.output(*m.op(code, inputs, [m.tensor([4], dtype="float32")]))
    return m.bytes()


def build_scatter() -> bytes:
    m = Build()
    inputs = [m.input([4, 1], dtype="int32"), m.input([4]), m.input([LONGEST], dtype="int32")]
    m.output(*m.op("SCATTER_ND", inputs, [m.tensor([4])]))
    return m.bytes()


def build_draw() -> bytes:
    m = Build()
    shape = m.input([LONGEST], dtype="int32")
    m.output(*m.op("RANDOM_UNIFORM", [shape], [m.tensor([4], dtype="float32")]))
    return m.bytes()


def custom(
    name: str, shapes: Sequence[Sequence[int]], made: Sequence[Sequence[int]], options: Any = b"",
    constants: Sequence[Any] = (), dtypes: Sequence[str] = ("float32", "float32"),
) -> bytes:  # fmt: skip
    """Return a custom operator with inputs and outputs of declared shapes, and constants."""
    m = Build()
    inputs = [*(m.input(shape) for shape in shapes), *map(m.constant, constants)]
    outputs = [m.tensor(s, dtype=dtype) for s, dtype in zip(made, dtypes, strict=False)]
    m.output(*m.custom(name, inputs, outputs, options))
    return m.bytes()


def build_crop() -> bytes:
    m = Build()
    inputs = [
        m.input([1, 5, 7, 3]), m.input([2, 4]), m.input([2], dtype="int32"),
        m.constant(int32([LONGEST, 3])),
    ]  # fmt: skip
    made = [m.tensor([2, LONGEST, 3, 3], dtype="float32")]
    m.output(*m.custom("FlexCropAndResize", inputs, made, flex_options("CropAndResize")))
    return m.bytes()


def build_stitch() -> bytes:
    m = Build()
    inputs = [m.constant(int32([0, LONGEST - 1])), m.input([2, 3])]
    options = flex_options("DynamicStitch")
    m.output(*m.custom("FlexDynamicStitch", inputs, [[LONGEST, 3]], options))
    return m.bytes()


def ranges(count: int, size: int) -> bytes:
    """Return many ranges; a single range would fit into memory."""
    m = Build()
    bounds = [m.constant(np.array(each, np.float32)) for each in (0.5, size + 0.5, 1)]
    for _ in range(count):
        m.output(*m.op("RANGE", bounds, [[size]]))
    return m.bytes()


WINDOW: dict[str, Any] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
GREEDY: dict[str, Callable[[], bytes]] = {
    "strided slice": lambda: build_list("STRIDED_SLICE", LONGEST, LONGEST, LONGEST),
    "strided slice of 33": lambda: build_list("STRIDED_SLICE", 33, 33, 33),
    "slice": lambda: build_list("SLICE", LONGEST, LONGEST),
    "reshape": lambda: build_list("RESHAPE", LONGEST),
    "broadcast": lambda: build_list("BROADCAST_TO", LONGEST),
    "transpose": lambda: build_list("TRANSPOSE", LONGEST),
    "tile": lambda: build_list("TILE", LONGEST),
    "pad": lambda: build_list("PAD", LONGEST),
    "fill": lambda: build_list("FILL", LONGEST, first=True),
    "reverse": lambda: build_list("REVERSE_V2", LONGEST),
    "broadcast shapes": lambda: build_list("BROADCAST_ARGS", LONGEST),
    "scatter": build_scatter,
    "random": build_draw,
    "warp": lambda: custom(
        "DenseImageWarp", [[1, LONG, 7, 3], [1, LONG, 7, 2]], [[1, LONG, 7, 3]]
    ),
    "transform": lambda: custom(
        "TransformTensor", [[1, 5, 7, 3], [1, 4, 4, 1]], [[1, LONGEST, 7, 3]]
    ),
    "maxima": lambda: custom(
        "FlexMaxPoolWithArgmax", [[1, 4, 6, LONGEST]], [[1, 2, 3, LONGEST]] * 2,
        flex_options("MaxPoolWithArgmax", **WINDOW), dtypes=("float32", "int64"),
    ),
    "crops": build_crop,
    "build_stitch": build_stitch,
    "ranges": lambda: ranges(400, 1 << 22),
}  # fmt: skip


@pytest.mark.parametrize("name", GREEDY)
def test_small_files_that_declare_large_data_are_refused(name: str) -> None:
    """Small files that declare large data are refused before memory is allocated."""
    with pytest.raises(UnsupportedOperators):
        convert(GREEDY[name]())


def test_small_files_are_refused_in_little_memory(tmp_path: Path) -> None:
    assert "'refused'" in run_fuzzer(
        0, 1, save_models(tmp_path, {name: b() for name, b in GREEDY.items()})
    )


def test_range_with_too_small_step_is_refused() -> None:
    """A step that is too small is refused, and numpy's warning is no error."""
    m = Build()
    bounds = [m.constant(np.array(each, np.float32)) for each in (0, 1e30, 1e-30)]
    (y,) = m.op("RANGE", bounds, [[3]])
    m.output(*m.op("ADD", [m.input([3]), y], [[3]]))
    with pytest.raises(UnsupportedOperators, match=r"a constant must have .* at most, got inf"):
        convert(m.bytes())


def test_constants_are_limited_singly_and_together() -> None:
    check_element_count(1 << 24)
    for count in ((1 << 24) + 1, float("inf"), float("nan")):
        with pytest.raises(OperatorError, match="a constant must have"):
            check_element_count(count)
    budget = ConstantBudget(stored=1 << 20)
    g = Nodes(17, budget=budget)
    half = np.broadcast_to(np.float32(0), ((1 << 25) + (1 << 21),))
    g.constant(half)
    g.constant(half)
    with pytest.raises(OperatorError, match="far more memory than its file"):
        g.constant(np.zeros(1 << 12, np.float32))
