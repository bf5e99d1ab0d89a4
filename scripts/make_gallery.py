"""Write docs/models.md, a table of published networks: what each becomes, and how right it is.

FOLDER has a folder OWNER+REPOSITORY for each source, with `.tflite` files in which two underscores
stand for a slash of the path. Every network runs in its own process, because LiteRT aborts the
process on some networks::

    python scripts/make_gallery.py FOLDER --nodes     # nodes and Transposes
    python scripts/make_gallery.py FOLDER             # and the outputs beside LiteRT's
    python scripts/make_gallery.py FOLDER --latency   # and times, on an idle machine
    python scripts/make_gallery.py FOLDER --nodes --runtimes runtimes.jsonl ...

--runtimes names files of results of scripts/runtimes.py. What is not measured, and the tasks, which
are written by hand, stay as they are on the page, if the page has the same networks.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

from isolation import in_new_process

from tflite2onnx import ConversionError, convert, verify
from tflite2onnx.inspection import inspect
from tflite2onnx.utils.processor import describe_processor
from tflite2onnx.verification import Difference, Verdict

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
COLUMNS = (
    "network",
    "task",
    "from",
    "scheme",
    "MB",
    "converts",
    "nodes",
    "Transposes",
    "beside LiteRT",
    "time",
    "other runtimes",
)
_MEGABYTE = 1e6
_EQUAL = "equal to the "
_ALWAYS = ("network", "from", "beside LiteRT")
_VERDICTS = ("agrees", "differs", "refused", "too slow")  # of scripts/runtimes.py
_MEASURED = re.compile(r"^The times .*", re.MULTILINE)
TITLE = "# Published networks\n"
LEGEND = """
Each row is a network as its authors published it. On [the site][site] a field above the table
filters the rows by words, such as `int8 equal`, and a click on a heading sorts them.

- *converts*: the opset of the default ONNX model.
- *nodes*: of the default ONNX model.
- *Transposes*: with `--forms canonical`, the plain form for every runtime, and by default, the form
  for ONNX Runtime, which removes many of them. Constants that a runtime transposes at load do not
  count.
- *beside LiteRT*: the outputs on random inputs. "equal" is bit for bit with the kernels that are
  named. "right" and "close" are the verdicts of [`verify`](verification.md), with the
  signal-to-noise ratio.
- *time*: ONNX Runtime's time divided by LiteRT's, on one thread. Networks of a few operators take a
  few microseconds in LiteRT and ten times as long in ONNX Runtime: see
  [the comparison](comparison.md).
- *other runtimes*: those whose outputs agree with LiteRT's, then those in which the network fails:
  [other runtimes](runtimes.md) has the reasons. A runtime that is missing was not tried. This
  column is older than the others but for qnn and rknn: an earlier version made the models.

`python scripts/make_gallery.py FOLDER` makes this page.

[site]: https://zhenhuaw-me.github.io/tflite2onnx/dev/models/
"""

Row = dict[str, str]


def describe_network(path: Path, *, with_latency: bool, with_outputs: bool) -> Row:
    """Return the cells of a network."""
    row = {"scheme": inspect(path).scheme, "MB": f"{path.stat().st_size / _MEGABYTE:.2f}"}
    try:
        result = convert(path)
        plain = convert(path, forms="canonical")
    except ConversionError as error:
        return row | {"beside LiteRT": f"refused: {str(error).splitlines()[0]}"}
    row |= {
        "converts": f"opset {result.opset}",
        "nodes": f"{result.nodes:,}",
        "Transposes": f"{plain.transposes} / {result.transposes}",
    }
    if not with_outputs:
        return row
    try:
        report = verify(path, result, tensors=False, latency=with_latency)
    except ConversionError as error:
        return row | {"beside LiteRT": f"LiteRT: {str(error).splitlines()[0]}"}
    outputs = report.judged_outputs
    texts = {_compare(difference, verdict) for difference, verdict in outputs}
    farthest = min((output for output, _ in outputs), key=lambda output: output.decibels)
    if farthest.largest and len(texts) > 1:
        texts = {f"{report.verdict.value}, {farthest.decibels:.0f} dB"}
    kernels = sorted(text.removeprefix(_EQUAL) for text in texts)
    row["beside LiteRT"] = texts.pop() if len(texts) == 1 else _EQUAL + " or the ".join(kernels)
    if report.latency is not None:  # both runtimes ran it
        row["time"] = f"{report.latency.onnx_runtime / report.latency.litert:.2f}"
    return row


def _compare(output: Difference, verdict: Verdict) -> str:
    """Return "equal" with LiteRT's kernels that give the same bits, or how near the numbers are."""
    kernels = output.kernels or "plain kernels"
    if not output.largest:
        return _EQUAL + kernels
    return f"{verdict.value}, {output.decibels:.0f} dB"


def describe_apart(path: Path, *, with_latency: bool, with_outputs: bool) -> Row:
    """Return the cells of a network, which a process of its own finds."""
    describe = partial(describe_network, with_latency=with_latency, with_outputs=with_outputs)
    try:
        return in_new_process(describe, path) if with_outputs else describe(path)
    except BrokenProcessPool:
        return {"beside LiteRT": "not run, LiteRT crashes"}
    except ConversionError as error:
        return {"beside LiteRT": f"ends with {type(error).__name__}: {error}"}


def describe_runtimes(files: Sequence[Path]) -> Mapping[str, str]:
    """Return in which runtimes each file agrees with LiteRT, and in which not, by its name."""
    verdicts: dict[str, dict[str, bool]] = {}
    for line in (line for file in files for line in file.read_text().splitlines()):
        result = json.loads(line)
        if result["verdict"] in _VERDICTS:
            found = verdicts.setdefault(result["model"], {})
            found[result["runtime"]] = result["verdict"] == _VERDICTS[0]
    return {model: _join_runtimes(found) for model, found in verdicts.items()}


def _join_runtimes(found: Mapping[str, bool]) -> str:
    right, wrong = (", ".join(sorted(n for n in found if found[n] is ok)) for ok in (True, False))
    return "; ".join([*([right] if right else []), *([f"not {wrong}"] if wrong else [])])


def read_rows(text: str) -> list[Row]:
    """Return the rows of a page."""
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    columns, rows = [[cell.strip() for cell in row] for row in cells[:1]], cells[2:]
    return [dict(zip(columns[0], map(str.strip, row), strict=True)) for row in rows]


def describe_transposes(rows: Sequence[Row]) -> str:
    """Return a sentence with the Transposes of all networks, and how many networks have none."""
    cells = [row["Transposes"] for row in rows if row.get("Transposes")]
    plain, default = zip(*(map(int, cell.split(" / ")) for cell in cells), strict=True)
    return (
        f"With `--forms canonical` they have {sum(plain)} Transposes, and {plain.count(0)} of them"
        f" have none. By default they have {sum(default)}, most of which ONNX Runtime removes."
    )


def make_page(
    folder: Path,
    before: str,
    runtimes: Mapping[str, str],
    *,
    with_latency: bool,
    with_outputs: bool,
) -> Iterator[str]:
    """Yield the lines of the page, which replaces the page `before`."""
    yield TITLE
    paths = sorted(folder.rglob("*.tflite"), key=lambda path: path.as_posix().lower())
    rows, kept = [], read_rows(before)
    for index, path in enumerate(paths):
        source, _, name = path.relative_to(folder).as_posix().partition("/")
        link = source.replace("+", "/", 1)
        row = {
            "network": name.rpartition("__")[2].removesuffix(".tflite"),
            "from": f"[{link}](https://github.com/{link})",
        }
        known = kept[index] if len(kept) == len(paths) else {}
        known = known if known.items() >= row.items() else {}
        found = describe_apart(path, with_latency=with_latency, with_outputs=with_outputs)
        if path.name in runtimes:
            found["other runtimes"] = runtimes[path.name]
        print(path.name, found, flush=True)
        rows.append(known | row | found)
    verdicts = Counter(row.get("beside LiteRT", "not run").partition(",")[0] for row in rows)
    counts = "; ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
    converted = sum(row.get("converts", "") != "" for row in rows)
    yield f"{converted} of {len(rows)} networks are converted."
    yield f"Their outputs compared with LiteRT's: {counts}.\n"
    yield describe_transposes(rows)
    yield LEGEND
    measured = _MEASURED.search(before)
    if with_latency:
        yield f"The times were measured on {describe_processor()}."
    elif measured:
        yield measured[0].replace("The times were", "The times of an earlier version were")
    yield ""
    columns = [c for c in COLUMNS if c in _ALWAYS or any(row.get(c) for row in rows)]
    yield f"| {' | '.join(columns)} |"
    yield "| --- " * len(columns) + "|"
    for row in rows:
        yield f"| {' | '.join(row.get(column, '').replace('|', ' ') for column in columns)} |"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a folder of models")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--latency", action="store_true", help="measure the time of an inference")
    what.add_argument("--nodes", action="store_true", help="do not run the networks")
    parser.add_argument(
        "--runtimes", type=Path, nargs="+", default=[], help="results of scripts/runtimes.py"
    )
    arguments = parser.parse_args()
    before = PAGE.read_text() if PAGE.exists() else ""
    lines = make_page(
        arguments.folder,
        before,
        describe_runtimes(arguments.runtimes),
        with_latency=arguments.latency,
        with_outputs=not arguments.nodes,
    )
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
