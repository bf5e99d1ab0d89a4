"""`tflite2onnx ops`: the operators that can be converted."""

from __future__ import annotations

import argparse
import sys

from tflite2onnx.op import operators
from tflite2onnx.utils.console import columns, print_lines

SUMMARY = "Print the operators that can be converted, and how each one treats the axes."
EPILOG = "Write ./ops to convert a model file named ops."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command: none."""
    del parser


def run_command(options: argparse.Namespace) -> int:
    """Print the operators as a table."""
    del options
    rows = [(code, cls.category.value) for code, cls in operators().items()]
    print_lines(sys.stdout, columns([("operator", "category"), *rows]))
    return 0
