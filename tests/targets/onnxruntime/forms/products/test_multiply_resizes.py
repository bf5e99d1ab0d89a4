"""targets.onnxruntime.forms.multiply_resizes.py: RESIZE_BILINEAR as products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.graph_text import read_graph
from tflite2onnx.targets.onnxruntime.forms.products.multiply_resizes import multiply_resizes


def build_resize(
    old: tuple[int, int], new: tuple[int, int], channels: int = 3, *, batch: int | None = 2,
    convolved: bool = True, **options: Any,
) -> Build:  # fmt: skip
    """Return RESIZE_BILINEAR of an image, after a convolution or not."""
    m = Build()
    x = m.input([batch, *old, channels])
    if convolved:
        filters = np.random.default_rng(0).standard_normal((channels, 1, 1, channels))
        parts = [m.constant(filters.astype(np.float32)), m.constant(np.ones(channels, np.float32))]
        (x,) = m.op("CONV_2D", [x, *parts], [x.shape], stride_h=1, stride_w=1, padding="SAME")
    shape = [batch, *new, channels]
    m.output(*m.op("RESIZE_BILINEAR", [x, m.constant(list(new))], [m.tensor(shape)], **options))
    return m


def list_codes(m: Build) -> list[str]:
    return [op.code for op in multiply_resizes(read_graph(m.bytes())).ops]


@pytest.mark.parametrize("options", [{}, {"align_corners": True}, {"half_pixel_centers": True}])
@pytest.mark.parametrize(
    "sizes", [((5, 7), (13, 9)), ((4, 9), (3, 20)), ((1, 3), (6, 1)), ((5, 7), (9, 7))], ids=str
)
def test_resizes_of_small_images_become_products(sizes: Any, options: dict[str, Any]) -> None:
    m = build_resize(*sizes, **options)
    products = ["TRANSPOSE", "BATCH_MATMUL", "BATCH_MATMUL", "TRANSPOSE"]
    assert list_codes(m) == ["CONV_2D", *products]
    check(m.bytes(), tolerance=1e-5)


def test_dynamic_batch_equals_litert() -> None:
    check(build_resize((5, 7), (13, 9), batch=None).bytes(), tolerance=1e-5)


@pytest.mark.parametrize(
    "m",
    [
        build_resize((40, 40), (50, 50)),
        build_resize((5, 7), (10, 14), channels=8),
        build_resize((5, 7), (13, 9), convolved=False),
        build_resize((5, 7), (5, 7)),
    ],
    ids=["large", "in blocks", "no image", "equal"],
)
def test_resizes_of_large_or_blocked_images_stay(m: Build) -> None:
    assert list_codes(m)[-1] == "RESIZE_BILINEAR"
    check(m.bytes(), seeds=[0])
