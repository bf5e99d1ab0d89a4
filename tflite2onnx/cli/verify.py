"""`tflite2onnx verify MODEL.tflite [OUT.onnx]`: compare LiteRT and ONNX Runtime by tensor."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tflite2onnx.bundle import (
    ALL_SIGNATURES,
    Bundle,
    BundlePart,
    is_bundle,
    list_parts,
    make_bundle,
    read_bundle,
)
from tflite2onnx.cli.arguments.verification import (
    add_verification_options,
    list_given_single,
    read_verification_options,
    spell_options,
)
from tflite2onnx.cli.places import STANDARD, check_blanks, check_page, check_report, is_folder
from tflite2onnx.cli.progress import show_progress
from tflite2onnx.cli.standard_streams import print_unless_quiet, read_source
from tflite2onnx.cli.verdict import (
    describe_decodings,
    list_outputs,
    list_tensors,
    print_conclusion,
    print_verdict,
)
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError, ModelFileError, OptionError
from tflite2onnx.report import write_report
from tflite2onnx.report.pages import check_pages, place_index, place_page, write_index, write_page
from tflite2onnx.utils.console import print_error, print_json
from tflite2onnx.verification import Report, verify
from tflite2onnx.verification.chats import find_target, verify_folder
from tflite2onnx.verification.decoding import Decoding, verify_decoders
from tflite2onnx.verification.entry_point import embed_external_weights
from tflite2onnx.verification.onnx_model import ConvertedModel
from tflite2onnx.verification.runtimes import ModelFile

SUMMARY = "Run LiteRT and ONNX Runtime on the same inputs and compare the results."
EPILOG = """\
verdicts of tensors:
  right          each element is within its limit
  close          only a wider limit, which is printed, accepts the tensor
  nothing shown  all elements are one number, or not finite: try other data
  wrong          the operator exceeds its limits on LiteRT's own inputs
  differs        the operator is right, but tensors before it differ

The first wrong operator is the place to look. If a tensor exceeds its limits, each operator also
runs alone on LiteRT's own inputs. The time is that of an inference in both runtimes, on one thread.

Each model of a bundle is compared with its file in the folder of the converted bundle. A language
model also chooses 20 tokens after a prompt in both runtimes. The tokens must be equal, unless
LiteRT's two best logits differ by less than its own kernels do. A folder for a runtime of language
models runs in this runtime, after prompts of 7, 40 and 400 tokens.

exit status:
  0    all outputs, and all operators that ran alone, are within the limits
  1    wrong usage, or a model cannot be read, converted or run
  2    an output or an operator exceeds its limits
  130  interrupted
"""
_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add(
        "model",
        metavar="MODEL.tflite",
        help="the original model or bundle (.task, .litertlm); - is standard input",
    )
    add(
        "converted",
        metavar="OUT.onnx",
        nargs="?",
        help="the converted model, or for a bundle the folder; - is standard input (default: the"
        " model is converted now and not written)",
    )
    add(
        "--signature",
        metavar="NAME",
        help=f"the signature to verify (default: that of the converted model, else the main one);"
        f" {ALL_SIGNATURES} verifies each",
    )
    add_verification_options(parser)
    add(
        "--prompt",
        metavar="ID,...",
        type=_read_tokens,
        default=(),
        help="the tokens that a language model continues (default: random ones)",
    )
    add("--json", action="store_true", help="print the result as JSON, and nothing else on stdout")
    add(
        "--report",
        metavar="FILE.html",
        help="write a self-contained page about the conversion and the differences; for a bundle a"
        " folder, which gets a page for each model",
    )
    add(
        "--per-operator",
        action="store_true",
        help="also run each operator on LiteRT's own inputs, so that differences do not accumulate",
    )


def _read_tokens(text: str) -> list[int]:
    try:
        return [int(token) for token in text.split(",")]
    except ValueError:
        message = f"must be numbers, as in 1,2,3, got {text or 'nothing'}"
        raise argparse.ArgumentTypeError(message) from None


def run_command(options: argparse.Namespace) -> int:
    """Verify, print the findings, and return the exit status."""
    if options.model == options.converted == STANDARD:
        raise OptionError("only one model can be standard input, got - twice")
    check_blanks([options.model, *([options.converted] if options.converted else [])])
    if options.report is not None:
        check_report(options.report, options.model)
    source = read_source(options.model)
    is_several = is_folder(options.converted or "") or options.signature == ALL_SIGNATURES
    if is_bundle(source) or is_several:
        return _verify_bundle(options, source)
    return _verify_model(options, source)


def _verify_model(options: argparse.Namespace, source: str | bytes) -> int:
    if options.prompt:
        raise OptionError("--prompt must be given with a bundle, a folder or --signature all")
    if options.report is not None:
        check_page(options.report, options.converted)
    given = None if options.converted is None else read_source(options.converted)
    converted = convert(source, signature=options.signature) if given is None else given
    report = _verify(options, source, converted)
    if options.report is not None:
        write_report(options.report, source, converted, report)
    if options.json:
        print_json({"model": options.model, **report.to_dict()})
    wrote = [] if options.report is None else [f"wrote {options.report}"]
    return _print_report(options, options.model, report, wrote)


def _verify_bundle(options: argparse.Namespace, source: str | bytes) -> int:
    """Verify each model of a bundle; a model that cannot be verified does not stop the others."""
    if options.converted == STANDARD:
        raise OptionError("the models of a bundle must be in a folder, got standard input")
    for option in list_given_single(options):
        raise OptionError(f"{option} must be given for one model, got a bundle")
    bundle = read_bundle(source) if is_bundle(source) else make_bundle(source)
    folder = options.converted
    target = None if folder is None else find_target(Path(folder))
    if target is not None:
        return _verify_folder(options, bundle, target)
    statuses, findings = set(), []
    parts = _find_parts(bundle, options)
    if options.report is not None:
        pages = [place_page(options.report, part) for part in parts]
        check_pages(options.report, [place_index(options.report), *pages])
    for part in parts:
        name, model = part.label, embed_external_weights(bundle.models[part.model])
        print_unless_quiet(options, [f"{name}:"])
        try:
            converted = (
                convert(model, signature=part.signature)
                if folder is None
                else Path(folder) / part.file
            )
            report = _verify(options, model, converted)
            write_page(options.report, part, model, converted, report)
        except ConversionError as error:
            message = spell_options(str(error))
            print_error(name, message)
            statuses.add(_FAILED)
            findings.append({"name": name, "error": message})
            continue
        statuses.add(_print_report(options, name, report))
        findings.append({"name": name, **report.to_dict()})
    _write_index(options, parts, findings)
    decodings = {} if _FAILED in statuses else _verify_decoders(options, bundle, parts)
    lines, status = describe_decodings(options.model, decodings)
    statuses.add(status)
    if options.json:
        told = {name: decoding.to_dict() for name, decoding in decodings.items()}
        print_json({"model": options.model, "models": findings, "decodings": told})
    wrote = [] if options.report is None else [f"wrote {options.report}"]
    print_unless_quiet(options, [*lines, *wrote])
    return max(statuses)


def _verify_folder(options: argparse.Namespace, bundle: Bundle, target: str) -> int:
    """Compare the tokens of a folder of a target with LiteRT's, and return the exit status."""
    if options.report is not None:
        raise OptionError(
            f"--report must be given without a folder for {target}, got {options.converted}"
        )
    chat = verify_folder(bundle, target, Path(options.converted), options.prompt)
    lines, status = describe_decodings(options.model, {"": chat})
    if options.json:
        print_json({"model": options.model, "chat": chat.to_dict()})
    print_unless_quiet(options, lines)
    return status


def _find_parts(bundle: Bundle, options: argparse.Namespace) -> list[BundlePart]:
    """Return the parts whose files the folder has, all without a folder; ModelFileError if none."""
    parts = list_parts(bundle, options.signature)
    folder = options.converted
    if folder is None:
        return parts
    if all(Path(folder, part.file).exists() for part in parts):
        return parts
    joined = list_parts(bundle, options.signature, joins=True)
    if any(Path(folder, part.file).exists() for part in (*parts, *joined)):
        return joined
    files = ", ".join(part.file for part in parts)
    raise ModelFileError(
        f"{folder} must have the ONNX files of {options.model}, got none of {files}: convert it"
        " into this folder"
    )


def _verify_decoders(
    options: argparse.Namespace, bundle: Bundle, parts: Sequence[BundlePart]
) -> dict[str, Decoding]:
    """Compare the tokens of the language models of a bundle."""
    folder = options.converted
    files = {
        (part.model, part.signature): Path(folder) / part.file
        if folder is not None
        else convert(bundle.models[part.model], signature=part.signature)
        for part in parts
    }
    return verify_decoders(bundle.models, files, options.prompt)


def _write_index(
    options: argparse.Namespace, parts: Sequence[BundlePart], findings: Sequence[Mapping[str, Any]]
) -> None:
    if options.report is None:
        return
    models = [
        each
        if "error" in each
        else {"name": each["name"], "verification": each, "page": place_page(options.report, part)}
        for part, each in zip(parts, findings, strict=True)
    ]
    write_index(options.report, models)


def _verify(options: argparse.Namespace, model: ModelFile, converted: ConvertedModel) -> Report:
    """Verify a model, and measure its latency if the result is shown."""
    shown = options.json or options.report is not None or not options.quiet
    with show_progress("tensors", quiet=options.quiet) as progress:
        return verify(
            model,
            converted,
            per_operator=options.per_operator,
            latency=shown,
            signature=None if options.signature == ALL_SIGNATURES else options.signature,
            progress=progress,
            **read_verification_options(options),
        )


def _print_report(
    options: argparse.Namespace, name: str, report: Report, wrote: Sequence[str] = ()
) -> int:
    """Print the findings, what was written and the verdict; return the exit status."""
    print_unless_quiet(options, [*list_outputs(report), *list_tensors(report)])
    status = print_verdict(name, report)
    print_unless_quiet(options, wrote)
    if not (options.quiet or options.json):
        print_conclusion(sys.stdout, name, report)
    return status
