"""`tflite2onnx verify MODEL.tflite [OUT.onnx]`: compare LiteRT and ONNX Runtime by tensor."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tflite2onnx.bundle import files_of, is_bundle, read_bundle
from tflite2onnx.cli.progress import showing_progress
from tflite2onnx.cli.standard_streams import hidden_information
from tflite2onnx.cli.verdict import outputs, print_verdict, tensor_lines
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError, OptionError
from tflite2onnx.report import write_report
from tflite2onnx.tensor import Array
from tflite2onnx.utils.atomic_files import check_distinct_files
from tflite2onnx.utils.console import print_error, print_lines
from tflite2onnx.verification import SAMPLES, Report, verify
from tflite2onnx.verification.images import array_of
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
    add("model", metavar="MODEL.tflite", help="the original, or a bundle (.task)")
    add(
        "converted",
        metavar="OUT.onnx",
        nargs="?",
        help="what it was converted to, of a bundle the folder (default: it is converted now, and"
        " not written)",
    )
    add(
        "--input",
        metavar="NAME=FILE.npy",
        action="append",
        default=[],
        dest="inputs",
        help="an array for the input of this name, in TFLite's layout; other inputs are random",
    )
    add(
        "--image",
        metavar="FILE",
        action="append",
        default=[],
        dest="images",
        help="a picture for the input that takes pictures, resized, and normalised as the metadata"
        " of the model say; each is one sample; takes: pip install tflite2onnx[images]",
    )
    add(
        "--samples",
        type=int,
        metavar="N",
        help=f"how often to run (default: {SAMPLES}, or once for each picture)",
    )
    add("--seed", type=int, default=0, metavar="N", help="of the random numbers (default: 0)")
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
    with hidden_information(hidden=options.quiet):
        return _verify_bundle(options) if is_bundle(options.model) else _verify_model(options)


def _verify_model(options: argparse.Namespace) -> int:
    """Verify a model."""
    if options.report is not None:
        check_distinct_files(options.report, options.model)
        if options.converted is not None:
            check_distinct_files(options.report, options.converted, "the ONNX model")
    converted = convert(options.model) if options.converted is None else options.converted
    report = _verify_and_print(options, options.model, converted)
    if options.report is not None:
        write_report(options.report, options.model, converted, report)
    return print_verdict(options.model, report)


def _verify_bundle(options: argparse.Namespace) -> int:
    """Verify each model of a bundle; a model that cannot be verified does not stop the others."""
    for name, given in (
        ("input", options.inputs),
        ("image", options.images),
        ("report", options.report),
    ):
        if given:
            raise OptionError(f"--{name} is for one model, and this is a bundle of several")
    bundle, folder = read_bundle(options.model), options.converted
    statuses = set()
    for name, file in files_of(bundle).items():
        model = bundle.models[name]
        if not options.quiet:
            print_lines(sys.stdout, [f"{name}:"])
        try:
            converted = convert(model) if folder is None else Path(folder) / file
            statuses.add(print_verdict(name, _verify_and_print(options, model, converted)))
        except ConversionError as error:
            print_error(name, str(error))
            statuses.add(_FAILED)
    return max(statuses)


def _verify_and_print(
    options: argparse.Namespace, model: ModelFile, converted: ConvertedModel
) -> Report:
    """Verify a model, and print the findings."""
    with showing_progress("tensors", quiet=options.quiet) as progress:
        report = verify(
            model,
            converted,
            inputs=_read_arrays(options.inputs),
            images=options.images,
            seed=options.seed,
            samples=options.samples,
            per_operator=options.per_operator,
            progress=progress,
        )
    if not options.quiet:
        print_lines(sys.stdout, [*outputs(report), *tensor_lines(report)])
    return report


def _read_arrays(words: Sequence[str]) -> dict[str, Array]:
    """Read arrays given as NAME=FILE.npy; names may contain "=", file names must not."""
    arrays: dict[str, Array] = {}
    for word in words:
        name, equals, path = word.rpartition("=")
        if not equals or name in arrays:
            raise OptionError(f"--input {word}: it must be NAME=FILE.npy, once for each name")
        arrays[name] = array_of(path)
    return arrays
