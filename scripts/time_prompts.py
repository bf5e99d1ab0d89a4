"""Time of a prompt and of the steps after it in onnxruntime-genai, on one thread.

    tflite2onnx MODEL.tflite -o FOLDER --target genai
    python scripts/time_prompts.py FOLDER ... [--tokens 100]

The folders run in turn. Times are processor time, medians in ms.
"""

from __future__ import annotations

import usage  # noqa: F401 - packages may be missing

import argparse
import sys
import time
from statistics import median

import numpy as np
import onnxruntime_genai as og

_TURNS, _STEPS = 7, 20


def main() -> int:
    """Print the times of each folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--tokens", type=int, default=100)
    chosen = parser.parse_args()
    models = {folder: open_model(folder) for folder in chosen.folders}
    times = {folder: [] for folder in models}
    for _ in range(_TURNS):
        for folder, model in models.items():
            times[folder].append(time_prompt(model, chosen.tokens))
    for folder, pairs in times.items():
        prompt, step = (1e3 * median(each) for each in zip(*pairs, strict=True))
        print(f"{folder}: {chosen.tokens} tokens {prompt:.1f} ms, a step {step:.2f} ms")
    return 0


def open_model(folder: str) -> og.Model:
    """Return a model that runs on one thread."""
    config = og.Config(folder)
    threads = '{"model": {"decoder": {"session_options": {"intra_op_num_threads": 1}}}}'
    config.overlay(threads)
    return og.Model(config)


def time_prompt(model: og.Model, tokens: int) -> tuple[float, float]:
    """Return the seconds of a prompt, and of a step after it."""
    length = tokens + _STEPS
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=length, min_length=length, do_sample=False)
    generator = og.Generator(model, params)
    prompt = np.random.default_rng(5).integers(1, 500, tokens).astype(np.int32)
    start = time.thread_time()
    generator.append_tokens(prompt[None])
    first, steps = time.thread_time() - start, []
    while not generator.is_done():
        start = time.thread_time()
        generator.generate_next_token()
        steps.append(time.thread_time() - start)
    return first, median(steps)


if __name__ == "__main__":
    sys.exit(main())
