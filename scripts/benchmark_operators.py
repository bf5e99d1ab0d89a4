"""The time of single operators beside LiteRT: alone, and between two convolutions.

A network hides a slow operator behind the many others that it has. Here each operator is a model of
its own, and the middle of a model between two 1x1 convolutions, where ONNX Runtime keeps images in
blocks of channels::

    python scripts/benchmark_operators.py
    python scripts/benchmark_operators.py RESIZE POOL --type int8

The words select the rows that have one of them. Both runtimes run in turns, in one process and on
one thread; the lower quartile of the processor times counts. The columns are the microseconds of
the operator alone in LiteRT, and the time in ONNX Runtime divided by it; then the same for the
model with the convolutions, and the nodes that ONNX Runtime runs there beside the convolutions. A
row is marked where a ratio is above 1.5 and the difference is more than the cost of some nodes.
"""

import usage  # noqa: F401 - packages may be missing

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from inference import Inference, make_feeds, measure_inferences, open_litert, open_onnx_runtime

import tflite2onnx
from tests.support.graph_text import make_model
from tflite2onnx.utils.processor import describe_processor
from tflite2onnx.verification.latency import profile_nodes
from tflite2onnx.verification.runtimes import make_session

TURNS = 15
SLOW, LEAST = 1.5, 10e-6  # a row is marked above this ratio and this difference in seconds
IMAGE = "1,32,32,32"
CHANNELS = 32
# Words of a row that stand for options of the conversion.
OPTIONS = {
    "HALF": "filter_height=2, filter_width=2, stride_h=2, stride_w=2, padding=VALID",
    "NEAR": "filter_height=3, filter_width=3, stride_h=1, stride_w=1, padding=SAME",
    "SAME": "padding=SAME, stride_h=1, stride_w=1",
    "TWICE": "padding=SAME, stride_h=2, stride_w=2",
    "DILATED": "dilation_w_factor=2, dilation_h_factor=2",
    ": bool": f": bool[{IMAGE}]",
}
# A line is an operator on x, then the shapes of its result and of x if they differ from those of an
# image. T is the element type of the data. Statements before the operator end with a semicolon.
ROWS = """
ABS(x)
ADD(x, x)
ADD(x, T[32])
ADD(x, T[1,32,32,1])
ADD_N(x, x, x)
AVERAGE_POOL_2D(x, HALF) | 1,16,16,32
AVERAGE_POOL_2D(x, NEAR)
BATCH_MATMUL(x, x, adj_y=True) | 8,64,64 | 8,64,32
BATCH_MATMUL(x, T[8,32,64]) | 8,64,64 | 8,64,32
BATCH_TO_SPACE_ND(x, [2, 2], [[0, 0], [0, 0]]) | 1,32,32,32 | 4,16,16,32
BROADCAST_TO(x, [1, 32, 32, 32]) | 1,32,32,32 | 1,1,1,32
CEIL(x)
CONCATENATION(x, x, axis=3) | 1,32,32,64
CONCATENATION(x, x, axis=1) | 1,64,32,32
COS(x)
CUMSUM(x, 1)
DEPTH_TO_SPACE(x, block_size=2) | 1,64,64,8
DIV(x, T[32])
DIV(x, x)
ELU(x)
EXP(x)
FLOOR(x)
FLOOR_DIV(x, 0.3)
FLOOR_MOD(x, 0.3)
FULLY_CONNECTED(x, T[64,256], T[64]) | 1,64 | 1,256
FULLY_CONNECTED(x, T[64,256], T[64]) | 128,64 | 128,256
GATHER(x, [5, 3, 2, 7], axis=3) | 1,32,32,4
GATHER(x, [5, 3, 2, 7], axis=1) | 1,4,32,32
GELU(x)
GELU(x, approximate=True)
HARD_SWISH(x)
L2_NORMALIZATION(x)
L2_POOL_2D(x, HALF) | 1,16,16,32
LEAKY_RELU(x, alpha=0.1)
LOCAL_RESPONSE_NORMALIZATION(x, radius=2, bias=1.0, alpha=0.1, beta=0.5)
LOCAL_RESPONSE_NORMALIZATION(x, radius=5, bias=1.0, alpha=0.0001, beta=0.75)
LOG(x)
LOGISTIC(x)
LOG_SOFTMAX(x)
MAXIMUM(x, x)
MAXIMUM(x, T[32])
MAX_POOL_2D(x, HALF) | 1,16,16,32
MAX_POOL_2D(x, NEAR)
MEAN(x, [1, 2], keep_dims=True) | 1,1,1,32
MEAN(x, [1, 2]) | 1,32
MEAN(x, [3], keep_dims=True) | 1,32,32,1
MEAN(x, [1], keep_dims=True) | 1,1,32,32
MINIMUM(x, 0.5)
MIRROR_PAD(x, [[0, 0], [1, 1], [1, 1], [0, 0]], mode=REFLECT) | 1,34,34,32
MUL(x, T[32])
MUL(x, x)
NEG(x)
PACK(x, x, values_count=2, axis=3) | 1,32,32,2,32
PAD(x, [[0, 0], [1, 1], [1, 1], [0, 0]]) | 1,34,34,32
PAD(x, [[0, 0], [0, 0], [0, 0], [0, 8]]) | 1,32,32,40
POW(x, 2.0)
POW(x, 0.7)
PRELU(x, T[1,1,32])
PRELU(x, T[32,32,32])
REDUCE_MAX(x, [1, 2], keep_dims=True) | 1,1,1,32
REDUCE_MAX(x, [3], keep_dims=True) | 1,32,32,1
REDUCE_PROD(x, [3], keep_dims=True) | 1,32,32,1
RELU(x)
RELU6(x)
RELU_0_TO_1(x)
RELU_N1_TO_1(x)
RESHAPE(x, [1, 16, 64, 32]) | 1,16,64,32
RESHAPE(x, [1, 32768]) | 1,32768
RESIZE_BILINEAR(x, [64, 64]) | 1,64,64,32
RESIZE_BILINEAR(x, [64, 64], align_corners=True) | 1,64,64,32
RESIZE_BILINEAR(x, [64, 64], half_pixel_centers=True) | 1,64,64,32
RESIZE_BILINEAR(x, [16, 16], half_pixel_centers=True) | 1,16,16,32
RESIZE_BILINEAR(x, [45, 45], half_pixel_centers=True) | 1,45,45,32
RESIZE_BILINEAR(x, [32, 32]) | 1,32,32,32 | 1,1,1,32
RESIZE_NEAREST_NEIGHBOR(x, [64, 64]) | 1,64,64,32
RESIZE_NEAREST_NEIGHBOR(x, [64, 64], align_corners=True) | 1,64,64,32
RESIZE_NEAREST_NEIGHBOR(x, [64, 64], half_pixel_centers=True) | 1,64,64,32
RESIZE_NEAREST_NEIGHBOR(x, [45, 45], half_pixel_centers=True) | 1,45,45,32
REVERSE_V2(x, [1])
REVERSE_V2(x, [3])
ROUND(x)
RSQRT(x)
SIGN(x)
SIN(x)
SLICE(x, [0, 0, 0, 0], [1, 32, 32, 16]) | 1,32,32,16
SLICE(x, [0, 1, 1, 0], [1, 30, 30, 32]) | 1,30,30,32
SOFTMAX(x, beta=1.0)
SOFTMAX(x, beta=1.0) | 8,64,64 | 8,64,64
SPACE_TO_BATCH_ND(x, [2, 2], [[0, 0], [0, 0]]) | 4,16,16,32
SPACE_TO_DEPTH(x, block_size=2) | 1,16,16,128
SPLIT(3, x, num_splits=1)
SQRT(x)
SQUARE(x)
SQUARED_DIFFERENCE(x, T[32])
STRIDED_SLICE(x, [0, 0, 0, 0], [1, 32, 32, 32], [1, 2, 2, 1]) | 1,16,16,32
STRIDED_SLICE(x, [0, 0, 0, 0], [1, 32, 32, 32], [1, 1, 1, 2]) | 1,32,32,16
SUB(x, T[32])
SUB(x, x)
SUM(x, [1, 2], keep_dims=True) | 1,1,1,32
SUM(x, [3], keep_dims=True) | 1,32,32,1
TANH(x)
TILE(x, [1, 2, 2, 1]) | 1,64,64,32
TILE(x, [1, 32, 32, 1]) | 1,32,32,32 | 1,1,1,32
TRANSPOSE(x, [0, 2, 1, 3])
TRANSPOSE(x, [0, 3, 1, 2]) | 1,32,32,32
TRANSPOSE(x, [1, 0, 2]) | 64,8,32 | 8,64,32
TRANSPOSE_CONV([1, 64, 64, 32], T[32,2,2,32], x, T[32], TWICE) | 1,64,64,32
TRANSPOSE_CONV([1, 64, 64, 32], T[32,3,3,32], x, T[32], TWICE) | 1,64,64,32
TRANSPOSE_CONV([1, 64, 64, 32], T[32,4,4,32], x, T[32], TWICE) | 1,64,64,32
CONV_2D(x, T[32,1,1,32], T[32], SAME)
CONV_2D(x, T[32,3,3,32], T[32], SAME)
CONV_2D(x, T[32,3,3,32], T[32], TWICE) | 1,16,16,32
CONV_2D(x, T[32,3,3,32], T[32], SAME, DILATED)
CONV_2D(x, T[32,3,3,8], T[32], SAME)
CONV_2D(x, T[32,3,3,4], T[32], SAME)
CONV_2D(x, T[32,1,7,32], T[32], SAME)
DEPTHWISE_CONV_2D(x, T[1,3,3,32], T[32], SAME, depth_multiplier=1)
DEPTHWISE_CONV_2D(x, T[1,3,3,64], T[64], SAME, depth_multiplier=2) | 1,32,32,64
DEPTHWISE_CONV_2D(x, T[1,5,5,32], T[32], SAME, depth_multiplier=1)
DEPTHWISE_CONV_2D(x, T[1,3,3,32], T[32], SAME, depth_multiplier=1, DILATED)
c: bool = GREATER(x, 0.5); SELECT_V2(c, x, 0.0)
c: bool = GREATER(x, 0.5); SELECT_V2(c, x, T[1,32,32,32])
c: bool = GREATER(x, 0.5); SELECT(c, x, T[1,32,32,32])
c: bool = LESS(x, 0.5); CAST(c, in_data_type=BOOL, out_data_type=FLOAT32)
c: bool = EQUAL(x, 0.5); CAST(c, in_data_type=BOOL, out_data_type=FLOAT32)
"""


def write_models(row: str, kind: str) -> Iterator[str]:
    """Yield the text of the model of an operator, and that of one with convolutions around it."""
    text, *shapes = (part.strip() for part in row.split("|"))
    made, read = (shape or IMAGE for shape in (*shapes, "", "")[:2])
    for word, options in OPTIONS.items():
        text = re.sub(f"(?<!=){word}(?=[,) ])", options, text)
    *before, call = text.replace("T[", f"{kind}[").split("; ")
    lines = [*before, f"y: {kind}[{made}] = {call}"]
    yield "\n".join([f"inputs x: {kind}[{read}]", *lines, "return y"])
    if len(made.split(",")) == len(read.split(",")) == 4:
        yield "\n".join(
            [
                f"inputs i: {kind}[{swap_channels(read, CHANNELS)}]",
                convolve("i", "x", CHANNELS, read, kind),
                *lines,
                convolve("y", "z", int(made.rpartition(",")[2]), swap_channels(made, 32), kind),
                "return z",
            ]
        )


def swap_channels(shape: str, channels: int) -> str:
    """Return a shape with another number of channels."""
    return f"{shape.rpartition(',')[0]},{channels}"


def convolve(x: str, y: str, channels: int, made: str, kind: str) -> str:
    """Return a 1x1 convolution of `channels` whose result has the shape `made`."""
    outputs = made.rpartition(",")[2]
    filters = f"{kind}[{outputs},1,1,{channels}], float32[{outputs}]"
    return f"{y}: {kind}[{made}] = CONV_2D({x}, {filters}, padding=SAME, stride_h=1, stride_w=1)"


def open_models(text: str, folder: Path) -> tuple[list[Inference], str]:
    """Return a model's inferences in LiteRT and in ONNX Runtime, and the types of its nodes."""
    model = make_model(text)
    path, converted = folder / "model.tflite", folder / "model.onnx"
    path.write_bytes(model)
    tflite2onnx.convert(path).save(converted)
    session = make_session(str(converted), threads=1, profile=str(folder / "profile"))
    kinds = Counter(node.kind for node in profile_nodes(session, make_feeds(session)))
    if "Conv" in kinds:
        kinds["Conv"] = max(0, kinds["Conv"] - 2)  # two convolutions stand around the operator
    nodes = ", ".join(f"{n} {kind}" if n > 1 else kind for kind, n in kinds.items() if n)
    return [open_litert(path, 1), open_onnx_runtime(converted, 1)], nodes


def measure_row(row: str, kind: str) -> str:
    """Return the row of the table, or why there is none."""
    cells, slow = [], False
    with TemporaryDirectory() as folder:
        nodes = ""
        for text in write_models(row, kind):
            runs, nodes = open_models(text, Path(folder))
            litert, ours = measure_inferences(runs, TURNS)
            slow |= ours > SLOW * litert and ours - litert > LEAST
            cells += [f"{1e6 * litert:.1f}", f"{ours / litert:.2f}"]
    cells += ["-"] * (4 - len(cells))
    return f"| {'**' * slow}{row}{'**' * slow} | {' | '.join(cells)} | {nodes} |"


def main() -> None:
    """Print a row for each operator."""
    parser = argparse.ArgumentParser(description="Latency of single operators beside LiteRT.")
    parser.add_argument("words", nargs="*", help="of the rows to measure")
    parser.add_argument("--type", default="float32", help="of the data (default float32)")
    options = parser.parse_args()
    print(f"Processor: {describe_processor()}; threads: 1\n", flush=True)
    print("| operator | LiteRT us | x | between convolutions: LiteRT us | x | nodes |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in ROWS.strip().splitlines():
        if not options.words or any(word in row for word in options.words):
            print(measure_row(row, options.type), flush=True)


if __name__ == "__main__":
    main()
