"""TensorFlow's Fourier transforms, of any length; complex numbers are pairs: see `complex`."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.fourier import synthesis
from tflite2onnx.op.parameters import affordable, expect, expect_type, ints
from tflite2onnx.tensor import DType, Shape

_PAIR = 2


class _Kind(NamedTuple):
    """Over how many axes it goes, whether of real numbers (or to them), and whether back."""

    axes: int
    real: bool
    inverse: bool


_KINDS = {
    f"Flex{prefix}FFT{suffix}": _Kind(axes, "R" in prefix, "I" in prefix)
    for axes, suffix in ((1, ""), (2, "2D"), (3, "3D"))
    for prefix in ("", "I", "R", "IR")
}


class FlexFourier(Operator):
    """FlexFFT, its inverse, and those of real numbers, over one, two or three axes.

    Those of real numbers have half of all frequencies, and are cut or filled up to a length.
    """

    codes = tuple(sorted(_KINDS))
    custom = True
    category = Category.TERMINATE

    @property
    def _kind(self) -> _Kind:
        return _KINDS[self.op.code]

    @property
    def _pairs(self) -> tuple[bool, bool]:
        """Whether it reads complex numbers, and whether it makes some."""
        kind = self._kind
        return not kind.real or kind.inverse, not kind.real or not kind.inverse

    @cached_property
    def _apart(self) -> tuple[Shape, Shape]:
        """The axes in front of those that are transformed, and those."""
        x, (pairs, _) = self.input(0), self._pairs
        shape = x.shape[:-1] if pairs else x.shape
        if len(shape) < self._kind.axes or 0 in shape or (pairs and x.shape[-1] != _PAIR):
            message = f"{list(x.shape)} over {self._kind.axes} axes"
            raise OperatorError(message)
        cut = len(shape) - self._kind.axes
        return shape[:cut], shape[cut:]

    @cached_property
    def _lengths(self) -> Shape:
        lengths = tuple(ints(self, 1)) if self._kind.real else self._apart[1]
        if len(lengths) != self._kind.axes or min(lengths) < 1:
            message = f"lengths {list(lengths)}"
            raise OperatorError(message)
        affordable(max(lengths) ** (2 if self._kind.real and self._kind.inverse else 1))
        return lengths

    @property
    def _halved(self) -> Shape:
        """The lengths with half of the frequencies of the last."""
        return (*self._lengths[:-1], self._lengths[-1] // 2 + 1)

    def check(self) -> None:
        x, (_, pairs) = self.input(0), self._pairs
        expect_type(x, (DType.FLOAT32, DType.FLOAT64))
        made = self._halved if self._kind.real and pairs else self._lengths
        expect(self.output, (*self._apart[0], *made, *([_PAIR] if pairs else [])), x.dtype)

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        kind, (reads, _makes) = self._kind, self._pairs
        sizes = self._apart[1]
        value = g.reshape(x, (-1, *sizes, _PAIR if reads else 1))
        if kind.real:
            wanted = self._halved if kind.inverse else self._lengths
            value = _fitted(g, value, sizes, wanted, x.dtype)
        if not kind.real:
            for axis, size in enumerate(sizes, 1):
                value = _inverse(g, value, axis, size, x.dtype) if kind.inverse else (
                    g.dft(value, axis)
                )
        elif not kind.inverse:
            value = g.dft(value, kind.axes, onesided=True)
            for axis in range(1, kind.axes):
                value = g.dft(value, axis)
        else:
            for axis, size in enumerate(self._lengths[:-1], 1):
                value = _inverse(g, value, axis, size, x.dtype)
            *_lead, half = self._halved
            rows = g.reshape(value, (-1, half * _PAIR))
            value = g.MatMul(rows, synthesis(self._lengths[-1]).astype(x.dtype.numpy))
        return g.reshape(value, y.sizes)

    def keeps_open(self, operand: int, axis: int) -> bool:
        return axis == 0 and len(self._apart[0]) == 1


def _inverse(g: Builder, x: Value, axis: int, size: int, dtype: DType) -> Value:
    """Return an inverse transform along an axis of this size.

    ONNX Runtime multiplies doubles by the reciprocal of the size as it is in float32.
    """
    if dtype is not DType.FLOAT64:
        return g.dft(x, axis, inverse=True)
    mirror = np.array([1.0, -1.0])
    return g.Mul(g.dft(g.Mul(x, mirror), axis), mirror / size)


def _fitted(g: Builder, value: Value, have: Shape, want: Shape, dtype: DType) -> Value:
    """Return [batch, *have, ...] cut or filled up with 0."""
    if have == want:
        return value
    more = [b - a for a, b in zip(have, want, strict=True)]
    return g.Pad(value, g.ints([0] * (len(have) + 3) + more + [0]), g.scalar(0, dtype))
