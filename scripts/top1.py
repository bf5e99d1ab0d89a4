"""Count how often symmetric integers choose LiteRT's class: scripts/top1.py FOLDER MODEL ...

FOLDER has pictures (PNG, JPEG), such as those of scikit-image's package. 100 seeded samples are cut
from them: a random part of a picture, mirrored or not, brighter or darker. The models are 8-bit
classifiers with one image input; their ONNX models get inputs and outputs of float32. The columns
are the number of classes, the samples for which LiteRT's plain and default kernels (XNNPACK) agree,
and for the file's zero points and for 0 the samples that agree with plain kernels and with default
kernels. Needs Pillow.
"""

from __future__ import annotations

import usage  # noqa: F401 - packages may be missing

import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tflite2onnx import convert
from tflite2onnx.verification.inputs import convert_for_onnx, restore_layouts, store_inputs
from tflite2onnx.verification.onnx_model import open_model
from tflite2onnx.verification.runtimes import open_interpreter, run_litert, run_onnx

SAMPLES = 100
Array = np.ndarray[Any, Any]


def sample(
    generator: np.random.Generator, pictures: list[Image.Image], size: tuple[int, int]
) -> Array:
    """Return pixels from 0 to 255, [height, width, 3], of a random part of a random picture."""
    picture = pictures[generator.integers(len(pictures))]
    side = int(min(picture.size) * generator.uniform(0.5, 1))
    left, top = (int(generator.integers(0, each - side + 1)) for each in picture.size)
    part = picture.crop((left, top, left + side, top + side)).resize((size[1], size[0]))
    pixels = np.asarray(part, np.float32)[:, :: generator.choice([-1, 1])]
    return np.clip(pixels * generator.uniform(0.7, 1.3), 0, 255).round()


def count_equal(path: Path, pictures: list[Image.Image]) -> dict[str, int]:
    """Return how many of the samples have the class that LiteRT chooses, by quantization.

    For "qdq" and "symmetric" the second count, "default", is that beside LiteRT's default kernels.
    """
    interpreter = open_interpreter(str(path))
    (detail,), outputs = interpreter.get_input_details(), interpreter.get_output_details()
    _, height, width, channels = map(int, detail["shape"])
    generator, arrays = np.random.default_rng(0), []
    for _ in range(SAMPLES):
        pixels = sample(generator, pictures, (height, width))
        pixels = pixels if channels == 3 else pixels.mean(2, keepdims=True).round()
        signed = 128 * (detail["dtype"] == np.int8)
        arrays.append((pixels - signed).astype(detail["dtype"])[None])
    wanted = [run_litert(interpreter, [array])[0] for array in arrays]
    found = {"classes": len({int(each.argmax()) for each in wanted})}
    other = open_interpreter(str(path), "AUTO")
    chosen = [run_litert(other, [array])[0] for array in arrays]
    pairs = zip(chosen, wanted, strict=True)
    found["LiteRT"] = sum(w.flat[c.argmax()] == w.max() for c, w in pairs)
    for quantization in ("qdq", "symmetric"):
        ends = open_model(convert(path, quantization=quantization, io_type="float"))
        same = [0, 0]
        for array, *both in zip(arrays, wanted, chosen, strict=True):
            feeds = store_inputs(ends.inputs, [array], [detail])
            (have,) = restore_layouts(ends.outputs, run_onnx(ends.session, feeds))
            for i, want in enumerate(both):
                # Several integers of the file's model may be the largest.
                largest = convert_for_onnx(ends.outputs[0], want, outputs[0])
                same[i] += int(largest.flat[have.argmax()] == largest.max())
        found[quantization], found[f"{quantization} default"] = same
    return found


def main(folder: str, *models: str) -> None:
    """Print a line for each model."""
    files = sorted(each for each in Path(folder).iterdir() if each.suffix in (".png", ".jpg"))
    pictures = [Image.open(file).convert("RGB") for file in files]
    for model in models:
        counts = count_equal(Path(model), pictures)
        print(f"| {Path(model).stem} | {' | '.join(map(str, counts.values()))} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
