"""The factors of the time of nodes that are no convolutions, for `costs.py`.

Chains of two and of ten equal nodes run on one thread without ONNX Runtime's optimizations, which
would join some of them. The difference of their times is that of eight nodes. For each kernel,
factors that are not negative are fitted, as by `fit_convolutions.py`, and printed below the row of
`costs.py` for this processor::

    python scripts/fit_nodes.py
    python scripts/fit_nodes.py function row

The words are the kernels that are measured; without words all are. The chains run in turns; the
lower quartile of the processor times counts. `python scripts/hide_avx512.py` before the command
measures the kernels for AVX2.
"""

import usage  # noqa: F401 - packages may be missing

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
from fit_convolutions import find_block, fit_factors
from inference import bind_onnx_runtime, measure_inferences
from onnx import TensorProto, helper, numpy_helper

from tflite2onnx.targets.onnxruntime.costs import FACTORS, Factors, Terms
from tflite2onnx.utils.processor import describe_processor

SHORT, LONG = 2, 10  # links of the chains
TURNS = 9
LENGTHS = (64, 1024, 8192, 65536, 400_000)  # numbers of a tensor
FEW = (16, 32, 64, 128)  # numbers of small nodes
ROWS = (64, 256, 512)  # of a square matrix
MATRICES = ((8, 64), (64, 64), (256, 32), (32, 256), (512, 128))
BLOCKS = ((4, 16, 8), (16, 16, 64), (64, 32, 4), (32, 64, 32), (8, 256, 64))
PARTS = (4, 8, 16)
PIXELS = (
    (64, 2),
    (256, 8),
    (1024, 16),
    (1024, 32),
    (4096, 64),
    (4096, 4),
    (16, 4096),
    (64, 512),
    (256, 256),
)  # and channels
IMAGES = ((9, 28), (18, 28), (33, 14), (50, 14), (27, 56), (6, 56), (90, 7))  # channels, pixels
LEAST = 0.05  # microseconds, below which the difference of two chains is noise
FUNCTIONS = ("Add", "Mul", "Exp", "Sigmoid", "Tanh")

Step = tuple[str, Sequence[Any], dict[str, Any]]  # an operator, its inputs and attributes


class Link(NamedTuple):
    """The steps of a link, whose results have the shape of x, and their terms.

    An input of a step is "x", the number of an earlier step, or a constant. The time of `others`,
    steps that also have the shape of x, is subtracted; the rest is that of `nodes` nodes.
    """

    kernel: str
    terms: Terms
    shape: tuple[int, ...]
    steps: Sequence[Step]
    nodes: int = 1
    others: Sequence[Step] = ()
    dtype: str = "float32"


def list_links() -> Iterator[Link]:
    """Yield the links of all chains."""
    for n in LENGTHS:
        for code in FUNCTIONS:
            inputs = ["x", np.float32(0.5)] if code in {"Add", "Mul"} else ["x"]
            yield Link("function", Terms(loads=n), (n,), [(code, inputs, {})])
        yield Link("softplus", Terms(loads=n), (n,), [("Softplus", ["x"], {})])
        yield Link("elu", Terms(loads=n), (n,), [("Elu", ["x"], {})])
        one, zero = np.float32(1), np.float32(0)
        steps: list[Step] = [("Min", ["x", zero], {}), ("Exp", [0], {}), ("Sub", [1, one], {})]
        yield Link("exponentials", Terms(loads=n), (n,), [*steps, ("Max", ["x", 2], {})])
        yield Link("reshape", Terms(), (n,), reshape((n,)))
    for n in FEW:
        yield Link("small", Terms(), (n,), [("Add", ["x", np.float32(0.5)], {})])
    for n in ROWS:
        matrix = np.full((n, n), 1 / n, np.float32)
        yield Link("row", Terms(loads=n * n), (1, n), [("MatMul", ["x", matrix], {})])
    for n in FEW[:3]:
        yield multiply_integers(n)
    yield from move_numbers()
    for channels, size in IMAGES:
        for window in (1, 3):
            yield convolve(channels, size, window, 1)
        yield convolve(channels, size, 3, channels)
    for pixels, channels in PIXELS:
        for code in ("QLinearAdd", "QLinearMul"):
            yield scale_integers(code, pixels, channels)


def multiply_integers(n: int) -> Link:
    """Return the link of a product of one row of integers, which QGemm computes."""
    generator = np.random.default_rng(0)
    weights = generator.integers(-99, 99, (n, n)).astype(np.int8)
    scale, zero = np.float32(0.01), np.uint8(128)
    inputs = ["x", scale, zero, weights, scale, np.int8(0), np.zeros(n, np.int32), scale, zero]
    step = ("QGemm", inputs, {"domain": "com.microsoft"})
    return Link("integer row", Terms(), (1, n), [step], dtype="uint8")


def scale_integers(code: str, pixels: int, channels: int) -> Link:
    """Return the link of integers with a constant for each channel."""
    scale, zero = np.float32(0.01), np.uint8(128)
    constant = np.arange(channels).astype(np.uint8)
    inputs = ["x", scale, zero, constant, scale, zero, scale, zero]
    terms = Terms(loads=pixels * channels, rows=pixels)
    step = (code, inputs, {"domain": "com.microsoft"})
    return Link("integer runs", terms, (pixels, channels), [step], dtype="uint8")


def convolve(channels: int, size: int, window: int, groups: int) -> Link:
    """Return the link of a convolution outside of the blocks of channels."""
    filters = np.full((channels, channels // groups, window, window), 0.01, np.float32)
    step = ("Conv", ["x", filters], {"group": groups, "pads": [window // 2] * 4})
    terms = Terms(products=size**2 * filters.size)
    kernel = "planar" if groups == 1 else "channels"
    return Link(kernel, terms, (1, channels, size, size), [step])


def move_numbers() -> Iterator[Link]:
    """Yield the links of nodes that move floats, and of means of columns."""
    for shape in MATRICES:
        rows, columns = shape
        n = rows * columns
        numbers = Terms(loads=n)
        yield Link("axis", numbers, shape, transpose(shape, 1, 0), others=reshape(shape))
        yield Link("move", Terms(loads=2 * rows, size=4 * n), shape, part(2, 1), nodes=2)
        order = np.random.default_rng(0).permutation(rows)
        gather: Step = ("Gather", ["x", order], {"axis": 0})
        yield Link("rows", Terms(loads=rows, size=4 * n), shape, [gather])
        mean: Step = ("ReduceMean", ["x"], {"axes": [0], "keepdims": 1})
        row = np.ones((1, columns), np.float32)
        added: list[Step] = [("Add", ["x", row], {})]
        yield Link("mean", numbers, shape, [mean, ("Add", ["x", 0], {})], others=added)
    for block in BLOCKS:
        n, runs, others = prod(block), prod(block[:2]), reshape(block)
        yield Link("elements", Terms(loads=n), block, transpose(block, 2, 1, 0), others=others)
        terms = Terms(loads=runs, size=4 * n)
        yield Link("move", terms, block, transpose(block, 1, 0, 2), others=others)
    for count in PARTS:
        two = part(2, 0)
        yield Link("part", Terms(), (count, 16), part(count, 0), 2 * (count - 2), two)


def reshape(shape: tuple[int, ...], x: str | int = "x") -> list[Step]:
    """Return the Reshape of a tensor."""
    return [("Reshape", [x, np.array(shape)], {})]


def transpose(shape: tuple[int, ...], *order: int) -> list[Step]:
    """Return the Transpose of a tensor, and the Reshape to its shape before."""
    return [("Transpose", ["x"], {"perm": order}), *reshape(shape, 0)]


def part(count: int, axis: int) -> list[Step]:
    """Return a Split, and a Concat of its parts in the reverse order."""
    split: Step = ("Split", ["x"], {"axis": axis, "outputs": count})
    return [split, ("Concat", [(0, i) for i in reversed(range(count))], {"axis": axis})]


def build_chain(link: Link, steps: Sequence[Step], count: int) -> bytes:
    """Return a model of steps of a link, as often as `count`."""
    nodes, constants, x = [], [], "x0"
    for i in range(count):
        made: list[list[str]] = []
        for k, (code, inputs, words) in enumerate(steps):
            names = []
            for j, value in enumerate(inputs):
                if isinstance(value, (str, int, tuple)):
                    names.append(x if value == "x" else find_result(made, value))
                    continue
                names.append(f"c{i}.{k}.{j}")
                constants.append(numpy_helper.from_array(np.asarray(value), names[-1]))
            is_last = k == len(steps) - 1
            own = f"x{i + 1}" if is_last else f"y{i}.{k}"
            attributes = {**words}
            outputs = attributes.pop("outputs", 1)
            made.append([own] if outputs == 1 else [f"{own}.{j}" for j in range(outputs)])
            nodes.append(helper.make_node(code, names, made[-1], **attributes))
        x = f"x{i + 1}"
    dtype = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8}[link.dtype]
    ends = [helper.make_tensor_value_info(name, dtype, link.shape) for name in ("x0", x)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def find_result(made: Sequence[Sequence[str]], value: Any) -> str:  # noqa: ANN401 - a number or two
    """Return the name of a result: the number of the step, and that of the output."""
    step, output = value if isinstance(value, tuple) else (value, 0)
    return made[step][output]


def measure_link(link: Link) -> float:
    """Return the microseconds of a node of a link."""
    models = [build_chain(link, link.steps, n) for n in (SHORT, LONG)]
    models += [build_chain(link, link.others, n) for n in (SHORT, LONG) if link.others]
    runs = [bind_onnx_runtime(model, optimize=False) for model in models]
    short, long, *others = measure_inferences(runs, TURNS)
    seconds = long - short - (others[1] - others[0] if others else 0)
    return max(1e6 * seconds / (LONG - SHORT) / link.nodes, LEAST)


def fit_nodes(kernels: Sequence[str]) -> dict[str, tuple[Factors, np.ndarray]]:
    """Return the factors of kernels, of all if none is named, and the relative errors of links."""
    links = [link for link in list_links() if not kernels or link.kernel in kernels]
    rows: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for link in links:
        millions = (1e-6 * term for term in link.terms)
        rows[link.kernel].append((1, *millions, measure_link(link)))
    fitted = {}
    for kernel, each in rows.items():
        table = np.array(each)
        terms, times = table[:, :-1], table[:, -1]
        factors = fit_factors(terms, times)
        errors = np.abs(terms @ factors / times - 1)
        fitted[kernel] = Factors(*map(float, factors)), errors
    return fitted


def main() -> None:
    """Print the factors of each kernel below those that stand, and the errors."""
    names = sorted({link.kernel for link in list_links()})
    parser = argparse.ArgumentParser(description="Factors of the time of nodes.")
    parser.add_argument("kernels", nargs="*", help=f"of {', '.join(names)}")
    kernels = parser.parse_args().kernels
    if unknown := sorted({*kernels} - {*names}):
        parser.error(f"kernels must be of {', '.join(names)}, got {', '.join(unknown)}")
    block = find_block()
    print(f"ONNX Runtime {ort.__version__}, {describe_processor()}, {os.cpu_count()} cores")
    for kernel, (factors, errors) in fit_nodes(kernels).items():
        quantiles = ", ".join(f"{np.quantile(errors, part):.0%}" for part in (0.5, 0.9))
        stands = FACTORS[block].get(kernel)
        print(f'"{kernel}": {stands and write(stands)}')
        print(f"    {write(factors)}  # {len(errors)} chains, errors {quantiles}")


def write(factors: Factors) -> str:
    """Return the text of a row."""
    return f"Factors({', '.join(f'{factor:.4g}' for factor in factors)})"


if __name__ == "__main__":
    main()
