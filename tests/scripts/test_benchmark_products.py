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
from tflite2onnx.builder.messages import walk_graphs
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

# The same on an AMD EPYC of family 25, model 17 (Zen 4), with AVX-512 and VNNI.
_ZEN_4 = """
    112x112x16x96:2036,3380 56x56x24x144:620,859 56x56x96x24:402,571 28x28x64x128:218,286
    28x28x128x128:346,294 14x14x384x96:206,156 14x14x96x576:304,230 14x14x256x256:315,194
    14x14x512x512:1126,499 7x7x576x160:119,78 7x7x160x960:196,125 28x28x256x256:1530,1048
    20x20x256x256:798,481 7x7x512x512:285,141 7x7x320x1280:448,210 5x5x192x192:32,30
    4x4x512x512:110,62 3x3x320x1280:120,89 3x3x112x1280:64,66 2x2x512x512:54,44
    14x14x96x576s:270,210 14x14x256x256s:346,285 7x7x160x960s:231,193 3x3x320x1280s:118,103
    3x3x112x1280s:61,81 80x80x16x3x9:933,486 80x80x16x16x3:367,435 80x80x16x32x3:676,590
    80x80x32x16x3:674,616 80x80x32x32x3:1251,893 80x80x64x64x3:5824,4553 40x40x32x8x3:181,131
    40x40x128x8x3:803,547 40x40x128x32x3:1509,923 40x40x128x128x3:5190,2937 20x20x64x64x3:380,236
    20x20x128x128x3:1361,590 20x20x256x256x3:5109,2112 10x10x128x128x3:287,127 5x5x128x128x3:74,42
    3x3x256x256x3:117,51
"""


def read_table(text: str) -> dict[str, tuple[float, ...]]:
    """Return the two times of each size."""
    rows = (row.split(":") for row in text.split())
    return {size: tuple(map(float, times.split(","))) for size, times in rows}


RECORDED = {block: read_table(text) for block, text in _TABLES.items()}
RECORDED_ZEN_4 = read_table(_ZEN_4)


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
def test_chosen_form_costs_little_with_avx2(script: Any, size: str) -> None:
    """Integers take at most a fifth longer than floats, where AVX-512 gains more.

    A layer whose integers are faster may keep its floats: the processors of both kinds count. Of a
    layer with both forms a processor with AVX2 alone runs the floats.
    """
    real, integers = RECORDED[8][size]
    if multiplies_integers(script, size) and not has_both_forms(script, size):
        assert integers <= 1.2 * real
    else:
        assert real <= 1.11 * integers


@pytest.mark.parametrize("size", RECORDED_ZEN_4)
def test_chosen_form_is_as_fast_as_the_other_on_zen_4(script: Any, size: str) -> None:
    """Zen 4 multiplies more slowly than Zen 5, beside the nodes that quantize."""
    real, integers = RECORDED_ZEN_4[size]
    if multiplies_integers(script, size):
        assert integers <= 1.05 * real
    else:
        assert real <= 1.16 * integers


def multiplies_integers(script: Any, size: str) -> bool:
    """Return whether this processor runs a product of integers of a layer."""
    return count_optimized_nodes(convert_layer(script, size))["MatMulIntegerToFloat"] > 0


def has_both_forms(script: Any, size: str) -> bool:
    """Return whether the model chooses a form at load; weights may be chosen, too."""
    graphs = [*walk_graphs(convert_layer(script, size).graph)][1:]
    return any(node.op_type == "Conv" for graph in graphs for node in graph.node)


def convert_layer(script: Any, size: str) -> onnx.ModelProto:
    words = read_size(size)
    model = script.build_images(*words["sizes"], signed=words["signed"])
    return onnx.load_from_string(convert(model).skeleton.serialize())


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
