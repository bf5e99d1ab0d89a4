"""`tflite2onnx completion SHELL`: a script that completes command lines."""

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from shlex import quote
from typing import Any

from tflite2onnx.cli.parsers import COMMANDS, Parser, make_parser
from tflite2onnx.errors import OptionError
from tflite2onnx.utils.console import print_lines

SUMMARY = "Print a script that makes a shell complete commands, options, values and files."
EPILOG = """\
add this line to a file of the shell:
  bash  ~/.bashrc  eval "$(tflite2onnx completion bash)"
  zsh   ~/.zshrc   eval "$(tflite2onnx completion zsh)"
  tcsh  ~/.tcshrc  eval "`tflite2onnx completion tcsh`"
or for fish run this command once:
  tflite2onnx completion fish > ~/.config/fish/completions/tflite2onnx.fish

In zsh and tcsh, files are completed after the word convert.
"""
SHELLS = ("bash", "zsh", "tcsh", "fish")
_FILES = ("FILE", "OUT", "MODEL")
# In bash the first word may be a file or a command.
_PREAMBLE = {"bash": "_shtab_tflite2onnx_pos_0_COMPGEN=_shtab_compgen_files"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "shell",
        metavar="SHELL",
        choices=SHELLS,
        help=f"{', '.join(SHELLS)}; all but fish require: pip install tflite2onnx[completion]",
    )


def run_command(options: argparse.Namespace) -> int:
    """Print the script."""
    if options.shell == "fish":
        print_lines(sys.stdout, ["\n".join(_complete_in_fish())])
        return 0
    try:
        shtab: Any = import_module("shtab")
    except ImportError as error:
        raise OptionError(
            "completion requires a package: pip install tflite2onnx[completion]"
        ) from error
    script = shtab.complete(_make_parser(shtab.FILE), options.shell, preamble=_PREAMBLE)
    print_lines(sys.stdout, [script])
    return 0


def _make_parser(file: object) -> Parser:
    """Return one parser of all commands, in which `file` marks the arguments that are files."""
    root = Parser("tflite2onnx", add_help=False)
    commands = root.add_subparsers()
    for name in COMMANDS:
        parents = [make_parser(name)]
        _mark_files(commands.add_parser(name, parents=parents, add_help=False, help=name), file)
    helping = commands.add_parser("help", add_help=False, help="help")
    helping.add_argument("command", nargs="?", choices=COMMANDS)
    for action in make_parser("convert")._actions:  # noqa: SLF001 - there is no other way
        if action.option_strings:
            root._add_action(action)  # noqa: SLF001 - likewise
    root.add_argument("files", metavar="FILE", nargs="*")
    _mark_files(root, file)
    return root


def _complete_in_fish() -> Iterator[str]:
    """Yield the lines of a script for fish, which shtab does not support."""
    start = "complete --command tflite2onnx"
    names = " ".join([*COMMANDS, "help"])
    yield f"{start} --condition __fish_use_subcommand --arguments {quote(names)}"
    others = " ".join(name for name in (*COMMANDS, "help") if name != "convert")
    yield f"{start} --condition '__fish_seen_subcommand_from help' -f -a {quote(names)}"
    for name in COMMANDS:
        test = f"__fish_seen_subcommand_from {name}"
        if name == "convert":
            test = f"not __fish_seen_subcommand_from {others}"
        for action in make_parser(name)._actions:  # noqa: SLF001 - there is no other way
            words = [start, "--condition", quote(test)]
            for option in action.option_strings:
                kind = "--long-option" if option.startswith("--") else "--short-option"
                words += [kind, option.lstrip("-")]
            if action.choices is not None:
                words += ["--exclusive", "--arguments", quote(" ".join(action.choices))]
            elif not action.option_strings:
                continue  # fish completes files by default
            elif action.nargs != 0:
                words.append("--require-parameter")
            text, *_ = re.split(r"[:;(]|\. ", str(action.help))
            yield " ".join([*words, "--description", quote(text.strip())])


def _mark_files(parser: argparse.ArgumentParser, file: object) -> None:
    for action in parser._actions:  # noqa: SLF001 - there is no other way
        if any(word in str(action.metavar) for word in _FILES):
            vars(action)["complete"] = file
