"""`tflite2onnx check MODEL.onnx --target NAME`: list the nodes that a runtime does not support."""

import argparse
import sys

from tflite2onnx.cli.standard_streams import read_source
from tflite2onnx.targets.checker import check_file
from tflite2onnx.targets.table import TARGETS, has_part
from tflite2onnx.utils.console import print_json, print_lines
from tflite2onnx.utils.suggestions import join_alternatives

SUMMARY = "List the nodes of any ONNX model that break a rule of a runtime."
EPILOG = """\
each line is a node, its operator, the rule that it breaks, what happens, and what to do;
docs/runtimes.md says where the rules come from

exit status:
  0    no rule is broken
  1    a rule is broken, or the file cannot be read
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "model", metavar="MODEL.onnx", help="the ONNX model to check; - is standard input"
    )
    known = sorted(target for target in TARGETS if has_part(target, "rules"))
    parser.add_argument(
        "--target",
        choices=known,
        required=True,
        metavar="RUNTIME",
        help=f"the runtime whose rules are applied: {join_alternatives(known)}",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the broken rules, with their sources, as JSON"
    )


def run_command(options: argparse.Namespace) -> int:
    """Print the broken rules; return 0 if there are none, 1 if there are some."""
    broken = check_file(read_source(options.model), options.target)
    if options.json:
        print_json([breach._asdict() for breach in broken])
    elif broken:
        print_lines(sys.stdout, map(str, broken))
    elif not options.quiet:
        print_lines(sys.stdout, [f"{options.model} breaks no rule of {options.target}"])
    return 1 if broken else 0
