"""NON_MAX_SUPPRESSION_V4 and V5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build, Tensor
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

Array = np.ndarray[Any, Any]


def boxes_of(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Return boxes given by any two opposite corners, and distinct scores."""
    generator = np.random.default_rng(seed)
    middle, size = generator.uniform(0, 1, (count, 2)), generator.uniform(0.2, 0.6, (count, 2))
    ends = np.stack([middle - size / 2, middle + size / 2], 1)
    flipped = np.where(generator.random((count, 1, 2)) < 0.3, ends[:, ::-1], ends)
    scores = generator.permutation(np.linspace(-0.2, 0.9, count))
    return flipped.reshape(count, 4).astype(np.float32), scores.astype(np.float32)


def add_suppression(
    m: Build, count: int, most: int | None, *parameters: float | Tensor
) -> list[Tensor]:
    """Add V5 if a sigma is given, else V4, and return the outputs; parameters may be inputs."""
    inputs = [m.input([count, 4]), m.input([count])]
    inputs.append(m.input([], dtype="int32") if most is None else m.constant(np.int32(most)))
    inputs += [p if isinstance(p, Tensor) else m.constant(np.float32(p)) for p in parameters]
    made = [m.tensor([most], dtype="int32"), m.tensor([], dtype="int32")]
    if len(parameters) == 2:
        return m.op("NON_MAX_SUPPRESSION_V4", inputs, made)
    return m.op("NON_MAX_SUPPRESSION_V5", inputs, [made[0], m.tensor([most]), made[1]])


@pytest.mark.parametrize("least", [0.1, -1.0, 0.95])
@pytest.mark.parametrize("overlap", [0.3, 0.7, 1.0, 1.5, 0.0, -0.5])
@pytest.mark.parametrize("most", [3, 20, 31, 0])
def test_selected_boxes_equal_litert(most: int, overlap: float, least: float) -> None:
    m = Build()
    check_outputs(m, *add_suppression(m, 20, most, overlap, least), inputs=boxes_of(20))


@pytest.mark.parametrize("least", [0.1, -1.0, 0.95])
@pytest.mark.parametrize("overlap", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("sigma", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("most", [3, 31])
def test_scores_decayed_by_sigma_equal_litert(
    most: int, sigma: float, overlap: float, least: float
) -> None:
    m = Build()
    boxes, scores = boxes_of(20)
    check_outputs(
        m, *add_suppression(m, 20, most, overlap, least, sigma), inputs=[boxes, abs(scores) + 0.01]
    )


def test_scores_that_decay_to_0_equal_litert() -> None:
    """A small sigma gives factors of 0, which also multiply the scores of dropped boxes."""
    m = Build()
    check_outputs(m, *add_suppression(m, 20, 31, 0.7, 0.0, 1e-30), inputs=boxes_of(20))


@pytest.mark.parametrize("values", [(0.4, 0.1, 0.2), (0.0, 0.1, 0.0), (0.6, -1.0, 0.0)])
def test_computed_parameters_equal_litert(values: tuple[float, ...]) -> None:
    m = Build()
    parameters = [m.input([]) for _ in values]
    outputs = add_suppression(m, 20, 7, *parameters)
    check_outputs(m, *outputs, inputs=[*(np.float32(v) for v in values), *boxes_of(20)])


def test_boxes_that_overlap_by_the_threshold_are_dropped() -> None:
    """Boxes that overlap by exactly the threshold are dropped; NonMaxSuppression keeps them."""
    boxes = [[0, 0, 1, 1], [0, 0, 1, 0.5], [0, 0, 0.25, 1], [0, 0, 0.25, 0.25], [0, 2, 1, 3]]
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5], np.float32)
    for parameters in ((0.5, 0.0), (0.25, 0.0), (0.5, 0.0, 0.0), (0.5, 0.0, 1e9)):
        m = Build()
        outputs = add_suppression(m, 5, 5, *parameters)
        check_outputs(m, *outputs, inputs=[np.array(boxes, np.float32), scores])


def test_boxes_without_area_are_selected_repeatedly() -> None:
    boxes = np.array([[0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0.5, 1]], np.float32)
    m = Build()
    outputs = add_suppression(m, 3, 5, 0.8, 0.3, 0.5)
    check_outputs(m, *outputs, inputs=[boxes, np.array([0.9, 0.6, 0.8], np.float32)])


@pytest.mark.parametrize("parameters", [(0.5, 0.1), (0.5, 0.1, 0.0), (0.5, 0.1, 0.3)])
@pytest.mark.parametrize("most", [4, 31])
def test_number_of_outputs_may_be_computed(most: int, parameters: tuple[float, ...]) -> None:
    """The number of outputs is an input; indices and scores have equal dynamic sizes."""
    m = Build()
    indices, *scores, number = add_suppression(m, 20, None, *parameters)
    if scores:
        (real,) = m.op("CAST", [indices], [m.tensor([None])])
        scores += m.op("ADD", [real, *scores], [m.tensor([None])])
    boxes, values = boxes_of(20)
    check_outputs(m, indices, *scores, number, inputs=[boxes, values, np.array(most, np.int32)])


def test_boxes_and_scores_have_one_dynamic_size() -> None:
    m = Build()
    inputs: list[Tensor] = [m.input([None, 4]), m.input([None]), m.constant(np.int32(3))]
    inputs += [m.constant(np.float32(0.5)), m.constant(np.float32(0.1))]
    made = [m.tensor([3], dtype="int32"), m.tensor([], dtype="int32")]
    result = check_outputs(m, *m.op("NON_MAX_SUPPRESSION_V4", inputs, made), inputs=boxes_of(20))
    assert [end.sizes for end in result.inputs] == [("batch", 4), ("batch",)]


def test_suppression_without_sigma_needs_no_loop() -> None:
    for parameters in ((0.5, 0.0), (0.5, 0.0, 0.0)):
        m = Build()
        result = check_outputs(m, *add_suppression(m, 20, 7, *parameters), inputs=boxes_of(20))
        kinds = [node.op_type for node in result.model.graph.node]
        assert "NonMaxSuppression" in kinds
        assert "Loop" not in kinds


def test_suppression_refuses_negative_sigma_and_wrong_shapes() -> None:
    def refuse(m: Build, reason: str) -> None:
        with pytest.raises(ConversionError, match=reason):
            convert(m.bytes())

    m = Build()
    m.output(*add_suppression(m, 20, 3, 0.5, 0.5, -1.0))
    refuse(m, "sigma must not be negative, got -1.0")
    m = Build()
    m.output(*add_suppression(m, 0, 3, 0.5, 0.5))
    refuse(m, "one or more boxes, got none")
    m = Build()
    inputs = [m.input([5, 3]), m.input([5]), m.constant(np.int32(2)), m.input([]), m.input([])]
    m.output(*m.op("NON_MAX_SUPPRESSION_V4", inputs, [[2], []], dtype="int32"))
    refuse(m, r"float32\[5, 4\], got float32\[5, 3\]")
    m = Build()
    inputs[0] = m.input([5, 4])
    for i in (1, 3, 4):
        inputs[i] = m.input([5] if i == 1 else [])
    inputs[2] = m.constant(np.int32(-2))
    m.output(*m.op("NON_MAX_SUPPRESSION_V4", inputs, [[2], []], dtype="int32"))
    refuse(m, "must be at least 0, got -2")
