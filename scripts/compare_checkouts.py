"""Compare the bytes that two checkouts convert the same models to: a check for refactoring.

Each model is converted by both checkouts, with each of the OPTIONS. The files must be equal byte
for byte. If a conversion fails, the first lines of the messages must be equal::

    git worktree add ../before main
    python scripts/compare_checkouts.py ../before .
    python scripts/compare_checkouts.py ../before . model.tflite folder/

By default the models are those in assets/models of the new checkout and those in the folder that
the environment variable TFLITE2ONNX_ZOO names. The checkouts run at the same time in separate
processes, in which only the checkout is on the path. The exit status is 1 if anything differs.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

OPTIONS: dict[str, dict[str, str]] = {
    "default": {},
    "--forms canonical": {"forms": "canonical"},
    "--quantization float": {"quantization": "float"},
    "--io-layout tflite": {"io_layout": "tflite"},
    "--activations int8": {"activations": "int8"},
}
# The program that runs in each checkout: it reads models and options from stdin, and prints a line
# of JSON for each pair.
WORKER = """
import hashlib, json, logging, sys
from pathlib import Path
import tflite2onnx
logging.disable()
root, made = sys.argv[1:]
home = Path(tflite2onnx.__file__).resolve()
assert home.is_relative_to(root), f"{home} is not in {root}"
def outcome(model, options):
    try:
        tflite2onnx.convert(model, made, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\\n")[0]
    files = sorted(Path(made).parent.iterdir())
    digests = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]
    for file in files:
        file.unlink()
    return f"ONNX file {' '.join(digests)}"
for line in sys.stdin:
    print(json.dumps(outcome(*json.loads(line))), flush=True)
"""

Case = tuple[Path, str]


def every_model(places: Sequence[Path]) -> Iterator[Path]:
    """Yield the model files in a list of files and folders."""
    for place in places:
        yield from sorted(place.rglob("*.tflite")) if place.is_dir() else [place]


def convert_all(checkout: Path, cases: Sequence[Case]) -> list[str]:
    """Return the result of a checkout for each case as a line, in the order of the cases.

    A process that ends before the last case gets a line about the case at which it ended; the next
    process continues after that case.
    """
    lines: list[str] = []
    while len(lines) < len(cases):
        text = "".join(json.dumps([str(m), OPTIONS[o]]) + "\n" for m, o in cases[len(lines) :])
        with TemporaryDirectory() as folder:
            worker = [sys.executable, "-c", WORKER, str(checkout), str(Path(folder, "m.onnx"))]
            done = subprocess.run(  # noqa: S603 - the Python of this process
                worker,
                input=text,
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(checkout)},
            )
        made = [json.loads(line) for line in done.stdout.splitlines()]
        if not lines and not made and done.returncode == 1:
            sys.exit(f"{checkout}: {done.stderr.strip()}")
        lines += made
        if done.returncode:
            lines.append(f"the process ended with status {done.returncode}")
    return lines


def main() -> int:
    """Compare, print the differences and a summary, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path, help="the checkout before")
    parser.add_argument("new", type=Path, help="the checkout after")
    parser.add_argument("models", type=Path, nargs="*", help="models, or folders of models")
    given = parser.parse_args()
    checkouts = [given.old.resolve(), given.new.resolve()]
    zoo = os.environ.get("TFLITE2ONNX_ZOO")
    places = [checkouts[1] / "assets" / "models", *([Path(zoo)] if zoo else [])]
    models = [model.resolve() for model in every_model(given.models or places)]
    cases = list(product(dict.fromkeys(models), OPTIONS))
    if not cases:
        sys.exit("there are no models to convert")
    with ThreadPoolExecutor() as pool:
        old, new = pool.map(convert_all, checkouts, [cases, cases])
    differing = 0
    for (model, options), before, after in zip(cases, old, new, strict=True):
        if before != after:
            differing += 1
            print(f"{model} ({options}):\n  old: {before}\n  new: {after}")
    files = sum(line.startswith("ONNX file") for line in new)
    print(
        f"{len(cases) // len(OPTIONS)} models, {len(cases)} conversions: {differing} differ"
        f" (the new checkout makes {files} files and {len(cases) - files} errors)"
    )
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
