"""`tflite2onnx verify MODEL.tflite [OUT.onnx]`: compare LiteRT and ONNX Runtime by tensor."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tflite2onnx.bundle import files_of, is_bundle, read_bundle
from tflite2onnx.cli.places import STANDARD
from tflite2onnx.cli.progress import showing_progress
from tflite2onnx.cli.standard_streams import hidden_information, source_of
from tflite2onnx.cli.verdict import outputs, print_verdict, tensor_lines
from tflite2onnx.cli.verification_options import (
    SINGLE,
    add_verification_options,
    given_options,
    read_verification_options,
)
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError, OptionError
from tflite2onnx.report import write_report
from tflite2onnx.utils.atomic_files import check_distinct_files
from tflite2onnx.utils.console import print_error, print_lines
from tflite2onnx.verification import Report, verify
from tflite2onnx.verification.onnx_model import ConvertedModel
from tflite2onnx.verification.runtimes import ModelFile

SUMMARY = "Run LiteRT and ONNX Runtime on the same inputs and compare what they make."
EPILOG = """\
The outputs are compared, and the tensors between the operators in order of execution. If an
integer is more than one step off, or a float too far, each operator is run on LiteRT's own inputs
as well, and held to the number of steps that its kernel takes. The first operator that is wrong is
where to look. The tensors are outputs of further runs, which prevents ONNX Runtime from fusing
them away.

Each tensor has one verdict: it is right; its operator computes it wrong from LiteRT's own inputs;
or it differs, because tensors before it do. If the model is right with the optimizations of ONNX
Runtime disabled, the message names its kernels as the cause.

Of a bundle each model is verified, against its file in the folder that the bundle was converted to.

exit status:
  0    all outputs are equal, and all operators that were run alone
  1    nothing can be said: a model cannot be read, converted or run, wrong usage included
  2    some are different
  130  interrupted
"""
_FAILED = 1


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL.tflite",
        help="the original, or a bundle (.task); - is standard input",
    )
    add(
        "converted",
        metavar="OUT.onnx",
        nargs="?",
        help="what it was converted to, - for standard input, of a bundle the folder (default: it"
        " is converted now, and not written)",
    )
    add_verification_options(parser)
    add(
        "--json",
        action="store_true",
        help="print what was found for programs to read, and nothing else on stdout",
    )
    add(
        "--report",
        metavar="FILE.html",
        help="write a page about the conversion and what was found; it needs no network",
    )
    add(
        "--per-operator",
        action="store_true",
        help="also run each operator on LiteRT's own inputs, so that differences do not add up",
    )


def run_command(options: argparse.Namespace) -> int:
    """Verify, print the findings, and return the exit status."""
    if options.model == options.converted == STANDARD:
        raise OptionError("only one model can be standard input, got - twice")
    source = source_of(options.model)
    with hidden_information(hidden=options.quiet):
        if is_bundle(source):
            return _verify_bundle(options, source)
        return _verify_model(options, source)


def _verify_model(options: argparse.Namespace, source: str | bytes) -> int:
    """Verify a model."""
    if options.report is not None:
        check_distinct_files(options.report, options.model)
        if options.converted is not None:
            check_distinct_files(options.report, options.converted, "the ONNX model")
    given = None if options.converted is None else source_of(options.converted)
    converted = convert(source) if given is None else given
    report = _verify(options, source, converted)
    if options.report is not None:
        write_report(options.report, source, converted, report)
    if options.json:
        _print_json({"model": options.model, **report.to_dict()})
    else:
        _print_findings(options, report)
    return print_verdict(options.model, report)


def _verify_bundle(options: argparse.Namespace, source: str | bytes) -> int:
    """Verify each model of a bundle; a model that cannot be verified does not stop the others."""
    if options.converted == STANDARD:
        raise OptionError("the models of a bundle must be in a folder, got standard input")
    for option in (*given_options(options, SINGLE), *["--report"] * bool(options.report)):
        raise OptionError(f"{option} is for one model, and this is a bundle of several")
    bundle, folder = read_bundle(source), options.converted
    statuses, found = set(), []
    for name, file in files_of(bundle).items():
        model = bundle.models[name]
        if not (options.quiet or options.json):
            print_lines(sys.stdout, [f"{name}:"])
        try:
            report = _verify(
                options, model, convert(model) if folder is None else Path(folder) / file
            )
        except ConversionError as error:
            print_error(name, str(error))
            statuses.add(_FAILED)
            found.append({"name": name, "error": str(error)})
            continue
        _print_findings(options, report)
        statuses.add(print_verdict(name, report))
        found.append({"name": name, **report.to_dict()})
    if options.json:
        _print_json({"model": options.model, "models": found})
    return max(statuses)


def _verify(options: argparse.Namespace, model: ModelFile, converted: ConvertedModel) -> Report:
    """Verify a model."""
    with showing_progress("tensors", quiet=options.quiet) as progress:
        return verify(
            model,
            converted,
            per_operator=options.per_operator,
            progress=progress,
            **read_verification_options(options),
        )


def _print_findings(options: argparse.Namespace, report: Report) -> None:
    if not (options.quiet or options.json):
        print_lines(sys.stdout, [*outputs(report), *tensor_lines(report)])


def _print_json(found: Mapping[str, Any]) -> None:
    print_lines(sys.stdout, [json.dumps(found, indent=2)])
