"""Write docs/command-line.md: every command with its options, as its parser describes them."""

from __future__ import annotations

import argparse
from pathlib import Path

from tflite2onnx.cli.parsers import COMMANDS, make_parser

TARGET = Path(__file__).parents[1] / "docs" / "command-line.md"
START = """\
# The command line

Made by `scripts/make_command_reference.py` from the parsers in
[tflite2onnx/cli](../tflite2onnx/cli); `tflite2onnx --help` prints the same.
"""


def document() -> str:
    """Return the whole document."""
    return START + "".join(section(name) for name in COMMANDS)


def section(name: str) -> str:
    """Return the section of a command: its files, and a table for each group of options."""
    parser = make_parser(name)
    groups = [(g, g._group_actions) for g in parser._action_groups]  # noqa: SLF001 - no public API
    files = [action for action in parser._actions if _is_file(action)]  # noqa: SLF001 - likewise
    words = [f"[{a.metavar}]" if a.nargs == "?" else str(a.metavar) for a in files]
    usage = " ".join([parser.prog, *words, "[options]"])
    tables = [
        make_table([action for _, actions in groups[:2] for action in actions]),
        *(make_group(group, actions) for group, actions in groups[2:]),
    ]
    end = f"\n```text\n{parser.epilog.strip()}\n```\n" if parser.epilog else ""
    head = f"\n## {parser.prog}\n\n{parser.description}\n\n```text\n{usage}\n```\n"
    return head + "".join(tables) + end


def make_group(group: argparse._ArgumentGroup, actions: list[argparse.Action]) -> str:
    """Return a group of options: its title, an example and its table."""
    title = str(group.title).capitalize()
    example = str(group.description).partition(": ")[2]
    return f"\n### {title}\n\n```text\n{example}\n```\n{make_table(actions)}"


def make_table(actions: list[argparse.Action]) -> str:
    """Return a table of arguments, "" if there are none."""
    rows = [f"| {cell(a)} | {escape_cell(a.help or '')} |\n" for a in actions if a.dest != "help"]
    return f"\n| what | meaning |\n| --- | --- |\n{''.join(rows)}" if rows else ""


def escape_cell(text: str) -> str:
    """Return text escaped for a table cell."""
    return text.replace("|", "\\|").replace("%%", "%")


def _is_file(action: argparse.Action) -> bool:
    return not action.option_strings


def cell(action: argparse.Action) -> str:
    """Return an option as typed on the command line."""
    if _is_file(action):
        return f"`{action.metavar}`"
    value = "\\|".join(action.choices) if action.choices else str(action.metavar)
    takes = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{option}{takes}`" for option in action.option_strings)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    TARGET.write_text(document())
