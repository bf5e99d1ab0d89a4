"""Operators with weights or windows: convolutions, matrix products, pooling, resizing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.conformance.bench import Array, Bench
from tests.conformance.rows.elementwise import ACTIVATIONS, RANKS, SIZES, Unary, kinds
from tests.conformance.table import Bound, Row, coarse
from tests.support import Tensor
from tests.support.tensor import TensorFields

_Q16 = "quantized int16"
_LIMITS = {"int2": (-2, 1), "int4": (-7, 7), "int8": (-127, 127), "uint8": (0, 255)}


class Product(NamedTuple):
    """The element types of data, weights, bias and output of a product, such as "int8 by int4"."""

    x: str
    w: str
    bias: str
    y: str

    @staticmethod
    def parse(kind: str) -> Product:
        """Return the element types for the name of a kind."""
        x, _, rest = kind.partition(" by ")
        w, _, y = rest.partition(" to ")
        w = w or x
        wide = x == "int16" and w in ("int8", "int4")
        bias = "float32" if x.startswith("float") else "int64" if wide else "int32"
        return Product(x, w, bias, y or x)


FLOAT = ("float32",)
SCHEMES = ("float32", "int8 by int8", "uint8 by uint8", "int16 by int8", "float32 by int8",
           "int8 by int4")  # fmt: skip
ALL_SCHEMES = (
    "float32", "float16 by float16", "float32 by float16", "int8 by int8", "uint8 by uint8",
    "int16 by int8", "int8 by int4", "int8 by int2", "int16 by int4", "int16 by int16",
    "float32 by int8", "float32 by uint8", "float32 by int4", "float32 by int2",
    "int8 by int8 to int16", "uint8 by uint8 to int16", "int32 by int32",
)  # fmt: skip
_ROUNDED = "LiteRT and ONNX Runtime quantize the data at run time, in different groups of rows"
_HYBRID = {f"float32 by {w}": Bound(2e-2, 0, _ROUNDED) for w in ("int8", "uint8", "int4", "int2")}


def multiples_of_eighth(b: Bench, shape: Any, least: int) -> Array:
    """Return data that the hybrid kernels quantize exactly, by row or as a whole.

    The elements are multiples of 1/8 up to 127/8. Each row and column has both extremes. The least
    is -127/8 if the kernel has no zero point.
    """
    integers = b.generator.integers(least, 127, shape, endpoint=True)
    for axis in range(1, len(shape)):
        np.moveaxis(integers, axis, 0)[0] = least
        np.moveaxis(integers, axis, 0)[1:2] = 127
    return np.asarray(integers / 8)


class Weights:
    """The random operands of a product, and its output scale."""

    def __init__(self, b: Bench, *, channel: int, per_channel: bool, least: int = -128) -> None:
        self.b = b
        self.kind = Product.parse(b.kind)
        self.channel = channel
        # The hybrid convolutions require a scale for each channel.
        hybrid = b.kind in ("float32 by int8", "float32 by int4")
        self.per_channel = (per_channel or hybrid) and self.kind.w != "uint8"
        self.least = least if self.per_channel else -127
        self.scale = b.generator.uniform(0.02, 0.08) / (256 if self.kind.x == "int16" else 1)
        self.scales: Array = np.zeros(0)

    def data(self, shape: Any) -> Tensor:
        """Return the data, which is an input."""
        zero = {"int8": -7, "uint8": 131}.get(self.kind.x, 0)
        if self.kind.x.startswith("float"):
            hybrid = not self.kind.w.startswith("float")
            given = multiples_of_eighth(self.b, shape, self.least) if hybrid else None
            return self.b.add_input(shape, self.kind.x, within=given)
        return self.b.add_input(
            shape, {"dtype": self.kind.x, "scale": self.scale, "zero_point": zero}
        )

    def weights(self, shape: Any) -> Tensor:
        """Return the weights, which are constant."""
        if self.kind.w.startswith("float"):
            return self.b.add_constant(shape, self.kind.w, within=(-1, 1))
        count = shape[self.channel] if self.per_channel else 1
        self.scales = self.b.generator.uniform(0.004, 0.012, count)
        zero = 120 if (self.kind.w, self.kind.x) == ("uint8", "uint8") else 0
        words: TensorFields = {
            "dtype": self.kind.w, "scale": self.scales, "zero_point": zero, "axis": self.channel,
        }  # fmt: skip
        return self.b.add_constant(shape, words, within=_LIMITS.get(self.kind.w))

    def bias(self, count: int) -> Tensor:
        """Return the bias, which is constant."""
        if self.kind.bias == "float32":
            return self.b.add_constant((count,), "float32", within=(-2, 2))
        scale = self.scale * self.scales
        values = self.b.generator.integers(-3000, 3000, count)
        return self.b.add_constant(
            (count,), {"dtype": self.kind.bias, "scale": scale}, within=values
        )

    def output_tensor(self, shape: Any, terms: int) -> Tensor:
        """Return the output; its range fits sums of this number of products."""
        if self.kind.y.startswith("float"):
            return self.b.output_tensor(shape, self.kind.y)
        spread = 128 if self.kind.x != "int16" else 32768
        weight = {"int4": 8, "int2": 2}.get(self.kind.w, 128)
        scale = self.scale * 0.008 * weight * np.sqrt(terms) / 64 * spread / 128
        zero = {"int8": 9, "uint8": 120}.get(self.kind.y, 0)
        scale = scale / 256 if self.kind.y == "int16" and self.kind.x != "int16" else scale
        fields: TensorFields = {"dtype": self.kind.y, "scale": scale, "zero_point": zero}
        return self.b.output_tensor(shape, fields)


def steps(size: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """Return the number of positions of a window."""
    extent = (kernel - 1) * dilation + 1
    return -(-size // stride) if padding == "SAME" else (size - extent) // stride + 1


_IMAGE = (9, 11)


def convolution(  # noqa: PLR0913 - each is a choice
    b: Bench, code: str, *, kernel: tuple[int, int], stride: tuple[int, int], dilation: int,
    padding: str, groups: int, per_channel: bool, fused_activation_function: str,
) -> None:  # fmt: skip
    """Build CONV_2D with groups, or DEPTHWISE_CONV_2D with several filters for each channel."""
    dilations = (dilation, 1) if max(stride) == 1 else (1, 1)
    sizes = [steps(*each, padding) for each in zip(_IMAGE, kernel, stride, dilations, strict=True)]
    deep = code == "DEPTHWISE_CONV_2D"
    groups = 1 if b.kind == "float32 by uint8" else groups  # uint8 weights do not support groups
    channels, filters = (3, 3 * groups) if deep else (3 * groups, 4 * groups)
    inner = (1, *kernel, filters) if deep else (filters, *kernel, 3)
    made = Weights(b, channel=3 if deep else 0, per_channel=per_channel)
    x, w = made.data((2, *_IMAGE, channels)), made.weights(inner)
    words: dict[str, Any] = {
        "stride_h": stride[0], "stride_w": stride[1], "dilation_h_factor": dilations[0],
        "dilation_w_factor": dilations[1], "padding": padding,
        "fused_activation_function": fused_activation_function,
    }  # fmt: skip
    if deep:
        words["depth_multiplier"] = groups
    y = made.output_tensor((2, *sizes, filters), int(np.prod(kernel)) * (1 if deep else 3))
    b.add_outputs(*b.op(code, [x, w, made.bias(filters)], [y], **words))


def transpose_conv(
    b: Bench, code: str, *, kernel: tuple[int, int], stride: tuple[int, int], padding: str,
    bias: bool, per_channel: bool,
) -> None:  # fmt: skip
    """Build a transposed convolution; the output shape is an input."""
    small = [steps(*each, 1, padding) for each in zip(_IMAGE, kernel, stride, strict=True)]
    made = Weights(b, channel=0, per_channel=per_channel)
    shape = b.constant(np.array([2, *_IMAGE, 4], np.int32))
    w, x = made.weights((4, *kernel, 3)), made.data((2, *small, 3))
    y = made.output_tensor((2, *_IMAGE, 4), int(np.prod(kernel)) * 3)
    words: dict[str, Any] = {"stride_h": stride[0], "stride_w": stride[1], "padding": padding}
    b.add_outputs(*b.op(code, [shape, w, x, *([made.bias(4)] if bias else [])], [y], **words))


def fully_connected(
    b: Bench, code: str, *, rank: int, keep_num_dims: bool, bias: bool, per_channel: bool,
    fused_activation_function: str,
) -> None:  # fmt: skip
    """Build FULLY_CONNECTED; keep_num_dims keeps all axes but the last.

    LiteRT's own kernels quantize rows as XNNPACK, the default, does: asymmetric_quantize_inputs.
    """
    made = Weights(b, channel=0, per_channel=per_channel)
    made.least = -128
    batch = (2, 3, 5)[: rank - 1]
    x, w = made.data((*batch, 13)), made.weights((7, 13))
    rows = batch if keep_num_dims else (int(np.prod(batch)),)
    words: dict[str, Any] = {
        "keep_num_dims": keep_num_dims, "fused_activation_function": fused_activation_function,
        "asymmetric_quantize_inputs": True,
    }  # fmt: skip
    y = made.output_tensor((*rows, 7), 13)
    b.add_outputs(*b.op(code, [x, w, made.bias(7) if bias else None], [y], **words))


def batch_matmul(
    b: Bench, code: str, *, batches: tuple[tuple[int, ...], tuple[int, ...]], adj_x: bool,
    adj_y: bool, constant: bool,
) -> None:  # fmt: skip
    """Build products of batches of matrices."""
    one, other = batches
    kind = Product.parse(b.kind)
    made = np.broadcast_shapes(one, other)
    left, right = (13, 5) if adj_x else (5, 13), (7, 13) if adj_y else (13, 7)
    quantized = not kind.x.startswith("float")
    first = _of_scale(kind.x, 0.05) if quantized else {"dtype": kind.x}
    second = _of_scale(kind.w, 0.03) if not kind.w.startswith("float") else {"dtype": kind.w}
    second["zero_point"] = 0
    third = {"dtype": "int32"} if kind.y == "int32" else _of_scale(kind.y, 0.5)
    hybrid = kind.w != kind.x and not quantized
    x = b.add_input(
        (*one, *left), first, within=multiples_of_eighth(b, (*one, *left), -128) if hybrid else None
    )
    w = (b.add_constant if constant or (not quantized and kind.w != kind.x) else b.add_input)(
        (*other, *right), second, within=_LIMITS.get(kind.w))  # fmt: skip
    y = b.output_tensor((*made, 5, 7), third if quantized else {"dtype": kind.y})
    b.add_outputs(
        *b.op(code, [x, w], [y], adj_x=adj_x, adj_y=adj_y, asymmetric_quantize_inputs=True)
    )


def _of_scale(dtype: str, scale: float) -> TensorFields:
    zero = {"int8": 5, "uint8": 120}.get(dtype, 0)
    scale = scale / 256 if dtype == "int16" else scale
    return {"dtype": dtype, "scale": scale, "zero_point": zero}


def volume(b: Bench, code: str, *, kernel: tuple[int, ...], stride: int, padding: str, bias: bool,
           fused_activation_function: str = "NONE") -> None:  # fmt: skip
    """Build CONV_3D or CONV_3D_TRANSPOSE."""
    large = (5, 7, 6)
    small = [steps(n, k, stride, 1, padding) for n, k in zip(large, kernel, strict=True)]
    words: dict[str, Any] = {f"stride_{axis}": stride for axis in "dhw"}
    words |= {f"dilation_{axis}_factor": 1 for axis in "dhw"}
    words |= {"padding": padding, "fused_activation_function": fused_activation_function}
    backwards = code == "CONV_3D_TRANSPOSE"
    biases = [b.add_constant((3,))] if bias else []
    w = b.add_constant((*kernel, 3, 2) if backwards else (*kernel, 2, 3), within=(-1, 1))
    x = b.add_input((2, *(small if backwards else large), 2))
    shape = (2, *(large if backwards else small), 3)
    first = [b.constant(np.array(shape, np.int32)), w, x] if backwards else [x, w]
    b.add_outputs(*b.op(code, [*first, *biases], [b.output_tensor(shape)], **words))


def pool(
    b: Bench, code: str, *, kernel: tuple[int, int], stride: tuple[int, int], padding: str,
    fused_activation_function: str,
) -> None:  # fmt: skip
    """Build pooling; quantized outputs have the scale of the input."""
    fields = b.type()
    sizes = [steps(*each, 1, padding) for each in zip(_IMAGE, kernel, stride, strict=True)]
    words: dict[str, Any] = {
        "filter_height": kernel[0], "filter_width": kernel[1], "stride_h": stride[0],
        "stride_w": stride[1], "padding": padding,
        "fused_activation_function": fused_activation_function,
    }  # fmt: skip
    b.add_outputs(*b.op(code, [b.add_input((2, *_IMAGE, 3), fields)],
        [b.output_tensor((2, *sizes, 3), fields)],
                 **words))  # fmt: skip


def resize(b: Bench, code: str, *, size: tuple[int, int], corners: str) -> None:
    """Build resizing to a constant size."""
    fields = b.type()
    words: dict[str, Any] = {
        "align_corners": corners == "align", "half_pixel_centers": corners == "half",
    }  # fmt: skip
    x = b.add_input((2, 5, 7, 3), fields)
    new = b.constant(np.array(size, np.int32))
    b.add_outputs(*b.op(code, [x, new], [b.output_tensor((2, *size, 3), fields)], **words))


def response(b: Bench, code: str, *, radius: int, alpha: float, beta: float, bias: float) -> None:
    """Build a normalization over neighbouring channels."""
    x = b.add_input((2, 3, 5, 7))
    b.add_outputs(
        *b.op(code, [x], [(2, 3, 5, 7)], radius=radius, alpha=alpha, beta=beta, bias=bias)
    )


def softmax(b: Bench, code: str, *, rank: int, beta: float) -> None:
    """Build a softmax with the output scale that the kernels require."""
    scale = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
    x = b.add_input(SIZES[:rank], b.type(step=0.5))
    fields = b.type()
    if "scale" in fields:
        made = scale.get(str(fields["dtype"]), (1 / 256, 0))
        fields["scale"], fields["zero_point"] = made
    b.add_outputs(*b.op(code, [x], [b.output_tensor(SIZES[:rank], fields)], beta=beta))


def quantize(b: Bench, code: str, *, rank: int) -> None:
    """Build QUANTIZE or DEQUANTIZE, for a kind such as "float32 to quantized int8"."""
    old, _, new = b.kind.partition(" to ")
    x = b.add_input(SIZES[:rank], b.type(old))
    b.add_outputs(*b.op(code, [x], [b.output_tensor(SIZES[:rank], b.type(new or "float32"))]))


def cast(b: Bench, code: str, *, rank: int) -> None:
    """Build CAST, for a kind such as "float32 to int8"."""
    old, _, new = b.kind.partition(" to ")
    x = b.add_input(SIZES[:rank], old)
    b.add_outputs(*b.op(code, [x], [b.output_tensor(SIZES[:rank], new)]))


_CASTS = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "uint16",
          "int32", "uint32", "int64", "bool")  # fmt: skip
_NARROW = ("int4", "int2", "uint4")
_ALL_CASTS = (*_CASTS, "uint64", "complex64", "string")
CASTS = (*(f"{old} to {new}" for old in _CASTS for new in _CASTS if old != new),
         *(f"float32 to {new}" for new in _NARROW))  # fmt: skip
_Q = ("quantized int8", "quantized uint8", "quantized int16")
_WINDOWS = {"kernel": ((2, 3), (1, 1), (3, 3), (5, 4)), "stride": ((1, 1), (2, 3), (2, 2)),
            "padding": ("SAME", "VALID")}  # fmt: skip
_TWO = {"per_channel": (True, False)}
_AS_BYTES = "the kernel reads the packed weights as bytes"
_LOG_SOFTMAX = {"int8": (16 / 256, 127), "uint8": (16 / 256, 255)}
_UNIT = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}

ROWS = (
    *(Row(code, convolution, (*SCHEMES, *more),
          {**_WINDOWS, "dilation": (1, 2), "groups": (1, 2), **_TWO,
           "fused_activation_function": ACTIVATIONS}, bounds=_HYBRID, tried=ALL_SCHEMES,
          without=without)
      for code, more, without in (
          ("CONV_2D", ("int16 by int4", "float32 by uint8", "float32 by int4"),
           {"float32 by int2": _AS_BYTES,
            "float32 by float16": "not converted: the kernel reads the weights as float32"}),
          ("DEPTHWISE_CONV_2D", (), {"int16 by int4": f"not converted: {_AS_BYTES}"}))),
    Row("TRANSPOSE_CONV", transpose_conv, (*SCHEMES[:4], "float32 by int8"),
        {**_WINDOWS, "bias": (True, False), **_TWO}, tried=ALL_SCHEMES),
    Row("FULLY_CONNECTED", fully_connected,
        (*SCHEMES, "int8 by int2", "int16 by int4", "int16 by int16", "float32 by uint8",
         "float32 by int4", "float32 by int2", "uint8 by uint8 to int16"),
        {"rank": (2, 3, 4), "keep_num_dims": (False, True), "bias": (True, False), **_TWO,
         "fused_activation_function": ACTIVATIONS}, bounds=_HYBRID, tried=ALL_SCHEMES,
        without={"int8 by int8 to int16": "the kernel does not write the output"}),
    Row("BATCH_MATMUL", batch_matmul,
        ("float32", "int8 by int8", "int16 by int16", "int16 by int8", "int8 by int8 to int32",
         "float32 by int8"),
        {"batches": (((2, 3), (2, 3)), ((), ()), ((3,), (2, 3)), ((2, 1), (3,))),
         "adj_x": (False, True), "adj_y": (False, True), "constant": (False, True)},
        bounds=_HYBRID | {"int8 by int8 to int32": Bound()}, tried=ALL_SCHEMES,
        without={"int8 by int8 to int16": "the kernel writes int32 past the end of the output"}),
    *(Row(code, volume, FLOAT, {"kernel": ((2, 3, 1), (1, 1, 1), (3, 2, 3)), "stride": (1, 2),
                               "padding": ("SAME", "VALID"), "bias": (True, False), **more})
      for code, more in (("CONV_3D", {"fused_activation_function": ACTIVATIONS}),
                         ("CONV_3D_TRANSPOSE", {}))),
    *(Row(code, pool, kinds(types), {**_WINDOWS, "fused_activation_function": ACTIVATIONS},
          exact=code == "MAX_POOL_2D")
      for code, types in (("AVERAGE_POOL_2D", "float32 q8 qu8 q16"), ("L2_POOL_2D", "float32"),
                          ("MAX_POOL_2D", "float32 q8 qu8 q16"))),
    Row("RESIZE_BILINEAR", resize, kinds("float32 q8 qu8 q16"),
        {"size": ((11, 9), (5, 7), (3, 4), (10, 21), (1, 1)), "corners": ("", "align", "half")},
        bounds={"quantized int8": Bound(
            0, 3, "LiteRT's own kernel rounds positions to 1/1024, XNNPACK weights to 1/2048")}),
    Row("RESIZE_NEAREST_NEIGHBOR", resize,
        kinds("float32 float16 bfloat16 bool int8 uint8 int16 int32 uint32 uint16 q8 qu8 q16"),
        {"size": ((11, 9), (5, 7), (3, 4), (10, 21), (1, 1)), "corners": ("", "align", "half")},
        exact=True),
    Row("LOCAL_RESPONSE_NORMALIZATION", response, FLOAT,
        {"radius": (2, 1, 5), "alpha": (1.0, 0.1), "beta": (0.5, 0.75), "bias": (1.0, 2.0)}),
    Row("SOFTMAX", softmax, kinds("float32 float16 q8 qu8 q16"),
        {"rank": (4, 1, 2, 3), "beta": (1.0, 0.5, 2.0)},
        bounds={_Q16: coarse("SOFTMAX", _Q16, "the kernel reads exponentials from a table")}),
    Row("LOG_SOFTMAX", Unary(None, {}, **_LOG_SOFTMAX), kinds("float32 q8 qu8"),
        {"rank": (4, 1, 2, 3)}),
    Row("L2_NORMALIZATION", Unary(None, {}, **_UNIT), kinds("float32 q8 qu8"),
        {"rank": (4, 1, 2, 3)}),
    Row("QUANTIZE", quantize,
        (*(f"float32 to {q}" for q in _Q),
         *(f"{one} to {other}" for one in _Q for other in _Q
           if (one, other) != ("quantized int16", "quantized uint8"))), {"rank": RANKS}, tried=()),
    Row("DEQUANTIZE", quantize, ("float16", *(f"{q} to float32" for q in _Q)),
        {"rank": RANKS}, tried=()),
    Row("CAST", cast, CASTS, {"rank": RANKS}, exact=True,
        types=f"between any two of {', '.join(_CASTS)}; float32 to {', '.join(_NARROW)}",
        tried=[f"{old} to {new}" for old in _ALL_CASTS for new in _ALL_CASTS if old != new]),
)  # fmt: skip
