"""The parsers of all commands: the arguments of each command, and the common arguments."""

import argparse
import re
from collections.abc import Collection, Sequence
from importlib import import_module
from textwrap import fill
from typing import NoReturn

from tflite2onnx.targets.table import TARGETS, find_targets
from tflite2onnx.utils.standard_output import print_or_exit
from tflite2onnx.utils.suggestions import join_alternatives, suggest_names
from tflite2onnx.version import VERSION

_FAILED = 1
# The first word of a command line. A command line that begins with another word, except help, runs
# convert.
COMMANDS = ("convert", "inspect", "verify", "check", "ops", "completion")


# What users of other converters write before the model.
_MODEL_OPTION = r"-i|-m|--(?:in|input|model|tflite)(?:[-_]\S*(?:path|model|file))?"

# What argparse says, and what this program says. {} is the part in parentheses, {option} the name
# of the option, {choices} its values, and {close} a suggestion.
_MESSAGES = {
    rf"unrecognized arguments: ({_MODEL_OPTION})(?: .*)?": (
        "there is no option {}: the model is given without one, as in tflite2onnx MODEL.tflite"
    ),
    r"unrecognized arguments: (-\S+).*": "there is no option {}{close}",
    r"unrecognized arguments: (\S+).*": "the argument {} must be left out",
    r"the following arguments are required: (.*)": "{} must be given",
    r".*: invalid int value: (.*)": "{option} must be a whole number, got {}",
    r".*: invalid float value: (.*)": "{option} must be a number, got {}",
    r".*: invalid choice: (.*?) \(.*": "{option} must be {choices}, got {}{close}",
    r"argument \S+: (must be .*)": "{option} {}",
    r".*: expected .*": "{option} must be given with a value",
    r".*: ignored explicit argument (.*)": "{option} must be given without a value, got {}",
    r".*: not allowed with argument (?:.*/)?(.*)": "{option} must be given without {}",
}


# What users call options, commands and values, among them the words of other converters, by what
# they mean: an option, a command, a value, or after a semicolon what to do instead.
_MEANINGS = {
    "tflite": "nhwc channels-last keep",
    "onnx": "nchw channels-first",
    "float": "fp32 none off",
    "qdq": "int8 dynamic",
    "inspect": "info show summary",
    "verify": "compare test validate",
    "ops": "list",
    "--float16": "--half --fp16 --precision --dtype fp16 float16",
    "--quantization float": "--fp32 --float32 --dequantize --no-quant --no-quantization"
    " --no-quantize",
    "--quantization qdq": "--qdq",
    "--quantization symmetric": "--symmetric",
    "--verbose": "--debug --log-level",
    "--io-type": "--int8 --input-type --output-type --inference-input-type",
    "--shape": "--input-shape --input-shapes --dynamic-axes --dynamic -ois",
    "--batch": "--dynamic-batch -b",
    "--io-layout": "--nhwc --nchw --keep-nhwc --inputs-as-nchw --outputs-as-nchw",
    "--io-layout tflite": "--channels-last --data-format --no-transpose --keep-io -kat",
    "--io-layout onnx": "--channels-first --transpose",
    "--names signature": "-osd",
    "--verify": "--check --validate --test --compare --accuracy",
    "--tolerance": "--atol --rtol",
    "--jobs": "--threads --workers -j",
    "--target": "--device --provider --providers --ep --format --runtime --backend -t",
    "--opset": "--target-opset --opset-version --ir-version --ir",
    "--version": "-V",
    "--forms canonical": "--disable-optimization --no-optimize --no-fusion",
    "--external-data": "--large-model",
    "--allow-custom": "--custom-ops --extra-opset --continue-on-error",
    "--graph": "--tensors --nodes",
    "--signature": "--concrete-function --tag",
    "--preprocess mean=...": "--mean",
    "--preprocess std=...": "--std",
    "--postprocess": "--nms --labels --score-threshold --iou-threshold",
    "--output": "--output-folder-path --output-path --output-dir --out --outdir --save-dir",
    "--report": "--visualize",
    "; the model must be a .tflite file, which tf.lite.TFLiteConverter makes": "--saved-model"
    " --graphdef --keras --checkpoint",
    "; --help lists the options": "-help -? --help-all",
    "; nothing is verified without --verify": "--no-verify --skip-verify",
    "; a model is always converted from TFLite to ONNX": "--from --to --input-format"
    " --output-format",
    "; floats stay floats: quantize the TFLite or the ONNX model": "--calibrate --calibration"
    " --calibration-data --int8-calibration --representative-dataset --int16",
    "; the model is simplified already": "--simplify",
    "; layouts are chosen so that few Transposes remain": "--remove-transpose --fix-layout",
    "; the model is optimized for the runtime of --target": "--optimize",
    "; a file of this name is replaced": "--overwrite --force --yes -f -y",
    "; a folder is converted with its sub-folders": "--recursive -r",
    "; the ONNX model is given without an option": "--onnx",
    "; the model is given without an option": "--file",
    "; tflite2onnx inspect MODEL.tflite tells what can be converted": "--dry-run --list-ops"
    " --operators --layers --ops",
    "; tflite2onnx inspect MODEL.tflite tells the metadata": "--metadata --summary --print",
    "; tflite2onnx ops lists all operators": "--supported-ops",
    "; tflite2onnx verify measures the times": "--benchmark --profile",
    "; a quantized model stays quantized": "-oiqt -odrqt",
    "; the output is an ONNX model": "-oh5 -okv3 -otfv1pb tflite",
    "; the Edge TPU runs TFLite models only": "coral edgetpu",
}
_SYNONYMS = {word: meant for meant, words in _MEANINGS.items() for word in words.split()}


class UsageError(SystemExit):
    """Wrong words on the command line.

    It ends a program with status 1, since argparse's 2 means that a verification failed.
    """

    def __init__(self, message: str, program: str = "tflite2onnx") -> None:
        super().__init__(_FAILED)
        self.message, self.program = message, program


class _Once(argparse.Action):
    """Stores the value of an option that must not be repeated, of which argparse takes the last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, self.default)
        # Of --external-data and --external-data-size the latter counts.
        constants = [a.const for a in parser._actions if a.dest == self.dest]  # noqa: SLF001 - as below
        if option_string and before not in (self.default, values, *constants):
            parser.error(f"argument {option_string}: must be given once, got {before} and {values}")
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser of a command's arguments, with messages in the words of the caller."""

    def _print_message(self, message: str, _: object = None) -> None:
        """Print a help; argparse's own method ignores that the disk is full."""
        print_or_exit(message)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError, which names the option or the value closest to a wrong one."""
        about = re.match(r"argument (?:\S+/)?(\S+):", message)
        option = about[1] if about else ""
        known = (text for a in self._actions for text in a.option_strings if a.dest != "help")
        named = (a for a in self._actions if option in (*a.option_strings, a.metavar))
        choices = [*next((action.choices for action in named if action.choices), ())]
        for pattern, words in _MESSAGES.items():
            match = re.fullmatch(pattern, message, re.DOTALL)
            if match:
                value = "".join(match.groups()).strip("'\"")
                word = value.partition("=")[0]
                alias = word.lower().replace("_", "-")
                synonym = _SYNONYMS.get(word, _SYNONYMS.get(alias))
                alike = synonym or _suggest_targets(word, alias.lstrip("-"), choices) or word
                message = words.format(
                    value or "nothing",
                    option=option,
                    choices=join_alternatives(choices or ["given"]),
                    close=self._find_command(word) or _suggest(alike, choices or [*known]),
                )
                break
        raise UsageError(f"{message}; see {self.prog} --help", self.prog)

    def refuse_foreign_words(self, words: Sequence[str]) -> None:
        """Raise UsageError for options of other programs, before argparse looks for a model.

        It takes -oiqt for -o, -help for -h, and a model after --input for data.
        """
        known = {text for action in self._actions for text in action.option_strings}
        for word, after in zip(words, [*words[1:], ""], strict=False):
            name, _, value = word.partition("=")
            is_model = re.fullmatch(_MODEL_OPTION, name) and _names_model(value or after)
            if is_model or (word.startswith("-") and word in _SYNONYMS.keys() - known):
                self.error(f"unrecognized arguments: {name}")

    def _find_command(self, option: str) -> str:
        """Return the end of a message about an option of another command, "" if no one has it."""
        if not option.startswith("-"):
            return ""
        for name in COMMANDS:
            actions = make_parser(name)._actions  # noqa: SLF001 - there is no other way
            if any(option in action.option_strings for action in actions):
                return f"; it is an option of the command {name}"
        return ""


def _names_model(word: str) -> bool:
    from tflite2onnx.cli.places import SUFFIXES  # noqa: PLC0415 - slow to import

    return word.endswith(SUFFIXES) and "=" not in word


def suggest_command(word: str) -> str:
    """Return the end of a message about an unknown command, "" if none is close."""
    return suggest_names(_SYNONYMS.get(word, word), (*COMMANDS, "--version"))


def _suggest_targets(word: str, name: str, choices: Collection[str]) -> str:
    """Return how to choose the targets that a name stands for: an option, or a message's end.

    "" if it stands for none, or for targets that are no choices of the option.
    """
    targets = [name] if name in TARGETS else find_targets(name)
    if targets and word.startswith("--"):
        return f"--target {join_alternatives(targets)}"
    is_choice = targets and {*targets}.issubset(choices)
    return f"; did you mean {join_alternatives(targets)}?" if is_choice else ""


def _suggest(meant: str, known: Sequence[str]) -> str:
    """Return the end of a message: what a synonym says, or the known words closest to it."""
    if meant.startswith(";"):
        return meant
    is_phrase = meant.startswith("--") and meant not in known
    is_known = meant.partition(" ")[0] in known or not known[0].startswith("-")
    return f"; did you mean {meant}?" if is_phrase and is_known else suggest_names(meant, known)


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
    for action in (None, "store"):
        parser.register("action", action, _Once)
    command.add_arguments(parser)
    last = parser._action_groups[-1] if converts else parser  # noqa: SLF001 - the group "output"
    volume = last.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    volume.add_argument("-v", "--verbose", action="store_true", help="log each stage to stderr")
    text = "print the rows of tables whole: names are not shortened, and no row is broken"
    last.add_argument("--wide", action="store_true", help=text)
    last.add_argument("--version", action="version", version=f"tflite2onnx {VERSION}")
    return parser
