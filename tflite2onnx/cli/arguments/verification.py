"""The options that choose the inputs and the limits of a verification, for two commands."""

import argparse
import re
from typing import Any

from tflite2onnx.cli.arguments.tensors import read_pairs
from tflite2onnx.errors import OptionError

# Options that need a single model, by their attributes of the parsed arguments.
_SINGLE = {"arrays": "--input", "pictures": "--image"}
_SPELLINGS = {**_SINGLE, "layouts": "--layout", "shapes": "--shape"}


def add_verification_options(group: argparse._ActionsContainer) -> None:
    """Add the options; `read_verification_options` reads them."""
    add = group.add_argument
    add(
        "--input",
        metavar="NAME=FILE",
        action="append",
        default=[],
        dest="arrays",
        help="your data for the input of this name, in TFLite's layout: a .npy file, a .npz file"
        " (with one array, or an array of this name) or a folder of these; a batch is split into"
        " samples, and other inputs are random (--inputs cuts the model); may be repeated",
    )
    add(
        "--image",
        metavar="FILE",
        action="append",
        default=[],
        dest="pictures",
        help="a picture or a folder of pictures for the image input, resized and normalized as the"
        " metadata of the model say; each is a sample; may be repeated; requires: pip install"
        " tflite2onnx[images]",
    )
    add(
        "--samples",
        type=int,
        metavar="N",
        help="number of runs (default: one for each given sample, else 2)",
    )
    add("--seed", type=int, metavar="N", help="seed of the random inputs (default: 0)")
    add(
        "--tolerance",
        type=float,
        metavar="PART",
        help="the allowed difference of floats, as a fraction of their range (default: 1e-4,"
        " with --float16 1e-2)",
    )


def list_given_single(options: argparse.Namespace) -> list[str]:
    """Return the options for a single model that were given, as the command line spells them."""
    return [option for name, option in _SINGLE.items() if getattr(options, name)]


def spell_option(name: str) -> str:
    """Return the option that sets an attribute, in the spelling of the command line."""
    return _SPELLINGS.get(name, f"--{name.replace('_', '-')}")


def spell_options(message: str) -> str:
    """Return a message with the options that it has in backticks as on the command line.

    What was given has no quotation marks there.
    """
    message = re.sub(r"got '([^']+)'(?=$|;)", r"got \1", message)
    message = re.sub(r", got (?:'')?(?=$|;)", ", got nothing", message)
    return re.sub(r"`([a-z]\w*)`", lambda match: spell_option(match[1]), message)


def read_verification_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `verify`; OptionError if --input is not NAME=FILE, each name once."""
    name = next((word for word in options.arrays if word and "=" not in word), None)
    if name is not None:
        raise OptionError(
            f"--input must be NAME=FILE, data to verify on, got {name}; --inputs {name} cuts the"
            " model"
        )
    arrays = read_pairs("--input", "NAME=FILE", options.arrays)
    values = {name: getattr(options, name) for name in ("samples", "seed", "tolerance")}
    options_set = {name: value for name, value in values.items() if value is not None}
    return {"inputs": arrays, "images": options.pictures, **options_set}
