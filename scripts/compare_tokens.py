"""The tokens and the sizes of converted language models, as rows of a table.

    python scripts/compare_tokens.py MODEL.tflite BUNDLE.litertlm ...

Each model is converted for onnxruntime-genai, which must be installed, and verified: the tokens
after prompts of 7, 40 and 400 tokens, as far as the caches have room, beside LiteRT's. The size is
that of the ONNX files and the weights of all signatures, as a part of the model.
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


def main(models: list[str]) -> int:
    """Print a row for each model, and return the exit status."""
    print("| model | prompts | equal | ties | wrong | size |")
    print("| --- | --- | --- | --- | --- | --- |")
    return max((print_row(Path(model)) for model in models), default=0)


def print_row(model: Path) -> int:
    """Convert and verify a model, print its row, and return the exit status."""
    with TemporaryDirectory() as folder:
        chat = Path(folder, "chat")
        status, output = run_tool(model, chat, "--target", "genai", "--verify", "--json")
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
