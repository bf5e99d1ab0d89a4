"""`tflite2onnx ops`: the operators that can be converted."""

import argparse
import sys

from tflite2onnx.op import list_operators
from tflite2onnx.utils.console import TextTable, print_json, print_lines

SUMMARY = "Print the operators that can be converted, and how each one treats the axes."
EPILOG = "Write ./ops to convert a model file named ops."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print the operators as JSON")


def run_command(options: argparse.Namespace) -> int:
    """Print the operators as a table, or as JSON."""
    rows = [(code, cls.category.value) for code, cls in list_operators().items()]
    if options.json:
        print_json([{"operator": code, "category": category} for code, category in rows])
    else:
        print_lines(sys.stdout, [TextTable([("operator", "category"), *rows])], wide=options.wide)
    return 0
