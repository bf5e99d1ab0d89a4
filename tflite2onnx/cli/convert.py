"""`tflite2onnx MODEL.tflite [OUT.onnx]`: convert one model, or those of a bundle."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tflite2onnx.bundle import MANIFEST, convert_models, is_bundle, read_bundle, write_models
from tflite2onnx.convert import convert
from tflite2onnx.errors import LayoutError, OptionError
from tflite2onnx.interface import Endpoint
from tflite2onnx.options import CHOICES, OPTION_TYPES, ConversionOptions
from tflite2onnx.result import Result
from tflite2onnx.utils.atomic_files import check_distinct_files
from tflite2onnx.utils.console import columns, count, print_lines

if TYPE_CHECKING:
    from tflite2onnx.verification import Report

SUMMARY = "Convert a TensorFlow Lite (LiteRT) model to ONNX."
EPILOG = """\
exit status:
  0    the model is converted, and found right if --verify was given
  1    it is not converted and nothing is written; stderr says why, wrong usage included
  2    it is converted, but --verify found a difference that is too large
  130  interrupted
"""
_OK = 0
_SUFFIXES = (".tflite", ".lite", ".tfl")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    add = parser.add_argument
    add("model", metavar="MODEL.tflite", help="the model to convert, or a bundle (.task)")
    add(
        "output",
        metavar="OUT.onnx",
        nargs="?",
        help="the file to write (default: beside MODEL), of a bundle the folder",
    )
    _add_option(parser, "io_layout")
    add(
        "--layout",
        metavar="MAPPING.json",
        help='layouts of tensors by name, inner ones too: {"input": ["NHWC", "NCHW"]}',
    )
    for option in fields(ConversionOptions):
        if option.name not in ("io_layout", "layouts"):
            _add_option(parser, option.name)
    _add_verification_arguments(parser)


def _add_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Add an option of the conversion as its declaration in `ConversionOptions` describes it."""
    option = ConversionOptions.__dataclass_fields__[name]
    kind: dict[str, Any] = {"metavar": "NAME"}
    if OPTION_TYPES[name] is bool:
        kind = {"action": "store_true"}
    elif name in CHOICES:
        kind = {"choices": CHOICES[name]}
    elif OPTION_TYPES[name] == int | None:
        kind = {"type": int, "metavar": "N"}
    flag = f"--{name.replace('_', '-')}"
    parser.add_argument(flag, default=option.default, help=option.metadata["help"], **kind)


def _add_verification_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is done with a conversion."""
    add = parser.add_argument
    add(
        "--verify",
        action="store_true",
        help="run LiteRT and ONNX Runtime on the same random inputs and compare the outputs:"
        " floats may differ by 1e-4 of their range, integers of 8 or 16 bits by 1, those of"
        " quantized networks by a tenth of the signal if each operator is right on LiteRT's own"
        " inputs; takes the packages of: pip install tflite2onnx[verify]",
    )
    add(
        "--report",
        metavar="FILE.html",
        help="verify, tensor by tensor, and write a page about what was found; takes the same",
    )


def run_command(options: argparse.Namespace) -> int:
    """Convert, print what became of the inputs and outputs, and return the exit status."""
    if is_bundle(options.model):
        return _bundle(options)
    output = options.output if options.output is not None else _default_output_path(options.model)
    check_distinct_files(output, options.model)
    if options.report is not None:
        check_distinct_files(options.report, options.model)
        check_distinct_files(options.report, output, "the ONNX model")
    result = convert(
        options.model, layouts=_layouts(options.layout), **_conversion_options(options)
    )
    judged = options.verify or options.report is not None
    report = _verify_result(options, options.model, result) if judged else None
    with _page(options, result, report):
        size = result.save(output)
    _print_unless_quiet(options, _summary(result))
    status = _print_verification(options, options.model, report)
    _print_unless_quiet(options, [f"wrote {output}, {size:,} bytes"])
    return status


def _conversion_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that any model is converted with; layouts are those of one."""
    names = (each.name for each in fields(ConversionOptions))
    return {name: getattr(options, name) for name in names if name != "layouts"}


def _bundle(options: argparse.Namespace) -> int:
    """Convert each model of a bundle."""
    folder = options.output if options.output is not None else _stem(options.model)
    for option in ("layout", "report"):
        if getattr(options, option) is not None:
            raise OptionError(f"--{option} is for one model, and this is a bundle of several")
    statuses = {_OK}
    bundle = read_bundle(options.model)
    results = convert_models(bundle, **_conversion_options(options))
    reports = {
        name: _verify_result(options, bundle.models[name], result)
        for name, result in results.items()
        if options.verify
    }
    write_models(bundle, results, folder)
    for name, result in results.items():
        _print_unless_quiet(options, [f"{name}:", *_summary(result)])
        statuses.add(_print_verification(options, name, reports.get(name)))
    _print_unless_quiet(
        options, [f"wrote {count(len(results), 'model')} and {MANIFEST} to {folder}"]
    )
    return max(statuses)


def _print_unless_quiet(options: argparse.Namespace, lines: Sequence[str]) -> None:
    if not options.quiet:
        print_lines(sys.stdout, lines)


def _print_verification(options: argparse.Namespace, model: str, report: Report | None) -> int:
    """Print what a verification found, and return the exit status that this means."""
    if report is None:
        return _OK
    from tflite2onnx.cli import verdict  # noqa: PLC0415 - as `verify` below

    _print_unless_quiet(options, verdict.outputs(report))
    if options.report is not None:
        _print_unless_quiet(options, verdict.tensor_lines(report))
    return verdict.print_verdict(model, report)


def _verify_result(options: argparse.Namespace, model: str | bytes, result: Result) -> Report:
    """Return how close the conversion comes, tensor by tensor if a page is to show it."""
    from tflite2onnx.verification import verify  # noqa: PLC0415 - takes longer than small models

    return verify(model, result, tensors=options.report is not None)


def _page(
    options: argparse.Namespace, result: Result, report: Report | None
) -> AbstractContextManager[None]:
    """Write a page about what was found, if that is asked for, around what saves the model."""
    if report is None or options.report is None:
        return nullcontext()
    from tflite2onnx.report import write_report_on_success  # noqa: PLC0415 - likewise

    return write_report_on_success(options.report, options.model, result, report)


def _default_output_path(model: str) -> str:
    return (_stem(model) if model.lower().endswith(_SUFFIXES) else model) + ".onnx"


def _stem(model: str) -> str:
    return os.path.splitext(model)[0]  # noqa: PTH122 - the path stays as it was typed


def _layouts(path: str | None) -> dict[str, Any] | None:
    """Read a layout mapping; what is in it is checked against the model by `convert`."""
    if path is None:
        return None
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        mapping = json.loads(text, object_pairs_hook=_reject_duplicates)
    except OSError as error:
        raise LayoutError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise LayoutError(f"{path} is not JSON: {error}") from error
    if not isinstance(mapping, dict):
        raise LayoutError(f'{path} is no mapping such as {{"input": ["NHWC", "NCHW"]}}')
    return mapping


def _reject_duplicates(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise LayoutError(f"the layout of {twice} is given twice")
    return mapping


def _summary(result: Result) -> list[str]:
    ends = [("input", e) for e in result.inputs] + [("output", e) for e in result.outputs]
    ends += [("state", s.input) for s in result.states]
    rows = [(kind, e.name, e.dtype, *_describe_shapes(e)) for kind, e in ends]
    nodes, transposes = count(result.nodes, "node"), count(result.transposes, "Transpose")
    moved = f"{result.bytes_moved:,} bytes moved by {transposes}"
    return [*columns(rows), f"{nodes}, {moved}, opset {result.opset}"]


def _describe_shapes(end: Endpoint) -> tuple[str, str]:
    tflite, onnx = end.layout
    return (
        f"TFLite {_sizes(end.tflite_sizes)} {tflite}".rstrip(),
        f"ONNX {_sizes(end.sizes)} {onnx}".rstrip(),
    )


def _sizes(sizes: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
