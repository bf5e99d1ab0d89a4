"""MediaPipe's custom operators, which LiteRT's resolver lacks, compared with tests.references."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.conformance.bench import Array, Bench
from tests.conformance.table import Row
from tests.op.vision import test_landmarks, test_transpose_conv_bias, test_unpool, test_warp
from tests.op.vision.test_unpool import Unpooling
from tests.references import images, landmarks

Pair = tuple[int, int]
Window = tuple[Pair, Pair]
# The shape, the coordinates for each landmark, and the scale (0 for version 2, which has none).
Points = tuple[tuple[int, ...], int, float]


def build_resampler(b: Bench, code: str, *, shape: tuple[int, ...]) -> None:
    """Build sampling at places inside the image, outside it, and within a pixel of its border."""
    places = b.draw((*shape[:3], 2), "float32", (-1.5, max(shape[1:3]) + 0.5))
    b.add_outputs(
        *b.custom(code, [b.add_input(shape), _places(b, places)], [b.output_tensor(shape)])
    )


def build_warp(b: Bench, code: str, *, shape: tuple[int, ...]) -> None:
    """Build a warp by flows that also lead out of the image."""
    flow = b.draw((*shape[:3], 2), "float32", (-5, 5))
    b.add_outputs(*b.custom(code, [b.add_input(shape), _places(b, flow)], [b.output_tensor(shape)]))


def _places(b: Bench, places: Array) -> Any:
    """Return an input of places, some of them on whole pixels."""
    places.reshape(-1)[::5] = np.round(places.reshape(-1)[::5])
    return b.add_input(places.shape, within=places)


def transformation(b: Bench, code: str, *, size: Pair, name: str, version: int) -> None:
    """Build the transformation of an image by a matrix."""
    matrix = test_warp.matrix_of(name)
    operands = [b.add_input((1, 11, 7, 3)), b.add_input(matrix.shape, within=matrix)]
    b.add_outputs(*test_warp.add_transformation(b, code, operands, size, version))


def transform_image(image: Array, matrix: Array, size: Pair, version: int) -> Array:
    """Return the reference output."""
    return images.transform_tensor(image, matrix, size, version=version)


def points(b: Bench, code: str, *, case: Points) -> None:
    """Build landmarks times a matrix; version 2 has no scale."""
    shape, numbers, scale = case
    matrix = test_landmarks.MATRIX.reshape(1, 4, 4)
    operands = [b.add_input(shape), b.add_input(matrix.shape, within=matrix)]
    options: Any = {"dimensions": numbers, "scale": scale} if scale else b""
    b.add_outputs(
        *b.custom(code, operands, [b.output_tensor(shape)], options, op_version=1 if scale else 2)
    )


def transform_landmarks(x: Array, matrix: Array, case: Points) -> Array:
    """Return the reference output."""
    return landmarks.transform(x, matrix, case[1], case[2] or 1)


def matrix(b: Bench, code: str, *, changes: tuple[int, dict[str, Any]]) -> None:
    """Build the transformation matrix of a box around landmarks."""
    version, options = _words(changes)
    x = b.add_input((1, 1, 1, 33) if version == 1 else (1, 11, 3), within=(0, 192))
    b.add_outputs(*b.custom(code, [x], [b.output_tensor((1, 4, 4))], options, op_version=version))


def box_matrix(x: Array, changes: tuple[int, dict[str, Any]]) -> Array:
    """Return the reference output of the version."""
    version, options = _words(changes)
    return (landmarks.matrix_version_1 if version == 1 else landmarks.matrix_version_2)(x, options)


def _words(changes: tuple[int, dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    version, words = changes
    usual = test_landmarks.FIRST if version == 1 else test_landmarks.SECOND
    return version, {key: word for key, word in {**usual, **words}.items() if word is not None}


def build_pooling(b: Bench, code: str, *, window: Window, padding: str) -> None:
    """Build pooling of an image with many equal elements."""
    within = code == "MaxPoolingWithArgmax2D"
    image = test_unpool.image(2, 11, 7, 3)
    make: Any = test_unpool.raw if within else test_unpool.flex_options_of
    shape = maxima(image, window, padding, within=within)[0].shape
    outputs = [b.output_tensor(shape), b.output_tensor(shape, "float32" if within else "int32")]
    b.add_outputs(
        *b.custom(code, [b.add_input(image.shape, within=image)], outputs, make(padding, *window))
    )


def maxima(x: Array, window: Window, padding: str, *, within: bool) -> tuple[Array, Array]:
    """Return the reference output."""
    return images.max_pool(x, *window, same=padding == "SAME", within=within)


def build_unpooling(b: Bench, code: str, *, case: Unpooling) -> None:
    """Build unpooling; float32 indices are within windows, int32 indices within the image."""
    places = case.random_places(b.generator)
    operands = [b.add_input(places.shape), b.add_input(places.shape, places.dtype.name, places)]
    made = case.reference(*b.operands).shape
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(made)], case.options()))


def unpool(x: Array, places: Array, case: Unpooling) -> Array:
    """Return the reference output of the kind of indices."""
    return case.reference(x, places)


def build_transpose_conv(b: Bench, code: str, *, image: Pair, window: Window, padding: str) -> None:
    """A transposed convolution with biases."""
    kernel, strides = window
    operands = [b.add_input((2, *image, 3)), b.add_constant((5, *kernel, 3)), b.add_constant((5,))]
    options = test_transpose_conv_bias.options(test_transpose_conv_bias.PADDINGS[padding], strides)
    x, w, bias = b.operands
    made = transpose_conv(x, w, bias, window, padding).shape
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(made)], options))


def transpose_conv(x: Array, w: Array, bias: Array, window: Window, padding: str) -> Array:
    """Return the reference output."""
    return images.transpose_conv(x, w, bias, window[1], same=padding == "SAME")


_REAL = ("float32",)
_SCALES = (1.0, 192.0, -0.5)
_PADDINGS = ("SAME", "VALID")

ROWS = (
    Row(
        "Resampler",
        build_resampler,
        _REAL,
        {"shape": (*test_warp.SIZES, *test_warp.THIN)},
        reference=images.resampler,
    ),
    Row(
        "DenseImageWarp",
        build_warp,
        _REAL,
        {"shape": test_warp.SIZES},
        reference=images.dense_image_warp,
    ),
    *(
        Row(
            code,
            transformation,
            _REAL,
            {"size": ((5, 9), (12, 8)), "name": tuple(test_warp.MATRICES), "version": (version,)},
            reference=transform_image,
            told=("size", "version"),
        )
        for version, code in enumerate(("TransformTensor", "TransformTensorBilinear"), 1)
    ),
    Row(
        "TransformLandmarks",
        points,
        _REAL,
        {
            "case": (
                *((*each, scale) for each in test_landmarks.POINTS for scale in _SCALES),
                *((each, each[-1], 0.0) for each in test_landmarks.SECOND_POINTS),
            )
        },
        reference=transform_landmarks,
        told=("case",),
    ),
    Row(
        "Landmarks2TransformMatrix",
        matrix,
        _REAL,
        {
            "changes": (
                *((1, each) for each in test_landmarks.FIRSTS),
                *((2, each) for each in test_landmarks.SECONDS),
            )
        },
        ("random",),
        reference=box_matrix,
        told=("changes",),
    ),
    *(
        Row(
            code,
            build_pooling,
            _REAL,
            {"window": test_unpool.WINDOWS, "padding": _PADDINGS},
            ("random",),
            exact=True,
            reference=partial(maxima, within=within),
            told=("window", "padding"),
        )
        for code, within in (("MaxPoolingWithArgmax2D", True), ("MaxPoolWithArgmax", False))
    ),
    Row(
        "MaxUnpooling2D",
        build_unpooling,
        _REAL,
        {"case": test_unpool.UNPOOLINGS},
        exact=True,
        reference=unpool,
        told=("case",),
    ),
    Row(
        "LiteRtMaxUnpooling2D",
        build_unpooling,
        _REAL,
        {"case": test_unpool.UNPOOLINGS[-2:]},
        exact=True,
        reference=unpool,
        told=("case",),
    ),
    Row(
        "Convolution2DTransposeBias",
        build_transpose_conv,
        _REAL,
        {
            "image": test_transpose_conv_bias.IMAGES,
            "window": test_transpose_conv_bias.WINDOWS,
            "padding": _PADDINGS,
        },
        reference=transpose_conv,
        told=("window", "padding"),
    ),
)
