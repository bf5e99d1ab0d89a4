"""Verify a model and measure its latency, for the commands that print both."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from tflite2onnx.cli.standard_streams import hide_information
from tflite2onnx.cli.workers import run_in_processes
from tflite2onnx.utils.child_process import CAN_FORK
from tflite2onnx.verification import Report, verify
from tflite2onnx.verification.latency import Latency, measure_latency
from tflite2onnx.verification.onnx_model import ConvertedModel
from tflite2onnx.verification.runtimes import ModelFile


def verify_and_measure(model: ModelFile, converted: ConvertedModel, **options: Any) -> Report:  # noqa: ANN401 - the options of `verify`
    """Return the result of `verify`, with the latency if both runtimes run their models."""
    latency = _measure_apart(model, converted)
    return replace(verify(model, converted, **options), latency=latency)


def _measure_apart(model: ModelFile, converted: ConvertedModel) -> Latency | None:
    """Measure the latency in a process of its own, because LiteRT's fastest kernels may crash.

    The process starts before this process runs a model: it then has no other threads.
    """
    work = partial(_measure, model)
    if not CAN_FORK:
        return work(converted)
    ((_, latency),) = run_in_processes(work, [converted], 1, lambda *_: None)
    return latency


def _measure(model: ModelFile, converted: ConvertedModel) -> Latency | None:
    # The verification reports a model that does not run.
    with hide_information(hidden=True, everything=True), suppress(Exception):
        return measure_latency(model, converted)
    return None
