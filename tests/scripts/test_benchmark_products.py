"""scripts/benchmark_products.py, and the times that it measured beside the expected ones.

The times are recorded, so that a busy machine changes nothing.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import onnx
import pytest

from tests.support.fusions import count_optimized_nodes
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.costs import FACTORS, Terms

# Microseconds of floats and of integers in `python scripts/benchmark_products.py`: with AVX-512 and
# VNNI on an AMD EPYC (family 26), with AVX2 on one of family 25, by the channels of a block. The
# second takes `_SLOWER` times as long for the convolutions of floats in `costs.py`.
_SLOWER = {16: 1.0, 8: 1.59}
_TABLES = {
    16: """
    28x28x64x128:108,146 28x28x128x128:171,171 14x14x384x96:94,82 14x14x96x576:149,136
    14x14x256x256:145,106 14x14x512x512:481,250 7x7x576x160:55,42 7x7x160x960:91,68
    80x80x32x16x3:412,305 80x80x32x32x3:597,472 80x80x64x64x3:2130,1321 40x40x32x8x3:112,77
    40x40x128x8x3:316,212 40x40x128x128x3:1971,828 20x20x64x64x3:133,81
    """,
    8: """
    112x112x16x96:2537,3835 56x56x24x144:764,1261 56x56x96x24:541,920 28x28x64x128:300,405
    28x28x128x128:499,623 14x14x384x96:282,320 14x14x96x576:412,441 14x14x256x256:417,409
    14x14x512x512:1695,1407 7x7x576x160:166,165 7x7x160x960:279,263 28x28x256x256:1727,1669
    20x20x256x256:857,812 7x7x320x1280:614,501 7x7x512x512:376,315 5x5x192x192:45,52
    4x4x512x512:152,129 3x3x320x1280:143,126 3x3x112x1280:70,78 2x2x512x512:58,52
    40x40x32x8x3:255,279 20x20x64x64x3:412,389 20x20x128x128x3:1497,1220 10x10x128x128x3:393,327
    5x5x128x128x3:102,92 3x3x256x256x3:175,125 14x14x96x576s:354,399 14x14x256x256s:376,378
    7x7x160x960s:251,247 3x3x320x1280s:124,122 3x3x112x1280s:64,82
    """,
}


def read_table(block: int) -> dict[str, tuple[float, ...]]:
    """Return the two times of each size."""
    rows = (row.split(":") for row in _TABLES[block].split())
    return {size: tuple(map(float, times.split(","))) for size, times in rows}


RECORDED = {block: read_table(block) for block in _TABLES}


def read_size(size: str) -> dict[str, Any]:
    return {"sizes": [*map(int, size.rstrip("s").split("x"))], "signed": size.endswith("s")}


@pytest.mark.parametrize("block", [8, 16])
def test_expected_times_of_integers_are_those_measured(script: Any, block: int) -> None:
    """The median error is 10 % at most, and the error of any layer 40 %."""
    errors, factors = [], FACTORS[block]
    for size, (real, integers) in RECORDED[block].items():
        floats, (_, *millions, signed) = script.list_terms(block, **read_size(size))
        products, numbers, *copied, filters = (1e6 * n for n in millions)
        expected = factors["integers"].estimate(Terms(products, filters=filters))
        expected += factors["quantize"].estimate(Terms(loads=numbers))
        expected += (
            factors["gather"].estimate(Terms(0, *copied)) + signed * factors["extremes"].node
        )
        measured = floats - (real - integers) / _SLOWER[block]
        errors.append(abs(expected / measured - 1))
    assert median(errors) < 0.1
    assert max(errors) < 0.4


@pytest.mark.parametrize("size", RECORDED[8])
def test_chosen_form_is_as_fast_as_the_other_with_avx2(script: Any, size: str) -> None:
    """The form takes at most 3 % longer than the faster one, also where AVX-512 gains more.

    A layer whose integers are faster may keep its floats: the processors of both kinds count.
    """
    real, integers = RECORDED[8][size]
    words = read_size(size)
    model = script.build_images(*words["sizes"], signed=words["signed"])
    converted = onnx.load_from_string(convert(model).skeleton.serialize())
    nodes = count_optimized_nodes(converted)
    if nodes["MatMulIntegerToFloat"]:
        assert integers <= 1.03 * real
    else:
        assert real <= 1.11 * integers


def test_factors_are_fitted_to_the_measured_times(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pointwise = {"pointwise": FACTORS[8]["pointwise"]}
    monkeypatch.setattr(script, "fit_kernels", lambda *_: pointwise)
    monkeypatch.setattr(script, "find_block", lambda: 8)
    slower = _SLOWER[8]
    times = {n: [1e-6 * r / slower, 0.0, 1e-6 * i / slower] for n, (r, i) in RECORDED[8].items()}
    script.fit_integers(times)
    first, second = capsys.readouterr().out.splitlines()
    numbers = dict(zip(first.split()[3::2], map(float, first.split()[4::2]), strict=True))
    assert numbers["products"] == pytest.approx(FACTORS[8]["integers"].products, rel=0.1)
    assert numbers["loads"] == pytest.approx(FACTORS[8]["quantize"].loads, rel=0.1)
    assert second.startswith("median error ")
