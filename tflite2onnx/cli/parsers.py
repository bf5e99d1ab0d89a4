"""The parsers of all commands: the arguments of each command, and the common arguments."""

from __future__ import annotations

import argparse
from importlib import import_module
from textwrap import fill
from typing import NoReturn

from tflite2onnx.utils.suggestions import suggest_names
from tflite2onnx.version import VERSION

_FAILED = 1
# The first word of a command line. A command line that begins with another word, except help, runs
# convert.
COMMANDS = ("convert", "inspect", "verify", "check", "ops", "completion")


class Parser(argparse.ArgumentParser):
    """A parser that exits with status 1, because argparse's 2 means that a verification failed."""

    def error(self, message: str) -> NoReturn:
        """Exit with one line, which names the option closest to the first unknown option."""
        prefix = "unrecognized arguments: "
        unknown = message.removeprefix(prefix).split()[:1] if message.startswith(prefix) else []
        if unknown and unknown[0].startswith("--"):
            options = (text for action in self._actions for text in action.option_strings)
            message += suggest_names(unknown[0].partition("=")[0], options)
        self.exit(_FAILED, f"{self.prog}: {message}; see {self.prog} --help\n")


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps lines as they are written, except paragraphs that are wider than the terminal.

    Tables, which have lines that begin with spaces, are kept. An option with many choices is broken
    between them.
    """

    def _format_action_invocation(self, action: argparse.Action) -> str:
        text = super()._format_action_invocation(action)
        width = self._width - self._current_indent
        if len(text) <= width or not action.choices:
            return text
        indent = " " * (self._current_indent + 4)
        return fill(text.replace(",", ", "), width, subsequent_indent=indent).replace(", ", ",")

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = super()._fill_text(text, width, indent).split("\n\n")
        return "\n\n".join(
            paragraph
            if "\n " in paragraph or all(len(line) <= width for line in paragraph.split("\n"))
            else fill(paragraph, width, subsequent_indent=indent, break_on_hyphens=False)
            for paragraph in paragraphs
        )


def make_parser(name: str) -> Parser:
    """Return the parser of a command, with its own and the common arguments."""
    command = import_module(f"tflite2onnx.cli.{name}")
    converts = name == "convert"
    others = (
        f"other commands: {', '.join(COMMANDS[1:])}, help [COMMAND]\n"
        "the command convert may be omitted; write ./ops for a model file named ops"
    )
    parser = Parser(
        "tflite2onnx" if converts else f"tflite2onnx {name}",
        usage="%(prog)s MODEL.tflite [OUT.onnx] [options]" if converts else None,
        description=command.SUMMARY,
        epilog=f"{others}\n\n{command.EPILOG}" if converts else command.EPILOG,
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    last = parser._action_groups[-1] if converts else parser  # noqa: SLF001 - the group "output"
    volume = last.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    volume.add_argument("-v", "--verbose", action="store_true", help="log each stage to stderr")
    text = "print the rows of tables whole: names are not shortened, and no row is broken"
    last.add_argument("--wide", action="store_true", help=text)
    last.add_argument("--version", action="version", version=f"tflite2onnx {VERSION}")
    return parser
