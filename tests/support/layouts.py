"""Random legal layouts: every legal layout must give the same numbers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tflite2onnx.layout import plan_with

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tflite2onnx.layout import Axes, Frame, Plan, Site

_TRIES = 200


def random_label(generator: random.Random, frame: Frame) -> Axes:
    """Return a random legal label of a free frame, or its TFLite order if no draw is legal."""
    assert frame.allows(frame.names), f"{frame} must allow its TFLite order"
    for _ in range(_TRIES):
        label = tuple(generator.sample(frame.names, len(frame.names)))
        if frame.allows(label):
            return label
    return frame.names


def random_planner(seed: int) -> Callable[[Sequence[Site]], Plan]:
    """Return a planner for `convert_model` that gives every free frame a random legal label.

    The same seed and sites give the same plan.
    """

    def planner(sites: Sequence[Site]) -> Plan:
        generator = random.Random(seed)
        return plan_with(sites, lambda frame: random_label(generator, frame))

    return planner
