"""Compare networks of integers bit by bit: in ONNX Runtime on ARM64, and on this processor.

QEMU emulates three processors: Cortex-A72 without dot product, Neoverse-N1 with it, and one with
all extensions, such as i8mm. The networks are those with 8-bit integers, dynamic range or 16-bit
integers, in assets/models and the folder that TFLITE2ONNX_ZOO names, or in the given files and
folders::

    python scripts/runtimes.py --make arm64-max
    TFLITE2ONNX_ZOO=FOLDER python scripts/compare_arm64.py

A network runs on two random inputs, with the options that `convert` chooses by default. The script
prints a line for each network and processor, and exits with 1 if any bits differ.
"""

from __future__ import annotations

import usage  # noqa: F401 - packages may be missing

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from scripts.runtimes import every_model
from tests.golden.closeness import Distance
from tests.runtimes.environments import ARM64, SERVE, Runtime
from tests.runtimes.remote import Refused, RemoteSession
from tests.support import random_inputs
from tflite2onnx import Stateful, convert
from tflite2onnx.errors import ConversionError

EQUAL = "equal"
_SEEDS = 2
_RANGES = {"float32": (-1, 1), "int32": (0, 1), "int64": (0, 1)}


def has_integers(data: bytes) -> bool:
    """Return whether a network has quantized tensors of 8 or 16 bits."""
    subgraphs = schema.Model.GetRootAs(data)
    tensors = (
        subgraph.Tensors(i)
        for subgraph in map(subgraphs.Subgraphs, range(subgraphs.SubgraphsLength()))
        for i in range(subgraph.TensorsLength())
    )
    kinds = (schema.TensorType.INT8, schema.TensorType.UINT8, schema.TensorType.INT16)
    return any(
        tensor.Type() in kinds and (scales := tensor.Quantization()) and scales.ScaleLength()
        for tensor in tensors
    )


def compare_processors(
    path: Path, runtimes: Sequence[Runtime], seconds: float = 600
) -> dict[str, str]:
    """Return "equal", or how the outputs differ from this processor's, for each runtime."""
    data, result = path.read_bytes(), convert(path)
    order = [(end.name, end.order) for end in result.inputs]
    feeds = [
        {
            name: np.ascontiguousarray(x.transpose(axes))
            for (name, axes), x in zip(order, random_inputs(data, seed, **_RANGES), strict=True)
        }
        for seed in range(_SEEDS)
    ]
    here = [sys.executable, str(SERVE), "onnxruntime"]
    with ExitStack() as stack:

        def run_stream(command: Sequence[str]) -> list[np.ndarray]:
            model = result.skeleton.serialize()
            live = stack.enter_context(closing(RemoteSession(command, model, seconds)))
            session = Stateful(live)
            return [output for each in feeds for output in session.run(None, each)]

        want, found = run_stream(here), {}
        for runtime in runtimes:
            try:
                have = run_stream(runtime.command)
            except Refused as error:
                found[runtime.processor] = str(error)
                continue
            pairs = [p for p in zip(want, have, strict=True) if p[0].tobytes() != p[1].tobytes()]
            far = (str(Distance.measure(*pair)) for pair in pairs)
            found[runtime.processor] = next(far, EQUAL)
    return found


def main() -> int:
    """Compare networks; return 1 if any differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", type=Path, nargs="*", help="models, or folders of models")
    counts: Counter[tuple[str, bool]] = Counter()
    for path in every_model(parser.parse_args().models):
        try:
            found = compare_processors(path, ARM64) if has_integers(path.read_bytes()) else {}
        except (ConversionError, Refused) as error:
            print(f"{path.name}: not compared: {error}", flush=True)
            continue
        for processor, verdict in found.items():
            counts[processor, verdict == EQUAL] += 1
            print(f"{processor:12} {path.name}: {verdict}", flush=True)
    for (processor, is_equal), number in sorted(counts.items()):
        print(f"{processor:12} {'equal' if is_equal else 'different'}: {number}")
    return int(not all(is_equal for _, is_equal in counts))


if __name__ == "__main__":
    sys.exit(main())
