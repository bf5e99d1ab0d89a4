"""`tflite2onnx MODEL.tflite [OUT.onnx]`: convert one model, several, or a bundle."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tflite2onnx.bundle import (
    ALL_SIGNATURES,
    convert_models,
    joins_lengths,
    keep_possible_names,
    list_parts,
    write_models,
)
from tflite2onnx.cli.arguments.conversion import add_arguments
from tflite2onnx.cli.arguments.tensors import read_layouts, read_pairs, read_shapes, read_types
from tflite2onnx.cli.arguments.verification import (
    list_given_single,
    read_verification_options,
    spell_option,
)
from tflite2onnx.cli.parsers import COMMANDS
from tflite2onnx.cli.places import (
    STANDARD,
    Job,
    check_page,
    check_report,
    ends_as_folder,
    find_models,
    is_done,
    is_folder,
    names_folder,
    place_all,
    place_one,
    remove_suffix,
    split_files,
)
from tflite2onnx.cli.standard_streams import (
    find_text_stream,
    print_unless_quiet,
    read_source,
    write_standard_output,
)
from tflite2onnx.convert import convert
from tflite2onnx.errors import ModelFileError, OptionError
from tflite2onnx.interface import Endpoint
from tflite2onnx.options import ConversionOptions
from tflite2onnx.pictures.settings import NETWORK
from tflite2onnx.reader.model import list_entry_points
from tflite2onnx.result import Result
from tflite2onnx.targets.table import find_contradictions, has_part
from tflite2onnx.utils.atomic_files import check_distinct_files, resolve_target
from tflite2onnx.utils.console import TextTable, count
from tflite2onnx.utils.contradictions import GIVEN, Contradiction, check_contradictions
from tflite2onnx.writer import list_external_weights

if TYPE_CHECKING:
    from tflite2onnx.reader.source import ModelSource
    from tflite2onnx.verification import Report
    from tflite2onnx.verification.chats import Chat
    from tflite2onnx.verification.runtimes import ModelFile

SUMMARY = "Convert a TensorFlow Lite (LiteRT) model to ONNX."
EPILOG = """\
exit status:
  0    all models are converted, and right if they were verified
  1    wrong usage, or a model cannot be converted (nothing is written for this
       model); stderr has the reason; the other models, and with --signature all
       its other signatures, are converted
  2    all models are converted, but --verify found a difference above the limit
  130  interrupted
"""
_OK, _FAILED, _DIFFERENT = 0, 1, 2
_MOVED = "layouts differ to save a Transpose; --io-layout tflite keeps the file's"
_KEPT = "inputs of dynamic sizes keep their layout; --io-layout onnx changes it"
_JUDGED = ("verify", "report")
# Contradictions of options of the command line; a target may add others. `arrays` and `pictures`
# are the attributes of --input and --image.
_CONTRADICTIONS = (
    Contradiction("parts", GIVEN, ("preprocess", "postprocess"), GIVEN),
    Contradiction(
        "arrays", GIVEN, _JUDGED, GIVEN, "it gives data to verify on, and --inputs cuts the model"
    ),
    Contradiction("pictures", GIVEN, _JUDGED, GIVEN),
    Contradiction("samples", GIVEN, _JUDGED, GIVEN),
    Contradiction("seed", GIVEN, _JUDGED, GIVEN),
    Contradiction("tolerance", GIVEN, _JUDGED, GIVEN),
)
__all__ = ["EPILOG", "SUMMARY", "add_arguments", "run_command"]


def run_command(options: argparse.Namespace) -> int:
    """Convert, print the inputs and outputs, and return the exit status."""
    if options.jobs < 1:
        raise OptionError(f"--jobs must be at least 1, got {options.jobs}")
    models, output = split_files([options.model, *options.others], options.output)
    if output in COMMANDS:
        raise OptionError(f"a command must come first, as in {output} {models[0]}, got it last")
    read_verification_options(options)  # raises OptionError for contradictory options
    found = (*_CONTRADICTIONS, *find_contradictions(options.target))
    check_contradictions(found, options)
    _check_cut(options.inputs or ())
    if options.report is not None:
        check_report(options.report, models[0])
    if len(models) > 1 or is_folder(models[0]):
        return _convert_several_models(options, models, output)
    if options.resume:
        raise OptionError("--resume must be given with a folder or several models, got one model")
    source = read_source(models[0])
    data = source if isinstance(source, bytes) else None
    job = place_one(models[0], output, folder=options.output is not None, data=data)
    _check_standard_output(options, job)
    if _takes_every_signature(options) and not job.is_bundle:
        job = _place_every_signature(options, job, output)
    if job.is_bundle:
        job = replace(job, report=options.report)
    if options.json:
        return _run_jobs(options, [job])
    return _convert_one_bundle(options, job) if job.is_bundle else _convert_one_model(options, job)


def _check_cut(inputs: Sequence[str]) -> None:
    """Raise OptionError if --inputs has a file, which is for --input."""
    for word in inputs:
        name, _, file = word.rpartition("=")
        if name and Path(file).exists():
            raise OptionError(
                f"--inputs must be names of tensors, where the model is cut, got {word};"
                f" --input {word} gives data to verify on"
            )


def _convert_several_models(
    options: argparse.Namespace, models: Sequence[str], output: str | None
) -> int:
    _refuse_single(options, "several")
    if output is None or options.output is None:
        find_models(models[0])
        raise OptionError(f"{models[0]} is a folder: give the folder to write to, as -o FOLDER")
    jobs = place_all(models, output)
    if _takes_every_signature(options):
        jobs = [
            replace(job, output=remove_suffix(job.output), each_signature=True)
            if _has_signatures(job)
            else job
            for job in jobs
        ]
    jobs = _place_pages(options, jobs, output)
    done = {job for job in jobs if options.resume and is_done(job)}
    left = [job for job in jobs if job not in done]
    if done and not options.json:
        number = count(len(done), "model")
        print_unless_quiet(options, [f"{number} left out: the output is newer than the model"])
        if not left:
            return _OK
    return _run_jobs(options, left, [job for job in jobs if job in done])


def _place_pages(options: argparse.Namespace, jobs: Sequence[Job], output: str) -> list[Job]:
    """Return jobs with their pages, which are placed in --report as their models in `output`."""
    if options.report is None:
        return list(jobs)
    from tflite2onnx.report import pages  # noqa: PLC0415 - slow to import

    places = [Path(options.report, Path(job.output).relative_to(output)) for job in jobs]
    bundles = [job.is_bundle for job in jobs]
    places = [x if one else x.with_suffix(".html") for one, x in zip(bundles, places, strict=True)]
    pages.check_pages(options.report, [pages.place_index(options.report), *places])
    return [replace(job, report=str(place)) for job, place in zip(jobs, places, strict=True)]


def _check_standard_output(options: argparse.Namespace, job: Job) -> None:
    """Raise OptionError for an option that cannot be combined with standard output."""
    for option in ("external_data", "report", "parts"):
        if job.output == STANDARD and getattr(options, option) not in (None, False):
            raise OptionError(
                f"--{option.replace('_', '-')} must be given with OUT.onnx, got standard output"
            )


def _makes_folder(options: argparse.Namespace) -> bool:
    """Return whether the target's runtime loads a folder, which signatures become together."""
    return has_part(options.target, "bundles")


def _takes_every_signature(options: argparse.Namespace) -> bool:
    return options.signature == ALL_SIGNATURES or _makes_folder(options)


def _place_every_signature(options: argparse.Namespace, job: Job, output: str | None) -> Job:
    """Return the job of a model of which each signature becomes a file of the folder `output`."""
    _refuse_single(options, "several signatures")
    if output is None or not names_folder(output):
        target = f"--target {options.target}"
        option = target if _makes_folder(options) else f"--signature {ALL_SIGNATURES}"
        raise OptionError(f"{option} must be given with a model and -o FOLDER")
    return replace(job, output=output, each_signature=True)


def _has_signatures(job: Job) -> bool:
    """Return whether a model has signatures; False for a bundle or an unreadable model."""
    try:
        return not job.is_bundle and bool(list_entry_points(job.source))
    except ModelFileError:  # the conversion of the model reports the error
        return False


def _run_jobs(options: argparse.Namespace, jobs: Sequence[Job], earlier: Sequence[Job] = ()) -> int:
    from tflite2onnx.cli import many  # noqa: PLC0415 - slow to import

    print_unless_quiet(options, _explain_target(options))
    return many.run_jobs(jobs, partial(_attempt_job, options), options, earlier)


def _attempt_job(options: argparse.Namespace, job: Job) -> tuple[int, dict[str, Any]]:
    """Run one job of several; return its exit status and its facts for the JSON output."""
    options = argparse.Namespace(**{**vars(options), "report": job.report or options.report})
    status = _OK
    if job.is_bundle:
        done = _convert_bundle(options, job)
        status = done.status
        facts: dict[str, Any] = {"output": job.output, "models": _describe_parts(done)}
        facts |= {} if done.chat is None else {"chat": done.chat.to_dict()}
        named_reports = [(f"{job.model}/{name}", report) for name, report in done.reports.items()]
    else:
        result, report, _ = _convert_model(options, job)
        facts = {"output": job.output, **_describe_result(result, report, options.report)}
        named_reports = [(job.model, report)] if report is not None else []
    statuses = [status, *(_print_verdict(name, item) for name, item in named_reports)]
    return _FAILED if _FAILED in statuses else max(statuses), facts


def _describe_result(result: Result, report: Report | None, page: str | None) -> dict[str, Any]:
    verified = {} if report is None else {"verification": report.to_dict()}
    return result.to_dict() | verified | ({} if page is None else {"page": page})


def _print_verdict(model: str, report: Report) -> int:
    """Print the faults in a report on stderr, and return the exit status."""
    from tflite2onnx.cli import verdict  # noqa: PLC0415 - slow to import

    return verdict.print_verdict(model, report)


def _convert_one_model(options: argparse.Namespace, job: Job) -> int:
    """Convert one model, and print its inputs and outputs."""
    result, report, size = _convert_model(options, job)
    print_unless_quiet(options, [*_list_results(options, result), *_explain_target(options)])
    status = _print_verification(options, job.model, report)
    external = list_external_weights(result.skeleton, options.external_data)
    files = f"{job.output} and {job.output}.data" if external else job.output
    wrote = "wrote to standard output" if job.output == STANDARD else f"wrote {files}"
    pages = [] if options.report is None else [options.report]
    parts = [f"wrote {path}" for path in (*_list_parts(options, job, result), *pages)]
    print_unless_quiet(options, [f"{wrote}, {size:,} bytes", *parts])
    _print_conclusion(options, job.model, report)
    return status


def _convert_model(options: argparse.Namespace, job: Job) -> tuple[Result, Report | None, int]:
    """Convert a model and write it; return the result, the verification and the number of bytes."""
    if job.output != STANDARD:
        check_distinct_files(job.output, job.model)  # the output folder may contain the model
        check_distinct_files(f"{job.output}.data", job.model)
    if options.report is not None and job.report is None:
        check_page(options.report, job.output)
    values = {
        "layouts": read_layouts(options.layout),
        "shapes": read_shapes(options.shape),
        **_select_conversion_options(options),
    }
    if options.signature == ALL_SIGNATURES:
        values["signature"] = None
    if job.one_of_several:
        kept = keep_possible_names(job.model, job.source, ConversionOptions(**values))
        values["names"] = kept.names
    result = convert(job.source, **values)
    verifies = options.verify or options.report is not None
    report = _verify_result(options, job.source, result) if verifies else None
    if job.output == STANDARD:
        return result, report, write_standard_output(result)
    if options.output is not None or any(map(ends_as_folder, options.others)):
        with resolve_target(job.output) as target:
            target.parent.mkdir(parents=True, exist_ok=True)
    with _write_report_on_success(options, job, result, report):
        size = result.save(job.output, options.external_data)
        for path, part in _list_parts(options, job, result).items():
            part.save(path, options.external_data)
        return result, report, size


def _list_parts(options: argparse.Namespace, job: Job, result: Result) -> dict[str, Result]:
    """Return the parts that are written as separate models, by their paths."""
    stem = job.output.removesuffix(".onnx")
    return {f"{stem}.{name}.onnx": part for name, part in result.parts.items() if options.parts}


def _select_conversion_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that apply to several models, without options that name tensors."""
    names = (field.name for field in fields(ConversionOptions))
    settings = {name: getattr(options, name) for name in names if name not in ("layouts", "shapes")}
    io_type = read_types(options.io_type or ())
    rename = read_pairs("--rename", "OLD=NEW", options.rename or ())
    return {**settings, "io_type": io_type, "rename": rename}


def _refuse_single(options: argparse.Namespace, subject: str) -> None:
    """Raise OptionError for an option that is only valid for one model."""
    names = ("layout", "shape", "inputs", "outputs", "rename", "parts")
    single = [f"--{name}" for name in names if getattr(options, name)]
    if isinstance(read_types(options.io_type or ()), dict):
        single.append("--io-type with a name")
    for option in (*single, *list_given_single(options)):
        raise OptionError(f"{option} must be given for one model, got {subject}")


def _convert_one_bundle(options: argparse.Namespace, job: Job) -> int:
    """Convert each model of a bundle, and print the inputs and outputs of each."""
    done = _convert_bundle(options, job)
    print_unless_quiet(options, _explain_target(options))
    statuses = {done.status}
    for name, result in done.results.items():
        print_unless_quiet(options, [f"{name}:", *_list_results(options, result)])
        statuses.add(_print_verification(options, name, done.reports.get(name)))
    wrote = f"wrote {count(len(done.results), 'model')} and {done.manifest} to {job.output}"
    tokens: list[str] = []
    if done.chat is not None:
        from tflite2onnx.cli import verdict  # noqa: PLC0415 - slow to import

        tokens, _ = verdict.describe_decodings(job.model, {"": done.chat})
    pages = []
    if options.report is not None:
        from tflite2onnx.report.pages import write_index  # noqa: PLC0415 - slow to import

        index = write_index(options.report, _describe_parts(done))
        pages.append(f"wrote {index} and the pages of the models")
    print_unless_quiet(options, [wrote, *pages, *tokens])
    for name in done.results:
        _print_conclusion(options, name, done.reports.get(name))
    if done.status == _FAILED:
        print_unless_quiet(options, [f"FAILED: {job.model}: not every signature is converted"])
    return _FAILED if _FAILED in statuses else max(statuses)


class _ConvertedBundle(NamedTuple):
    """The results, reports and pages of a bundle's models by their labels.

    `manifest` is the name of the file that lists the models, and `status` the exit status. `chat`
    are the tokens in the runtime of the target, if it runs the folder.
    """

    results: dict[str, Result]
    reports: dict[str, Report]
    pages: dict[str, str]
    manifest: str
    status: int
    chat: Chat | None


def _describe_parts(done: _ConvertedBundle) -> list[dict[str, Any]]:
    """Return the facts of each model of a bundle for the JSON output."""
    return [
        {"name": name, **_describe_result(result, done.reports.get(name), done.pages.get(name))}
        for name, result in done.results.items()
    ]


def _convert_bundle(options: argparse.Namespace, job: Job) -> _ConvertedBundle:
    """Convert and write each model of a bundle, or each signature that can be converted."""
    _refuse_single(options, "a bundle")
    bundle = job.read_bundle()
    joins = joins_lengths(bundle, vars(options))
    parts = list_parts(bundle, options.signature, options.target, joins=joins)
    if options.report is not None:
        from tflite2onnx.report import pages  # noqa: PLC0415 - slow to import

        index = [] if job.one_of_several else [pages.place_index(options.report)]
        places = [pages.place_page(options.report, part) for part in parts]
        pages.check_pages(options.report, [*index, *places])
    runs_folder = options.verify and has_part(options.target, "sessions")
    verifies = (options.verify or options.report is not None) and not runs_folder
    settings = _select_conversion_options(options)
    results = convert_models(bundle, parts, details=verifies, **settings)
    status = _OK if len(results) == len(parts) else _FAILED
    parts = [part for part in parts if part.label in results]
    reports = {}
    for part in parts if verifies else ():
        model = _embed_external_weights(bundle.models[part.model])
        reports[part.label] = _verify_result(options, model, results[part.label])
    manifest = write_models(bundle, parts, results, job.output, options.external_data)
    written = {}
    for part in parts if options.report is not None else ():
        model = _embed_external_weights(bundle.models[part.model])
        result, file = results[part.label], Path(job.output, part.file)
        pages.write_page(options.report, part, model, result, reports[part.label], file)
        written[part.label] = str(pages.place_page(options.report, part))
    chat = None
    if runs_folder:
        from tflite2onnx.verification.chats import verify_folder  # noqa: PLC0415 - likewise

        chat = verify_folder(bundle, options.target, Path(job.output))
        status = status or (_OK if chat.ok else _DIFFERENT)
    return _ConvertedBundle(results, reports, written, manifest, status, chat)


def _print_verification(options: argparse.Namespace, model: str, report: Report | None) -> int:
    """Print the findings of a verification, and return the exit status."""
    if report is None:
        return _OK
    from tflite2onnx.cli import verdict  # noqa: PLC0415 - slow to import

    print_unless_quiet(options, verdict.list_outputs(report))
    if options.report is not None:
        print_unless_quiet(options, verdict.list_tensors(report))
    return verdict.print_verdict(model, report)


def _print_conclusion(options: argparse.Namespace, model: str, report: Report | None) -> None:
    if report is not None and not options.quiet:
        from tflite2onnx.cli import verdict  # noqa: PLC0415 - slow to import

        verdict.print_conclusion(find_text_stream(options), model, report)


def _embed_external_weights(model: ModelSource) -> ModelFile:
    from tflite2onnx.verification import entry_point  # noqa: PLC0415 - slow to import

    return entry_point.embed_external_weights(model)


def _verify_result(options: argparse.Namespace, model: ModelFile, result: Result) -> Report:
    """Verify a conversion; with --report also tensor by tensor, and with its latency."""
    from tflite2onnx.verification import verify  # noqa: PLC0415 - slow to import

    settings = read_verification_options(options)
    whole = options.report is not None
    return verify(model, result, tensors=whole, latency=whole, **settings)


def _write_report_on_success(
    options: argparse.Namespace, job: Job, result: Result, report: Report | None
) -> AbstractContextManager[None]:
    """Return a context that writes the requested report page after its body has saved the model."""
    if report is None or options.report is None:
        return nullcontext()
    from tflite2onnx.report import pages, write_report_on_success  # noqa: PLC0415 - likewise

    if job.report is not None:
        pages.make_folder(job.report)
    return write_report_on_success(options.report, job.source, result, report, job.output)


def _list_results(options: argparse.Namespace, result: Result) -> list[str | TextTable]:
    rows = [
        (kind, e.name, e.dtype, *_describe_shapes(e, result), _describe_scale(e))
        for kind, e in result.endpoints
    ]
    nodes, transposes = count(result.nodes, "node"), count(result.transposes, "Transpose")
    moved = f"{result.bytes_moved:,} bytes moved by {transposes}"
    facts = f"{nodes}, {moved}, opset {result.opset}"
    return [TextTable(rows), facts, *_explain_layouts(options, result), *_explain_float32(result)]


def _explain_layouts(options: argparse.Namespace, result: Result) -> list[str]:
    """Return the reasons why inputs and outputs have another layout, or keep the file's."""
    if options.io_layout != "auto" or options.layout:
        return []
    endpoints = (*result.inputs, *result.outputs)
    moved = [each for each in endpoints if each.layout[0] != each.layout[1]]
    # With channels first, a dynamic size would have another place than in the file.
    kept = [
        end
        for end in result.inputs
        if end not in moved and end.letters.endswith("C") and end.symbols.keys() - {0}
    ]
    return [*([_MOVED] if moved else []), *([_KEPT] if kept else [])]


def _explain_target(options: argparse.Namespace) -> list[TextTable]:
    """Return the options that --target sets, as they would be typed."""
    given = ConversionOptions(**_select_conversion_options(options))
    if given.target == ConversionOptions.target:
        return []
    chosen = vars(given.with_target())
    words = [
        f"{spell_option(name)} {value}".removesuffix(" True")
        for name, value in chosen.items()
        if value != getattr(given, name)
    ]
    return [TextTable([(f"--target {given.target} sets {' '.join(words)}",)])] if words else []


def _explain_float32(result: Result) -> list[str | TextTable]:
    """Return the nodes that stay in float32 in a model of half precision, counted by type."""
    counts = Counter((node.op_type, node.reason) for node in result.float32_nodes)
    if not counts:
        return []
    rows = [(f"  {number:,} {kind}", reason) for (kind, reason), number in counts.items()]
    return [f"{count(len(result.float32_nodes), 'node')} in float32:", TextTable(rows)]


def _describe_scale(end: Endpoint) -> str:
    return "" if end.scale is None else f"scale {end.scale:.9g}, zero point {end.zero_point}"


def _describe_shapes(end: Endpoint, result: Result) -> tuple[str, str]:
    """Return the shapes in TFLite and in ONNX; only in ONNX for an end that is not in the file."""
    tflite, onnx = end.shown_layout
    network = result.parts.get(NETWORK, result)
    in_file = end in (*network.inputs, *network.outputs, *(s.input for s in network.states))
    return (
        f"TFLite {_format_sizes(end.tflite_sizes)} {tflite}".rstrip() if in_file else "",
        f"ONNX {_format_sizes(end.sizes)} {onnx}".rstrip(),
    )


def _format_sizes(sizes: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
