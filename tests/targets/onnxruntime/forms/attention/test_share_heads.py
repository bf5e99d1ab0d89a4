"""attention/share_heads.py: keys and values that several heads share."""

from __future__ import annotations

import pytest

from tests.support import check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import assert_rewritten, check_unchanged, make_model, parse_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.attention.share_heads import share_heads
from tflite2onnx.targets.onnxruntime.operators.reshape import MovedOptions, MovedReshape

# A step of one token, with keys and values [batch, tokens, heads, depth], as litert-torch has it.
STEP = """
    inputs q: float32[1,1,6,4], k: float32[1,9,2,4], v: float32[1,9,2,4], mask: float32[1,1,1,9]
    scaled: float32[1,1,6,4] = MUL(q, 0.5)
    rows: float32[6,1,4] = RESHAPE(scaled, [6, 1, 4])
    split: float32[1,9,2,1,4] = RESHAPE(k, [1, 9, 2, 1, 4])
    moved: float32[1,2,1,4,9] = TRANSPOSE(split, [0, 2, 3, 4, 1])
    repeated: float32[1,2,3,4,9] = BROADCAST_TO(moved, [1, 2, 3, 4, 9])
    joined: float32[1,6,4,9] = RESHAPE(repeated, [1, 6, 4, 9])
    keys: float32[1,6,4,9] = MUL(joined, 0.25)
    flat: float32[6,4,9] = RESHAPE(keys, [6, 4, 9])
    scores: float32[6,1,9] = BATCH_MATMUL(rows, flat, adj_x=False, adj_y=False)
    hidden: float32[1,6,1,9] = ADD(scores, mask)
    weights: float32[1,6,1,9] = SOFTMAX(hidden)
    shares: float32[6,1,9] = RESHAPE(weights, [6, 1, 9])
    heads: float32[1,2,9,4] = TRANSPOSE(v, [0, 2, 1, 3])
    single: float32[1,2,1,9,4] = RESHAPE(heads, [1, 2, 1, 9, 4])
    many: float32[1,2,3,9,4] = BROADCAST_TO(single, [1, 2, 3, 9, 4])
    values: float32[6,9,4] = RESHAPE(many, [6, 9, 4])
    y: float32[6,1,4] = BATCH_MATMUL(shares, values, adj_x=False, adj_y=False)
    return y
"""


def test_products_read_keys_and_values_without_repeats() -> None:
    after = """
    inputs q: float32[1,1,6,4], k: float32[1,9,2,4], v: float32[1,9,2,4], mask: float32[1,1,1,9]
    scaled: float32[1,1,6,4] = MUL(q, 0.5)
    rows: float32[6,1,4] = RESHAPE(scaled, [6, 1, 4])
    split: float32[1,9,2,1,4] = RESHAPE(k, [1, 9, 2, 1, 4])
    less: float32[6,1,4] = MUL(rows, 0.25)
    queries: float32[2,3,4] = RESHAPE(less)
    three: float32[9,2,4] = RESHAPE(split)
    keys: float32[2,4,9] = TRANSPOSE(three, [1, 2, 0])
    product: float32[2,3,9] = BATCH_MATMUL(queries, keys, adj_x=False, adj_y=False)
    scores: float32[6,1,9] = RESHAPE(product)
    hidden: float32[1,6,1,9] = ADD(scores, mask)
    weights: float32[1,6,1,9] = SOFTMAX(hidden)
    shares: float32[6,1,9] = RESHAPE(weights, [6, 1, 9])
    shared: float32[2,3,9] = RESHAPE(shares)
    heads: float32[9,2,4] = RESHAPE(v)
    values: float32[2,9,4] = TRANSPOSE(heads, [1, 0, 2])
    sums: float32[2,3,4] = BATCH_MATMUL(shared, values, adj_x=False, adj_y=False)
    y: float32[6,1,4] = RESHAPE(sums)
    return y
    """
    assert_rewritten(share_heads, STEP, after)


def test_only_products_run_over_the_cache() -> None:
    """The only nodes that read the whole cache are products."""
    data = make_model(STEP)
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert nodes["FusedMatMul"] == 2, nodes
    assert not {"Expand", "Transpose"} & nodes.keys()


def test_keys_may_be_scaled_before_they_are_repeated() -> None:
    assert_rewritten(
        share_heads,
        """
        inputs q: float32[6,1,4], k: float32[1,1,4,9]
        scaled: float32[1,1,4,9] = MUL(k, 0.25)
        repeated: float32[1,6,4,9] = BROADCAST_TO(scaled, [1, 6, 4, 9])
        keys: float32[6,4,9] = RESHAPE(repeated, [6, 4, 9])
        y: float32[6,1,9] = BATCH_MATMUL(q, keys, adj_x=False, adj_y=False)
        return y
        """,
        """
        inputs q: float32[6,1,4], k: float32[1,1,4,9]
        less: float32[6,1,4] = MUL(q, 0.25)
        queries: float32[1,6,4] = RESHAPE(less)
        heads: float32[1,4,9] = RESHAPE(k)
        product: float32[1,6,9] = BATCH_MATMUL(queries, heads, adj_x=False, adj_y=False)
        y: float32[6,1,9] = RESHAPE(product)
        return y
        """,
    )


def test_reshape_may_move_heads_but_not_last_axis() -> None:
    """The RESHAPE of a cache may move its heads; the TRANSPOSE after it moves its last axis."""
    graph = share_heads(parse_graph(STEP))
    kept = [op for op in graph.ops if op.made == MovedOptions(keeps_last=True)]
    assert len(kept) == 2
    for op in kept:
        (frame,) = MovedReshape(op).frames()
        tokens, heads, depth = frame.names[-3:]
        rest = frame.names[:-3]
        assert frame.allows((*rest, heads, tokens, depth))
        assert not frame.allows((*rest, heads, depth, tokens))


# Keys and values [batch, heads, tokens, depth], and several tokens.
TOKENS = """
    inputs q: float32[2,6,5,4], k: float32[2,2,9,4]
    split: float32[2,2,1,9,4] = RESHAPE(k, [2, 2, 1, 9, 4])
    repeated: float32[2,2,3,9,4] = BROADCAST_TO(split, [2, 2, 3, 9, 4])
    keys: float32[2,6,9,4] = RESHAPE(repeated, [2, 6, 9, 4])
    scores: float32[2,6,5,9] = BATCH_MATMUL(q, keys, adj_x=False, adj_y=True)
    return scores
"""


def test_heads_in_place_need_no_transpose() -> None:
    after = """
    inputs q: float32[2,6,5,4], k: float32[2,2,9,4]
    split: float32[2,2,1,9,4] = RESHAPE(k, [2, 2, 1, 9, 4])
    queries: float32[4,15,4] = RESHAPE(q)
    keys: float32[4,9,4] = RESHAPE(split)
    product: float32[4,15,9] = BATCH_MATMUL(queries, keys, adj_x=False, adj_y=True)
    scores: float32[2,6,5,9] = RESHAPE(product)
    return scores
    """
    assert_rewritten(share_heads, TOKENS, after)
    check(make_model(TOKENS))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The heads are repeated as a whole: 0, 1, 0, 1.
        ("[2,2,1,9,4] = RESHAPE(k, [2, 2, 1, 9, 4])", "[2,1,2,9,4] = RESHAPE(k, [2, 1, 2, 9, 4])"),
        ("inputs q: float32[2,6,5,4]", "inputs q: float32[2,6,4,5]"),  # and adj_x, below
        ("inputs q: float32[2,6,5,4]", "inputs q: float32[1,6,5,4]"),  # one batch for all keys
    ],
    ids=["order", "transposed", "batch"],
)
def test_products_with_another_order_of_heads_stay(old: str, new: str) -> None:
    text = TOKENS.replace(old, new)
    if "[2,6,4,5]" in new:
        text = text.replace("adj_x=False", "adj_x=True")
    if "[2,1,2,9,4]" in new:
        text = text.replace("float32[2,2,3,9,4]", "float32[2,3,2,9,4]")
        text = text.replace("[2, 2, 3, 9, 4]", "[2, 3, 2, 9, 4]")
    check_unchanged(share_heads, parse_graph(text))
    check(make_model(text))


def test_repeated_elements_of_a_matrix_stay() -> None:
    """The elements of a matrix are repeated, not the matrix."""
    text = """
    inputs q: float32[6,5,4], k: float32[6,1,4]
    keys: float32[6,9,4] = BROADCAST_TO(k, [6, 9, 4])
    scores: float32[6,5,9] = BATCH_MATMUL(q, keys, adj_x=False, adj_y=True)
    return scores
    """
    check_unchanged(share_heads, parse_graph(text))
    check(make_model(text))


@pytest.mark.parametrize("shape", ["1,9,1,4", "1,1,2,4", "1,9,2,1"])
def test_axes_of_one_element_need_no_expand(shape: str) -> None:
    """A TRANSPOSE that has fewer than three other axes becomes a RESHAPE, or stays."""
    _, tokens, heads, depth = map(int, shape.split(","))
    text = f"""
    inputs q: float32[{heads * 3},1,{depth}], k: float32[{shape}]
    moved: float32[1,{heads},{tokens},{depth}] = TRANSPOSE(k, [0, 2, 1, 3])
    split: float32[{heads},1,{tokens},{depth}] = RESHAPE(moved, [{heads}, 1, {tokens}, {depth}])
    many: float32[{heads},3,{tokens},{depth}] = BROADCAST_TO(split, [{heads}, 3, {tokens}, {depth}])
    keys: float32[{heads * 3},{tokens},{depth}] = RESHAPE(many, [{heads * 3}, {tokens}, {depth}])
    scores: float32[{heads * 3},1,{tokens}] = BATCH_MATMUL(q, keys, adj_x=False, adj_y=True)
    return scores
    """
    data = make_model(text)
    check(data)
    assert "Expand" not in {node.op_type for node in convert(data).model.graph.node}
