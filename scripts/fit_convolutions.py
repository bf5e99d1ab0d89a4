"""The factors of the time of convolutions in ONNX Runtime, for `costs.py`.

Random chains of convolutions run on one thread, and ONNX Runtime profiles their nodes. For each
kernel, factors that are not negative are fitted to the times of its nodes, so that the sum of the
squared relative errors is least::

    python scripts/fit_convolutions.py 120

The number is that of the chains. `--block` is by default that of this processor.
"""

import usage  # noqa: F401 - packages may be missing

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
from inference import make_feeds, open_session
from onnx import TensorProto, helper, load_model, numpy_helper

from tflite2onnx.targets.onnxruntime.costs import Factors, Terms, list_terms
from tflite2onnx.utils.processor import list_instructions
from tflite2onnx.verification.latency import NodeTime, profile_nodes
from tflite2onnx.verification.runtimes import make_session

SIZES = (7, 14, 28, 56, 112)
CHANNELS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MANY = (192, 256, 384, 512, 960)  # channels of images of at most SMALL pixels, between 1x1 filters
SMALL, MOST_IN_SMALL = 14, 256
LARGE, MOST = 56, 64  # Images of LARGE pixels or more have at most MOST channels.
# Chains in a model: weights of more chains exceed the caches that a small network fits into.
TOGETHER = 2
FIRST = (1, 3, 4, 8, 12)  # channels of the first image of a chain
WINDOWS = ((3, 3), (3, 3), (5, 5), (1, 3), (3, 1), (2, 2), (7, 7))
DEPTHWISE = ((3, 3), (3, 3), (5, 5), (1, 1))
ACTIVATIONS = ("", "Relu", "Clip")
MOVES = {"ReorderOutput": "reorder", "DepthToSpace": "pixels"}
CHAINS = 120  # with 120 chains the median error of a kernel is below 10 %
LEAST = 0.5  # microseconds: the resolution of the profiler


def build_model(generator: np.random.Generator) -> bytes:
    """Return a model of chains, so that filters are read from as far as in a whole network."""
    chains = [build_chain(generator, f"{i}/") for i in range(TOGETHER)]
    nodes, constants, inputs, outputs = ([x for each in chains for x in each[k]] for k in range(4))
    graph = helper.make_graph(nodes, "chains", inputs, outputs, constants)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()


def build_chain(generator: np.random.Generator, name: str) -> tuple[list[Any], ...]:
    """Return seven convolutions: first, 1x1, depthwise, 1x1, window, depthwise, 1x1.

    The channels of the last image become pixels. The lists are nodes, constants, inputs, outputs.
    """
    size = int(generator.choice(SIZES))
    counts = [int(n) for n in generator.choice(CHANNELS, 5)]
    a, b, c, d, e = (min(n, MOST if size >= LARGE else MOST_IN_SMALL) for n in counts)
    if size <= SMALL:
        b, c = (int(n) for n in generator.choice(MANY, 2))
    read, stride = int(generator.choice(FIRST)), int(generator.choice((1, 2)))
    first, middle = (tuple(map(int, generator.choice(WINDOWS))) for _ in range(2))
    two = [tuple(map(int, generator.choice(DEPTHWISE))) for _ in range(2)]
    layers: list[tuple[int, int, tuple[int, ...], int, int]] = [
        *((read, a, first, 1, 1), (a, b, (1, 1), 1, 1), (b, b, two[0], stride, b)),
        *((b, c, (1, 1), 1, 1), (c, d, middle, 1, 1), (d, d, two[1], 1, d), (d, e, (1, 1), 1, 1)),
    ]
    nodes, x = [], f"{name}x"
    constants = [numpy_helper.from_array(np.float32(n), f"{name}limit{n}") for n in (0, 6)]
    for i, (inputs, outputs, window, step, groups) in enumerate(layers):
        own = f"{name}{i}"
        filters = generator.standard_normal((outputs, inputs // groups, *window)).astype(np.float32)
        constants.append(numpy_helper.from_array(filters, f"{own}w"))
        constants.append(numpy_helper.from_array(np.ones(outputs, np.float32), f"{own}b"))
        pads = [(n - 1) // 2 for n in window] + [n // 2 for n in window]
        words: dict[str, Any] = {"strides": [step] * 2, "pads": pads, "group": groups, "name": own}
        activation = str(generator.choice(ACTIVATIONS))
        result = f"{own}z" if activation else f"{own}y"
        nodes.append(helper.make_node("Conv", [x, f"{own}w", f"{own}b"], [result], **words))
        if activation:
            limits = [f"{name}limit0", f"{name}limit6"] if activation == "Clip" else []
            nodes.append(helper.make_node(activation, [result, *limits], [f"{own}y"]))
        x = f"{own}y"
    nodes.append(helper.make_node("DepthToSpace", [x], [f"{name}z"], blocksize=2))
    ends = (f"{name}x", [1, read, size, size]), (f"{name}z", None)
    infos = [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each, shape in ends]
    return nodes, constants, infos[:1], infos[1:]


def describe_node(node: NodeTime, block: int) -> tuple[str, Terms] | None:
    """Return the kernel and the terms of convolutions in blocks and of moves after them."""
    if node.kind not in {"Conv", *MOVES} or not (node.inputs and node.outputs):
        return None
    made = 4 * prod(node.outputs[0])
    if node.kind in MOVES:
        return MOVES[node.kind], Terms(0, 0, 4 * prod(node.inputs[0]) + made)
    if node.inputs[1][0] % block:
        return None
    outputs, *filters = node.inputs[1]
    depthwise = filters[0] == 1 < outputs
    pixels = tuple(images * prod(size) for images, _, *size in (node.inputs[0], node.outputs[0]))
    kernel, terms = list_terms(block, tuple(filters), outputs, pixels, depthwise=depthwise)
    return kernel, terms._replace(activated=made if node.activation not in {"", "Relu"} else 0)


def profile_model(model: bytes | Path) -> list[NodeTime]:
    """Run an ONNX model on one thread, and return its nodes, each with its activation."""
    with TemporaryDirectory() as directory:
        optimized = Path(directory) / "optimized.onnx"
        open_session(model, 1, optimized)
        activations = {
            node.name: attribute.s.decode()
            for node in load_model(optimized, load_external_data=False).graph.node
            for attribute in node.attribute
            if attribute.name == "activation"
        }
        source = str(model) if isinstance(model, Path) else model
        session = make_session(source, threads=1, profile=str(Path(directory) / "profile"))
        return profile_nodes(session, make_feeds(session), activations)


def profile_chains(count: int, block: int) -> Iterator[tuple[str, Terms, float]]:
    """Yield the kernel of each node, its terms, and its microseconds."""
    generator = np.random.default_rng(1)
    for _ in range(-(-count // TOGETHER)):
        for node in profile_model(build_model(generator)):
            if (described := describe_node(node, block)) is not None:
                yield *described, max(1e6 * node.seconds, LEAST)


def fit_factors(terms: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return factors of terms that are not negative, 0 for terms that are always 0."""
    used = [i for i in range(terms.shape[1]) if np.any(terms[:, i])]
    while True:
        found = np.linalg.lstsq(terms[:, used] / times[:, None], np.ones(len(times)), rcond=None)[0]
        if np.all(found >= 0):
            break
        used.pop(int(np.argmin(found)))
    factors = np.zeros(terms.shape[1])
    factors[used] = found
    return factors


def find_block() -> int:
    """Return the channels of a block of ONNX Runtime on this processor."""
    return 16 if list_instructions().get("AVX-512") else 8


def fit_kernels(chains: int, block: int) -> dict[str, Factors]:
    """Return the factors of each kernel on this processor."""
    return {kernel: factors for kernel, (factors, _) in fit_chains(chains, block).items()}


def fit_chains(chains: int, block: int) -> dict[str, tuple[Factors, np.ndarray]]:
    """Return the factors of each kernel, and the relative errors of its nodes."""
    rows: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for kernel, terms, time in profile_chains(chains, block):
        rows[kernel].append((1, *(1e-6 * term for term in terms), time))
    fitted = {}
    for kernel, each in sorted(rows.items()):
        *terms, times = np.array(each).T
        factors = fit_factors(np.stack(terms, 1), times)
        errors = np.abs(np.stack(terms, 1) @ factors / times - 1)
        fitted[kernel] = Factors(*map(float, factors)), errors
    return fitted


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
