"""Points of a face or a hand: moved by a matrix, and the matrix that crops around them.

MediaPipe's; of each operator there are two versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect
from tflite2onnx.tensor import Array, DType, Shape

_MATRIX = (1, 4, 4)
_RANKS = {1: 4, 2: 3}  # of the landmarks, by version
_FLAT = (2, 3)  # how many numbers a landmark can have


class TransformLandmarks(Operator):
    """TransformLandmarks: the first two rows of a matrix times each (x, y, 0, 1).

    In version 1 the shift counts `scale` times; a third coordinate stays what it is.
    """

    codes = ("TransformLandmarks",)
    custom = True
    category = Category.TERMINATE

    @cached_property
    def _values_per_landmark(self) -> int:
        """How many numbers a landmark has."""
        version, shape = self.op.version, self.input(0).shape
        if len(shape) != _RANKS.get(version):
            raise OperatorError(f"landmarks of {list(shape)} in version {version}")
        numbers = int(self.options.get("dimensions", 0)) if version == 1 else shape[-1]
        if numbers not in _FLAT or shape[-1] % numbers or shape[0] != 1:
            raise OperatorError(f"landmarks of {numbers} numbers each in {list(shape)}")
        return numbers

    @property
    def _scale(self) -> float:
        return float(self.options.get("scale", 0)) if self.op.version == 1 else 1.0

    def infer_outputs(self) -> Sequence[Shape]:
        return [self.input(0).shape]

    def check(self) -> None:
        x, matrix = self.input(0), self.input(1)
        if matrix.elements != np.prod(_MATRIX) or not self._values_per_landmark or self._scale == 0:
            raise OperatorError(f"a matrix of {list(matrix.shape)}, and a scale of {self._scale}")
        for tensor in (x, matrix):
            expect(tensor, tensor.shape, DType.FLOAT32)
        expect(self.output, x.shape, DType.FLOAT32)

    def emit(self, g: Builder, y: View, x: View, matrix: View) -> Value:
        rows = g.Slice(g.reshape(matrix, [4, 4]), g.ints([0]), g.ints([2]), g.ints([0]))
        turn, _, shift = g.node_outputs("Split", 3, rows, g.ints([2, 1, 1]), axis=1)
        shift = g.reshape(g.Mul(shift, g.scalar(self._scale, DType.FLOAT32)), [2])
        points, rest = g.reshape(x, [-1, self._values_per_landmark]), []
        if self._values_per_landmark > min(_FLAT):
            points, depth = g.node_outputs("Split", 2, points, g.ints([2, 1]), axis=1)
            rest = [depth]
        moved = g.Gemm(points, turn, shift, transB=1)
        return g.reshape(g.Concat(moved, *rest, axis=1) if rest else moved, y.shape)


class LandmarksToMatrix(Operator):
    """Landmarks2TransformMatrix: the matrix that crops a rotated box around some landmarks.

    Two landmarks tell the rotation; the box is the smallest that holds the landmarks when the
    image is turned back by it. The matrix leads from pixels of the crop to those of the image.
    """

    codes = ("Landmarks2TransformMatrix",)
    custom = True
    category = Category.TERMINATE

    @property
    def _first(self) -> bool:
        return self.op.version == 1

    def infer_outputs(self) -> Sequence[Shape]:
        return [_MATRIX]

    def _option(self, name: str) -> float:
        """Return a number that has to be positive."""
        number = float(self.options.get(name, 0))
        if not number > 0:
            raise OperatorError(f"its {name} is {number}")
        return number

    def _size(self, name: str) -> Array:
        """Return the (width, height) of an image, float32."""
        if self._first:
            height, width = (int(n) for n in self.options[f"{name}_hw"])
        else:
            height, width = (int(self._option(f"{name}_{axis}")) for axis in ("height", "width"))
        if min(height, width) < 1:
            raise OperatorError(f"its {name} is an image of {height, width}")
        return np.array([width, height], np.float32)

    @cached_property
    def _points(self) -> tuple[list[int], list[int]]:
        """The two landmarks that tell the rotation, and those that the box holds."""
        inside = self.options["subset" if self._first else "subset_idxs"]
        ends = [self.options[f"{side}_rotation_idx"] for side in ("left", "right")]
        count = self.input(0).elements // 3
        used = [int(n) for n in (*ends, *inside)]
        if len(used) < 3 or min(used) < 0 or max(used) >= count:
            raise OperatorError(f"landmarks {used} among {count}")
        return used[:2], used[2:]

    def check(self) -> None:
        x = self.input(0)
        if x.rank != _RANKS.get(self.op.version) or x.elements % 3:
            raise OperatorError(f"landmarks of {list(x.shape)} in version {self.op.version}")
        if self._first and self.options.get("dimensions", 0) != 3:
            raise OperatorError(f"landmarks of {self.options.get('dimensions', 0)} numbers, not 3")
        expect(x, x.shape, DType.FLOAT32)
        expect(self.output, _MATRIX, DType.FLOAT32)
        self._factors()
        _ = self._points

    def emit(self, g: Builder, y: View, x: View) -> Value:
        points = g.Slice(g.reshape(x, [-1, 3]), g.ints([0]), g.ints([2]), g.ints([1]))
        ends, inside = (g.Gather(points, g.ints(each), axis=0) for each in self._points)
        back = self._rotation(g, ends)
        # Rows times a matrix: the transpose, which for a rotation is the inverse.
        turned = g.MatMul(inside, back)
        high = g.reduce("ReduceMax", turned, [0], keepdims=True)
        low = g.reduce("ReduceMin", turned, [0], keepdims=True)
        half = g.scalar(0.5, DType.FLOAT32)
        middle = g.MatMul(g.Mul(g.Add(high, low), half), g.Transpose(back, perm=[1, 0]))
        before, by_size, by_middle, origin = self._factors()
        scales = g.Mul(g.Sub(high, low), by_size)
        turn = g.Mul(g.Mul(back, before.reshape(2, 1)), scales)
        # The crop's origin is that many pixels from its middle.
        shift = g.Add(
            g.Mul(g.Transpose(middle, perm=[1, 0]), by_middle.reshape(2, 1)),
            g.MatMul(turn, origin.reshape(2, 1)),
        )
        depth = np.zeros((2, 1), np.float32)
        rest = np.array([[0, 0, 1, 0], [0, 0, 0, 1]], np.float32)
        rows = g.Concat(turn, depth, shift, axis=1)
        return g.reshape(g.Concat(rows, rest, axis=0), y.shape)

    def _rotation(self, g: Builder, ends: Value) -> Value:
        """Return the matrix that turns the crop into the image, [2, 2]."""
        left, right = g.node_outputs("Split", 2, ends, g.ints([1, 1]), axis=0)
        across, down = g.node_outputs("Split", 2, g.Sub(right, left), g.ints([1, 1]), axis=1)
        if self._first:
            angle = g.Atan(g.Div(down, across))
            cosine, sine = g.Cos(angle), g.Sin(angle)
        else:
            cosine, sine = self._angle_difference(g, across, down)
        top = g.Concat(cosine, g.Neg(sine), axis=1)
        return g.Concat(top, g.Concat(sine, cosine, axis=1), axis=0)

    def _angle_difference(self, g: Builder, across: Value, down: Value) -> tuple[Value, Value]:
        """Return the cosine and sine of atan2(down, across) minus the angle that is wanted."""
        length = g.Sqrt(g.Add(g.Mul(across, across), g.Mul(down, down)))
        nowhere = g.Equal(length, g.scalar(0, DType.FLOAT32))
        one, zero = g.scalar(1, DType.FLOAT32), g.scalar(0, DType.FLOAT32)
        cosine = g.Where(nowhere, one, g.Div(across, length))
        sine = g.Where(nowhere, zero, g.Div(down, length))
        target = float(self.options.get("target_rotation_radians", 0))
        c, s = (g.scalar(f(target), DType.FLOAT32) for f in (np.cos, np.sin))
        return (
            g.Add(g.Mul(cosine, c), g.Mul(sine, s)),
            g.Sub(g.Mul(sine, c), g.Mul(cosine, s)),
        )

    def _factors(self) -> tuple[Array, Array, Array, Array]:
        """Return factors of rotation, box and middle, and the middle of the crop.

        All are (x, y). Version 1 counts pixels from the centre of the first to that of the last,
        and landmarks up to `landmarks_range`; version 2 counts all in pixels of the image.
        """
        made = self._size("output")
        one = np.ones(2, np.float32)
        if not self._first:
            scale = np.array([self._option("scale_x"), self._option("scale_y")], np.float32)
            return one, scale / made, one, -made / 2
        if min(made) < 2:
            raise OperatorError(f"its output is an image of {made[::-1].tolist()}")
        span, image = self._option("landmarks_range"), (self._size("input") - 1) / 2
        grown = float(self.options.get("bbox_size_multiplier", 0)) / span
        if grown == 0:
            raise OperatorError("its bbox_size_multiplier is 0")
        last = (made - 1) / 2
        return image, grown / last, 2 / span * image, -last
