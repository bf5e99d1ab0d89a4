"""Custom operators of GPU delegates, and of XNNPACK: equal to formulas in numpy, or to XNNPACK."""

from __future__ import annotations

from typing import Any

from tests.conformance.bench import Array, Bench
from tests.conformance.rows.elementwise import kinds
from tests.conformance.table import Row
from tests.op.linear import test_experts, test_positions
from tests.op.reduction import test_normalization
from tests.references.genai import run_litert

Shape = tuple[int, ...]
_REAL, _ONE = kinds("float32"), ("random",)
_EPSILON = test_normalization.EPSILON


def build_normalization(
    b: Bench, code: str, *, shape: Shape, vectors: int, groups: int | None = None
) -> None:
    """Build a normalization with a constant scale and bias, or with fewer constants."""
    operands = [b.add_input(shape), *(b.add_constant(shape[-1:]) for _ in range(vectors))]
    options = {"epsilon": _EPSILON, "num_groups": groups}
    given = {name: value for name, value in options.items() if value is not None}
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(shape)], given))


def build_rotation(b: Bench, code: str, *, shape: Shape, options: dict[str, Any]) -> None:
    """Build a rotation by integer positions."""
    positions = test_positions.draw_positions(1, shape[2], "int32")
    operands = [b.add_input(shape), b.add_input(positions.shape, "int32", positions)]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(shape)], options))


def build_encoding(b: Bench, code: str, *, shape: Shape, index: str) -> None:
    """Build the sum of data and waves of their positions."""
    positions = test_positions.draw_positions(1, shape[2], index)
    operands = [b.add_input(shape), b.add_input(positions.shape, index, positions)]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(shape)]))


def build_experts(b: Bench, code: str, *, route: tuple[int, int, int], weights: str) -> None:
    """Build experts, which get the inputs of the test."""
    del code
    _, inputs = test_experts.experts(route, weights, m=b)
    b.arrays += inputs
    b.operands += inputs
    b.given.append(b.tensor(inputs[0].shape))


def run_experts(*operands: Array, route: tuple[int, int, int], weights: str) -> list[Array]:
    """Return the output of LiteRT's delegate."""
    return run_litert(test_experts.experts(route, weights)[0].bytes(), operands)[0]


ROWS = (
    Row(test_normalization.LAYER, build_normalization, _REAL,
        {"shape": test_normalization.SHAPES, "vectors": (2, 1, 0)}, _ONE,
        reference=test_normalization.normalize),
    Row(test_normalization.GROUP, build_normalization, _REAL,
        {"shape": (test_normalization.IMAGE,), "vectors": (2, 0),
         "groups": test_normalization.GROUPS}, _ONE,
        reference=test_normalization.normalize_groups, told=("groups",)),
    Row(test_normalization.RMS, build_normalization, _REAL,
        {"shape": test_normalization.SHAPES, "vectors": (1, 0)}, _ONE,
        reference=test_normalization.normalize_squares),
    *(
        Row(code, build_rotation, _REAL,
            {"shape": test_positions.SHAPES, "options": test_positions.OPTIONS}, _ONE,
            reference=test_positions.rotate, told=("options",))
        for code in (test_positions.ROTATION, "odml.rope")
    ),
    Row(test_positions.ENCODING, build_encoding, _REAL,
        {"shape": test_positions.SHAPES, "index": ("int32", "float32")}, _ONE,
        reference=test_positions.encode),
    Row(test_experts.CODE, build_experts, _REAL,
        {"route": test_experts.ROUTES, "weights": test_experts.WEIGHTS}, _ONE,
        reference=run_experts, told=("route", "weights")),
)  # fmt: skip
