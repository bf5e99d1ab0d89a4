"""The commands and the code of each recipe run as written, and print what the recipe shows.

Models that a reader brings are made here, in the form of the programs that export them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pictures.support import build_outputs, pack_files
from tests.support import Build
from tests.support.documents import list_blocks, make_environment, run_document
from tests.support.levels import draw

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))


def build_yolo() -> bytes:
    """Return a network of Ultralytics' form: [1, 4 + classes, boxes], and a file with the names."""
    size, classes = 64, 2
    boxes = sum((size // stride) ** 2 for stride in (8, 16, 32))
    m = Build()
    cells = [1, size // 8, size // 8, 3]
    window: dict[str, Any] = {"filter_height": 8, "filter_width": 8, "stride_h": 8, "stride_w": 8}
    picture = m.input((1, size, size, 3), name="images")
    (pooled,) = m.op("AVERAGE_POOL_2D", [picture], [cells], **window)
    (row,) = m.op("RESHAPE", [pooled], [[1, 192]], new_shape=[1, 192])
    shape = [1, 4 + classes, boxes]
    weights = np.random.default_rng(0).normal(size=(shape[1] * shape[2], 192)) / 8
    (sums,) = m.op(
        "FULLY_CONNECTED", [row, m.constant(weights.astype(np.float32))], [[1, weights.shape[0]]]
    )
    (columns,) = m.op("RESHAPE", [sums], [shape], new_shape=shape)
    m.output(*m.op("LOGISTIC", [columns], [shape]))
    names = {"names": {"0": "person", "1": "bicycle"}, "task": "detect"}
    return m.bytes() + pack_files({"metadata.json": json.dumps(names).encode()})


def build_bundle() -> bytes:
    """Return a bundle with a detector of faces and a model without boxes."""
    return pack_files(
        {
            "face_detector.tflite": build_outputs((128, 128), [(1, 896, 16), (1, 896, 1)]),
            "face_landmarks_detector.tflite": build_outputs((256, 256), [(1, 1, 1, 1434)]),
        }
    )


def build_custom() -> bytes:
    m = Build()
    m.output(*m.custom("SwishWithBeta", [m.input([2, 3])], [[2, 3]], {"beta": 2.0}))
    return m.bytes()


BROUGHT = {
    "yolo.md": ("yolov8n_float32.tflite", build_yolo),
    "bundle.md": ("face_landmarker.task", build_bundle),
    "custom-operator.md": ("custom.tflite", build_custom),
}


@pytest.mark.parametrize("recipe", draw(RECIPES, 2, "recipes"), ids=lambda path: path.stem)
def test_recipe_prints_the_shown_output(recipe: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "assets", tmp_path / "assets")
    if recipe.name in BROUGHT:
        name, build = BROUGHT[recipe.name]
        (tmp_path / name).write_bytes(build())
    text = recipe.read_text()
    assert {kind for kind, _ in list_blocks(text)} >= {"sh", "text"}
    run_document(text, tmp_path, make_environment(tmp_path / "bin"))


def test_each_recipe_is_a_job_of_the_first_page() -> None:
    """So each job is one click away."""
    page = (ROOT / "docs" / "index.md").read_text()
    for recipe in RECIPES:
        assert f"(recipes/{recipe.name})" in page
