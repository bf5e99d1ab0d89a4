"""Batches of layers as PyTorch's converter spells them: InstanceNorm1d, TransformerEncoderLayer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.passes.batch.test_add_batch import build, check_batch, draw, reshape
from tests.support import Build, Tensor
from tests.support.control import op

STEPS, WIDTH, HEADS = 5, 8, 2


def join(m: Build, code: str, x: Tensor, y: Tensor) -> Tensor:
    """Return an operator of two tensors, the second of which broadcasts to the first."""
    return m.op(code, [x, y], [x.shape])[0]


def transpose(m: Build, x: Tensor, *order: int) -> Tensor:
    return m.op("TRANSPOSE", [x, m.constant([*order])], [[x.shape[i] for i in order]])[0]


def normalize(m: Build, x: Tensor, axes: Sequence[int], *, keep_dims: bool) -> Tensor:
    """Return x with the mean 0 and the variance 1 over axes, one of which may have the size 1."""
    kept = [1 if i in axes else size for i, size in enumerate(x.shape)]
    shape = kept if keep_dims else [size for i, size in enumerate(x.shape) if i not in axes]

    def average(t: Tensor) -> Tensor:
        (mean,) = m.op("MEAN", [t, m.constant([*axes])], [shape], keep_dims=keep_dims)
        return mean if keep_dims else reshape(m, mean, *kept)

    centred = join(m, "SUB", x, average(x))
    variance = average(join(m, "MUL", centred, centred))
    factor = op(m, "RSQRT", join(m, "ADD", variance, m.constant(np.float32(1e-5))))
    scaled = join(m, "MUL", join(m, "MUL", centred, factor), m.constant(draw(*kept[1:])))
    return join(m, "ADD", scaled, m.constant(draw(*kept[1:])))


@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("shape", [(1, 4, 6), (1, 4, 1, 6)], ids=str)
def test_batch_of_instance_norm_equals_single_runs(
    shape: Sequence[int], size: int | str, *, keep_dims: bool
) -> None:
    """The means are over the batch axis and the steps of a channel."""

    def network(m: Build) -> Sequence[Tensor]:
        x = reshape(m, m.input([1, 4, 6], name="x"), *shape)
        axes = [i for i in range(len(shape)) if i != 1]
        return [reshape(m, normalize(m, x, axes, keep_dims=keep_dims), 1, 4, 6)]

    check_batch(build(network), size)


def multiply(m: Build, x: Tensor, count: int) -> Tensor:
    """Return a layer of weights and a bias on the last axis."""
    weights = [m.constant(draw(count, x.shape[-1])), m.constant(draw(count))]
    shape = [*x.shape[:-1], count]
    return m.op("FULLY_CONNECTED", [x, *weights], [shape], keep_num_dims=len(shape) > 2)[0]


def attend(m: Build, x: Tensor) -> Tensor:
    """Return attention whose axis of steps is the first, and whose projection is one product."""
    depth = WIDTH // HEADS
    packed = multiply(m, transpose(m, x, 1, 0, 2), 3 * WIDTH)
    parts = transpose(m, reshape(m, packed, 1, STEPS, 1, 3, WIDTH), 3, 1, 2, 0, 4)
    parts = reshape(m, parts, 3, STEPS, 1, WIDTH)
    heads = []
    for i in range(3):
        begin, size = m.constant([i, 0, 0, 0]), m.constant([1, STEPS, 1, WIDTH])
        (part,) = m.op("SLICE", [parts, begin, size], [[1, STEPS, 1, WIDTH]])
        turned = transpose(m, reshape(m, part, STEPS, HEADS, depth), 1, 0, 2)
        heads.append(reshape(m, turned, 1, HEADS, STEPS, depth))
    query, key, value = heads
    scores = [1, HEADS, STEPS, STEPS]
    (products,) = m.op("BATCH_MATMUL", [query, key], [scores], adj_y=True)
    products = join(m, "MUL", products, m.constant(np.float32(depth**-0.5)))
    (weights,) = m.op("SOFTMAX", [products], [scores], beta=1.0)
    (mixed,) = m.op("BATCH_MATMUL", [weights, value], [query.shape])
    rows = reshape(m, transpose(m, mixed, 2, 0, 1, 3), STEPS, WIDTH)
    return transpose(m, reshape(m, multiply(m, rows, WIDTH), STEPS, 1, WIDTH), 1, 0, 2)


@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.parametrize("activation", ["RELU", "GELU"])
@pytest.mark.parametrize("axes", [(2,), (0, 2)], ids=str)
@pytest.mark.parametrize("first", [False, True])
def test_batch_of_a_transformer_layer_equals_single_runs(
    axes: Sequence[int], activation: str, size: int | str, *, first: bool
) -> None:
    """The layer normalizes before (`first`) or after attention and the two products."""

    def network(m: Build) -> Sequence[Tensor]:
        keep_dims = len(axes) == 1
        x = m.input([1, STEPS, WIDTH], name="x")
        for layer in ("attention", "products"):
            y = normalize(m, x, axes, keep_dims=keep_dims) if first else x
            if layer == "attention":
                y = attend(m, y)
            else:
                y = multiply(m, op(m, activation, multiply(m, y, 2 * WIDTH)), WIDTH)
            x = join(m, "ADD", x, y)
            x = x if first else normalize(m, x, axes, keep_dims=keep_dims)
        return [x]

    check_batch(build(network), size)
