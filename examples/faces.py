"""A MediaPipe pipeline: find a face, crop it, and place 478 landmarks on it.

    python examples/faces.py DETECTOR LANDMARKS [--picture PICTURE.npy]

DETECTOR and LANDMARKS are the TFLite models of MediaPipe's face landmarker: the short-range
BlazeFace and the face mesh. The converted detector takes a picture and returns faces; the crop is
numpy, and LiteRT and ONNX Runtime run the mesh. The script prints the largest distance of the
landmarks, in pixels of the picture. A picture is uint8[height, width, 3] in RGB; without a picture
a face is drawn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnxruntime

import tflite2onnx

Array = npt.NDArray[Any]

MARGIN = 1.5  # the crop for the mesh is larger than the face


class Network(NamedTuple):
    """A network: `run` takes an image float32[1, size, size, 3], returns arrays by their sizes."""

    size: int
    run: Callable[[Array], dict[int, Array]]


class Region(NamedTuple):
    """A square in a picture: centre and side in pixels, rotation in radians, clockwise."""

    x: float
    y: float
    side: float
    angle: float


def cut_region(picture: Array, region: Region, size: int) -> Array:
    """Return a region of a picture as [size, size, 3] from 0 to 1; pixels outside are black."""
    steps = ((np.arange(size) + 0.5) / size - 0.5) * region.side
    dx, dy = np.meshgrid(steps, steps)
    sine, cosine = np.sin(region.angle), np.cos(region.angle)
    x = region.x + dx * cosine - dy * sine - 0.5
    y = region.y + dx * sine + dy * cosine - 0.5
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    result = np.zeros((size, size, 3))
    for column, row in ((0, 0), (1, 0), (0, 1), (1, 1)):
        share = (1 - abs(x - left - column)) * (1 - abs(y - top - row))
        result += share[..., None] * _pixels(picture, left + column, top + row)
    return (result / 255).astype(np.float32)


def _pixels(picture: Array, x: Array, y: Array) -> Array:
    height, width, _ = picture.shape
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    taken = picture[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    return np.where(inside[..., None], taken, 0)


def open_detector(model: str) -> onnxruntime.InferenceSession:
    """Convert a detector; return a session that takes a picture and returns faces in pixels."""
    result = tflite2onnx.convert(model, preprocess=True, postprocess=True)
    return onnxruntime.InferenceSession(result.model.SerializeToString())


def detect(detector: onnxruntime.InferenceSession, picture: Array) -> tuple[float, Array]:
    """Return the best face's score and its six key points, [6, 2] in pixels; the eyes come first.

    Raises:
        ValueError: the picture shows no face.
    """
    scores, points = detector.run(["scores", "keypoints"], {"image": picture})
    if not len(scores):
        raise ValueError("the picture must show a face")
    return float(scores[0]), points[0]


def mesh_region(points: Array) -> Region:
    """Return the region for the mesh: the upright face with a margin."""
    right, left = points[:2]
    low, high = points.min(0), points.max(0)
    x, y = (low + high) / 2
    # The key points span the face from eye to mouth and from ear to ear.
    side = float(max(high - low)) * MARGIN
    return Region(float(x), float(y), side, float(np.arctan2(*(left - right)[::-1])))


def landmarks(network: Network, picture: Array, region: Region) -> Array:
    """Return 478 points, [478, 3] in pixels of the picture; z is depth in the same unit."""
    made = network.run(cut_region(picture, region, network.size)[None])
    points = made[478 * 3].reshape(478, 3)
    points = (points / network.size - [0.5, 0.5, 0]) * region.side
    sine, cosine = np.sin(region.angle), np.cos(region.angle)
    turned = points[:, :2] @ np.array([[cosine, sine], [-sine, cosine]])
    return np.column_stack([turned + np.array([region.x, region.y]), points[:, 2]])


def with_litert(model: str) -> Network:
    """Return a network that LiteRT runs."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType  # noqa: PLC0415 - only this function needs LiteRT

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model, experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()

    def run_model(image: Array) -> dict[int, Array]:
        interpreter.set_tensor(entry["index"], image.astype(np.float32))
        interpreter.invoke()
        made = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
        return {array.size: array for array in made}

    return Network(int(entry["shape"][1]), run_model)


def with_onnx(model: str) -> Network:
    """Convert a TFLite model; return a network that ONNX Runtime runs."""
    result = tflite2onnx.convert(model)
    session = onnxruntime.InferenceSession(result.model.SerializeToString())
    (end,) = result.inputs
    # The conversion chooses the axis orders of inputs and outputs, and describes them.
    backs = [np.argsort(out.order) for out in result.outputs]

    def run_model(image: Array) -> dict[int, Array]:
        made = session.run(None, {end.name: image.astype(np.float32).transpose(end.order)})
        return {a.size: a.transpose(back) for a, back in zip(made, backs, strict=True)}

    return Network(end.tflite_shape[1], run_model)


# Ellipses of the drawn face: x (to the right of the middle), y, two radii, colour. An ellipse off
# the middle is drawn on both sides.
WIDTH, HEIGHT, MIDDLE = 480, 360, (226, 180)
BACKGROUND = (104, 124, 134)
FACE = (
    (0, 190, 150, 90, (52, 60, 92)),  # shoulders
    (0, 95, 38, 60, (198, 150, 124)),  # neck
    (0, -22, 96, 118, (58, 40, 30)),  # hair
    (0, 0, 78, 104, (224, 178, 150)),
    (80, -4, 9, 20, (214, 166, 138)),  # ears
    (33, -36, 20, 4, (70, 48, 36)),  # brows
    (33, -18, 17, 10, (190, 140, 116)),  # eyes
    (33, -18, 14, 7, (246, 244, 240)),
    (33, -18, 7, 7, (62, 44, 34)),
    (33, -18, 3, 3, (12, 10, 10)),
    (44, 22, 20, 14, (230, 168, 146)),  # cheeks
    (8, 24, 5, 4, (150, 100, 82)),  # nostrils
    (0, 6, 9, 24, (234, 190, 162)),  # nose
    (0, 52, 28, 8, (176, 84, 80)),  # mouth
    (0, 52, 24, 2, (110, 46, 48)),
    (0, 78, 30, 10, (216, 170, 142)),  # chin
)


def ellipses() -> Iterator[tuple[float, float, float, float, tuple[int, int, int]]]:
    """Yield the ellipses of the drawn face in pixels: centre, radii, colour."""
    for x, y, rx, ry, colour in FACE:
        for side in (-1, 1) if x else (0,):
            yield MIDDLE[0] + side * x, MIDDLE[1] + y, rx, ry, colour


def draw_face() -> Array:
    """Return a drawn face, uint8[360, 480, 3], which a detector accepts as a face."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    picture = np.full((HEIGHT, WIDTH, 3), BACKGROUND, float)
    for cx, cy, rx, ry, colour in ellipses():
        inside = (1 - np.hypot((x - cx) / rx, (y - cy) / ry)) * min(rx, ry)
        share = np.clip(inside / 1.5, 0, 1)[..., None]  # a soft edge
        picture = picture * (1 - share) + np.array(colour) * share
    return picture.astype(np.uint8)


def draw_landmarks(found: Mapping[str, Array]) -> str:
    """Return an SVG of the drawn face, once for each set of landmarks."""
    face = "".join(
        f'<ellipse cx="{x}" cy="{y}" rx="{rx}" ry="{ry}" fill="rgb{colour}"/>'
        for x, y, rx, ry, colour in ellipses()
    )
    panels = []
    for number, (name, points) in enumerate(found.items()):
        dots = "".join(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="1"/>' for x, y, _ in points)
        panels.append(
            f'<svg x="{number * (WIDTH + 8)}" width="{WIDTH}" height="{HEIGHT}">'
            f'<rect width="100%" height="100%" fill="rgb{BACKGROUND}"/>{face}'
            f'<g fill="#00ffa0">{dots}</g><text x="12" y="26" fill="white">{name}</text></svg>'
        )
    width = len(found) * (WIDTH + 8) - 8
    style = 'font-family="sans-serif" font-size="16"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" {style}>'
    return f"{head}{''.join(panels)}</svg>\n"


def main(words: Sequence[str]) -> int:
    """Run the pipeline with both runtimes, and print the largest distance of landmarks."""
    parser = argparse.ArgumentParser(description="Landmarks on faces.")
    parser.add_argument("detector", help="MediaPipe's short-range face detector, .tflite")
    parser.add_argument("mesh", help="MediaPipe's face landmarks detector, .tflite")
    parser.add_argument("--picture", help="uint8[height, width, 3], .npy (default: a drawn face)")
    parser.add_argument("--svg", help="write the drawn face and the landmarks to this file")
    options = parser.parse_args(words)
    picture = np.load(options.picture) if options.picture else draw_face()
    score, points = detect(open_detector(options.detector), picture)
    print(f"a face of score {score:.4f}, its eyes at {points[0].round(2)} and {points[1].round(2)}")
    found = {}
    for name, network in (("LiteRT", with_litert), ("ONNX Runtime", with_onnx)):
        found[name] = landmarks(network(options.mesh), picture, mesh_region(points))
        print(f"{name}: the nose at {found[name][1, :2].round(2)}")
    one, other = found.values()
    print(f"{len(one)} landmarks, at most {np.abs(one - other).max():.2g} pixels apart")
    if options.svg:
        Path(options.svg).write_text(draw_landmarks(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
