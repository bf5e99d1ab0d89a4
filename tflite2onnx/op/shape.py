"""Operators about the axes alone: TRANSPOSE, RESHAPE and their like, SHAPE and RANK."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.layout import Axes, Frame, axis_names, identity
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.op.parameters import axis_of, expect, ints
from tflite2onnx.tensor import Array, DType, Shape


def runs(source: Shape, target: Shape) -> tuple[Axes, Axes]:
    """Name the axes of both sides of a reshape so that equal names hold equal elements.

    The shapes are cut wherever the products of the sizes so far agree. A piece that is one axis
    on both sides is that axis; a piece that is split or merged is one name on all its axes, so
    that they stay together. Axes of size 1 that pair with nothing get names of their own: they
    can stand anywhere.
    """
    if 0 in source:
        free = tuple(f"in{i}" for i in range(len(source)))
        return free, tuple(f"out{i}" for i in range(len(target)))
    names: tuple[list[str], list[str]] = ([""] * len(source), [""] * len(target))
    i = j = piece = 0
    while i < len(source) or j < len(target):
        if i < len(source) and j < len(target) and source[i] == target[j]:
            names[0][i] = names[1][j] = f"r{piece}"
            i, j = i + 1, j + 1
        elif i < len(source) and source[i] == 1:
            names[0][i], i = f"in{i}", i + 1
        elif j < len(target) and target[j] == 1:
            names[1][j], j = f"out{j}", j + 1
        else:
            i, j = _piece(source, target, i, j, names, f"r{piece}")
        piece += 1
    return tuple(names[0]), tuple(names[1])


def _piece(
    source: Shape, target: Shape, i: int, j: int, names: tuple[list[str], list[str]], name: str
) -> tuple[int, int]:
    a, b = source[i], target[j]
    names[0][i] = names[1][j] = name
    i, j = i + 1, j + 1
    while a != b:
        if a < b:
            a, names[0][i], i = a * source[i], name, i + 1
        else:
            b, names[1][j], j = b * target[j], name, j + 1
    return i, j


class Reshape(Operator):
    """RESHAPE, SQUEEZE, EXPAND_DIMS: the elements stay, the axes are counted anew."""

    codes = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
    moves = True
    category = Category.ATTRIBUTE

    def check(self) -> None:
        x, y = self.input(0), self.output
        if (x.elements, x.dtype) != (y.elements, y.dtype):
            declared = [f"{t.dtype.label}{list(t.shape)}" for t in (x, y)]
            message = f"{declared[0]} cannot become {declared[1]}"
            raise OperatorError(message)

    def frames(self) -> Sequence[Frame]:
        source, target = runs(self.input(0).shape, self.output.shape)
        names = tuple(dict.fromkeys(_merged(source, target)))
        return [Frame({0: source, ~0: target}, names)]

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        return x.value if x.shape == y.shape else g.reshape(x, y.shape)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [inputs[0].reshape(self.output.shape)]


def _merged(source: Axes, target: Axes) -> list[str]:
    """Return all names so that the names of either side come in its own sequence."""
    merged, rest = [], list(target)
    for name in source:
        if name in rest:
            at = rest.index(name)
            merged += rest[: at + 1]
            rest = rest[at + 1 :]
        else:
            merged.append(name)
    return merged + rest


class Transpose(Operator):
    """TRANSPOSE renames axes, nothing more: the plan pays for what has to move."""

    codes = ("TRANSPOSE",)
    moves = True
    category = Category.ATTRIBUTE

    def check(self) -> None:
        x = self.input(0)
        expect(self.output, [x.shape[axis] for axis in self._permutation], x.dtype)

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        return [Frame({0: names, ~0: tuple(names[axis] for axis in self._permutation)}, names)]

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        return x.value

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.transpose(inputs[0], self._permutation)]

    @property
    def _permutation(self) -> list[int]:
        rank, numbers = self.input(0).rank, ints(self, 1)
        permutation = [axis_of(number, rank) for number in numbers]
        if sorted(permutation) != list(range(rank)):
            message = f"{numbers} is no permutation of {rank} axes"
            raise OperatorError(message)
        return permutation


class ShapeOf(Operator):
    """SHAPE: the sizes of the TFLite axes, in whatever order these are stored."""

    codes = ("SHAPE",)
    category = Category.ATTRIBUTE
    moves = True
    of_shapes = True

    def check(self) -> None:
        x, y = self.input(0), self.output
        expect(y, (x.rank,), DType.INT64 if y.dtype is DType.INT64 else DType.INT32)

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        return [Frame({0: names}, names)]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        sizes = g.Shape(x)
        if x.order != identity(x.rank):
            sizes = g.Gather(sizes, g.ints([x.axis(axis) for axis in range(x.rank)]))
        return sizes if y.dtype is DType.INT64 else g.cast(sizes, y.dtype)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.asarray(self.input(0).shape, self.output.dtype.numpy)]


class Rank(Operator):
    """RANK: the number of axes."""

    codes = ("RANK",)
    category = Category.ATTRIBUTE
    moves = True
    of_shapes = True

    def check(self) -> None:
        self.input(0)
        expect(self.output, (), DType.INT32)

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        return [Frame({0: names}, names)]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.scalar(x.rank, y.dtype)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.asarray(self.input(0).rank, np.int32)]


class AsPlanned(Operator):
    """An operator of ours behind a tensor that the user wants in an order (`interface.pin`)."""

    codes = ("AS_PLANNED",)
    category = Category.IMPLICIT

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.output.rank)
        label = tuple(names[i] for i in self.options.order)
        return [Frame({0: names, ~0: names}, names, label, meaning=True)]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.Identity(x)
