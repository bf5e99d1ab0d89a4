"""TensorFlow's operators with a dynamic batch: each sample equals its own result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.references.flex import random_numbers
from tests.support import Build, run_onnx
from tests.support.flex import flex_options
from tflite2onnx.convert import convert

I32 = np.int32
WINDOW = {"ksizes": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "rates": [1] * 4, "padding": "SAME"}
NMS = [np.array(3, I32), np.array(4, I32), np.array(0.3, np.float32), np.array(0.2, np.float32)]
CASES: list[tuple[str, list[tuple[int, ...]], list[Any], list[tuple[int, ...]], dict[str, Any]]] = [
    ("MatrixInverse", [(5, 5)], [], [(5, 5)], {}),
    ("MatrixTriangularSolve", [(5, 5), (5, 2)], [], [(5, 2)], {"lower": False}),
    ("MatrixDeterminant", [(5, 5)], [], [()], {}),
    ("Cholesky", [(1, 1)], [], [(1, 1)], {}),
    ("MatrixDiagPartV3", [(3, 5)], [np.array([-1, 1], I32), np.float32(0)], [(3, 3)], {}),
    ("MatrixSetDiag", [(3, 5), (3,)], [], [(3, 5)], {}),
    ("MatrixDiag", [(5,)], [], [(5, 5)], {}),
    ("MatrixBandPart", [(3, 5)], [np.array(1, I32), np.array(0, I32)], [(3, 5)], {}),
    ("ResizeBicubic", [(5, 7, 3)], [np.array([9, 4], I32)], [(9, 4, 3)], {}),
    ("ExtractImagePatches", [(5, 7, 3)], [], [(3, 4, 12)], WINDOW),
    ("RGBToHSV", [(5, 7, 3)], [], [(5, 7, 3)], {}),
    ("AdjustContrastv2", [(5, 7, 3)], [np.float32(2)], [(5, 7, 3)], {}),
    ("Cumprod", [(5, 7)], [np.array(1, I32)], [(5, 7)], {}),
    ("Einsum", [(5, 7)], [random_numbers("float32", 7, 3)], [(5, 3)], {"equation": "abc,cd->abd"}),
    ("CombinedNonMaxSuppression", [(9, 1, 4), (9, 3)], NMS, [(4, 4), (4,), (4,), ()], {}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_each_sample_equals_its_own_result(case: Any) -> None:
    name, shapes, constants, made, attributes = case
    m = Build()
    inputs = [m.input((1, *shape), shape_signature=[-1, *shape]) for shape in shapes]
    kinds = ["float32"] * 3 + ["int32"]
    outputs = [
        m.tensor((1, *shape), shape_signature=[-1, *shape], dtype=kind)
        for shape, kind in zip(made, kinds, strict=False)
    ]
    operands = [*inputs, *map(m.constant, constants)]
    m.output(*m.custom(f"Flex{name}", operands, outputs, flex_options(name, **attributes)))
    result = convert(m.bytes())
    given = [
        np.transpose(random_numbers("float32", 3, *shape, low=0, high=1), end.order)
        for shape, end in zip(shapes, result.inputs, strict=True)
    ]
    names, places = zip(*((end.name, end.order.index(0)) for end in result.inputs), strict=True)

    def run_model(arrays: list[Any]) -> list[Any]:
        return run_onnx(result.model, dict(zip(names, arrays, strict=True)))

    whole = run_model(given)
    for i in range(3):
        alone = run_model([np.take(x, [i], at) for x, at in zip(given, places, strict=True)])
        for end, one, all_of_them in zip(result.outputs, alone, whole, strict=True):
            want = np.take(all_of_them, [i], end.order.index(0))
            np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-6)


MATRICES: list[tuple[str, list[tuple[int, ...]], list[Any], list[tuple[int, ...]]]] = [
    ("FlexMatrixInverse", [(5, 5)], [], [(5, 5)]),
    ("FlexMatrixTriangularSolve", [(5, 5), (5, 2)], [], [(5, 2)]),
    ("FlexMatrixDeterminant", [(5, 5)], [], [()]),
    ("FlexLogMatrixDeterminant", [(5, 5)], [], [(), ()]),
    ("FlexMatrixDiagPartV3", [(3, 5)], [np.array([-1, 1], I32), np.float32(0)], [(3, 3)]),
    ("FlexMatrixDiagPartV3", [(3, 5)], [np.array([1], I32), np.float32(0)], [(3,)]),
    ("FlexMatrixSetDiag", [(3, 5), (3,)], [], [(3, 5)]),
    ("FlexMatrixDiag", [(5,)], [], [(5, 5)]),
    ("FlexMatrixBandPart", [(3, 5)], [np.array(1, I32), np.array(0, I32)], [(3, 5)]),
    ("MATRIX_DIAG", [(5,)], [], [(5, 5)]),
    ("MATRIX_SET_DIAG", [(3, 5), (3,)], [], [(3, 5)]),
]


@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.parametrize("case", MATRICES, ids=lambda case: case[0])
def test_batch_of_matrices_equals_single_runs(case: Any, size: int | str) -> None:
    name, shapes, constants, made = case
    m = Build()
    inputs = [m.input((1, *shape), name=f"x{i}") for i, shape in enumerate(shapes)]
    operands = [*inputs, *map(m.constant, constants)]
    outputs = [m.tensor((1, *shape)) for shape in made]
    if name.startswith("Flex"):
        options = flex_options(name.removeprefix("Flex"), lower=True)
        m.output(*m.custom(name, operands, outputs, options))
    else:
        m.output(*m.op(name, operands, outputs))
    single, batch = convert(m.bytes()), convert(m.bytes(), batch=size)
    given = {
        f"x{i}": random_numbers("float32", 3, *shape, seed=i, low=1, high=4)
        for i, shape in enumerate(shapes)
    }
    whole = run_onnx(batch.model, given)
    for i in range(3):
        alone = run_onnx(single.model, {key: x[i : i + 1] for key, x in given.items()})
        for want, have in zip(alone, whole, strict=True):
            np.testing.assert_allclose(have[i : i + 1], want, rtol=1e-5, atol=1e-6)
