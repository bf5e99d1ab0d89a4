"""The arguments of the command that converts."""

import argparse
import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from functools import cache
from inspect import getdoc
from typing import Any

from tflite2onnx.cli.arguments.tensors import read_size
from tflite2onnx.cli.arguments.verification import (
    add_verification_options,
    spell_option,
    spell_options,
)
from tflite2onnx.convert import convert
from tflite2onnx.options import CHOICES, OPTION_TYPES, ConversionOptions
from tflite2onnx.pictures.settings import Settings
from tflite2onnx.targets.table import TARGETS
from tflite2onnx.utils.suggestions import join_alternatives

_SMALLEST = 1024  # bytes of a weight; smaller weights stay in the model's file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command, its options in groups."""
    _add_models(parser)
    for title, (example, names) in GROUPS.items():
        group = parser.add_argument_group(title, f"example: tflite2onnx {example}")
        for name in names:
            if name in _ADDERS:
                _ADDERS[name](group)
            else:
                _add_option(group, name)


def _add_models(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL.tflite",
        help="the model or bundle (.task, .litertlm) to convert, or with -o a folder of models and"
        " bundles; - is standard input",
    )
    add(
        "others",
        metavar="OUT.onnx",
        nargs="*",
        default=[],  # argparse would call the argument required
        help="the file to write, or for a bundle the folder (default: beside MODEL); - is standard"
        " output; with -o all arguments are models",
    )


def _add_layouts(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--layout",
        metavar="NAME=NHWC:NCHW",
        action="append",
        default=[],
        help="the layout of a tensor, also of an inner one, in TFLite and in ONNX; NAME=NCHW if C"
        ' is last in TFLite; or a JSON file with layouts, {"input": ["NHWC", "NCHW"]}; may be'
        " repeated",
    )


def _add_shapes(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--shape",
        metavar="NAME=SIZE,...",
        action="append",
        default=[],
        help="the shape of an input in the TFLite file's order, as in NAME=1,16000; a word makes a"
        " size dynamic, as in NAME=batch,height,width,3; may be repeated",
    )


def _add_outputs(group: argparse._ActionsContainer) -> None:
    """Add the options for the outputs of one model or several."""
    add = group.add_argument
    add(
        "-o",
        "--output",
        metavar="OUT",
        help="the folder to write to, created if it does not exist; for one model it may be a file"
        " that ends in .onnx; models of a folder keep their relative paths",
    )
    add(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="number of models to convert at once, each in its own process (default: 1)",
    )
    add(
        "--resume",
        action="store_true",
        help="skip models whose output exists and is newer than the model; options are not"
        " compared",
    )
    add(
        "--json",
        action="store_true",
        help="print the result of each model as JSON, and nothing else on stdout; on stderr, if the"
        " model is written to stdout",
    )


def _add_option(group: argparse._ActionsContainer, name: str) -> None:
    """Add an option of the conversion from its declaration and its description."""
    option = ConversionOptions.__dataclass_fields__[name]
    kind: dict[str, Any] = {"metavar": "NAME"}
    if OPTION_TYPES[name] is bool:
        kind = {"action": "store_true"}
    elif name == "target":
        kind = {"choices": CHOICES[name], "metavar": "RUNTIME"}
    elif name in CHOICES:
        kind = {"choices": CHOICES[name]}
    elif name == "io_type":
        kind = {"action": "append", "metavar": "[NAME=]TYPE"}
    elif name == "batch":
        kind = {"type": read_size, "metavar": "N|NAME"}
    elif OPTION_TYPES[name] == Settings:
        kind = {"nargs": "?", "const": True, "metavar": "KEY=VALUE,..."}
    elif OPTION_TYPES[name] == int | None:
        kind = {"type": int, "metavar": "N"}
    elif OPTION_TYPES[name] == Sequence[str] | None:
        kind = {"type": _split_names, "action": "extend", "metavar": "NAME,..."}
    elif OPTION_TYPES[name] == Mapping[str, str]:
        kind = {"action": "append", "metavar": "OLD=NEW"}
    repeated = "; may be repeated" if kind.get("action") == "append" else ""
    targets = f": {join_alternatives(TARGETS)}" if name == "target" else ""
    text = _describe_options().get(name, "") + targets + repeated
    default = None if option.default is MISSING else option.default
    usual = f" (default: {default})" if name in CHOICES else ""
    group.add_argument(spell_option(name), default=default, help=f"{text}{usual}", **kind)


@cache
def _describe_options() -> dict[str, str]:
    """Return the description of each option in the docstring of `convert`, as a help text.

    With -OO Python has no docstrings.
    """
    descriptions = re.findall(r"\n {4}(\w+): (.*(?:\n {8}.*)*)", getdoc(convert) or "")
    texts = {name: " ".join(text.split()).removesuffix(".") for name, text in descriptions}
    return {name: spell_options(text) for name, text in texts.items()}


def _split_names(text: str) -> list[str]:
    """Split names at commas; a name with a comma is in double quotes, as in CSV files."""
    names = [name for row in csv.reader([text]) for name in row]
    if not all(names) or not names:
        message = f"must be names of tensors, as in a,b, got {text or 'nothing'}"
        raise argparse.ArgumentTypeError(message)
    return names


def _add_verification(group: argparse._ActionsContainer) -> None:
    """Add the options that verify a conversion."""
    add = group.add_argument
    add(
        "--verify",
        action="store_true",
        help="run LiteRT and ONNX Runtime on the same inputs and compare the outputs: floats may"
        " differ by 1e-4 of their range, integers of 8 or 16 bits by 1, and outputs of a quantized"
        " network by a tenth of the signal, if each operator alone is right; requires: pip install"
        " tflite2onnx[verify]",
    )
    add(
        "--report",
        metavar="FILE.html",
        help="verify each tensor and write a page with the results, or for several models a folder"
        " with a page for each; requires: pip install tflite2onnx[verify]",
    )
    add_verification_options(group)


def _add_files(group: argparse._ActionsContainer) -> None:
    add = group.add_argument
    add(
        "--external-data",
        action="store_const",
        const=_SMALLEST,
        dest="external_data",
        help="write large weights to a second file, OUT.onnx.data (default: above 2 GB only)",
    )
    add(
        "--external-data-size",
        type=_parse_size,
        metavar="SIZE",
        dest="external_data",
        help="as --external-data, for weights of at least SIZE bytes, such as 4096, 64K or 1M"
        f" (default: {_SMALLEST})",
    )


def _add_parts(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--parts",
        action="store_true",
        help="with --preprocess or --postprocess, also write each part as a model of its own:"
        " OUT.preprocessing.onnx, OUT.network.onnx and OUT.postprocessing.onnx",
    )


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d{1,15})([KMG]?)", text, re.ASCII | re.IGNORECASE)
    if match is None:
        message = f"must be a number of bytes such as 4096, 64K or 1M, got {text}"
        raise argparse.ArgumentTypeError(message)
    return int(match[1]) << 10 * " KMG".index(match[2].upper() or " ")


_ADDERS = {
    "layouts": _add_layouts,
    "shapes": _add_shapes,
    "parts": _add_parts,
    "verification": _add_verification,
    "outputs of a command": _add_outputs,
    "files": _add_files,
}
# Each group of options in the help: an example, and the options in their order.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "layout": ("model.tflite --io-layout tflite", ("io_layout", "layouts")),
    "quantization and types": (
        "model.tflite --quantization float --io-type float",
        (
            "quantization",
            "activations",
            "weights",
            "dynamic_range",
            "io_type",
            "float16",
            "float16_io",
        ),
    ),
    "sizes": ("model.tflite --shape image=batch,224,224,3", ("shapes", "batch", "static")),
    "parts of a model": (
        "model.tflite --outputs features --rename features=y",
        ("signature", "lengths", "inputs", "outputs", "names", "rename"),
    ),
    "runtime": (
        "model.tflite --target portable",
        ("target", "opset", "forms", "states", "caches", "allow_custom"),
    ),
    "pictures": (
        "model.tflite --preprocess mean=127.5,std=127.5",
        ("preprocess", "postprocess", "parts"),
    ),
    "verification": ("model.tflite --verify --input image=photo.npy", ("verification",)),
    "output": ("models/ -o converted --jobs 2", ("outputs of a command", "files")),
}
