"""Integer products on processors with and without VNNI, which run different kernels.

Without VNNI no instruction adds products of bytes in 32 bits: ONNX Runtime's kernels for uint8 by
int8 add two products in 16 bits, and saturate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto

from tests.golden.records import ASSETS, assets, zoo
from tests.golden.saturation import (
    assume_exact_products,
    assume_saturation,
    find_saturating,
)
from tests.support import difference, random_inputs, run_tflite
from tests.support.emulation import EMULATED, NATIVE, Runs, run_models, why_not
from tests.support.extremes import Sample, samples
from tests.support.fusions import optimize_model
from tests.support.needs import missing_feature
from tflite2onnx import ConversionError, convert
from tflite2onnx.options import WEIGHTS


@cache
def convert_samples() -> list[tuple[Sample, onnx.ModelProto]]:
    """Return the models that the installed ONNX Runtime can run."""
    models = [(sample, convert(sample.data, io_layout="tflite").model) for sample in samples()]
    return [(sample, model) for sample, model in models if not missing_feature(model)]


def emulated_processor(processor: str) -> Any:
    why = why_not()
    return pytest.param(processor, marks=pytest.mark.skipif(bool(why), reason=why))


@pytest.mark.parametrize("processor", [emulated_processor(EMULATED[0])])
def test_a_network_equals_litert_on_an_emulated_processor(processor: str, tmp_path: Path) -> None:
    """A network equals LiteRT; this represents the models of the second level in the first."""
    data = (ASSETS / "keywords_int8.tflite").read_bytes()
    inputs = random_inputs(data, 0)
    model = convert(data, io_layout="tflite").model.SerializeToString()
    ((made,),) = run_models([(model, [inputs])], processor, tmp_path)
    for want, have in zip(run_tflite(data, inputs), made, strict=True):
        assert not difference(want, have, steps=1)


@pytest.mark.nightly
@pytest.mark.parametrize("processor", [NATIVE, *map(emulated_processor, EMULATED)])
def test_numbers_equal_litert_on_each_processor(processor: str, tmp_path: Path) -> None:
    """All models agree with LiteRT; they run in one process, because imports take seconds."""
    models = [(model.SerializeToString(), sample.runs) for sample, model in convert_samples()]
    pairs = zip(convert_samples(), run_models(models, processor, tmp_path), strict=True)
    faults = [
        f"{sample.name}, run {run}: {fault}"
        for (sample, _), made in pairs
        for run, (want, have) in enumerate(zip(sample.want, made, strict=True))
        for one, other in zip(want, have, strict=True)
        if (fault := difference(one, other, steps=sample.steps, tolerance=sample.tolerance))
    ]
    assert not faults, "\n".join([f"{len(faults)} outputs differ from LiteRT's", *faults])


def test_no_product_may_saturate() -> None:
    """No node of the models can saturate where int8 saturates; this needs no emulator."""
    lossy = {
        sample.name: find_saturating(optimize_model(assume_saturation(model)))
        for sample, model in convert_samples()
    }
    assert not {name: nodes for name, nodes in lossy.items() if nodes}


def quantized_models() -> Iterator[bytes]:
    """Yield the quantized models of the project and of the folder TFLITE2ONNX_ZOO, each once."""
    for case in (*assets(), *zoo()):
        data, made = case.path.read_bytes(), dict[bytes, None]()
        for weights in WEIGHTS[:2]:
            try:
                model = convert(data, weights=weights).model
            except ConversionError:
                continue
            types = {tensor.data_type for tensor in model.graph.initializer}
            if not types & {TensorProto.INT8, TensorProto.UINT8}:
                break  # a network of floats has no other weights
            if not missing_feature(model):
                made[model.SerializeToString()] = None
                made[assume_exact_products(model).SerializeToString()] = None
        yield from made


@pytest.mark.nightly
def test_models_load_with_precise_products(tmp_path: Path) -> None:
    """Models load with ONNX Runtime's option x64quantprecision, here and without VNNI.

    The option converts int8 weights to uint8, and ONNX Runtime then fails if two nodes share a
    weight or a zero point. Adaptive weights stay int8 only on processors with VNNI.
    """
    models: list[tuple[bytes, Runs]] = [(model, []) for model in quantized_models()]
    assert models
    for processor in (NATIVE,) if why_not() else (NATIVE, EMULATED[0]):
        folder = tmp_path / processor
        folder.mkdir()
        run_models(models, processor, folder, x64quantprecision="1")
