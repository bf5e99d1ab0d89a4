"""`tflite2onnx check MODEL.onnx --target NAME`: list the nodes that a runtime does not support."""

import argparse
import sys

from tflite2onnx.cli.standard_streams import read_source
from tflite2onnx.targets.checker import check_file
from tflite2onnx.targets.table import TARGETS, has_part
from tflite2onnx.utils.console import Colour, count, print_json, print_lines, shorten_words
from tflite2onnx.utils.suggestions import join_alternatives

_LONGEST = 60  # characters of a name
_SHOWN = 3  # nodes that break a rule alike, and are listed
SUMMARY = "List the nodes of any ONNX model that break a rule of a runtime."
EPILOG = """\
Each line has nodes, by their operators and places in the graph, the rule that they break, what
will happen, and what to do. docs/runtimes.md says where the rules come from.

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
        return bool(broken)
    places: dict[str, dict[str, None]] = {}
    for breach in broken:
        places.setdefault(breach.words, {})[f"{breach.operator} {breach.place}"] = None
    longest = sys.maxsize if options.wide else _LONGEST
    lines = (
        f"{_list_places([*found], options)}: {shorten_words(words, longest)}"
        for words, found in places.items()
    )
    print_lines(sys.stdout, lines)
    if broken or not options.quiet:
        word, colour = ("FAILED", Colour.RED) if broken else ("PASSED", Colour.GREEN)
        number = count(len(places), "rule") if broken else "no rule"
        verdict = f"{word}: {options.model} breaks {number} of {options.target}"
        print_lines(sys.stdout, [verdict], colour)
    return bool(broken)


def _list_places(places: list[str], options: argparse.Namespace) -> str:
    shown = places if options.wide else places[:_SHOWN]
    rest = f" and {len(places) - len(shown):,} more" if places[len(shown) :] else ""
    return f"{', '.join(shown)}{rest}"
