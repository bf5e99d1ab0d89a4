"""The functions of the examples."""

from __future__ import annotations

import numpy as np

from tests.support.faces import FACES, ROOT, anchors
from tflite2onnx.pictures.anchors import AnchorOptions, make_anchors


def test_anchors_lie_row_by_row_in_cells() -> None:
    """Row by row, there are 2 anchors for each cell of 16 x 16, then 6 for each cell of 8 x 8."""
    found = make_anchors(AnchorOptions((128, 128), (8, 16, 16, 16)))[:, :2]
    np.testing.assert_allclose(found, anchors(), rtol=1e-6)
    assert found.shape == (896, 2)
    assert (found[:2] == 0.5 / 16).all()
    assert found[2].tolist() == [1.5 / 16, 0.5 / 16]
    assert found[32].tolist() == [0.5 / 16, 1.5 / 16]
    assert (found[512:518] == 0.5 / 8).all()
    assert (found[-6:] == 7.5 / 8).all()


def test_cut_region_copies_or_rotates_pixels() -> None:
    """A crop at its own size copies pixels; a rotation by 90 degrees rotates them."""
    picture = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
    part = FACES.cut_region(picture, FACES.Region(7, 6, 8, 0), 8)
    np.testing.assert_allclose(part * 255, picture[2:10, 3:11], atol=1e-4)
    turned = FACES.cut_region(picture, FACES.Region(7, 6, 8, np.pi / 2), 8)
    np.testing.assert_allclose(turned * 255, np.rot90(picture[2:10, 3:11]), atol=1e-4)
    outside = FACES.cut_region(picture, FACES.Region(0, 0, 8, 0), 8)
    assert not outside[:4].any()
    assert not outside[:, :4].any()


def test_tutorial_picture_has_a_circle_for_each_landmark() -> None:
    svg = FACES.draw_landmarks({"LiteRT": np.zeros((478, 3)), "ONNX Runtime": np.ones((478, 3))})
    assert svg.count("<circle") == 2 * 478
    assert svg.count("<ellipse") == 2 * len(list(FACES.ellipses()))
    assert (ROOT / "docs" / "faces.svg").read_text().count("<circle") == 2 * 478
