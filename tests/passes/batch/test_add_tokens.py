"""passes/batch/add_tokens.py: a decoder of one token computes several tokens, or is refused."""

from __future__ import annotations

import pytest

from tests.support.graph_text import parse_graph
from tflite2onnx.canonical import OperatorCache
from tflite2onnx.graph_text import write_graph
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes.batch.add_tokens import add_tokens
from tflite2onnx.passes.batch.mixed_samples import MixedSamplesError
from tflite2onnx.targets.onnxruntime.forms.attention.read_caches import read_caches

STEP = """
    inputs id: int32[1,1], at: int32[1,1], keys: float32[1,6,2,8], values: float32[1,6,2,8]
    ids: int32[1] = RESHAPE(id, [1])
    rows: float32[1,16] = EMBEDDING_LOOKUP(ids, float32[4,16])
    heads: float32[1,1,2,8] = RESHAPE(rows, [1, 1, 2, 8])
    first: int32[1] = RESHAPE(at, [1])
    place: int32[4] = CONCATENATION([0], first, [0], [0], axis=0)
    ks: float32[1,6,2,8] = DYNAMIC_UPDATE_SLICE(keys, heads, place)
    vs: float32[1,6,2,8] = DYNAMIC_UPDATE_SLICE(values, heads, place)
    queries: float32[2,1,8] = RESHAPE(heads, [2, 1, 8])
    k3: float32[6,2,8] = RESHAPE(ks, [6, 2, 8])
    km: float32[2,6,8] = TRANSPOSE(k3, [1, 0, 2])
    product: float32[2,1,6] = BATCH_MATMUL(queries, km, adj_x=False, adj_y=True)
    seen: bool[6] = LESS_EQUAL([0, 1, 2, 3, 4, 5], first)
    mask: float32[6] = SELECT_V2(seen, [0.0], [-1e9])
    added: float32[2,1,6] = ADD(product, mask)
    weights: float32[2,1,6] = SOFTMAX(added, beta=1.0)
    v3: float32[6,2,8] = RESHAPE(vs, [6, 2, 8])
    vm: float32[2,6,8] = TRANSPOSE(v3, [1, 0, 2])
    y: float32[2,1,8] = BATCH_MATMUL(weights, vm, adj_x=False, adj_y=False)
    flat: float32[1,16] = RESHAPE(y, [1, 16])
    logits: float32[1,4] = FULLY_CONNECTED(flat, float32[4,16], keep_num_dims=False)
    return logits, ks, vs
"""

# The rows of a convolution of three tokens; two of them are a state.
WINDOW = STEP.replace(
    "values: float32[1,6,2,8]", "values: float32[1,6,2,8], state: float32[1,16,2]"
)
WINDOW = WINDOW.replace(
    "    heads: float32[1,1,2,8] = RESHAPE(rows",
    """    row: float32[1,16,1] = RESHAPE(rows, [1, 16, 1])
    window: float32[1,16,3] = CONCATENATION(state, row, axis=2)
    after: float32[1,16,2] = SLICE(window, [0, 0, 1], [1, 16, 2])
    sums: float32[1,16] = SUM(window, [2], keep_dims=False)
    heads: float32[1,1,2,8] = RESHAPE(sums""",
).replace("return logits, ks, vs", "return logits, ks, vs, after")


def _add(text: str) -> str:
    graph = parse_graph(text)
    caches = dict(zip(graph.inputs[2:], graph.outputs[1:], strict=True))
    wanted = dict.fromkeys((*graph.inputs[2:4], *graph.outputs[1:3]), (0, 2, 1, 3))
    changed, operator_of = (
        read_caches(graph, wanted),
        OperatorCache(ConversionOptions(forms="fastest")),
    )
    return write_graph(add_tokens(changed, operator_of, caches, graph.outputs[0]))


def test_attention_reads_several_tokens_and_product_the_last() -> None:
    """Attention reads the tokens in its second axis; the product reads the last token."""
    text = _add(STEP)
    assert text.startswith("inputs %0: int32[1,1], %1: int32[1,1], %2: float32[1,6,2,8]")
    assert "%15: float32[1,1,16] = RESHAPE(%11, [1, -1, 16])" in text
    assert "ATTENTION(%15, %16, %17, none, %14, %2, %3," in text
    assert (
        """
%23: int32[1] = SUB(%7, [1])
%24: float32[1,16] = GATHER(%22, %23)
%25: float32[1,4] = FULLY_CONNECTED(%24, float32[4,16])
return %25, %19, %20"""
        in text
    )


@pytest.mark.parametrize(("axis", "shape"), [(1, "1,1,2,8"), (2, "1,2,1,8")])
def test_rotations_have_tokens_as_positions(axis: int, shape: str) -> None:
    """The angles of each token rotate its rows, if attention does not rotate them itself."""
    text = STEP.replace(
        "    heads: float32[1,1,2,8] = RESHAPE(rows",
        f"""    angles: float32[1,4] = CAST(at)
    c: float32[1,4] = COS(angles)
    s: float32[1,4] = SIN(angles)
    split: float32[{shape}] = RESHAPE(rows, [{shape}])
    rotated: float32[{shape}] = ROTARY_EMBEDDING(split, c, s, positions={axis})
    heads: float32[1,1,2,8] = RESHAPE(rotated""",
    ).replace(
        "angles: float32[1,4] = CAST(at)",
        """number: float32[1,1] = CAST(at)
    angles: float32[1,4] = MUL(number, float32[1,4])""",
    )
    assert f"float32[{shape}] = ROTARY_EMBEDDING(" in _add(text)


def test_windows_are_parts_of_the_state_and_all_rows() -> None:
    """The last rows are the next state."""
    text = _add(WINDOW)
    assert text.count("SLICE(") == 5  # the number of tokens, three parts, and the next state
    assert "PACK(" in text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[0, 0, 1], [1, 16, 2])", "[0, 0, 0], [1, 16, 2])", "must be the end of its window"),
        ("SLICE(window, [0, 0, 1], [1, 16, 2])", "ABS(state)", "neither attention nor"),
        (
            "CONCATENATION(state, row,",
            "CONCATENATION(row, state,",
            "neither attention nor",
        ),
    ],
)
def test_refuses_states_that_are_no_windows(old: str, new: str, reason: str) -> None:
    text = WINDOW.replace(old, new)
    assert text != WINDOW
    with pytest.raises(MixedSamplesError, match=reason):
        _add(text)


UPDATE = """
    inputs id: int32[1,1], at: int32[1,1], keys: float16[1,6,2,8]
    ids: int32[1] = RESHAPE(id, [1])
    rows: float32[1,16] = EMBEDDING_LOOKUP(ids, float32[4,16])
    halves: float16[1,16] = CAST(rows)
    heads: float16[1,1,2,8] = RESHAPE(halves, [1, 1, 2, 8])
    first: int32[1] = RESHAPE(at, [1])
    place: int32[4] = MUL(first, [0, 1, 0, 0])
    ks: float16[1,6,2,8] = DYNAMIC_UPDATE_SLICE(keys, heads, place, is_causal=True)
    queries: float32[1,2,1,8] = RESHAPE(rows, [1, 2, 1, 8])
    turned: float16[1,2,6,8] = TRANSPOSE(ks, [0, 2, 1, 3])
    wide: float32[1,2,6,8] = CAST(turned)
    product: float32[1,2,1,6] = BATCH_MATMUL(queries, wide, adj_x=False, adj_y=True)
    numbers: float32[1] = CAST(first)
    mask: float32[1,1,1,6] = MUL(numbers, float32[1,1,1,6])
    added: float32[1,2,1,6] = ADD(product, mask)
    flat: float32[1,12] = RESHAPE(added, [1, 12])
    hidden: float32[1,8] = FULLY_CONNECTED(flat, float32[8,12], keep_num_dims=False)
    logits: float32[1,4] = FULLY_CONNECTED(hidden, float32[4,8], keep_num_dims=False)
    return logits, ks
"""


def test_updates_write_the_rows_of_all_tokens() -> None:
    """Each row has start indices, and tokens are rows of the product and of what is added to it."""
    text = _add(UPDATE)
    assert "%16: float16[1,1,2,8] = RESHAPE(%10, [1, -1, 2, 8])" in text
    assert "DYNAMIC_UPDATE_SLICE(%2, %16, %17, is_causal=True)" in text
    assert "float32[1,2,1,8] = RESHAPE(%23, [1, 2, -1, 8])" in text
    assert "float32[1,1,1,6] = RESHAPE(%28, [1, 1, -1, 6])" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [("MUL(first, [0, 1, 0, 0])", "MUL([0], [0, 1, 0, 0])"), (", is_causal=True", "")],
)
def test_refuses_updates_that_are_not_of_the_tokens(old: str, new: str) -> None:
    text = UPDATE.replace(old, new)
    assert text != UPDATE
    with pytest.raises(MixedSamplesError, match=r"must depend on the tokens|neither attention nor"):
        _add(text)


MIXED = """    matrix: float32[4,4] = RESHAPE(flat, [4, 4])
    mixed: float32[4,4] = FULLY_CONNECTED(matrix, matrix, {}, keep_num_dims=False)
    again: float32[1,16] = RESHAPE(mixed, [1, 16])
    logits: float32[1,4] = FULLY_CONNECTED(again"""


def test_weights_of_a_token_are_matrices_of_a_batch() -> None:
    text = _add(
        STEP.replace("    logits: float32[1,4] = FULLY_CONNECTED(flat", MIXED.format("none"))
    )
    assert "float32[1,4,4] = BATCH_MATMUL(" in text
    assert text.count("FULLY_CONNECTED(") == 1


def test_a_token_is_repeated_along_an_axis_of_its_own() -> None:
    """The tokens get an axis in front of the experts for which a token is repeated."""
    experts = """    several: float32[3,16] = BROADCAST_TO(flat, [3, 16])
    best: float32[16] = REDUCE_MAX(several, [0], keep_dims=False)
    again: float32[1,16] = RESHAPE(best, [1, 16])
    logits: float32[1,4] = FULLY_CONNECTED(again"""
    text = _add(STEP.replace("    logits: float32[1,4] = FULLY_CONNECTED(flat", experts))
    assert "float32[1,3,16] = BROADCAST_TO(" in text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "LESS_EQUAL",
            "LESS",
            "reads keys, a state of neither",
        ),  # attention of another mask stays as it is
        ("FULLY_CONNECTED(flat, float32[4,16], keep_num_dims=False)", "ADD(flat, flat)", "product"),
        ("id: int32[1,1]", "id: int32[1]", "one number"),
        (
            "    logits: float32[1,4] = FULLY_CONNECTED(flat",
            MIXED.format("float32[4]"),
            "it multiplies by weights that depend on the sample",
        ),
    ],
)
def test_refuses_decoders_that_cannot_take_several_tokens(old: str, new: str, reason: str) -> None:
    text = STEP.replace(old, new)
    assert text != STEP
    with pytest.raises(MixedSamplesError, match=reason):
        _add(text)
