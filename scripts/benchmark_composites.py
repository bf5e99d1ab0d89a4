"""The time of composites of language models, spelled out and as one operator.

The command is::

    python scripts/benchmark_composites.py

The sizes are those of Qwen3 0.6B: 1,024 features, 16 heads of queries and 8 of keys, each of 128
numbers, and a cache of 1,024 tokens. A row has the time of the nodes that the converter writes for
the decomposition in microseconds, and the times of other forms divided by this time. All forms of
a composite run in turn in one process, on one thread; the lower quartile of processor times counts.
"""

import usage  # noqa: F401 - packages may be missing

from inference import bind_onnx_runtime, measure_inferences
from onnx import TensorProto, checker, helper, parser

TURNS = 200
NORMALIZED = "(float[1, {rows}, 1024] x)"
NORMALIZE = """
    power = Pow (x, two) mean = ReduceMean <keepdims = 1> (power, last) sum = Add (mean, epsilon)
    root = Sqrt (sum) part = Div (x, root) y = Mul (part, gamma)"""
ADDED = "(float[1, {rows}, 1024] p, float[1, {rows}, 1024] q)"
ADD_NORMALIZED = """
    normal, a, b, x = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 1e-5> (p, q, gamma)
    y = Mul (normal, x)"""
ROTATED = "(float[1, {rows}, 16, 128] x, float[1, {rows}, 1, 64] c, float[1, {rows}, 1, 64] s)"
ROTATE = """
    a, b = Split <axis = 3> (x, halves) ac = Mul (a, c) bs = Mul (b, s) left = Sub (ac, bs)
    bc = Mul (b, c) as = Mul (a, s) right = Add (bc, as) y = Concat <axis = 3> (left, right)"""
ROTATE_WHOLE = """
    a, b = Split <axis = 3> (x, halves) swapped = Concat <axis = 3> (b, a) minus = Neg (s)
    cc = Concat <axis = 3> (c, c) ss = Concat <axis = 3> (minus, s)
    left = Mul (x, cc) right = Mul (swapped, ss) y = Add (left, right)"""
ROTARY_EMBEDDING = """
    heads = Transpose <perm = [0, 2, 1, 3]> (x) cosines = Squeeze (c, second)
    sines = Squeeze (s, second) turned = RotaryEmbedding (heads, cosines, sines)
    y = Transpose <perm = [0, 2, 1, 3]> (turned)"""
ATTENDED = (
    "(float[1, {rows}, 2048] q, float[1, 1024, 8, 128] k, float[1, 1024, 8, 128] v,"
    " float[1, 1, {rows}, 1024] mask)"
)
ATTEND = """
    scaled = Mul (q, scale) rows = Reshape (scaled, q_shape)
    queries = Transpose <perm = [1, 2, 0, 3]> (rows) heads = Reshape (queries, head_shape)
    keys = Squeeze (k, first) turned = Transpose <perm = [1, 2, 0]> (keys)
    scores = MatMul (heads, turned) split = Reshape (scores, score_shape)
    masked = Add (split, mask) parts = Softmax <axis = -1> (masked)
    joined = Reshape (parts, joined_shape) values = Squeeze (v, first)
    placed = Transpose <perm = [1, 0, 2]> (values) sums = MatMul (joined, placed)
    apart = Reshape (sums, apart_shape) back = Transpose <perm = [2, 0, 1, 3]> (apart)
    y = Reshape (back, y_shape)"""
ATTENTION = """
    keys = Reshape (k, flat_shape) values = Reshape (v, flat_shape)
    y = Attention <q_num_heads = 16, kv_num_heads = 8> (q, keys, values, mask)"""
# The cache that is read has no memory in common with the cache that is returned.
GROUPED = (
    "(float[1, {rows}, 2048] q, float[1, {rows}, 1024] k, float[1, {rows}, 1024] v,"
    " float[1, 8, 1024, 128] keys, float[1, 8, 1024, 128] values)"
)
GROUP = """
    y, more_keys, more_values = com.microsoft.GroupQueryAttention
        <num_heads = 16, kv_num_heads = 8> (q, k, v, keys, values, seen, total)"""
UPDATED = "(float[1, 1024, 8, 128] cache, float[1, {rows}, 8, 128] more)"
GATED = "(float[1, {rows}, 3072] x, float[1, {rows}, 3072] z)"
# Tokens of linear attention: 16 heads, each with a state of 128 x 128 numbers.
DELTA = (
    "(float[{rows}, 16, 1, 128] q, float[{rows}, 16, 1, 128] k, float[{rows}, 16, 1, 128] v,"
    " float[{rows}, 16, 1, 1] rate, float[{rows}, 16, 1, 1] decay, float[16, 128, 128] s)"
)
DELTA_SCAN = """
    factor = Exp (decay)
    state, y = Scan <num_scan_inputs = 5, body = token (
        float[16, 128, 128] old, float[16, 1, 128] a, float[16, 1, 128] b, float[16, 1, 128] c,
        float[16, 1, 1] r, float[16, 1, 1] f) => (float[16, 128, 128] new, float[16, 1, 128] z) {{
        kept = Mul (old, f) known = MatMul (b, kept) part = Sub (c, known) change = Mul (part, r)
        column = Transpose <perm = [0, 2, 1]> (b) added = Mul (column, change)
        new = Add (kept, added) z = MatMul (a, new) }}> (s, q, k, v, rate, factor)"""
DELTA_LINEAR = """
    queries = Reshape (q, packed) keys = Reshape (k, packed) values = Reshape (v, packed)
    rates = Reshape (rate, packed) decays = Reshape (decay, packed) before = Unsqueeze (s, first)
    made, state = com.microsoft.LinearAttention <q_num_heads = 16, kv_num_heads = 16, scale = 1.0>
        (queries, keys, values, before, decays, rates)
    y = Reshape (made, heads_shape)"""
# A depthwise convolution of the newest tokens and the two tokens before them, as LFM2 has it.
GATED_WINDOW = "(float[1, {rows}, 3072] p, float[1, 1024, 2] s)"
GATE = "b, c, v = Split <axis = 2> (p, thirds) u = Mul (b, v)"
COLUMNS = f"{GATE} columns = Transpose <perm = [0, 2, 1]> (u)"
WINDOW = "window = Concat <axis = 2> (s, columns)"
ROWS = "made = Transpose <perm = [0, 2, 1]> (sums) y = Mul (c, made)"
MULTIPLY_WINDOW = f"""{GATE}
    columns = Reshape (u, column_shape) {WINDOW} part = Mul (window, row_taps)
    sums = ReduceSum <keepdims = 0> (part, last) made = Unsqueeze (sums, middle)
    y = Mul (c, made)"""
CONVOLVE = f"{COLUMNS} {WINDOW} sums = Conv <group = 1024> (window, taps) {ROWS}"
CAUSAL = f"{COLUMNS} sums, new = com.microsoft.CausalConvWithState (columns, taps, , s) {ROWS}"
# The inputs, and the nodes of each form. The first form is the converter's.
FORMS = {
    "rms_norm": {
        "spelled out": (NORMALIZED, NORMALIZE),
        "RMSNormalization": (NORMALIZED, "y = RMSNormalization (x, gamma)"),
    },
    # Another node reads the sum too, as in a language model.
    "rms_norm of a sum": {
        "spelled out": (ADDED, f"x = Add (p, q) {NORMALIZE.replace('y =', 'n =')} y = Mul (n, x)"),
        "SkipSimplifiedLayerNormalization": (ADDED, ADD_NORMALIZED),
    },
    "rope": {
        "spelled out": (ROTATED, ROTATE),
        "two products": (ROTATED, ROTATE_WHOLE),
        "RotaryEmbedding": (ROTATED, ROTARY_EMBEDDING),
    },
    "scaled_dot_product_attention": {
        "spelled out": (ATTENDED, ATTEND),
        "Attention": (ATTENDED, ATTENTION),
        "GroupQueryAttention": (GROUPED, GROUP),
    },
    "cache_update": {
        "spelled out": (UPDATED, "y = ScatterND (cache, places, more)"),
        "TensorScatter": (UPDATED, "y = TensorScatter <axis = 1> (cache, more, start)"),
    },
    "gated_delta_update": {
        "Scan": (DELTA, DELTA_SCAN.format()),
        "LinearAttention": (DELTA, DELTA_LINEAR),
    },
    "short_conv_step of one token": {
        "spelled out": (GATED_WINDOW, MULTIPLY_WINDOW),
        "CausalConvWithState": (GATED_WINDOW, CAUSAL),
    },
    "short_conv_step of several tokens": {
        "spelled out": (GATED_WINDOW, CONVOLVE),
        "CausalConvWithState": (GATED_WINDOW, CAUSAL),
    },
    "swiglu": {
        "spelled out": (GATED, "gate = Sigmoid (x) part = Mul (x, gate) y = Mul (part, z)"),
        "Swish": (GATED, "part = Swish (x) y = Mul (part, z)"),
    },
}
# The numbers of tokens of composites whose decomposition depends on this number.
TOKENS = {"short_conv_step of one token": 1, "short_conv_step of several tokens": 64}


def build_form(inputs: str, nodes: str, rows: int) -> bytes:
    """Return the model of a form for a number of tokens."""
    floats, shapes = TensorProto.FLOAT, TensorProto.INT64
    constants: dict[str, tuple[int, list[int], list[float]]] = {
        "two": (floats, [], [2]),
        "epsilon": (floats, [], [1e-5]),
        "gamma": (floats, [1024], [0.5] * 1024),
        "scale": (floats, [], [128**-0.5]),
        "last": (shapes, [1], [-1]),
        "first": (shapes, [1], [0]),
        "second": (shapes, [1], [2]),
        "middle": (shapes, [1], [1]),
        "thirds": (shapes, [3], [1024, 1024, 1024]),
        "column_shape": (shapes, [3], [1, 1024, 1]),
        "taps": (floats, [1024, 1, 3], [0.5] * 3072),
        "row_taps": (floats, [1, 1024, 3], [0.5] * 3072),
        "halves": (shapes, [2], [64, 64]),
        "q_shape": (shapes, [4], [rows, 8, 2, 128]),
        "head_shape": (shapes, [3], [8, 2 * rows, 128]),
        "score_shape": (shapes, [4], [1, 16, rows, 1024]),
        "joined_shape": (shapes, [3], [8, 2 * rows, 1024]),
        "apart_shape": (shapes, [4], [8, 2, rows, 128]),
        "y_shape": (shapes, [3], [1, rows, 2048]),
        "flat_shape": (shapes, [3], [1, 1024, 1024]),
        "packed": (shapes, [3], [1, rows, -1]),
        "heads_shape": (shapes, [4], [rows, 16, 1, 128]),
        "start": (shapes, [1], [20]),
        "places": (shapes, [1, rows, 2], [n for i in range(rows) for n in (0, 20 + i)]),
        "seen": (TensorProto.INT32, [1], [1023]),
        "total": (TensorProto.INT32, [], [1024]),
    }
    header = '<ir_version: 10, opset_import: ["" : 24, "com.microsoft" : 1]> form '
    text = f"{header} {inputs.format(rows=rows)} => (float y) {{{nodes}}}"
    model = parser.parse_model(text)
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        helper.make_tensor(name, *each) for name, each in constants.items() if name in read
    )
    checker.check_model(model)
    return bytes(model.SerializeToString())


def main() -> None:
    """Print a row for each composite and number of tokens."""
    for rows in (1, 64):
        for name, forms in FORMS.items():
            if TOKENS.get(name, rows) != rows:
                continue
            runs = [bind_onnx_runtime(build_form(*form, rows)) for form in forms.values()]
            first, *others = measure_inferences(runs, TURNS)
            ratios = [
                f"{form} {t / first:.2f}" for form, t in zip([*forms][1:], others, strict=True)
            ]
            print(f"{name}, {rows} tokens: {first * 1e6:.0f} us; {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()
