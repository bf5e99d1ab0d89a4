"""The factors of the time of convolutions in ONNX Runtime, for `cost.py` of the passes.

Random chains of convolutions run on one thread, and ONNX Runtime profiles their nodes. For each
kernel, three factors that are not negative are fitted to the times of its nodes, so that the sum of
the squared relative errors is least::

    python scripts/fit_convolutions.py 60

The number is that of the chains. `--block` is by default that of this processor.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnxruntime as ort
from inference import make_feeds
from onnx import TensorProto, helper, numpy_helper

from tflite2onnx.passes.patterns.convolutions.cost import Factors, find_kernel
from tflite2onnx.utils.processor import instruction_sets
from tflite2onnx.verification.latency import NodeTime, profile_nodes
from tflite2onnx.verification.runtimes import session_of

SIZES = (7, 14, 28, 56, 112)
CHANNELS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
LARGE, MOST = 56, 64  # images of this size have at most so many channels
CHAINS = 60  # enough for the median error of a kernel to be below 10 %
LEAST = 0.5  # microseconds: the resolution of the profile


def build_chain(generator: np.random.Generator) -> bytes:
    """Return a model of seven convolutions: first, 1x1, depthwise, 1x1, 3x3, depthwise, 1x1."""
    size = int(generator.choice(SIZES))
    counts = [int(n) for n in generator.choice(CHANNELS, 5)]
    a, b, c, d, e = (min(n, MOST) if size >= LARGE else n for n in counts)
    stride, window = int(generator.choice((1, 2))), int(generator.choice((3, 5)))
    layers = [(3, a, 3, 1, 1), (a, b, 1, 1, 1), (b, b, 3, stride, b), (b, c, 1, 1, 1)]
    layers += [(c, d, 3, 1, 1), (d, d, window, 1, d), (d, e, 1, 1, 1)]
    nodes, constants, x = [], [], "x"
    for i, (inputs, outputs, k, step, groups) in enumerate(layers):
        filters = generator.standard_normal((outputs, inputs // groups, k, k)).astype(np.float32)
        constants.append(numpy_helper.from_array(filters, f"w{i}"))
        constants.append(numpy_helper.from_array(np.ones(outputs, np.float32), f"b{i}"))
        words: dict[str, Any] = {"strides": [step] * 2, "pads": [k // 2] * 4, "group": groups}
        nodes.append(helper.make_node("Conv", [x, f"w{i}", f"b{i}"], [f"y{i}"], **words))
        x = f"y{i}"
    ends = ("x", [1, 3, size, size]), (x, None)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in ends]
    graph = helper.make_graph(nodes, "chain", infos[:1], infos[1:], constants)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()


def describe_node(node: NodeTime, block: int) -> tuple[str, int, int] | None:
    """Return the kernel, the multiplications and the bytes of a node, None for other nodes."""
    if node.kind not in {"Conv", "ReorderOutput"} or not (node.inputs and node.outputs):
        return None
    size = 4 * (prod(node.inputs[0]) + prod(node.outputs[0]))
    if node.kind == "ReorderOutput":
        return "reorder", 0, size
    if node.inputs[1][0] % block:
        return None
    outputs, inputs, *window = node.inputs[1]
    depthwise = inputs == 1 < outputs
    products = prod(node.inputs[1]) * prod(node.outputs[0][2:])
    return find_kernel(block, inputs, tuple(window), depthwise=depthwise), products, size


def profile_chains(count: int, block: int) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Yield the kernel of each node, with its multiplications, bytes and microseconds."""
    generator = np.random.default_rng(1)
    for _ in range(count):
        with TemporaryDirectory() as directory:
            profile = str(Path(directory) / "profile")
            session = session_of(build_chain(generator), threads=1, profile=profile)
            for node in profile_nodes(session, make_feeds(session)):
                if (described := describe_node(node, block)) is not None:
                    kernel, products, size = described
                    yield kernel, (products, size, 1e6 * node.seconds)


def fit_factors(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return three factors that are not negative, and the relative errors."""
    times = np.maximum(rows[:, 2], LEAST)
    terms = np.stack([np.ones(len(rows)), 1e-6 * rows[:, 0], 1e-6 * rows[:, 1]], 1)
    used = [i for i in range(3) if np.any(terms[:, i])]
    while True:
        found = np.linalg.lstsq(terms[:, used] / times[:, None], np.ones(len(rows)), rcond=None)[0]
        if np.all(found >= 0):
            break
        used.pop(int(np.argmin(found)))
    factors = np.zeros(3)
    factors[used] = found
    return factors, np.abs(terms @ factors / times - 1)


def find_block() -> int:
    """Return the channels of a block of ONNX Runtime on this processor."""
    return 16 if instruction_sets().get("AVX-512") else 8


def fit_kernels(chains: int, block: int) -> dict[str, Factors]:
    """Return the factors of each kernel on this processor."""
    fitted = fit_chains(chains, block).items()
    return {kernel: Factors(*map(float, factors)) for kernel, (factors, _) in fitted}


def fit_chains(chains: int, block: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the factors of each kernel, and the relative errors of its nodes."""
    rows = defaultdict(list)
    for kernel, row in profile_chains(chains, block):
        rows[kernel].append(row)
    return {kernel: fit_factors(np.array(each)) for kernel, each in sorted(rows.items())}


def main() -> None:
    """Print the factors of each kernel, and the errors."""
    parser = argparse.ArgumentParser(description="Factors of the time of convolutions.")
    parser.add_argument("chains", type=int, nargs="?", default=CHAINS)
    parser.add_argument("--block", type=int, choices=(8, 16), default=find_block())
    options = parser.parse_args()
    print(f"ONNX Runtime {ort.__version__}, {os.cpu_count()} cores, blocks of {options.block}")
    for kernel, (factors, errors) in fit_chains(options.chains, options.block).items():
        numbers = ", ".join(f"{factor:.4g}" for factor in factors)
        quantiles = ", ".join(f"{np.quantile(errors, part):.0%}" for part in (0.5, 0.9))
        print(f'"{kernel}": Factors({numbers}),  # {len(errors)} nodes, errors {quantiles}')


if __name__ == "__main__":
    main()
