"""Images made larger or smaller."""

from __future__ import annotations

import numpy as np

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.image import ImageOperator, expect_real
from tflite2onnx.op.parameters import expect, ints
from tflite2onnx.tensor import Array, DType

# ONNX's coordinate_transformation_mode, by align_corners and half_pixel_centers.
_MODES = {
    (False, False): "asymmetric",
    (True, False): "align_corners",
    (False, True): "half_pixel",
}
# Of the types that TFLite resizes, those for which ONNX Runtime has Resize.
_RESIZED = frozenset({DType.FLOAT32, DType.INT32, DType.INT8, DType.UINT8})
# From here on float32, in which the kernels compute positions, cannot tell neighbours apart.
_MOST = 1 << 24


class Resize(ImageOperator):
    """What both ways of resizing have in common.

    ONNX is told the size, never the scale: that is a float32, and may round to another size.
    """

    def check(self) -> None:
        x, size = self.sizes(0), ints(self, 1)
        if len(size) != 2 or not 0 < min(size) <= max(*size, x["H"], x["W"]) < _MOST:  # noqa: PLR2004
            message = f"{size} is no size of an image"
            raise OperatorError(message)
        expect(self.output, (x["N"], *size, x["C"]), self.input(0).dtype)

    @property
    def mode(self) -> str | None:
        """ONNX's name for the way in which positions correspond; None if it has none."""
        return _MODES.get((bool(self.options.align_corners), bool(self.options.half_pixel_centers)))


class ResizeBilinear(Resize):
    """RESIZE_BILINEAR."""

    codes = ("RESIZE_BILINEAR",)

    def check(self) -> None:
        super().check()
        expect_real(self.input(0))
        if self.mode is None:
            message = "align_corners and half_pixel_centers exclude each other"
            raise OperatorError(message)

    def emit(self, g: Builder, y: View, x: View, size: View) -> Value:
        return g.Resize(
            x, None, None, g.ints(y.shape), mode="linear", coordinate_transformation_mode=self.mode
        )


class ResizeNearest(Resize):
    """RESIZE_NEAREST_NEIGHBOR: chooses rows and columns.

    Resize says so most plainly, and serves where every runtime makes LiteRT's choice with it.
    They differ where a position lies halfway between two elements, or does but for rounding.
    Gather makes any choice, and of any type.
    """

    codes = ("RESIZE_NEAREST_NEIGHBOR",)
    moves = True

    def emit(self, g: Builder, y: View, x: View, size: View) -> Value:
        align, half = bool(self.options.align_corners), bool(self.options.half_pixel_centers)
        sizes = {axis: (x.tensor.shape[axis], y.tensor.shape[axis]) for axis in (1, 2)}
        chosen = {a: chosen_by_kernel(*sizes[a], align=align, half=half) for a in sizes}
        if x.dtype in _RESIZED and self.mode is not None and all(
            np.array_equal(chosen[a], other)
            for a in sizes
            for other in chosen_by_onnx(*sizes[a], self.mode)
        ):
            return g.Resize(
                x, None, None, g.ints(y.shape), mode="nearest",
                coordinate_transformation_mode=self.mode,
                nearest_mode="floor" if self.mode == "asymmetric" else "round_prefer_ceil",
            )  # fmt: skip
        value = x.value
        for axis, indices in chosen.items():
            if not np.array_equal(indices, np.arange(x.tensor.shape[axis])):
                value = g.Gather(value, indices, axis=x.axis(axis))
        return value


def chosen_by_kernel(size: int, made: int, *, align: bool, half: bool) -> Array:
    """Return which of `size` elements each of `made` elements copies: int64 of shape [made].

    GetNearestNeighbor of LiteRT's reference/resize_nearest_neighbor.h, in float32 as there.
    """
    spans = align and made > 1
    scale = np.float32(size - spans) / np.float32(made - spans)
    at = (np.arange(made, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
    return _clipped(_rounded(at) if align else np.floor(at), size)


def chosen_by_onnx(size: int, made: int, mode: str) -> tuple[Array, Array]:
    """Return the same by the formulas of ONNX: in exact arithmetic, and in float32.

    ONNX Runtime follows the latter; since its issue 28291 it leans to the former.
    """
    i = np.arange(made)
    x, half = i.astype(np.float32), np.float32(0.5)
    scale, last = np.float32(made) / np.float32(size), max(made - 1, 1)
    if mode == "asymmetric":
        exact, rounded = i * size // made, np.floor(x / scale)
    elif mode == "half_pixel":
        exact, rounded = (2 * i + 1) * size // (2 * made), _rounded((x + half) / scale - half)
    else:
        exact = (2 * i * (size - 1) + last) // (2 * last)
        rounded = _rounded(x * np.float32(size - 1) / np.float32(last))
    return _clipped(exact, size), _clipped(rounded, size)


def _rounded(at: Array) -> Array:
    """Round halves up; in float64, where adding one to a float32 is exact."""
    return np.floor(at.astype(np.float64) + 0.5)


def _clipped(indices: Array, size: int) -> Array:
    return np.clip(indices, 0, size - 1).astype(np.int64)
