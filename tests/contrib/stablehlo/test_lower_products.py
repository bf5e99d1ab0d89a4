"""contrib/stablehlo/lower_products.py: LiteRT has no kernels, so numpy is the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contrib.stablehlo.test_lower_stablehlo import check_operator, refusal_of
from tests.references import check_reference
from tests.references.flex import random_numbers
from tests.support import Build
from tests.support.runtimes import Array
from tflite2onnx import convert
from tflite2onnx.errors import UnsupportedOperators


def convolve(
    x: Array, w: Array, strides: Any, pads: Any, bases: Any, steps: Any, groups: int, turned: Any
) -> Array:
    """STABLEHLO_CONVOLUTION of [batch, channels, ...] by [outputs, channels, ...]."""
    count = x.ndim - 2
    sizes = [(n - 1) * base + 1 for n, base in zip(x.shape[2:], bases, strict=True)]
    grown = np.zeros((*x.shape[:2], *sizes))
    grown[(slice(None), slice(None), *(slice(None, None, base) for base in bases))] = x
    edges = [(low, high) for low, high in zip(pads[::2], pads[1::2], strict=True)]
    grown = np.pad(grown, [(0, 0), (0, 0), *((max(a, 0), max(b, 0)) for a, b in edges)])
    crop = (
        slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(edges, grown.shape[2:], strict=True)
    )
    grown = grown[(slice(None), slice(None), *crop)]
    w = np.flip(w, tuple(i + 2 for i in range(count) if turned[i]))
    window = w.shape[2:]
    shape = [
        (n - (k - 1) * step - 1) // stride + 1
        for n, k, step, stride in zip(grown.shape[2:], window, steps, strides, strict=True)
    ]
    axes = list(range(1, x.ndim))
    y: Array = np.zeros((x.shape[0], w.shape[0], *shape))
    parts = np.split(grown, groups, 1), np.split(w, groups, 0)
    for place in np.ndindex(*shape):
        box = tuple(
            slice(i * stride, i * stride + (k - 1) * step + 1, step)
            for i, stride, k, step in zip(place, strides, window, steps, strict=True)
        )
        rows = [
            np.tensordot(part[(slice(None), slice(None), *box)], of_part, (axes, axes))
            for part, of_part in zip(*parts, strict=True)
        ]
        y[(slice(None), slice(None), *place)] = np.concatenate(rows, 1)
    return y.astype(np.float32)


NCHW: dict[str, Any] = {
    "input_batch_dimension": 0, "input_feature_dimension": 1, "input_spatial_dimensions": [2, 3],
    "output_batch_dimension": 0, "output_feature_dimension": 1,
    "output_spatial_dimensions": [2, 3], "kernel_output_feature_dimension": 0,
    "kernel_input_feature_dimension": 1, "kernel_spatial_dimensions": [2, 3],
}  # fmt: skip
CASES: list[tuple[int, dict[str, Any]]] = [
    *((count, {}) for count in (1, 2, 3)),
    *((count, {"strides": 2, "low": 1}) for count in (1, 2, 3)),
    *((count, {"steps": 2, "low": 2, "high": 1}) for count in (1, 2)),
    *((count, {"bases": 2, "low": 2, "high": 1}) for count in (1, 2, 3)),  # transposed
    *((count, {"bases": 3, "high": 4, "turned": True}) for count in (2, 3)),
    *((count, {"bases": 2, "strides": 2, "low": 1}) for count in (2, 3)),
    *((count, {"groups": 2, "low": 1}) for count in (1, 2, 3)),
    (2, {"groups": 4}),
    (2, {"groups": 2, "bases": 2, "low": 1}),
    (2, {"low": -1, "high": 2}),
    (2, {"turned": True}),
    (3, {"groups": 2, "bases": 2, "low": 2, "high": 2}),
]


@pytest.mark.parametrize(("count", "form"), CASES, ids=str)
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_convolutions_equal_numpy(count: int, form: dict[str, Any], order: str) -> None:
    last = order == "NHWC"
    groups = form.get("groups", 1)
    x = random_numbers("float32", 2, 4, *(5, 6, 4)[:count])
    w = random_numbers("float32", 8, 4 // groups, *(3, 2, 2)[:count], seed=1)
    strides, bases, steps = ([form.get(k, 1)] * count for k in ("strides", "bases", "steps"))
    pads = [form.get("low", 0), form.get("high", 0)] * count
    turned = [form.get("turned", False)] * count
    y = convolve(x, w, strides, pads, bases, steps, groups, turned)
    spatial = list(range(1, count + 1)) if last else list(range(2, count + 2))
    if last:
        x, y = (np.moveaxis(t, 1, -1).copy() for t in (x, y))
        w = np.moveaxis(w, (1, 0), (-2, -1)).copy()
    channels, first = (count + 1, 0) if last else (1, 2)
    check_operator(
        "CONVOLUTION", [x, w], y, constants=(1,),
        window_strides=strides, padding=pads, lhs_dilation=bases, rhs_dilation=steps,
        window_reversal=turned, feature_group_count=groups, batch_group_count=1,
        input_batch_dimension=0, input_feature_dimension=channels, input_spatial_dimensions=spatial,
        output_batch_dimension=0, output_feature_dimension=channels,
        output_spatial_dimensions=spatial,
        kernel_input_feature_dimension=count if last else 1,
        kernel_output_feature_dimension=count + 1 if last else 0,
        kernel_spatial_dimensions=list(range(first, first + count)),
    )  # fmt: skip


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("mirrored", [True, False])
def test_transposed_convolution_as_litert_torch_exports_it(
    padding: int, more: int, *, mirrored: bool
) -> None:
    """ConvTranspose3d: filters of [input, output, ...], mirrored by the window or before."""
    stride, size = (2, 1, 2), (3, 2, 3)
    x, w = random_numbers("float32", 2, 4, 3, 5, 2), random_numbers("float32", 4, 6, *size, seed=1)
    shape = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], stride, size, strict=True)]
    whole = np.zeros((2, 6, *(n + more for n in shape)))
    for place in np.ndindex(*size):
        box = tuple(
            slice(k, k + (n - 1) * s + 1, s)
            for k, n, s in zip(place, x.shape[2:], stride, strict=True)
        )
        part = np.einsum("nidhw,io->nodhw", x, w[(slice(None), slice(None), *place)])
        whole[(slice(None), slice(None), *box)] += part
    # PyTorch's padding crops both ends; output_padding keeps more of the last one.
    box = tuple(slice(min(padding, k - 1), n + more - min(padding, k - 1))
                for n, k in zip(shape, size, strict=True))  # fmt: skip
    want = whole[(slice(None), slice(None), *box)].astype(np.float32)
    edges = [k - 1 - min(padding, k - 1) for k in size]
    check_operator(
        "CONVOLUTION", [x, w if mirrored else np.flip(w, (2, 3, 4)).copy()], want, constants=(1,),
        window_strides=[1] * 3, padding=[n + end for n in edges for end in (0, more)],
        lhs_dilation=[*stride], rhs_dilation=[1] * 3, window_reversal=[mirrored] * 3,
        feature_group_count=1, batch_group_count=1, input_batch_dimension=0,
        input_feature_dimension=1, input_spatial_dimensions=[2, 3, 4], output_batch_dimension=0,
        output_feature_dimension=1, output_spatial_dimensions=[2, 3, 4],
        kernel_input_feature_dimension=0, kernel_output_feature_dimension=1,
        kernel_spatial_dimensions=[2, 3, 4],
    )  # fmt: skip


def test_batch_of_convolutions_may_be_dynamic() -> None:
    for base in (1, 2):
        x, w = (random_numbers("float32", *s, seed=1) for s in ((3, 4, 5, 6), (2, 4, 3, 2)))
        want = convolve(x, w, [1, 1], [1] * 4, [base] * 2, [1, 1], 1, [False] * 2)
        m = Build()
        operands = [m.input([None, 4, 5, 6]), m.constant(w)]
        options: dict[str, Any] = {"lhs_dilation": [base] * 2, "padding": [1] * 4, **NCHW}
        outputs = [m.tensor([None, *want.shape[1:]])]
        m.output(*m.op("STABLEHLO_CONVOLUTION", operands, outputs, **options))
        check_reference(m, [x], [want])


@pytest.mark.parametrize(
    ("shapes", "result", "options", "reason"),
    [
        (((2, 3, 4, 4), (2, 3, 2, 2)), (1, 2, 3, 3), {"batch_group_count": 2},
         "batch_group_count must be 1, got 2"),
        (((2, 3), (2, 3)), (2, 2),
         {"input_spatial_dimensions": [], "kernel_spatial_dimensions": [],
          "output_spatial_dimensions": []}, "must have 1 to 3 spatial axes, got 0"),
        (((2, 3, 4, 4), (2, 3, 1, 1)), (2, 2, 0, 4), {"padding": [-2, -2, 0, 0]},
         "must have elements, got the sizes [0, 4]"),
        (((2, 3, 4, 4), (2, 2, 1, 1)), (2, 2, 4, 4), {},
         "its 3 channels must be 1 groups of the 2 channels"),
        (((2, 4, 4, 4), (3, 2, 1, 1)), (2, 3, 4, 4), {"feature_group_count": 2},
         "its 3 filters a multiple of the groups"),
    ],
)  # fmt: skip
def test_other_convolutions_are_refused(
    shapes: Any, result: Any, options: dict[str, Any], reason: str
) -> None:
    assert reason in refusal_of("CONVOLUTION", shapes, result, **{**NCHW, **options})


def test_products_of_another_type_are_refused() -> None:
    m = Build()
    operands = [m.input([2, 3], dtype=dtype) for dtype in ("float32", "int32")]
    sums: Any = {f"{side}_contracting_dimensions": [i] for i, side in ((1, "lhs"), (0, "rhs"))}
    m.output(*m.op("STABLEHLO_DOT_GENERAL", operands, [[2, 2]], **sums))
    with pytest.raises(
        UnsupportedOperators, match="must have the output's type float32, got int32"
    ):
        convert(m.bytes())


DOTS = {
    "matrices": ("ij,jk->ik", (3, 4), (4, 5)),
    "transposed": ("ji,kj->ik", (4, 3), (5, 4)),
    "batches": ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    "inner batch": ("ibj,jbk->bik", (3, 2, 4), (4, 2, 5)),
    "two free": ("aij,jkl->aikl", (2, 3, 4), (4, 5, 2)),
    "two sums": ("aij,ijk->ak", (2, 3, 4), (3, 4, 5)),
    "vectors": ("i,i->", (4,), (4,)),
    "matrix by vector": ("ij,j->i", (3, 4), (4,)),
    "outer": ("i,j->ij", (3,), (4,)),
}


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
@pytest.mark.parametrize("form", DOTS)
def test_products_equal_numpy(form: str, dtype: str) -> None:
    equation, left, right = DOTS[form]
    a, b = (
        random_numbers(dtype, *shape, seed=i, low=-4, high=4)
        for i, shape in enumerate((left, right))
    )
    terms, y = equation.split("->")
    s, t = terms.split(",")
    both = [c for c in s if c in t]
    batch, sums = [c for c in both if c in y], [c for c in both if c not in y]
    check_operator(
        "DOT_GENERAL", [a, b], np.asarray(np.einsum(equation, a, b), dtype),
        lhs_batching_dimensions=[s.index(c) for c in batch],
        rhs_batching_dimensions=[t.index(c) for c in batch],
        lhs_contracting_dimensions=[s.index(c) for c in sums],
        rhs_contracting_dimensions=[t.index(c) for c in sums],
    )  # fmt: skip
