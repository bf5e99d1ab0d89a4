"""Requirements on the conversion of a model, as assertions whose messages give the remedy."""

from __future__ import annotations

import difflib
from hashlib import sha256

from tests.golden.closeness import ConvertedModel, compare_with_litert, load
from tests.golden.dump import dump
from tests.golden.isolated import run_isolated
from tests.golden.kernels import as_assertion_error, count_real_kernels
from tests.golden.records import Case, Records, measure
from tests.golden.saturation import assume_saturation, find_saturating
from tests.support.fusions import optimize_model
from tflite2onnx import convert
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType

UPDATE = "python -m tests.golden"

_WIDER = {DType.FLOAT32, DType.FLOAT16, DType.INT16}


def compare_text(case: Case) -> None:
    """Compare the ONNX graph with its recorded text."""
    text = dump(convert(case.path).model)
    kept = case.golden.read_text() if case.golden.exists() else ""
    lines = difflib.unified_diff(
        kept.splitlines(), text.splitlines(), "kept", "made", n=1, lineterm=""
    )
    difference = "\n".join(lines)
    if difference:
        raise AssertionError(
            f"the graph of {case.name} has changed; if for the better: {UPDATE}\n{difference}"
        )


def check_budget(case: Case, records: Records) -> None:
    """Require the recorded cost, neither more nor less: a budget must be lowered at once."""
    now, _ = measure(case.path.read_bytes())
    known = records.record_of(case, now.sha256)
    if known is None:
        raise AssertionError(f"nothing is known of {case.name} with these contents: {UPDATE}")
    worse, better = known.changes(now, fused=records.fused_here)
    if worse:
        raise AssertionError(f"{case.name} may not get worse: {'; '.join(worse)}")
    if better:
        raise AssertionError(
            f"{case.name} got better, so lower its budget ({UPDATE}): {'; '.join(better)}"
        )


def check_integer_kernels(case: Case, records: Records) -> None:
    """Require ONNX Runtime to compute a fully 8-bit model with integer kernels only.

    Operators without an integer kernel in ONNX Runtime are exempt (docs/quantization.md lists
    them). QUANTIZE of floats multiplies floats.
    """
    record = records.record_of(case, sha256(case.path.read_bytes()).hexdigest())
    graph = read_model(case.path).graphs[0]
    inner = [op for op in graph.ops if op.code not in ("QUANTIZE", "DEQUANTIZE")]
    if record is None or any(t.dtype in _WIDER for op in inner for t in op.outputs):
        return
    quantized = sum(op.is_builtin("QUANTIZE") for op in graph.ops)
    left = count_real_kernels(record.kernels) - min(quantized, record.kernels.get("Mul", 0))
    assert not left, f"{left} kernels of {case.name} compute real numbers: {record.kernels}"


def hold_exactness(case: Case) -> None:
    """Require that no integer product saturates on processors without VNNI."""
    model = assume_saturation(convert(case.path).model)
    lossy = run_isolated(_lossy_products, model.SerializeToString())
    assert not lossy, f"{len(lossy)} products of {case.name} may saturate: {lossy}"


def _lossy_products(model: bytes) -> list[str]:
    with as_assertion_error("ONNX Runtime does not take it"):
        return find_saturating(optimize_model(model))


def check_numbers(case: Case) -> None:
    """Compare the outputs of ONNX Runtime with those of LiteRT on random inputs."""
    run_isolated(
        compare_with_litert, case.path.read_bytes(), ConvertedModel.from_result(convert(case.path))
    )


def check_difference(case: Case) -> None:
    """Require that outputs recorded as different from LiteRT's still differ."""
    try:
        check_numbers(case)
    except AssertionError:
        return
    raise AssertionError(f"{case.name} gives LiteRT's numbers now, so say so: {UPDATE}")


def check_loaded(case: Case) -> None:
    """Require that ONNX Runtime loads a model that LiteRT cannot run."""
    run_isolated(load, ConvertedModel.from_result(convert(case.path)))
