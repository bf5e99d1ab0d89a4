"""odml.update_external_kv_cache and odml.update_kv_cache, compared with LiteRT's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.references import check_reference, check_reference_runs, draw_numbers
from tests.references.genai import run_litert
from tests.support import Build
from tests.support.streams import states
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Sequence

CODE = "odml.update_external_kv_cache"
Shape = tuple[int, ...]


def build_external_cache(cache: Shape, new: Shape, count: int) -> Build:
    m = Build()
    operands = [
        m.input(cache),
        m.input(cache),
        m.input([count], dtype="int32"),
        m.input(new),
        m.input(new),
    ]
    m.output(*m.custom(CODE, operands, [m.tensor(cache), m.tensor(cache)]))
    return m


POSITIONS = [
    [0],
    [10],
    [3, 4, 5],
    [7, 8, 0, 0],
    [0, 0],
    [2, 5, 5, 9],
    [10, 3, 11, 12],
    [4, 4, 3],
]


@pytest.mark.parametrize("positions", POSITIONS, ids=str)
def test_new_rows_are_written_at_their_positions(positions: list[int]) -> None:
    """Rows are written at their positions; of two rows at one position the later row stays."""
    cache, new = (1, 11, 3, 5), (1, len(positions), 3, 5)
    m = build_external_cache(cache, new, len(positions))
    inputs = [
        draw_numbers(*cache),
        draw_numbers(*cache, seed=1),
        np.array(positions, np.int32),
        draw_numbers(*new, seed=2),
        draw_numbers(*new, seed=3),
    ]
    check_reference(m, inputs, run_litert(m.bytes(), inputs)[0], tolerance=0)


@pytest.mark.parametrize(
    ("cache", "new", "count", "reason"),
    [
        ((11, 3, 5), (1, 2, 3, 5), 2, "must be float32[1, time, heads, depth], got"),
        ((2, 11, 3, 5), (2, 2, 3, 5), 2, "must be float32[1, 11, 3, 5], got"),
        ((1, 11, 3, 5), (1, 2, 7, 5), 2, "[1, 2, 3, 5], got"),
        ((1, 11, 3, 5), (1, 2, 3, 5), 3, "float32[1, 3, 3, 5], got"),
        ((1, 1 << 28, 3, 5), (1, 2, 3, 5), 2, "elements at most, got 268,435,456"),
    ],
)
def test_cache_update_refuses_invalid_shapes(
    cache: Shape, new: Shape, count: int, reason: str
) -> None:
    with pytest.raises(ConversionError) as error:
        convert(build_external_cache(cache, new, count).bytes())
    assert reason in str(error.value)


def test_cache_update_must_have_two_outputs() -> None:
    m = Build()
    operands = [
        m.input([1, 7, 3, 5]),
        m.input([1, 7, 3, 5]),
        m.input([2], dtype="int32"),
        m.input([1, 2, 3, 5]),
        m.input([1, 2, 3, 5]),
    ]
    m.output(*m.custom(CODE, operands, [m.tensor([1, 7, 3, 5])]))
    with pytest.raises(ConversionError, match="must have 2 outputs, got 1"):
        convert(m.bytes())


KEPT = "odml.update_kv_cache"


def build_kept_cache(count: int, options: dict[str, float], times: int, layers: int = 1) -> Build:
    """Return a model of several layers with new rows of shape [1, count, 3, 5]."""
    m = Build()
    positions = m.input([count], dtype="int64")
    for layer in range(layers):
        new = [m.input([1, count, 3, 5]) for _ in range(2)]
        made = [m.tensor([1, times, 3, 5]) for _ in range(2)]
        more = {"layer_index": layer, "num_layers": layers} if layers > 1 else {}
        m.output(*m.custom(KEPT, [positions, *new], made, {**options, **more}))
    return m


@pytest.mark.parametrize(
    "positions",
    [range(17), [0, 1, 2, 1, 5, 8, 6, 6, 7, 10], [2, 9, 20, 21], [0, 6, 12, 13, 11, 30]],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 2, 7])
def test_full_cache_drops_its_oldest_rows(count: int, positions: Sequence[int]) -> None:
    """When the cache is full, its oldest rows are dropped."""
    m = build_kept_cache(count, {"kv_cache_max": 7}, 7)
    runs, first = [], 0
    for number, position in enumerate(positions):
        gone = max(position + count - first - 7, 0)
        if position < first or gone > 7:
            continue
        first += gone
        new = [draw_numbers(1, count, 3, 5, seed=2 * number + i) for i in range(2)]
        runs.append([np.arange(position, position + count), *new])
    want = run_litert(m.bytes(), *runs)
    result = check_reference_runs(m, list(zip(runs, want, strict=True)), tolerance=0)
    names = ["kv_cache/0/keys", "kv_cache/0/values", "kv_cache/0/first"]
    assert [name for name, _ in states(result)] == names


def test_layers_have_separate_caches() -> None:
    m = build_kept_cache(2, {"kv_cache_max": 5}, 5, layers=3)
    runs = [
        [
            np.arange(step, step + 2),
            *(draw_numbers(1, 2, 3, 5, seed=6 * step + i) for i in range(6)),
        ]
        for step in range(7)
    ]
    want = run_litert(m.bytes(), *runs)
    result = check_reference_runs(m, list(zip(runs, want, strict=True)), tolerance=0)
    assert len(result.states) == 9


@pytest.mark.parametrize("variable", [False, True])
@pytest.mark.parametrize("shape", [(1, 2048, 3, 5), (1, 1, 1, 1)])
def test_output_has_the_shape_of_the_kernel(shape: Shape, *, variable: bool) -> None:
    """The output has the kernel's shape, not the declared shape, also if it is a variable."""
    m = Build()
    operands = [m.input([2], dtype="int64"), m.input([1, 2, 3, 5]), m.input([1, 2, 3, 5])]
    made = [m.tensor(shape, variable=variable, name=name) for name in ("keys", "values")]
    m.output(*m.custom(KEPT, operands, made, {"layer_index": 0}))
    inputs = [np.arange(2), draw_numbers(1, 2, 3, 5), draw_numbers(1, 2, 3, 5, seed=1)]
    check_reference(m, inputs, run_litert(m.bytes(), inputs)[0], tolerance=0)
    assert [end.name for end in convert(m.bytes()).outputs] == ["keys", "values"]


def test_refuses_too_many_rows_and_unknown_options() -> None:
    with pytest.raises(ConversionError, match=r"the number of new rows must be 1 to 2, got 3"):
        convert(build_kept_cache(3, {"kv_cache_max": 2}, 2).bytes())
    with pytest.raises(ConversionError, match="cannot convert float infinity"):
        convert(build_kept_cache(1, {"kv_cache_max": 2, "layer_index": float("inf")}, 2).bytes())
    m = Build()
    operands = [m.input([2], dtype="int64"), m.input([2, 3, 5]), m.input([2, 3, 5])]
    made = [m.tensor([1, 7, 3, 5]) for _ in range(2)]
    m.output(*m.custom(KEPT, operands, made, {"kv_cache_max": 7}))
    with pytest.raises(ConversionError, match=r"must be float32\[1, 2, heads, depth\], got"):
        convert(m.bytes())
