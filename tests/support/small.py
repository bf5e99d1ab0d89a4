"""Small models that the tests of the whole converter share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.support import Build

if TYPE_CHECKING:
    from tests.support import Subgraph, Tensor


def convolve(m: Subgraph, x: Tensor, channels: int, name: str) -> Tensor:
    """Return the output of a 3x3 convolution with random weights, which keeps height and width."""
    generator = np.random.default_rng(channels)
    filters = generator.standard_normal((channels, 3, 3, x.shape[3])).astype(np.float32)
    biases = generator.standard_normal(channels).astype(np.float32)
    (y,) = m.op(
        "CONV_2D",
        [x, m.constant(filters, name=f"{name}/filters"), m.constant(biases, name=f"{name}/biases")],
        [m.tensor((*x.shape[:3], channels), name=name)],
        padding="SAME",
        stride_h=1,
        stride_w=1,
    )
    return y


def network(
    *, shape: tuple[int, int, int, int] = (2, 5, 7, 3), signature: tuple[int, ...] = ()
) -> bytes:
    """Return "x" -> CONV_2D -> "hidden" -> ABS -> "positive" -> CONV_2D -> "y"."""
    m = Build()
    hidden = convolve(m, m.input(shape, name="x", shape_signature=signature), 12, "hidden")
    (positive,) = m.op("ABS", [hidden], [m.tensor(hidden.shape, name="positive")])
    m.output(convolve(m, positive, 13, "y"))
    return m.bytes()


def build_flattening() -> bytes:
    """Return "x" -> CONV_2D -> "image" -> RESHAPE -> "flat"; image and flat are outputs."""
    m = Build()
    image = convolve(m, m.input((2, 5, 7, 3), name="x"), 11, "image")
    shape = m.constant(np.array([2, 385], np.int32))
    (flat,) = m.op("RESHAPE", [image, shape], [m.tensor((2, 385), name="flat")])
    m.output(image, flat)
    return m.bytes()


def chain(*codes: str, shape: tuple[int, ...] = (2, 3, 5)) -> bytes:
    """Return "x" -> operators with one input -> "y"."""
    m = Build()
    tensor = m.input(shape, name="x")
    for i, code in enumerate(codes, 1):
        name = "y" if i == len(codes) else f"inner_{i}"
        (tensor,) = m.op(code, [tensor], [m.tensor(shape, name=name)])
    m.output(tensor)
    return m.bytes()
