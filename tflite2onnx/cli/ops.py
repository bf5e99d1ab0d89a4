"""`tflite2onnx ops`: the operators that can be converted."""

from __future__ import annotations

import argparse
import json
import sys

from tflite2onnx.op import operators
from tflite2onnx.utils.console import columns, print_lines

SUMMARY = "Print the operators that can be converted, and how each one treats the axes."
EPILOG = "Write ./ops to convert a model file named ops."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--json", action="store_true", help="print the operators as JSON")


def run_command(options: argparse.Namespace) -> int:
    """Print the operators as a table, or as JSON."""
    rows = [(code, cls.category.value) for code, cls in operators().items()]
    if options.json:
        facts = [{"operator": code, "category": category} for code, category in rows]
        lines = [json.dumps(facts, indent=2)]
    else:
        lines = columns([("operator", "category"), *rows])
    print_lines(sys.stdout, lines)
    return 0
