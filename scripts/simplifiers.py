"""Count the nodes that simplifiers remove from converted models, by operator.

The models are converted with `--states required`, because simplifiers take an input with an initial
value for a constant, and remove it::

    pip install onnxsim onnxslim
    python scripts/simplifiers.py FOLDER

A node is counted as a node of constants if all its inputs are constants or nodes of constants. Each
simplifier runs twice, with and without constant folding: folding makes nodes of constants larger
constants. The numbers are those of the nodes before minus those of the nodes after.
"""

import usage  # noqa: F401 - packages may be missing

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import onnx

from tflite2onnx import ConversionError, convert

Kind = tuple[str, bool]  # the operator's type, and whether the node computes a constant


def run_onnxsim(model: onnx.ModelProto, *, folds: bool) -> onnx.ModelProto:
    """Return the model that onnxsim makes."""
    simplified: onnx.ModelProto
    simplified, _ = import_module("onnxsim").simplify(model, skip_constant_folding=not folds)
    return simplified


def run_onnxslim(model: onnx.ModelProto, *, folds: bool) -> onnx.ModelProto:
    """Return the model that onnxslim makes."""
    skipped = [] if folds else ["constant_folding"]
    simplified: onnx.ModelProto = import_module("onnxslim").slim(model, skip_optimizations=skipped)
    return simplified


SIMPLIFIERS: dict[str, Callable[..., onnx.ModelProto]] = {
    "onnxsim": run_onnxsim,
    "onnxslim": run_onnxslim,
}


def list_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs of a node."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g


def count_nodes(graph: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> Counter[Kind]:
    """Return the number of nodes of each kind, those of nested graphs too."""
    known = outer | {each.name for each in graph.initializer}
    known -= {each.name for each in graph.input}
    found: Counter[Kind] = Counter()
    for node in graph.node:
        nested = list(list_graphs(node))
        constant = not nested and set(node.input) <= known | {""} and bool(node.input)
        if constant or node.op_type == "Constant":
            known |= set(node.output)
        found[node.op_type, constant] += 1
        for each in nested:
            found += count_nodes(each, known)
    return found


def main() -> None:
    """Print a table of the nodes that each simplifier removes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a folder of models")
    given = parser.parse_args()
    logging.disable()
    columns = [(name, folds) for name in SIMPLIFIERS for folds in (True, False)]
    before: Counter[Kind] = Counter()
    after: dict[tuple[str, bool], Counter[Kind]] = {column: Counter() for column in columns}
    for path in sorted(given.folder.rglob("*.tflite")):
        try:
            model = convert(path, states="required").model
        except ConversionError:
            continue
        before += count_nodes(model.graph)
        for name, folds in columns:
            try:
                simplified = SIMPLIFIERS[name](model, folds=folds)
            except Exception as error:  # noqa: BLE001 - simplifiers raise anything
                print(f"{name} does not simplify {path.name}: {error}", file=sys.stderr)
                simplified = model
            after[name, folds] += count_nodes(simplified.graph)
    titles = [name if folds else f"{name} without constant folding" for name, folds in columns]
    print(f"| removed | {' | '.join(titles)} |\n{'| --- ' * (len(columns) + 1)}|")
    largest = sorted(
        before, key=lambda kind: -max(abs(before[kind] - n[kind]) for n in after.values())
    )
    for kind in [*largest, *sorted(set().union(*after.values()) - before.keys())]:
        numbers = [before[kind] - found[kind] for found in after.values()]
        if any(numbers):
            label = f"{kind[0]} of constants" if kind[1] else kind[0]
            print(f"| {label} | {' | '.join(map(str, numbers))} |")
    left = [f"{found.total():,} of {before.total():,}" for found in after.values()]
    print(f"| nodes left | {' | '.join(left)} |")


if __name__ == "__main__":
    main()
