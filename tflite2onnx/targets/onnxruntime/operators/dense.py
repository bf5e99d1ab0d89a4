"""FULLY_CONNECTED of floats as Gemm."""

from math import prod

from tflite2onnx.builder.builder import Builder, NeedsReshape, Value, View
from tflite2onnx.made_options import DenseOptions
from tflite2onnx.op.linear import matmul
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.targets.onnxruntime.operators.block_products import (
    has_blocks,
    has_channels,
    multiply_blocks,
)
from tflite2onnx.tensor import DType


class MatrixOptions(DenseOptions):
    """With `as_matrix`, the columns of the data are pixels of an image with channels first."""

    as_matrix: bool = False


class DenseLayer(matmul.FullyConnected):
    """FULLY_CONNECTED. ONNX Runtime fuses a bias and an activation with Gemm only."""

    def emit(
        self, g: Builder, y: View, x: View, w: View, b: View | None = None
    ) -> Value | NeedsReshape:
        count = matmul.count_rows(y)
        if (
            x.plan.reading is Reading.DYNAMIC
            and self.is_delegated
            and isinstance(count, int)
            and has_channels(g, w.tensor)
        ):
            if count == 1:
                return self._multiply_blocks(g, y, x, w, b)
            # The signature for one row, which may be a model beside this one, has the same bytes.
            g.keep_order(w)
        return super().emit(g, y, x, w, b)

    def multiply_floats(
        self, g: Builder, y: View, x: View, w: View, b: View | None
    ) -> Value | NeedsReshape:
        if self.is_hybrid and has_blocks(g, w.tensor) and not g.plan.keeps_data:
            return self._multiply_blocks(g, y, x, w, b)
        # A Reshape after Gemm infers at most one dynamic size.
        is_fixed = len(y.tensor.symbols) < 2
        if not self.is_hybrid and is_fixed and w.tensor.data is not None:
            return self.emit_gemm(g, y, x, w, b)
        return super().multiply_floats(g, y, x, w, b)

    def _multiply_blocks(
        self, g: Builder, y: View, x: View, w: View, b: View | None
    ) -> Value | NeedsReshape:
        count, (out, features) = matmul.count_rows(y), w.tensor.shape
        keeps_axes = count == 1 and matmul.keeps_axes(x, y)
        shape = x.sizes if keeps_axes else (count, features)
        rows = g.annotate(x.reshape(shape), DType.FLOAT32, shape)
        product = multiply_blocks(g, rows, count, w, rounds=self.is_delegated)
        results = (*shape[:-1], out)
        product = self.add_bias(g, g.annotate(product, DType.FLOAT32, results), b)
        return product if results == y.sizes else NeedsReshape(product, like=x)

    def emit_conv(
        self, g: Builder, y: View, x: View, w: View, b: View | None
    ) -> Value | NeedsReshape:
        if (
            self.op.read_made(MatrixOptions).as_matrix
            and prod(y.shape[: y.order.index(y.rank - 1)]) == 1
        ):
            return self._emit_columns(g, y, x, w, b)
        return super().emit_conv(g, y, x, w, b)

    def _emit_columns(self, g: Builder, y: View, x: View, w: View, b: View | None) -> NeedsReshape:
        """Return the product of the weights and x, whose columns are pixels."""
        out, features = w.tensor.shape
        pixels = y.tensor.elements // out
        bias = None if b is None else b.reshape((out, 1))
        weights = w.reshape((out, features))
        product = g.Gemm(weights, x.reshape((features, pixels)), bias)
        return NeedsReshape(g.annotate(product, y.dtype, (out, pixels)))
