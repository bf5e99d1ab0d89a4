"""From a picture to the input of a network: margins, size, channels, normalization, quantization.

Pixels are interpolated linearly, with the centre of pixel i at i + 0.5, without a filter for
smaller sizes. TFLite's task library (libyuv's bilinear filter) and MediaPipe's ImageToTensor (on
GPUs) interpolate in this way.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Port
from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.errors import OptionError, PictureError
from tflite2onnx.pictures.framing import Fit, PictureFrame, frame_picture, sample_picture
from tflite2onnx.tensor import DType, Quantization, Tensor

IMAGE = "image"
_COLORS = 3
_RANK = 4
_LUMINANCE = (0.299, 0.587, 0.114)  # The weights of Rec. 601, as in libraries for pictures.
_TYPES = (DType.FLOAT32, DType.FLOAT16, DType.UINT8, DType.INT8)


class PixelNormalization(NamedTuple):
    """Pixels become (pixel - mean) / std; one number for all channels, or one for each."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Preprocessing(NamedTuple):
    """How a picture becomes the input `port` of a network.

    `sizes` are the height and the width of the input. `axes` are the positions of height, width and
    channels in TFLite's order. Without a `normalization` the pixels are the stored integers, minus
    128 for int8. `size` is the size of all pictures, None for any size.
    """

    port: Port
    sizes: tuple[int, int]
    axes: str
    normalization: PixelNormalization | None
    channels: str
    fit: Fit
    pad: int
    layout: str = "HWC"
    dtype: DType = DType.UINT8
    size: tuple[int, int] | None = None

    def make_image_tensor(self) -> Tensor:
        height, width = self.size or self.sizes
        sizes = {"N": 1, "H": height, "W": width, "C": _COLORS}
        words = {} if self.size else {"H": f"{IMAGE}_height", "W": f"{IMAGE}_width"}
        symbols = {i: words[letter] for i, letter in enumerate(self.layout) if letter in words}
        shape = tuple(sizes[letter] for letter in self.layout)
        return Tensor(IMAGE, shape, self.dtype, symbols=symbols)


def find_image_port(ports: Sequence[Port]) -> tuple[Port, str]:
    """Return the input that takes pictures, and its letters; PictureError unless it is one."""
    image_ports = [(port, axes) for port in ports if (axes := find_image_axes(port))]
    if len(image_ports) != 1:
        raise PictureError(
            "preprocess",
            "the model must have one input for pictures, [1, height, width, channels]"
            f" with 1 or 3 channels and fixed sizes, got {len(image_ports)}; --shape fixes sizes",
        )
    return image_ports[0]


def find_image_axes(port: Port) -> str:
    """Return the letters of the axes of an input for pictures, "" for other inputs."""
    sizes = port.tensor.sizes
    is_dynamic = any(isinstance(size, str) for size in sizes[1:])
    if len(sizes) != _RANK or port.dtype not in _TYPES or is_dynamic:
        return ""
    if sizes[0] != 1 and 0 not in port.tensor.symbols:
        return ""
    return next((axes for axes in ("NHWC", "NCHW") if sizes[axes.index("C")] in (1, 3)), "")


def plan_preprocessing(
    ports: Sequence[Port],
    settings: Mapping[str, Any],
    known: Mapping[str, Mapping[str, Any]],
    defaults: Mapping[str, Any],
) -> Preprocessing:
    """Return how a picture becomes the input among `ports`.

    `settings` are the user's, `known` are the metadata of the inputs by their names, and `defaults`
    are settings of the network's family. Of these three, the first that has a value is used.

    Raises:
        PictureError: no input or several take pictures, or the normalization is not known.
        OptionError: settings do not fit the input.
    """
    port, axes = find_image_port(ports)
    height, width = (port.tensor.shape[axes.index(letter)] for letter in "HW")
    channels = port.tensor.shape[axes.index("C")]
    color = settings.get("channels", "gray" if channels == 1 else "rgb")
    if (color == "gray") != (channels == 1):
        raise OptionError(
            f"`preprocess`: channels must be {'gray' if channels == 1 else 'rgb or bgr'} for an"
            f" input of {list(port.tensor.shape)}, got {color}"
        )
    fit = Fit(settings.get("resize", defaults.get("resize", "stretch")))
    pad = settings.get("pad", 0 if fit is Fit.CENTER else defaults.get("pad", 0))
    if pad and fit is Fit.CENTER:
        raise OptionError(f"`preprocess`: pad must be 0 with resize=center, got {pad}")
    return Preprocessing(
        port,
        (height, width),
        axes,
        _find_normalization(port, channels, settings, known.get(port.tensor.name, {}), defaults),
        color,
        fit,
        pad,
        layout=settings.get("layout", "HWC"),
        dtype=DType[settings.get("type", "uint8").upper()],
        size=settings.get("size"),
    )


def _find_normalization(
    port: Port,
    channels: int,
    settings: Mapping[str, Any],
    notes: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> PixelNormalization | None:
    sources = (settings, notes, defaults)
    first = next((source for source in sources if source.get("mean") or source.get("std")), None)
    if first is None:
        if port.dtype.is_integer:
            return None
        raise PictureError(
            "preprocess",
            f"the mean and the std of {port.name} must be given, as in mean=127.5,std=127.5,"
            " because the metadata of the model lack them",
        )
    if port.dtype.is_integer and port.tensor.quantization is None:
        raise OptionError(f"`preprocess`: {port.name} must have a scale to take a mean and a std")
    values = {"mean": first.get("mean") or (0.0,), "std": first.get("std") or (1.0,)}
    for key, numbers in values.items():
        if len(numbers) not in (1, channels):
            raise OptionError(
                f"`preprocess`: {key} must have 1 or {channels} numbers, got {len(numbers)}"
            )
    if not all(values["std"]):
        raise OptionError(f"`preprocess`: std must not be 0, got {list(values['std'])}")
    return PixelNormalization(tuple(values["mean"]), tuple(values["std"]))


def emit_picture_size(g: Nodes, image: Value, plan: Preprocessing) -> Value:
    """Return the height and the width of a picture, int64 [2]."""
    if plan.size is not None:
        return g.ints(plan.size)
    places = g.ints([plan.layout.index(letter) for letter in "HW"])
    return g.Gather(g.Shape(image), places, axis=0)


def emit_frame(g: Nodes, size: Value, plan: Preprocessing) -> PictureFrame:
    """Return the frame of a picture of a size, int64 [2]."""
    return frame_picture(g, size, plan.sizes, plan.fit)


def emit_preprocessing(g: Nodes, image: Value, frame: PictureFrame, plan: Preprocessing) -> Value:
    """Return the input of the network, in the order and the type of its port."""
    x = image
    if plan.layout.startswith("N"):
        x = g.squeeze(x, [0], plan.dtype)
    rows_first = plan.layout.endswith("C")
    if plan.fit is Fit.CENTER:
        x = x if rows_first else g.Transpose(x, perm=[1, 2, 0])
        x = g.Transpose(sample_picture(g, x, frame, plan.sizes), perm=[2, 0, 1])
        x = g.Unsqueeze(x, [0])
    else:
        x = _resize(g, g.Transpose(x, perm=[2, 0, 1]) if rows_first else x, frame, plan)
    x = _mix_channels(g, x, plan.channels)
    x = _normalize(g, x, plan)
    # From NCHW to TFLite's order, then to the order of the port.
    perm = ["NCHW".index(plan.axes[i]) for i in plan.port.order]
    return x if perm == [0, 1, 2, 3] else g.Transpose(x, perm=perm)


def _resize(g: Nodes, x: Value, frame: PictureFrame, plan: Preprocessing) -> Value:
    """Return a picture [C, height, width] as the pixels of the input, float32, NCHW."""
    if frame.offset is not None:
        x = _add_margins(g, x, frame.offset, frame, plan)
    x = g.Unsqueeze(g.recast(x, plan.dtype, DType.FLOAT32), [0])
    sizes = g.ints([1, _COLORS, *plan.sizes])
    return g.Resize(
        x, None, None, sizes, mode="linear", coordinate_transformation_mode="half_pixel"
    )


def _add_margins(
    g: Nodes, x: Value, offset: Value, frame: PictureFrame, plan: Preprocessing
) -> Value:
    """Return [C, height, width] with margins of one colour around it."""
    after = g.Sub(g.Sub(frame.extent, frame.size), offset)
    none = g.ints([0])
    pads = g.Concat(none, offset, none, after, axis=0)
    return g.Pad(x, pads, g.scalar(plan.pad, plan.dtype))


def _mix_channels(g: Nodes, x: Value, channels: str) -> Value:
    """Return RGB pixels, NCHW, as the channels that the network requires."""
    if channels == "bgr":
        return g.Gather(x, [2, 1, 0], axis=1)
    if channels == "gray":
        return g.Conv(x, np.array(_LUMINANCE, np.float32).reshape(1, _COLORS, 1, 1))
    return x


def _normalize(g: Nodes, x: Value, plan: Preprocessing) -> Value:
    """Return pixels, NCHW, as the elements of the network's input."""
    dtype = plan.port.dtype
    if plan.normalization is None:
        lowest = -128 if dtype is DType.INT8 else 0
        x = g.Round(x)
        return g.cast(g.Add(x, g.scalar(lowest, DType.FLOAT32)) if lowest else x, dtype)
    mean, std = (np.array(numbers, np.float32).reshape(-1, 1, 1) for numbers in plan.normalization)
    x = g.Sub(x, mean) if mean.any() else x
    x = x if (std == 1).all() else g.Div(x, std)
    if dtype.is_integer:
        return _quantize(g, x, plan.port.tensor.quantization, dtype)
    return g.recast(x, DType.FLOAT32, dtype)


def _quantize(g: Nodes, x: Value, quantization: Quantization | None, dtype: DType) -> Value:
    assert quantization is not None  # noqa: S101 - _find_normalization
    scale = g.scalar(float(quantization.scale[0]), DType.FLOAT32)
    return g.QuantizeLinear(x, scale, g.scalar(int(quantization.zero_point[0]), dtype))
