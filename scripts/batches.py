"""Convert networks for a batch of independent samples, and compare it with single runs in LiteRT.

    python scripts/batches.py assets/models
    python scripts/batches.py --batch n FOLDER ...

One line for each network that is not equal to single runs: why it is refused, or what differs. The
last line has the counts. The exit status is 1 if a converted network differs from single runs, or
if an input or output has another first size than the batch. With a name, such as `n`, the size is
dynamic, and a batch of 3 is compared.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tflite2onnx import ConversionError, convert, verify
from tflite2onnx.errors import OptionError, VerifyError
from tflite2onnx.result import Result


def main(words: Sequence[str] | None = None) -> int:
    """Print the result of each network, and the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--batch", default="3", help="a number, or a name (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="check one network in this process")
    options = parser.parse_args(words)
    counts: Counter[str] = Counter()
    for path in _list_models(options.paths):
        if options.json:
            print(json.dumps(check_network(path, _read_size(options.batch))))
            return 0
        outcome, reason = _check_in_process(path, options.batch)
        counts[outcome] += 1
        if outcome != "equal":
            print(f"{path}: {outcome}: {reason}", flush=True)
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.most_common()))
    return int(any(counts[outcome] for outcome in ("different", "folded")))


def _list_models(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.tflite")) if path.is_dir() else [path]


def _read_size(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _check_in_process(path: Path, batch: str) -> tuple[str, str]:
    """Return the outcome for a network; LiteRT ends the process on some networks."""
    command = [sys.executable, __file__, "--json", "--batch", batch, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if ended.returncode:
        return "not run", f"the process ended with status {ended.returncode}"
    outcome, reason = json.loads(ended.stdout.splitlines()[-1])
    return outcome, reason


def check_network(path: Path, batch: int | str) -> tuple[str, str]:
    """Return the outcome for a network, and the reason.

    The outcome is "equal", "different", "folded" (an input or output has another first size),
    "refused" (it has no batch), "unsupported" (it cannot be converted for one sample), or "not run"
    (a runtime does not run it).
    """
    try:
        result = convert(path, batch=batch)
    except ConversionError as error:
        return ("refused" if isinstance(error, OptionError) else "unsupported"), " ".join(
            str(error).split()
        )
    folded = [
        end.name for end in (*result.inputs, *result.outputs) if end.tflite_sizes[:1] != (batch,)
    ]
    if folded:
        return "folded", ", ".join(folded)
    return _compare(path, result)


def _compare(path: Path, result: Result) -> tuple[str, str]:
    try:
        report = verify(path, result)
    except VerifyError as error:
        return "not run", " ".join(str(error).split())
    wrong = [
        f"{each.name} by {each.largest:.3g} of {each.spread:.3g}"
        for each in report.outputs
        if not each.ok
    ]
    return ("different", ", ".join(wrong)) if wrong else ("equal", "")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    raise SystemExit(main())
