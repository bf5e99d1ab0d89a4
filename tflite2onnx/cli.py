"""The command line: what came out on stdout, or what is wrong in one paragraph on stderr."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from tflite2onnx.convert import (
    ACTIVATIONS,
    QUANTIZATIONS,
    Result,
    convert,
    keep_apart,
)
from tflite2onnx.errors import ConversionError, LayoutError
from tflite2onnx.interface import IO_LAYOUTS, Endpoint
from tflite2onnx.nodes import DEFAULT_OPSET, MIN_OPSET
from tflite2onnx.op import OPERATORS, supported_operators
from tflite2onnx.version import VERSION

if TYPE_CHECKING:
    from tflite2onnx.verify import Report

_OK, _FAILED, _DIFFERENT, _INTERRUPTED = 0, 1, 2, 130
_SUFFIXES = (".tflite", ".lite", ".tfl")
_EPILOG = """\
`tflite2onnx ops` prints the operators that can be converted (a model of that name is ./ops).

exit status:
  0    the model is converted, and found right if --verify was given
  1    it is not converted and nothing is written; stderr says why, wrong usage included
  2    it is converted, but --verify found a difference that is too large
  130  interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; wrong usage raises SystemExit(1)."""
    options = _parse(argv)
    try:
        with _logging(verbose=options.verbose):
            status = _ops() if options.model == "ops" else _convert(options)
        sys.stdout.flush()
    except ConversionError as error:
        _complain(options.model, str(error))
    except KeyboardInterrupt:
        _complain(options.model, "interrupted")
        return _INTERRUPTED
    except OSError as error:  # files are ConversionErrors: this is stdout, full or closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # as of `tflite2onnx ops | head`
            _complain(options.model, f"cannot print: {error.strerror}")
    except Exception as error:  # noqa: BLE001 - no traceback for anyone who did not ask for one
        if options.verbose:
            traceback.print_exc()
        what = " ".join(f"{type(error).__name__}: {error}".split())
        _complain(options.model, f"please report this bug, with what -v prints ({what})")
    else:
        return status
    return _FAILED


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with status 1: argparse's 2 means here that a verification failed."""
        self.exit(_FAILED, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        "tflite2onnx", description="Convert a TensorFlow Lite (LiteRT) model to ONNX.",
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    add = parser.add_argument
    add("model", metavar="MODEL.tflite", help="the model to convert")
    add("output", metavar="OUT.onnx", nargs="?", help="the file to write (default: beside MODEL)")
    add(
        "--io-layout", choices=IO_LAYOUTS, default="auto",
        help="inputs and outputs: channels first wherever that saves a Transpose (auto), as in the"
        " TFLite file (tflite), channels first wherever an operator like a convolution gives"
        " meaning to their layout (onnx)",
    )  # fmt: skip
    add(
        "--layout", metavar="MAPPING.json",
        help='layouts of tensors by name, inner ones too: {"input": ["NHWC", "NCHW"]}',
    )  # fmt: skip
    add(
        "--opset", type=int, metavar="N",
        help=f"ONNX opset, from {MIN_OPSET} up (default: what the model needs, at least"
        f" {DEFAULT_OPSET})",
    )  # fmt: skip
    add(
        "--quantization", choices=QUANTIZATIONS, default="qdq",
        help="quantized tensors: integers, with DequantizeLinear and QuantizeLinear around what"
        " computes (qdq), or real numbers throughout (float)",
    )  # fmt: skip
    add(
        "--activations", choices=ACTIVATIONS, default="auto",
        help="int8 activations inside the model: as they are (int8), as uint8 with the zero point"
        " 128 higher, which is exact (uint8), or what is faster on x86-64 (auto)",
    )  # fmt: skip
    add(
        "--verify", action="store_true",
        help="run LiteRT and ONNX Runtime on the same random inputs and compare the outputs:"
        " floats may differ by 1e-4 of their range, integers of 8 or 16 bits by 1; takes the"
        " packages of: pip install tflite2onnx[verify]",
    )  # fmt: skip
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    volume.add_argument("-v", "--verbose", action="store_true", help="log each stage to stderr")
    add("--version", action="version", version=f"%(prog)s {VERSION}")
    words = sys.argv[1:] if argv is None else argv
    # Options may stand between the two files; Python 3.11 can do that or "--", not both.
    parse = parser.parse_args if "--" in words else parser.parse_intermixed_args
    options = parse(words)
    if options.model == "ops" and options.output is not None:
        parser.error("ops prints a table and takes no second argument; is the model ./ops?")
    return options


def _ops() -> int:
    rows = [(code, OPERATORS[code].category.value) for code in supported_operators()]
    _print(sys.stdout, _columns([("operator", "category"), *rows]))
    return _OK


def _convert(options: argparse.Namespace) -> int:
    output = options.output if options.output is not None else _beside(options.model)
    keep_apart(options.model, output)
    result = convert(
        options.model, layouts=_layouts(options.layout), io_layout=options.io_layout,
        opset=options.opset, quantization=options.quantization, activations=options.activations,
    )  # fmt: skip
    report = _verified(options.model, result) if options.verify else None
    size = result.save(output)
    if not options.quiet:
        _print(sys.stdout, _summary(result))
        _print(sys.stdout, _compared(report) if report else [])
        _print(sys.stdout, [f"wrote {output}, {size:,} bytes"])
    wrong = [difference for difference in report.outputs if not difference.ok] if report else []
    for d in wrong:
        _complain(options.model, f"output {d.name} is wrong: {d.complaint}")
    return _DIFFERENT if wrong else _OK


def _verified(model: str, result: Result) -> Report:
    from tflite2onnx.verify import verify  # noqa: PLC0415 - a tenth of what a conversion takes

    return verify(model, result)


def _beside(model: str) -> str:
    stem, suffix = os.path.splitext(model)  # noqa: PTH122 - the path stays as it was typed
    return (stem if suffix.lower() in _SUFFIXES else model) + ".onnx"


def _layouts(path: str | None) -> dict[str, Any] | None:
    """Read a layout mapping; what is in it is checked against the model by `convert`."""
    if path is None:
        return None
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        mapping = json.loads(text, object_pairs_hook=_once)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise LayoutError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"{path} is not JSON: {error}"
        raise LayoutError(message) from error
    if not isinstance(mapping, dict):
        message = f'{path} is no mapping such as {{"input": ["NHWC", "NCHW"]}}'
        raise LayoutError(message)
    return mapping


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the layout of {twice} is given twice"
        raise LayoutError(message)
    return mapping


# What is printed


def _summary(result: Result) -> list[str]:
    ends = [("input", e) for e in result.inputs] + [("output", e) for e in result.outputs]
    rows = [(kind, e.name, e.dtype, *_shapes(e)) for kind, e in ends]
    nodes, transposes = _count(result.nodes, "node"), _count(result.transposes, "Transpose")
    moved = f"{result.bytes_moved:,} bytes moved by {transposes}"
    return [*_columns(rows), f"{nodes}, {moved}, opset {result.opset}"]


def _shapes(end: Endpoint) -> tuple[str, str]:
    tflite, onnx = end.layout
    return (
        f"TFLite {list(end.tflite_shape)} {tflite}".rstrip(),
        f"ONNX {list(end.onnx_shape)} {onnx}".rstrip(),
    )


def _compared(report: Report) -> list[str]:
    rows = [
        (d.name, d.reason or f"largest difference {d.largest:.3g}, {d.relative:.2g} of the range",
         "right" if d.ok else "WRONG")
        for d in report.outputs
    ]  # fmt: skip
    head = f"LiteRT and ONNX Runtime on {_count(report.samples, 'random sample')}:"
    return [head, *_columns(rows)]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    rows = [[_printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _complain(model: str, message: str) -> None:
    named = message.startswith(f"{model} ") or f" {model}: " in message
    place = "" if named else f"{model}: "
    _print(sys.stderr, [f"tflite2onnx: {place}{message}"])


def _print(stream: TextIO, lines: Iterable[str]) -> None:
    encoding = stream.encoding or "utf-8"
    for line in lines:
        known = _printable(line).encode(encoding, "backslashreplace").decode(encoding)
        print(known, file=stream)


def _printable(text: str) -> str:
    """Escape what a terminal would obey: names come from the file, and may hold anything."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


@contextmanager
def _logging(*, verbose: bool) -> Iterator[None]:
    if not verbose:
        yield
        return
    logger, handler = logging.getLogger("tflite2onnx"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(relativeCreated)6d ms  %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
