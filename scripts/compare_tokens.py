"""The tokens and the sizes of converted language models, as rows of a table.

    python scripts/compare_tokens.py MODEL.tflite BUNDLE.litertlm ...
    python scripts/compare_tokens.py FOLDER ...

Each model is converted for onnxruntime-genai, which must be installed, and verified: the tokens
after prompts of 7, 40 and 400 tokens, as far as the caches have room, beside LiteRT's. The size is
that of the ONNX files and the weights of all signatures, as a part of the model.

A folder has a model with several types of weights, which the names of the files say (`_TYPES`). Its
row has the equal tokens by type, and the tokens of a prompt that one run takes.
"""

from __future__ import annotations

import usage  # noqa: F401 - packages may be missing

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_WEIGHTS = {".onnx", ".data"}
# The columns of a folder, and the files: recipes of ai-edge-quantizer.
_TYPES = {
    "float32": "model.litertlm",
    "float16": "f16.tflite",
    "int8": "wi8.tflite",
    "int8, weight only": "wo8.tflite",
    "int4 in blocks of 32": "wi4b32.tflite",
    "of 64": "wi4b64.tflite",
    "of 128": "wi4b128.tflite",
    "of 256": "wi4b256.tflite",
    "int4, channels": "wi4c.tflite",
    "int4, Hadamard": "wi4hr.tflite",
}


def main(models: list[str]) -> int:
    """Print a row for each model or folder, and return the exit status."""
    if Path(models[0]).is_dir():
        print(f"| model | prompts | {' | '.join(_TYPES)} | tokens in a run |")
        print(f"| --- | --- | {'--- | ' * len(_TYPES)}--- |")
        return max((print_folder(Path(model)) for model in models), default=0)
    print("| model | prompts | equal | ties | wrong | size |")
    print("| --- | --- | --- | --- | --- | --- |")
    return max((print_row(Path(model)) for model in models), default=0)


def print_folder(folder: Path) -> int:
    """Convert and verify the models of a folder, print their row, and return the exit status."""
    cells, prompts, chunks, status = list[str](), set[str](), set[str](), 0
    for name in _TYPES.values():
        if not (folder / name).is_file():
            cells.append("-")
            continue
        with TemporaryDirectory() as made:
            found, output = run_chat(folder / name, Path(made))
            config = json.loads(Path(made, "genai_config.json").read_text())
        lengths, equal, ties, wrong = read_chat(output)
        prompts.add(lengths)
        chunks.add(str(config["search"]["chunk_size"]))
        notes = [f"{n} {word}" for n, word in ((ties, "tied"), (wrong, "wrong")) if n.strip("0")]
        cells.append(", ".join([equal.partition(" ")[0], *notes]))
        status = max(status, found)
    row = [folder.name, " and ".join(sorted(prompts)), *cells, " and ".join(sorted(chunks))]
    print(f"| {' | '.join(row)} |", flush=True)
    return status


def run_chat(model: Path, folder: Path) -> tuple[int, str]:
    """Convert a model for onnxruntime-genai, verify it, and return the status and the output."""
    return run_tool(model, folder, "--target", "genai", "--verify", "--json")


def print_row(model: Path) -> int:
    """Convert and verify a model, print its row, and return the exit status."""
    with TemporaryDirectory() as folder:
        status, output = run_chat(model, Path(folder, "chat"))
        run_tool(model, Path(folder, "all"), "--signature", "all")
        size = sum(f.stat().st_size for f in Path(folder, "all").glob("*") if f.suffix in _WEIGHTS)
    label = f"{model.parent.name}/{model.name}" if model.stem == "model" else model.name
    found = read_chat(output)
    ratio = f"{size / model.stat().st_size:.3f}"
    print(f"| {label} | {' | '.join(found)} | {ratio} |", flush=True)
    return status


def read_chat(output: str) -> list[str]:
    """Return the cells of a verification: the prompts, and the equal, tied and wrong tokens."""
    models = json.loads(output)["models"] if output else [{"error": "no output"}]
    (entry,) = models
    if "chat" not in entry:
        return [str(entry.get("error", "")), "", "", ""]
    decodings: list[dict[str, Any]] = entry["chat"]["decodings"]
    count = sum(len(each["tokens"]) for each in decodings)
    equal, wrong = (sum(map(of, decodings)) for of in (count_equal, lambda d: len(d["wrong"])))
    lengths = ", ".join(str(len(each["prompt"])) for each in decodings)
    return [lengths, f"{equal} of {count}", str(count - equal - wrong), str(wrong)]


def count_equal(decoding: dict[str, Any]) -> int:
    """Return the number of equal tokens."""
    return sum(a == b for a, b in zip(decoding["tokens"], decoding["litert"], strict=True))


def run_tool(model: Path, folder: Path, *words: str) -> tuple[int, str]:
    """Run the command line, and return its exit status and its output."""
    command = [sys.executable, "-m", "tflite2onnx", str(model), "-o", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
