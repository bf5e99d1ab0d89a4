"""`tflite2onnx verify MODEL.tflite [OUT.onnx]`: LiteRT against ONNX Runtime, tensor by tensor."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tflite2onnx.convert import convert
from tflite2onnx.errors import OptionError
from tflite2onnx.report import write_report
from tflite2onnx.tensor import Array
from tflite2onnx.text import columns, complain, count, show
from tflite2onnx.verification import SAMPLES, Compared, Difference, Report, verify
from tflite2onnx.verification.images import array_of

SUMMARY = "Run LiteRT and ONNX Runtime on the same inputs and compare what they make."
EPILOG = """\
The outputs are compared, and the tensors between the operators in order of execution. If some
are too far off, each operator is run on LiteRT's own inputs as well: the first that is wrong then
is where to look. Tensors come from further runs of the ONNX model with them as outputs, which are
then not fused away.

exit status:
  0    all outputs are equal, and all operators that were run alone
  1    nothing can be said: a model cannot be read, converted or run, wrong usage included
  2    some are different
  130  interrupted
"""
_OK, _DIFFERENT = 0, 2


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    add = parser.add_argument
    add("model", metavar="MODEL.tflite", help="the original")
    add(
        "converted", metavar="OUT.onnx", nargs="?",
        help="what it was converted to (default: it is converted now, and not written)",
    )  # fmt: skip
    add(
        "--input", metavar="NAME=FILE.npy", action="append", default=[], dest="inputs",
        help="an array for the input of this name, in TFLite's layout; other inputs are random",
    )  # fmt: skip
    add(
        "--image", metavar="FILE", action="append", default=[], dest="images",
        help="a picture for the input that takes pictures, resized, and normalised as the metadata"
        " of the model say; each is one sample; takes: pip install tflite2onnx[images]",
    )  # fmt: skip
    add(
        "--samples", type=int, metavar="N",
        help=f"how often to run (default: {SAMPLES}, or once for each picture)",
    )  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="of the random numbers (default: 0)")
    add(
        "--report", metavar="FILE.html",
        help="write a page about the conversion and what was found; it needs no network",
    )  # fmt: skip
    add(
        "--per-operator", action="store_true",
        help="also run each operator on LiteRT's own inputs, so that differences do not add up",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Verify, print what differs, and return the exit status."""
    converted = convert(options.model) if options.converted is None else options.converted
    with _progress(quiet=options.quiet) as progress:
        report = verify(
            options.model, converted, inputs=_arrays(options.inputs),
            images=options.images, seed=options.seed, samples=options.samples,
            per_operator=options.per_operator, progress=progress,
        )  # fmt: skip
    if not options.quiet:
        show(sys.stdout, table(report))
    if options.report is not None:
        write_report(options.report, options.model, converted, report)
    complaints(options.model, report)
    return _OK if report.ok else _DIFFERENT


def _arrays(words: Sequence[str]) -> dict[str, Array]:
    """Read what is given as NAME=FILE.npy; names may have "=" in them, files rather not."""
    arrays: dict[str, Array] = {}
    for word in words:
        name, equals, path = word.rpartition("=")
        if not equals or name in arrays:
            message = f"--input {word}: it must be NAME=FILE.npy, once for each name"
            raise OptionError(message)
        arrays[name] = array_of(path)
    return arrays


def table(report: Report) -> list[str]:
    """Return what was found in lines: the outputs, then what there is to say of the rest."""
    rows = [(d.name, *_measured(d), "right" if d.ok else "WRONG") for d in report.outputs]
    lines = [f"LiteRT and ONNX Runtime on {count(report.samples, 'sample')}:", *columns(rows)]
    for what, found in (
        ("tensors, in order of execution", report.tensors),
        ("operators, each on LiteRT's own inputs", report.operators),
    ):
        if not found:
            continue
        wrong = [each for each in found if not each.difference.ok]
        lines.append(f"{len(found):,} {what}: {len(wrong):,} too far off")
        lines += columns([(*_place(c), *_measured(c.difference)) for c in wrong[:_MOST]])
        if len(wrong) > _MOST:
            lines.append(f"... and {len(wrong) - _MOST:,} more")
    if not report.tensors:
        lines.append("the tensors inside the ONNX model are not known: outputs alone are compared")
    return lines


_MOST = 10  # wrong tensors that are listed


def _place(compared: Compared) -> tuple[str, str]:
    return f"{compared.operator} ({compared.index})", compared.name


def _measured(difference: Difference) -> tuple[str, str]:
    """Return the largest difference, and how much louder the signal is than the noise."""
    if difference.reason:
        return difference.reason, ""
    largest = f"largest difference {difference.largest:.3g}, {difference.relative:.2g} of the range"
    return largest, f"{difference.decibels:.0f} dB"


def complaints(model: str, report: Report) -> None:
    """Print on stderr which outputs are wrong, and the tensor at which it begins."""
    for difference in report.outputs:
        if not difference.ok:
            complain(model, f"output {difference.name} is wrong: {difference.complaint}")
    first = report.diverging
    if first is not None:
        place = f"{first.operator} (operator {first.index}, {first.name})"
        complain(model, f"the first tensor that diverges is of {place}")


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Give a bar on a terminal, where the package that draws it is installed."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    try:
        tqdm: Any = import_module("tqdm").tqdm
    except ImportError:
        yield None
        return
    with tqdm(unit=" tensors", leave=False, file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
