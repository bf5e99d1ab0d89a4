"""Warps, pooling and transposed convolutions of MediaPipe and of LiteRT's perception kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tests.support.runtimes import Array

Pair = tuple[int, int]


def transpose_conv(x: Array, w: Array, b: Array, strides: Pair, *, same: bool) -> Array:
    """Return the output of MediaPipe's transpose_conv_bias.cc."""
    batch, height, width, _ = x.shape
    channels, *kernel, _ = w.shape
    image, before = [], []
    for n, k, stride in zip((height, width), kernel, strides, strict=True):
        lost = max(0, k - (n - 1) % stride - 1) if same else 0
        image.append(stride * (n - 1) + k - lost)
        before.append(lost // 2)
    wide = [n + 2 * max(kernel) for n in image]
    room = np.zeros((batch, *wide, channels), np.float64) + b
    for row in range(height):
        for column in range(width):
            top = row * strides[0] - before[0] + max(kernel)
            left = column * strides[1] - before[1] + max(kernel)
            patch = np.einsum("nc,ohwc->nhwo", x[:, row, column], w)
            room[:, top : top + kernel[0], left : left + kernel[1]] += patch
    y = room[:, max(kernel) :, max(kernel) :][:, : image[0], : image[1]]
    made: Array = y.astype(np.float32)
    return made


def max_pool(
    x: Array, kernel: Pair, strides: Pair, *, same: bool, within: bool
) -> tuple[Array, Array]:
    """Return the outputs of MediaPipe's max_pool_argmax.cc or LiteRT's max_pool_with_argmax.cc."""
    batch, height, width, channels = x.shape
    size, before = [], []
    for n, k, stride in zip((height, width), kernel, strides, strict=True):
        count = -(-n // stride) if same else (n - k + stride) // stride
        size.append(count)
        before.append(max((count - 1) * stride + k - n, 0) // 2)
    values = np.zeros((batch, *size, channels), np.float32)
    places = np.zeros(values.shape, np.float64)
    for n, i, j, c in np.ndindex(*values.shape):
        best, where = -np.inf, (0, 0)
        for dy, dx in np.ndindex(*kernel):
            row, column = i * strides[0] - before[0] + dy, j * strides[1] - before[1] + dx
            inside = 0 <= row < height and 0 <= column < width
            if inside and x[n, row, column, c] > best:
                best, where = x[n, row, column, c], (dy, dx) if within else (row, column)
        values[n, i, j, c] = best
        row, column = where
        flat = row * kernel[1] + column if within else (row * width + column) * channels + c
        places[n, i, j, c] = flat
    if within:
        return values, places.astype(np.float32) + np.float32(0.1)
    return values, places.astype(np.int32)


def unpool_within(x: Array, places: Array, kernel: Pair, strides: Pair) -> Array:
    """Return the output of MediaPipe's max_unpooling.cc."""
    batch, height, width, channels = x.shape
    y = np.zeros((batch, height * kernel[0], width * kernel[1], channels), np.float32)
    counts = zip((height, width), y.shape[1:3], kernel, strides, strict=True)
    before = [max((n - 1) * stride + k - image, 0) // 2 for n, image, k, stride in counts]
    for n, i, j, c in np.ndindex(*x.shape):
        dy, dx = divmod(int(places[n, i, j, c]), kernel[1])
        y[n, i * strides[0] - before[0] + dy, j * strides[1] - before[1] + dx, c] = x[n, i, j, c]
    return y


def unpool(x: Array, places: Array, image: Pair) -> Array:
    """Return the output of LiteRT's perception/max_unpooling_2d.cc."""
    y = np.zeros((x.shape[0], image[0] * image[1] * x.shape[3]), np.float32)
    for n, i, j, c in np.ndindex(*x.shape):
        y[n, places[n, i, j, c]] = x[n, i, j, c]
    return y.reshape(x.shape[0], *image, x.shape[3])


def bilinear(image: Array, x: float, y: float) -> Array:
    """Return the interpolated channels of an image [height, width, channels]; it is 0 outside."""
    left, top = int(np.floor(x)), int(np.floor(y))
    result = np.zeros(image.shape[2])
    for row, by_row in ((top, top + 1 - y), (top + 1, y - top)):
        for column, by_column in ((left, left + 1 - x), (left + 1, x - left)):
            if 0 <= row < image.shape[0] and 0 <= column < image.shape[1]:
                result += by_row * by_column * image[row, column]
    return result


def resampler(image: Array, places: Array) -> Array:
    """Return the output of MediaPipe's resampler.cc, for any number of places."""
    y = np.zeros((*places.shape[:3], image.shape[3]), np.float32)
    height, width = image.shape[1:3]
    for n, i, j in np.ndindex(*places.shape[:3]):
        px, py = places[n, i, j]
        if -1 < px < width and -1 < py < height:
            y[n, i, j] = bilinear(image[n], px, py)
    return y


def dense_image_warp(image: Array, flow: Array) -> Array:
    """Return the output of LiteRT's perception/dense_image_warp.cc."""
    y = np.zeros(image.shape, np.float32)
    height, width = image.shape[1:3]
    for n, i, j in np.ndindex(*image.shape[:3]):
        row = np.clip(i - flow[n, i, j, 0], 0, height - 1)
        column = np.clip(j - flow[n, i, j, 1], 0, width - 1)
        y[n, i, j] = bilinear(image[n], column, row)
    return y


def transform_tensor(image: Array, matrix: Array, size: Pair, *, version: int) -> Array:
    """Return the output of MediaPipe's transform_tensor_bilinear.cc."""
    rows = matrix.reshape(4, 4)[:2].copy()
    if version > 1:
        rows[:, 3] += rows[:, 0] * np.float32(0.5) + rows[:, 1] * np.float32(0.5) - np.float32(0.5)
    y = np.zeros((1, *size, image.shape[3]), np.float32)
    height, width = image.shape[1:3]
    for i, j in np.ndindex(*size):
        px, py = (row[0] * np.float32(j) + row[1] * np.float32(i) + row[3] for row in rows)
        if 0 <= px <= width - 1 and 0 <= py <= height - 1:
            y[0, i, j] = bilinear(image[0], px, py)
    return y
