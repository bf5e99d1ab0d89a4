"""MediaPipe's operators on the landmarks of a face or a hand.

One operator transforms landmarks by a matrix. The other computes the matrix that crops an image
around landmarks. Each has two versions.
"""

from functools import cached_property

import numpy as np

from tflite2onnx.op.base import Builder, Operator, OperatorError, Value, View
from tflite2onnx.tensor import Array, DType

_MATRIX = (1, 4, 4)
_RANKS = {1: 4, 2: 3}  # axes of the landmarks, by version of the operator
_DIMENSIONS = (2, 3)  # coordinates of a landmark


class TransformLandmarks(Operator):
    """TransformLandmarks: multiply the first two rows of a matrix by each (x, y, 0, 1).

    In version 1 the translation is multiplied by `scale`. A third coordinate is not changed.
    """

    codes = ("TransformLandmarks",)
    operands = "float32 [...], float32 -> float32 [...]"

    @cached_property
    def _values_per_landmark(self) -> int:
        version, shape = self.op.version, self.input(0).shape
        if len(shape) != _RANKS.get(version):
            raise OperatorError(
                f"landmarks must have 4 axes in version 1 and 3 axes in version 2, got "
                f"{list(shape)} in version {version}"
            )
        numbers = int(self.options.get("dimensions", 0)) if version == 1 else shape[-1]
        if numbers not in _DIMENSIONS or shape[-1] % numbers or shape[0] != 1:
            raise OperatorError(
                f"landmarks must be one batch of points with 2 or 3 coordinates, got {list(shape)} "
                f"with {numbers} coordinates"
            )
        return numbers

    @property
    def _scale(self) -> float:
        return float(self.options.get("scale", 0)) if self.op.version == 1 else 1.0

    def check(self) -> None:
        elements = self.input(1).elements
        if elements != np.prod(_MATRIX) or not self._values_per_landmark or self._scale == 0:
            raise OperatorError(
                f"its matrix must have 16 elements and its scale must not be 0, got "
                f"{elements} elements and {self._scale}"
            )

    def emit(self, g: Builder, y: View, x: View, matrix: View) -> Value:
        rows = g.Slice(g.reshape(matrix, [4, 4]), [0], [2], [0])
        turn, _, shift = g.node_outputs("Split", 3, rows, [2, 1, 1], axis=1)
        shift = g.reshape(g.Mul(shift, g.scalar(self._scale, DType.FLOAT32)), [2])
        points, rest = g.reshape(x, [-1, self._values_per_landmark]), []
        if self._values_per_landmark > min(_DIMENSIONS):
            points, depth = g.node_outputs("Split", 2, points, [2, 1], axis=1)
            rest = [depth]
        points_moved = g.Gemm(points, turn, shift, transB=1)
        return g.reshape(g.Concat(points_moved, *rest, axis=1) if rest else points_moved, y.shape)


class LandmarksToMatrix(Operator):
    """Landmarks2TransformMatrix: compute the matrix that crops a rotated box around landmarks.

    Two landmarks determine the rotation. The box is the smallest box that contains the selected
    landmarks after the inverse rotation. The matrix maps pixels of the crop to pixels of the image.
    """

    codes = ("Landmarks2TransformMatrix",)
    operands = "float32 -> float32 [1 4 4]"

    @property
    def _first(self) -> bool:
        return self.op.version == 1

    def _read_option(self, name: str) -> float:
        """Return a positive number; OperatorError if the option is not positive."""
        number = float(self.options.get(name, 0))
        if not number > 0:
            raise OperatorError(f"its {name} must be positive, got {number}")
        return number

    def _read_size(self, name: str) -> Array:
        """Return the (width, height) of an image, float32."""
        if self._first:
            height, width = (int(n) for n in self.options[f"{name}_hw"])
        else:
            sides = f"{name}_height", f"{name}_width"
            height, width = (int(self._read_option(side)) for side in sides)
        if min(height, width) < 1:
            raise OperatorError(f"the size of its {name} must be positive, got {height, width}")
        return np.array([width, height], np.float32)

    @cached_property
    def _points(self) -> tuple[list[int], list[int]]:
        """The two landmarks that determine the rotation, and the landmarks inside of the box."""
        inside = self.options["subset" if self._first else "subset_idxs"]
        ends = [self.options[f"{side}_rotation_idx"] for side in ("left", "right")]
        count = self.input(0).elements // 3
        indices = [int(n) for n in (*ends, *inside)]
        if len(indices) < 3 or min(indices) < 0 or max(indices) >= count:
            raise OperatorError(
                f"it must select 3 or more of {count} landmarks by their indices, got {indices}"
            )
        return indices[:2], indices[2:]

    def check(self) -> None:
        x = self.input(0)
        if x.rank != _RANKS.get(self.op.version) or x.elements % 3:
            raise OperatorError(
                f"landmarks must have 3 coordinates, and 4 axes in version 1 or 3 axes in version "
                f"2, got {list(x.shape)} in version {self.op.version}"
            )
        if self._first and (count := self.options.get("dimensions", 0)) != 3:
            raise OperatorError(f"its dimensions must be 3, got {count}")
        self._make_factors()
        _ = self._points

    def emit(self, g: Builder, y: View, x: View) -> Value:
        points = g.Slice(g.reshape(x, [-1, 3]), [0], [2], [1])
        ends, inside = (g.Gather(points, g.ints(point), axis=0) for point in self._points)
        rotation = self._make_rotation(g, ends)
        # The points are rows, so the product applies the transpose of the rotation, which is its
        # inverse.
        upright = g.MatMul(inside, rotation)
        high = g.reduce("ReduceMax", upright, [0], keepdims=True)
        low = g.reduce("ReduceMin", upright, [0], keepdims=True)
        half = g.scalar(0.5, DType.FLOAT32)
        center = g.MatMul(g.Mul(g.Add(high, low), half), g.Transpose(rotation, perm=[1, 0]))
        by_rotation, by_size, by_center, origin = self._make_factors()
        scales = g.Mul(g.Sub(high, low), by_size)
        turn = g.Mul(g.Mul(rotation, by_rotation.reshape(2, 1)), scales)
        # `origin` is the vector from the centre of the crop to its corner, in pixels.
        shift = g.Add(
            g.Mul(g.Transpose(center, perm=[1, 0]), by_center.reshape(2, 1)),
            g.MatMul(turn, origin.reshape(2, 1)),
        )
        depth = np.zeros((2, 1), np.float32)
        rest = np.array([[0, 0, 1, 0], [0, 0, 0, 1]], np.float32)
        rows = g.Concat(turn, depth, shift, axis=1)
        return g.reshape(g.Concat(rows, rest, axis=0), y.shape)

    def _make_rotation(self, g: Builder, ends: Value) -> Value:
        """Return the matrix that rotates the crop to the image, float32 [2, 2]."""
        left, right = g.node_outputs("Split", 2, ends, [1, 1], axis=0)
        across, down = g.node_outputs("Split", 2, g.Sub(right, left), [1, 1], axis=1)
        if self._first:
            angle = g.Atan(g.Div(down, across))
            cosine, sine = g.Cos(angle), g.Sin(angle)
        else:
            cosine, sine = self._subtract_angles(g, across, down)
        top = g.Concat(cosine, g.Neg(sine), axis=1)
        return g.Concat(top, g.Concat(sine, cosine, axis=1), axis=0)

    def _subtract_angles(self, g: Builder, across: Value, down: Value) -> tuple[Value, Value]:
        """Return the cosine and sine of atan2(down, across) minus `target_rotation_radians`."""
        length = g.Sqrt(g.Add(g.Mul(across, across), g.Mul(down, down)))
        is_zero = g.Equal(length, g.scalar(0, DType.FLOAT32))
        one, zero = g.scalar(1, DType.FLOAT32), g.scalar(0, DType.FLOAT32)
        cosine = g.Where(is_zero, one, g.Div(across, length))
        sine = g.Where(is_zero, zero, g.Div(down, length))
        target = float(self.options.get("target_rotation_radians", 0))
        c, s = (g.scalar(f(target), DType.FLOAT32) for f in (np.cos, np.sin))
        return (g.Add(g.Mul(cosine, c), g.Mul(sine, s)), g.Sub(g.Mul(sine, c), g.Mul(cosine, s)))

    def _make_factors(self) -> tuple[Array, Array, Array, Array]:
        """Return the factors of rotation, box size and box centre, and the crop's origin.

        All are (x, y). Version 1 measures images from the centre of the first pixel to the centre
        of the last, and landmarks from 0 to `landmarks_range`. Version 2 measures everything in
        pixels of the image.
        """
        output = self._read_size("output")
        one = np.ones(2, np.float32)
        if not self._first:
            scales = [self._read_option(name) for name in ("scale_x", "scale_y")]
            scale = np.array(scales, np.float32)
            return one, scale / output, one, -output / 2
        if min(output) < 2:
            raise OperatorError(
                f"its output must have at least 2 rows and 2 columns, got {output[::-1].tolist()}"
            )
        span, image = self._read_option("landmarks_range"), (self._read_size("input") - 1) / 2
        multiplier = float(self.options.get("bbox_size_multiplier", 0)) / span
        if multiplier == 0:
            raise OperatorError("its bbox_size_multiplier must not be 0")
        last = (output - 1) / 2
        return image, multiplier / last, 2 / span * image, -last
