"""Run converted models in other runtimes, and compare the outputs with those of LiteRT.

Each runtime has its own environment, a folder in .venv-runtimes. --make creates it with pip or npm,
which need a network::

    python scripts/runtimes.py --make openvino onnxruntime-web
    python scripts/runtimes.py --runtimes openvino onnxruntime-web -- model.tflite folder/

By default the models are those in assets/models and those in the folder that the environment
variable TFLITE2ONNX_ZOO names, the smallest first. Each model is converted with the `--target` of
the runtime (or the options of --options), and runs in its own process. Results are appended to a
file (--results), a line of JSON for each model, runtime and processor. What has a line in the file
is not run again. --decibels judges each output as processors for networks do that round in their
own ways: 30 dB, 3 dB less than LiteRT's kernels, or one step, and writes the numbers. It takes
--inputs of each of two ranges, by default one. --integers takes networks with integers only. The
tables of QNN and RKNN in docs/runtimes.md::

    python scripts/runtimes.py --runtimes qnn rknn --integers --decibels --limit 240 FOLDER

With --emulate Haswell the runtimes of Python run on an emulated processor with
AVX2 and without VNNI (qemu-user 10; 7.2 gathers wrong elements), and LiteRT on this one. --seconds
ends the script after a time, so that a later call can continue. --table prints the file as Markdown
tables.
"""

import usage  # noqa: F401 - packages may be missing

import argparse
import json
import logging
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.golden.closeness import ConvertedModel, compare_with_litert, measure_outputs
from tests.golden.isolated import Crashed, run_isolated
from tests.golden.records import assets, zoo
from tests.runtimes.environments import RUNTIMES
from tests.runtimes.remote import Refused, RemoteSession, TooSlow
from tflite2onnx import convert
from tflite2onnx.inspection import find_scheme
from tflite2onnx.reader.model import read_model
from tflite2onnx.utils.processor import describe_processor

AGREES, DIFFERS, REFUSED, SLOW = "agrees", "differs", "refused", "too slow"
VERDICTS = (AGREES, DIFFERS, REFUSED, SLOW, "not converted", "LiteRT does not run it")
STEPS = 3  # the number of runs of a model that has a state
Load = Callable[[ConvertedModel], RemoteSession]
CAUSE = 160  # the longest error message, in characters


def judge_model(
    model: Path,
    command: Sequence[str],
    options: Mapping[str, Any],
    limit: float,
    *,
    decibels: bool = False,
    inputs: int = 1,
) -> list[str]:
    """Return the verdict on a model in the runtime of a command, and its reason."""
    try:
        result = convert(model, **options)
    except Exception as error:  # noqa: BLE001 - a verdict on this model only
        return [VERDICTS[4], str(error)]
    converted = ConvertedModel.from_result(result)
    converted = replace(converted, steps=min(converted.steps, STEPS))
    judge = partial(measure_decibels, count=inputs) if decibels else compare_outputs
    try:
        return run_isolated(judge_outputs, judge, model.read_bytes(), converted, command, limit)
    except Crashed as error:
        return [VERDICTS[5], str(error)]


def compare_outputs(data: bytes, converted: ConvertedModel, load: Load) -> list[str]:
    """Return the verdict on a model, by the limits of ONNX Runtime, and its reason."""
    compare_with_litert(data, converted, load)
    return [AGREES, ""]


def measure_decibels(
    data: bytes, converted: ConvertedModel, load: Load, count: int = 1
) -> list[str]:
    """Return the verdict on a model, by the limits of other processors, and its numbers."""
    found = measure_outputs(data, converted, load, count)
    right = all(each.is_right for each in found)
    return [AGREES if right else DIFFERS, "; ".join(map(str, found))]


def judge_outputs(
    judge: Callable[[bytes, ConvertedModel, Load], list[str]],
    data: bytes,
    converted: ConvertedModel,
    command: Sequence[str],
    limit: float,
) -> list[str]:
    """Return the verdict on an ONNX model that a command runs, and its reason."""
    with ExitStack() as stack:

        def load_model(converted: ConvertedModel) -> RemoteSession:
            return stack.enter_context(closing(RemoteSession(command, converted.model, limit)))

        try:
            return judge(data, converted, load_model)
        except TooSlow as error:
            return [SLOW, str(error)]
        except Refused as error:
            return [REFUSED, str(error)]
        except AssertionError as error:
            return [DIFFERS, str(error)]
        except (RuntimeError, ValueError) as error:
            return [VERDICTS[5], str(error)]


def every_model(places: Sequence[Path]) -> list[Path]:
    """Yield the model files in a list of files and folders, the smallest first."""
    found = [
        p for place in places for p in (place.rglob("*.tflite") if place.is_dir() else [place])
    ]
    return sorted(dict.fromkeys(found or (case.path for case in (*assets(), *zoo()))), key=size)


def has_integers(path: Path) -> bool:
    """Return whether the operators of a model compute integers that are quantized."""
    scheme = find_scheme(read_model(path).graphs)
    return "int" in scheme and not scheme.startswith("dynamic")


def size(path: Path) -> tuple[int, str]:
    """Return the size of a file, then its name, to sort by."""
    return path.stat().st_size, str(path)


def read_results(file: Path) -> Iterator[dict[str, str]]:
    """Yield the lines of a file of results."""
    if file.exists():
        yield from map(json.loads, file.read_text().splitlines())


def table(results: Sequence[Mapping[str, str]]) -> str:
    """Return the counts of verdicts by runtime and processor, and the reasons, as Markdown."""
    lines = [f"| runtime | processor | models | {' | '.join(VERDICTS[:4])} |", "| --- " * 7 + "|"]
    for place in dict.fromkeys(map(place_of, results)):
        found = Counter(each["verdict"] for each in results if place_of(each) == place)
        ran = {v: n for v, n in found.items() if v in VERDICTS[:4]}
        cells = [str(ran.get(verdict, 0)) for verdict in VERDICTS[:4]]
        lines.append(f"| {' | '.join(place)} | {sum(ran.values())} | {' | '.join(cells)} |")
    lines += ["", "| runtime | model | verdict | reason |", "| --- " * 4 + "|"]
    for each in results:
        if each["verdict"] != AGREES:
            reason = " ".join(each["reason"].split()).replace("|", "\\|")[:CAUSE]
            lines.append(f"| {each['runtime']} | {each['model']} | {each['verdict']} | {reason} |")
    return "\n".join(lines)


def place_of(result: Mapping[str, str]) -> tuple[str, str]:
    """Return the runtime and the processor of a result."""
    return result["runtime"], result["processor"]


def run_models(given: argparse.Namespace) -> None:
    """Run the models that are not in the results yet, until the time is over."""
    end = time.monotonic() + given.seconds
    known = {(each["model"], *place_of(each)) for each in read_results(given.results)}
    runtimes = [RUNTIMES[name] for name in given.runtimes]
    emulator = ["qemu-x86_64", "-cpu", given.emulate] if given.emulate else []
    processor = f"{given.emulate}, emulated" if given.emulate else describe_processor()
    models = every_model(given.models)
    for model in filter(has_integers, models) if given.integers else models:
        for runtime in runtimes:
            if (model.name, runtime.name, processor) in known:
                continue
            if time.monotonic() > end:
                print("the time is over; call again to continue")
                return
            options = {"target": runtime.target, **given.options}
            command = [*emulator, *runtime.command]
            verdict, reason = judge_model(
                model,
                command,
                options,
                given.limit,
                decibels=given.decibels,
                inputs=given.inputs,
            )
            found = {"model": model.name, "runtime": runtime.name, "processor": processor}
            line = {**found, "verdict": verdict, "reason": reason}
            with given.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{runtime.name:18} {verdict:9} {model.name} {reason[:CAUSE]}", flush=True)


def main() -> None:
    """Make environments, run models, or print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = partial(parser.add_argument)
    add("--make", nargs="+", choices=RUNTIMES, default=[], help="make these environments, and end")
    add("--runtimes", nargs="+", choices=RUNTIMES, default=[*RUNTIMES], help="default: all made")
    add("--options", type=json.loads, default={}, help="options of `convert`, as JSON")
    add("--results", type=Path, default=Path("runtimes.jsonl"), help="the file of results")
    add("--decibels", action="store_true", help="judge as the tables of QNN and RKNN do")
    add("--inputs", type=int, default=1, help="random inputs of each of two ranges, in decibels")
    add("--integers", action="store_true", help="take networks with integers only")
    add("--limit", type=float, default=120, help="seconds to load a model, and for a run")
    add("--seconds", type=float, default=float("inf"), help="start no model after this time")
    add("--emulate", metavar="CPU", help="run the runtimes on this processor of qemu-x86_64")
    add("--table", action="store_true", help="print the results as tables, and end")
    add("models", type=Path, nargs="*", help="models, or folders of models")
    given = parser.parse_args()
    logging.disable()
    for name in given.make:
        try:
            RUNTIMES[name].make_folder()
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{name} is not made: {error}")
    given.runtimes = [name for name in given.runtimes if RUNTIMES[name].is_made]
    if given.table:
        print(table([*read_results(given.results)]))
    elif not given.make:
        run_models(given)


if __name__ == "__main__":
    main()
