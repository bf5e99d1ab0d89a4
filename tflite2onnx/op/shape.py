"""Operators that only say which axes there are: TRANSPOSE, RESHAPE and their like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.layout import Axes, Frame, axis_names
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.tensor import Array, Shape


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
        if self.input(0).elements != self.output.elements:
            message = f"{list(self.input(0).shape)} cannot become {list(self.output.shape)}"
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

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        return [Frame({0: names, ~0: tuple(names[i] for i in self._permutation())}, names)]

    def _permutation(self) -> list[int]:
        data = self.input(1).data
        if data is None:
            message = "its permutation is not constant"
            raise OperatorError(message)
        permutation = [int(i) for i in data.reshape(-1)]
        if sorted(permutation) != list(range(self.input(0).rank)):
            message = f"{permutation} is no permutation of {self.input(0).rank} axes"
            raise OperatorError(message)
        return permutation

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        return x.value

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.transpose(inputs[0], self._permutation())]


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
