"""Several conversions in one run, independent of each other, and a summary."""

import argparse
import logging
import sys
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from tflite2onnx.cli.arguments.verification import spell_options
from tflite2onnx.cli.places import Job
from tflite2onnx.cli.progress import hide_progress, show_progress
from tflite2onnx.cli.standard_streams import find_text_stream, print_unless_quiet
from tflite2onnx.cli.workers import run_in_processes
from tflite2onnx.errors import ConversionError
from tflite2onnx.utils.child_process import CAN_FORK
from tflite2onnx.utils.console import (
    Colour,
    TextTable,
    count,
    describe_bug,
    describe_record,
    handle_records,
    print_error,
    print_json,
    print_lines,
)

_OK, _FAILED, _DIFFERENT, _INTERRUPTED = 0, 1, 2, 130
# The words for verdicts, the worst first.
_COLOURS = {
    "FAILED": Colour.RED,
    "UNPROVEN": Colour.YELLOW,
    "CLOSE": Colour.YELLOW,
    "PASSED": Colour.GREEN,
}
_logger = logging.getLogger(__name__)

# Runs a job. Returns the exit status of the job, and its facts for the JSON output.
Work = Callable[[Job], tuple[int, Mapping[str, Any]]]


class Outcome(NamedTuple):
    """Outcome of a job: exit status, facts for the JSON output, and messages for stderr."""

    status: int
    facts: Mapping[str, Any]
    messages: tuple[str, ...] = ()


def run_jobs(
    jobs: Sequence[Job], work: Work, options: argparse.Namespace, earlier: Sequence[Job] = ()
) -> int:
    """Run all jobs even if some fail; print the errors and a summary; return the exit status.

    The index of pages lists the jobs of earlier runs, too.
    """
    outcomes: dict[int, Outcome] = {}
    start = perf_counter()
    interrupted = False
    with show_progress("models", quiet=options.quiet) as progress:
        try:
            with closing(_yield_outcomes(jobs, work, options)) as results:
                for index, outcome in results:
                    outcomes[index] = outcome
                    with hide_progress():
                        _print_messages(jobs[index], outcome)
                    if progress is not None:
                        progress(len(outcomes), len(jobs))
        except KeyboardInterrupt:
            interrupted = True
    done = {jobs[index]: outcomes[index] for index in sorted(outcomes)}
    if options.json:
        failed = sum(outcome.status == _FAILED for outcome in done.values())
        models = [{**item.facts, "messages": list(item.messages)} for item in done.values()]
        summary = {"converted": len(done) - failed, "failed": failed, "models": models}
        print_json(summary, find_text_stream(options))
    rows = [(job.model, *_make_row(job, outcome)) for job, outcome in done.items()]
    shown = not (options.json or options.quiet)
    if shown:
        head = ("model", "written", "bytes", "nodes", "")
        print_lines(sys.stdout, [TextTable([head, *rows], shortens=False)], wide=options.wide)
    if any(job.report for job in jobs):
        _write_index(options, done, earlier)
    if shown:
        total = f"{_count_results(done, len(jobs))}, {perf_counter() - start:.1f} s"
        _print_total(total, rows, verified=options.verify or options.report is not None)
    if interrupted:
        print_error("interrupted", _count_results(done, len(jobs)))
        return _INTERRUPTED
    statuses = {outcome.status for outcome in outcomes.values()}
    return _FAILED if _FAILED in statuses else max(statuses, default=_OK)


def _print_total(
    total: str, rows: Sequence[tuple[str, str, str, str, str]], *, verified: bool
) -> None:
    """Print the last line; after a verification with the worst of all verdicts, in colour."""
    word = next((word for word in _COLOURS if word in [row[-1] for row in rows]), "")
    if verified and word:
        print_lines(sys.stdout, [f"{word}: {total}"], _COLOURS[word])
    else:
        print_lines(sys.stdout, [total])


def _write_index(
    options: argparse.Namespace, done: Mapping[Job, Outcome], earlier: Sequence[Job]
) -> None:
    """Write the index of the pages of all models, and say where it is."""
    from tflite2onnx.report.pages import write_index  # noqa: PLC0415 - slow to import

    models = [
        {**facts, "name": "/".join(filter(None, (job.model, facts.get("name"))))}
        for job, outcome in done.items()
        for facts in outcome.facts.get("models", [outcome.facts])
    ]
    models += [{"name": job.model, "page": job.report} for job in earlier]
    index = write_index(options.report, models)
    print_unless_quiet(options, [f"wrote {index} and the pages of the models"])


def _yield_outcomes(
    jobs: Sequence[Job], work: Work, options: argparse.Namespace
) -> Generator[tuple[int, Outcome], None, None]:
    do = partial(_attempt_job, work)
    number = min(options.jobs, len(jobs))
    # LiteRT may crash, and would end this process.
    verifies = options.verify or options.report is not None
    if number > 1 or (number and verifies and CAN_FORK):
        yield from run_in_processes(do, jobs, number, _describe_crash)
    else:
        yield from enumerate(map(do, jobs))


def _attempt_job(work: Work, job: Job) -> Outcome:
    """Run a job; an exception becomes an outcome, too."""
    messages: list[str] = []
    start = perf_counter()
    facts: Mapping[str, Any]
    with handle_records(lambda record: messages.append(spell_options(describe_record(record)))):
        try:
            status, facts = work(job)
        except ConversionError as error:
            status, facts = _FAILED, {"error": spell_options(str(error))}
        except Exception as error:  # noqa: BLE001 - the other jobs continue
            _logger.debug("%s", traceback.format_exc())
            status, facts = _FAILED, {"error": describe_bug(error)}
    facts = {"model": job.model, **facts, "seconds": round(perf_counter() - start, 3)}
    return Outcome(status, facts, tuple(messages))


def _describe_crash(job: Job, exit_status: int) -> Outcome:
    error = f"LiteRT or ONNX Runtime crashed: the process had the exit status {exit_status}"
    return Outcome(_FAILED, {"model": job.model, "error": error})


def _print_messages(job: Job, outcome: Outcome) -> None:
    """Print the messages of a job on stderr, and its error in one line."""
    for message in outcome.messages:
        print_error(job.model, message)
    if "error" in outcome.facts:
        head, *rest = (line.strip() for line in outcome.facts["error"].splitlines())
        print_error(job.model, f"{head} {'; '.join(rest)}" if rest else head)


def _make_row(job: Job, outcome: Outcome) -> tuple[str, str, str, str]:
    if outcome.status == _FAILED:
        return "", "", "", "FAILED"
    parts = outcome.facts.get("models", [outcome.facts])
    size, nodes = (sum(part[key] for part in parts) for key in ("bytes", "nodes"))
    words = [*map(_find_word, (part["verification"] for part in parts if "verification" in part))]
    words += ["FAILED"] if outcome.status == _DIFFERENT else []
    return job.output, f"{size:,}", f"{nodes:,}", min(words, key=[*_COLOURS].index, default="")


def _find_word(verification: Mapping[str, Any]) -> str:
    from tflite2onnx.verification import Verdict  # noqa: PLC0415 - slow to import

    return Verdict(verification["verdict"]).conclusion


def _count_results(done: Mapping[Job, Outcome], number: int) -> str:
    """Return how many models are converted, have failed, or differ."""
    statuses = [outcome.status for outcome in done.values()]
    failed, different = statuses.count(_FAILED), statuses.count(_DIFFERENT)
    converted = f"{len(done) - failed:,} of {count(number, 'model')} converted"
    counts = {"failed": failed, "different": different}
    return ", ".join([converted, *(f"{n:,} {word}" for word, n in counts.items() if n)])
