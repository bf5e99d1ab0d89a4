"""Convert networks for a batch of independent samples, and compare it with single runs in LiteRT.

    python scripts/batches.py assets/models
    python scripts/batches.py --batch n --images FOLDER ...

One line for each network that is not equal to single runs: why it is refused, or what differs. The
last line has the counts. The exit status is 1 if a converted network differs from single runs, or
if an input or output has another first size than the batch. With a name, such as `n`, the size is
dynamic, and a batch of 3 is compared. With `--images` the heights and widths of inputs with four
axes are dynamic, too: batches are compared at the sizes of the file and at two more sizes.

The outcomes: "equal"; "different"; "folded": an input or output has another first size; "refused":
it cannot be converted for a batch; "fixed": it is refused, and LiteRT runs fewer than two
of four other heights and widths, or makes several rows of one sample there; "unsupported": it
cannot be converted for one sample; "not run": a runtime does not run it.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from math import prod
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from tflite2onnx import ConversionError, convert, verify
from tflite2onnx.errors import OptionError, VerifyError
from tflite2onnx.graph import Graph
from tflite2onnx.reader.model import read_model
from tflite2onnx.result import Result
from tflite2onnx.signatures import find_signature
from tflite2onnx.tensor import Array, DType, Shape
from tflite2onnx.verification.entry_point import resize_entry_point
from tflite2onnx.verification.onnx_model import STEPS
from tflite2onnx.verification.results import SizeComparison
from tflite2onnx.verification.runtimes import open_interpreter, run_litert

_IMAGE = 4  # axes
_MOST_COLOURS = 4
_SAMPLES = 3  # samples in a batch of dynamic size
_SIZES = 2  # the number of sizes to compare, in addition to the size in the file
Outcome = tuple[str, str]


def main(words: Sequence[str] | None = None) -> int:
    """Print the result of each network, and the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--batch", default="3", help="a number, or a name (default: %(default)s)")
    parser.add_argument(
        "--images", action="store_true", help="heights and widths of images are dynamic, too"
    )
    options = parser.parse_args(words)
    batch = int(options.batch) if options.batch.isdigit() else options.batch
    counts: Counter[str] = Counter()
    for path in _list_models(options.paths):
        outcome, reason = _check_in_child(path, batch, images=options.images)
        counts[outcome] += 1
        if outcome != "equal":
            print(f"{path}: {outcome}: {reason}", flush=True)
    print(", ".join(f"{number} {outcome}" for outcome, number in counts.most_common()))
    return int(any(counts[outcome] for outcome in ("different", "folded")))


def _list_models(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.tflite")) if path.is_dir() else [path]


def _check_in_child(path: Path, batch: int | str, *, images: bool) -> Outcome:
    """Return the outcome for a network; LiteRT ends the process on some networks."""
    for runtime in ("onnxruntime", "ai_edge_litert.interpreter"):
        import_module(runtime)  # the child processes inherit the module
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_send_outcome, args=(theirs, path, batch, images))
    child.start()
    theirs.close()
    try:
        outcome: Outcome = ours.recv()
    except EOFError:
        child.join()
        return "not run", f"the process ended with status {child.exitcode}"
    child.join()
    return outcome


def _send_outcome(pipe: Connection, path: Path, batch: int | str, images: bool) -> None:  # noqa: FBT001 - for Process
    pipe.send(check_network(path, batch, images=images))


def check_network(path: Path, batch: int | str, *, images: bool = False) -> Outcome:
    """Return the outcome for a network, and the reason; the module describes the outcomes."""
    try:
        graph = _read_graph(path)
        shapes = _open_images(graph, batch) if images else {}
        result = convert(path, batch=batch, shapes=shapes)
    except ConversionError as error:
        reason = " ".join(str(error).split())
        if not isinstance(error, OptionError):
            return "unsupported", reason
        is_for_size = bool(shapes) and "cannot be dynamic" in reason
        sizes = _list_sizes_of_litert(path, graph) if is_for_size else []
        if is_for_size and len(sizes) < _SIZES:
            return "fixed", reason
        return "refused", f"{reason}; LiteRT runs {sizes[0]}" if sizes else reason
    folded = [
        end.name for end in (*result.inputs, *result.outputs) if end.tflite_sizes[:1] != (batch,)
    ]
    if folded:
        return "folded", ", ".join(folded)
    names = {n for sizes in shapes.values() for n in sizes if isinstance(n, str) and n != batch}
    return _compare(path, result, names, _draw_words(graph, batch))


def _read_graph(path: Path) -> Graph:
    model = read_model(path)
    return model.graphs[find_signature(model, None)[0]]


def _open_images(graph: Graph, batch: int | str) -> dict[str, list[int | str]]:
    """Return shapes of the inputs that are images, with names for their heights and widths."""
    shapes: dict[str, list[int | str]] = {}
    for tensor in graph.inputs:
        axes, end = _find_image_axes(tensor.shape), f"_{len(shapes)}" if shapes else ""
        if axes:
            sizes: list[int | str] = [*tensor.shape]
            sizes[0] = batch if tensor.shape[0] == 1 else tensor.shape[0]
            sizes[axes.start], sizes[axes.stop - 1] = f"height{end}", f"width{end}"
            shapes[tensor.name] = sizes
    return shapes


def _find_image_axes(shape: Shape) -> range:
    """Return the axes of the height and the width; the channels are last or, if few, first."""
    if len(shape) != _IMAGE:
        return range(0)
    channels_first = shape[1] <= _MOST_COLOURS < min(shape[2:])
    return range(2, 4) if channels_first else range(1, 3)


def _list_sizes_of_litert(path: Path, graph: Graph) -> list[str]:
    """Return other shapes of images that LiteRT runs for one sample.

    There are none if it makes several rows of one sample: a dense layer then reads pixels for which
    it was not trained.
    """
    found = []
    for step in STEPS:
        shapes = [
            tuple(step(n) if i in _find_image_axes(t.shape) else n for i, n in enumerate(t.shape))
            for t in graph.inputs
        ]
        try:
            interpreter = open_interpreter(resize_entry_point(path, shapes))
            samples = [interpreter.get_tensor(d["index"]) for d in interpreter.get_input_details()]
            outputs = run_litert(interpreter, samples)
        except (VerifyError, ValueError):
            continue
        if any(each.shape[:1] != (1,) for each in outputs):
            return []
        found.append(" ".join(map(str, map(list, shapes))))
    return found


def _draw_words(graph: Graph, batch: int | str) -> dict[str, Array]:
    """Return arrays for the inputs that are strings: there are no random words."""
    count = batch if isinstance(batch, int) else _SAMPLES
    shapes = {t.name: (count, *t.shape[1:]) for t in graph.inputs if t.dtype is DType.STRING}
    return {
        name: np.array([f"word {i}" for i in range(prod(shape))]).reshape(shape)
        for name, shape in shapes.items()
    }


def _compare(path: Path, result: Result, names: set[str], words: Mapping[str, Array]) -> Outcome:
    """Compare a batch with single runs; `names` are those of heights and widths."""
    try:
        report = verify(path, result, inputs=words, tensors=False)
    except VerifyError as error:
        return "not run", " ".join(str(error).split())
    runs = [SizeComparison({}, report.outputs), *(report.other_sizes or ())]
    wrong = [
        f"{each.name} by {each.largest:.3g} of {each.spread:.3g} {run}"
        for run in runs
        for each in run.outputs
        if not each.ok
    ]
    if wrong:
        return "different", ", ".join(wrong)
    names &= {name for end in result.inputs for name in end.symbols.values()}
    compared = sum(_changes(run.sizes, result, names) for run in runs)
    if names and compared < _SIZES:
        return "fixed", f"LiteRT runs {compared} other heights and widths"
    return "equal", ""


def _changes(sizes: Mapping[str, int], result: Result, names: set[str]) -> bool:
    """Return whether heights and widths differ from those of the file."""
    known = {
        name: end.tflite_shape[axis] for end in result.inputs for axis, name in end.symbols.items()
    }
    return any(sizes.get(name, known[name]) != known[name] for name in names)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    raise SystemExit(main())
