"""`tflite2onnx completion SHELL`: a script that completes command lines."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

from tflite2onnx.cli.parsers import COMMANDS, Parser, parser_of
from tflite2onnx.errors import OptionError
from tflite2onnx.utils.console import print_lines

SUMMARY = "Print a script that makes a shell complete commands, options, values and files."
EPILOG = """\
bash: add to ~/.bashrc:    eval "$(tflite2onnx completion bash)"
zsh:  add to ~/.zshrc:     eval "$(tflite2onnx completion zsh)"
tcsh: add to ~/.tcshrc:    eval "`tflite2onnx completion tcsh`"

In zsh and tcsh, files are completed after the word convert.
"""
SHELLS = ("bash", "zsh", "tcsh")
_FILES = ("FILE", "OUT", "MODEL")
# In bash the first word may be a file as well as a command.
_PREAMBLE = {"bash": "_shtab_tflite2onnx_pos_0_COMPGEN=_shtab_compgen_files"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "shell",
        metavar="SHELL",
        choices=SHELLS,
        help=f"{', '.join(SHELLS)}; requires: pip install tflite2onnx[completion]",
    )


def run_command(options: argparse.Namespace) -> int:
    """Print the script."""
    try:
        shtab: Any = import_module("shtab")
    except ImportError as error:
        raise OptionError(
            "completion requires a package: pip install tflite2onnx[completion]"
        ) from error
    script = shtab.complete(_parser(shtab.FILE), options.shell, preamble=_PREAMBLE)
    print_lines(sys.stdout, [script])
    return 0


def _parser(file: object) -> Parser:
    """Return one parser of all commands, in which `file` marks the arguments that are files."""
    root = Parser("tflite2onnx", add_help=False)
    commands = root.add_subparsers()
    for name in COMMANDS:
        made = commands.add_parser(
            name,
            parents=[parser_of(name)],
            add_help=False,
            help=name,
        )
        _mark_files(made, file)
    helping = commands.add_parser("help", add_help=False, help="help")
    helping.add_argument("command", nargs="?", choices=COMMANDS)
    for action in parser_of("convert")._actions:  # noqa: SLF001 - there is no other way
        if action.option_strings:
            root._add_action(action)  # noqa: SLF001 - likewise
    root.add_argument("files", metavar="FILE", nargs="*")
    _mark_files(root, file)
    return root


def _mark_files(parser: argparse.ArgumentParser, file: object) -> None:
    """Mark the arguments that are files."""
    for action in parser._actions:  # noqa: SLF001 - there is no other way
        if any(word in str(action.metavar) for word in _FILES):
            vars(action)["complete"] = file
