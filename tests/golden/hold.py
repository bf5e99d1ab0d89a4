"""What is asked of a model's conversion, each as an assertion that says what to do."""

from __future__ import annotations

import difflib
from hashlib import sha256

from tests.golden.closeness import ConvertedModel, compare_with_litert, load
from tests.golden.dump import dump
from tests.golden.isolated import run_isolated
from tests.golden.kernels import as_assertion_error, count_real_kernels
from tests.golden.records import Case, Records, measure
from tests.golden.saturation import saturating
from tests.support.fusions import optimize_model
from tflite2onnx import convert
from tflite2onnx.reader.model import read_model
from tflite2onnx.tensor import DType

UPDATE = "python -m tests.golden"

_WIDER = {DType.FLOAT32, DType.FLOAT16, DType.INT16}


def compare_text(case: Case) -> None:
    """Compare the ONNX graph with the text that is kept of it."""
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
    """Let the model cost what its record says, and not less: a budget has to be lowered at once."""
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
    """Have ONNX Runtime compute a model that is 8-bit integers throughout with integers alone.

    Only where it has no such kernel at all it need not (docs/quantization.md lists these). QUANTIZE
    of real numbers multiplies them.
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
    """Have ONNX Runtime run no product of integers that saturates on processors without VNNI."""
    lossy = run_isolated(_lossy_products, convert(case.path).skeleton.serialize())
    assert not lossy, f"{len(lossy)} products of {case.name} may saturate: {lossy}"


def _lossy_products(model: bytes) -> list[str]:
    with as_assertion_error("ONNX Runtime does not take it"):
        return saturating(optimize_model(model))


def check_numbers(case: Case) -> None:
    """Compare what ONNX Runtime makes of random inputs with what LiteRT does."""
    run_isolated(
        compare_with_litert, case.path.read_bytes(), ConvertedModel.from_result(convert(case.path))
    )


def check_difference(case: Case) -> None:
    """Be sure that numbers which are known to differ from LiteRT's still do."""
    try:
        check_numbers(case)
    except AssertionError:
        return
    raise AssertionError(f"{case.name} gives LiteRT's numbers now, so say so: {UPDATE}")


def check_loaded(case: Case) -> None:
    """Have ONNX Runtime take a model that LiteRT cannot run."""
    run_isolated(load, ConvertedModel.from_result(convert(case.path)))
