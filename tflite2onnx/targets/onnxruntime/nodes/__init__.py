"""Nodes as ONNX Runtime computes them fastest, where its kernels or optimizer need other ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tflite2onnx.builder.adaptive_weights import add_adaptive_weights
from tflite2onnx.builder.builder import Builder, eliminate_dead_nodes
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.store_once import assemble_constants, share_transposed
from tflite2onnx.targets.onnxruntime.nodes.join_tanh import join_tanh
from tflite2onnx.targets.onnxruntime.nodes.keep_softmax_rows import keep_softmax_rows
from tflite2onnx.targets.onnxruntime.nodes.wide_blocks import widen_blocks


def rewrite_nodes(
    g: Builder, nodes: Sequence[Node], results: Sequence[Value]
) -> tuple[tuple[Node, ...], Collection[Value]]:
    """Return the nodes of the main graph, and the values whose channels depend on the processor."""
    rows = keep_softmax_rows(nodes, g.types, g.ints)
    live = eliminate_dead_nodes(join_tanh(g, rows, results), results)
    wide, changed = widen_blocks(g, add_adaptive_weights(g, live), results)
    return assemble_constants(g, share_transposed(wide)), changed
