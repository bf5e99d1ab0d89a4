"""Replace hash tables by constants, in the whole model.

HASHTABLE names a table by a number, HASHTABLE_IMPORT fills the table (usually in a sub-graph that
CALL_ONCE runs), HASHTABLE_FIND and HASHTABLE_SIZE read it.

1. A table is filled once: later imports are ignored.
2. Of equal keys the first one is kept.
3. The keys and values of the import must be constants, and all tables together may have as many
   elements as their bytes in the file allow, plus 65536. Otherwise the readers are not changed.

Readers get (keys, values) as inputs in place of the handle.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.contrib.hash_tables.hash_table import FILLING
from tflite2onnx.operators import Op, Tensor
from tflite2onnx.rewriting import Graph, Model, count_distinct_bytes

READING = ("HASHTABLE_FIND", "HASHTABLE_SIZE")
_MORE = 1 << 16


class _HashTable(NamedTuple):
    keys: Tensor
    values: Tensor


def fold_hash_tables(model: Model) -> Model:
    """Return the model with (keys, values) in place of the table handles of readers."""
    tables: dict[int, _HashTable | None] = {}
    room = _find_element_budget(model)
    for graph in _order_graphs(model):
        handles = _find_table_numbers(graph)
        for op in graph.ops:
            imports = op.is_builtin("HASHTABLE_IMPORT")
            handle = op.operand(0)
            if imports and handle in handles and handles[handle] not in tables:
                room -= sum(t.elements for t in op.present[1:])
                tables[handles[handle]] = _import_table(op) if room >= 0 else None
    known_tables = {number: table for number, table in tables.items() if table}
    graphs = (
        replace(graph, ops=tuple(_rewrite_ops(graph.ops, _find_table_numbers(graph), known_tables)))
        for graph in model.graphs
    )
    return model._replace(graphs=tuple(graphs))


def _find_element_budget(model: Model) -> int:
    """Return the number of elements that all tables may have: imports may share bytes."""
    imports = [op for g in model.graphs for op in g.ops if op.is_builtin("HASHTABLE_IMPORT")]
    constants = dict.fromkeys(t for op in imports for t in op.present)
    return _MORE + count_distinct_bytes([t.values for t in constants if t.has_data])


def _order_graphs(model: Model) -> list[Graph]:
    """Return the graphs in order of execution: first the graphs that CALL_ONCE runs."""
    calls = [op for graph in model.graphs for op in graph.ops if op.is_builtin("CALL_ONCE")]
    called = {op.options.get("init_subgraph_index") for op in calls}
    numbers = sorted(range(len(model.graphs)), key=lambda i: i not in called)
    return [model.graphs[i] for i in numbers]


def _find_table_numbers(graph: Graph) -> Mapping[Tensor, int]:
    return {
        op.outputs[0]: int(op.options.get("table_id", 0))
        for op in graph.ops
        if op.is_builtin("HASHTABLE") and op.outputs
    }


def _import_table(op: Op) -> _HashTable | None:
    """Return the table that an import fills, None if its keys or values are not constant."""
    keys, values = op.operand(1), op.operand(2)
    if not keys.has_data or not values.has_data or keys.elements != values.elements:
        return None
    entries: dict[object, object] = {}
    for key, value in zip(
        keys.values.ravel().tolist(), values.values.ravel().tolist(), strict=True
    ):
        entries.setdefault(key, value)
    return _HashTable(_list_tensor(keys, entries.keys()), _list_tensor(values, entries.values()))


def _list_tensor(like: Tensor, items: Iterable[object]) -> Tensor:
    kind = like.dtype.numpy or np.object_
    data = np.array([*items], kind)
    return replace(like, shape=data.shape, data=data, shape_signature=())


def _rewrite_ops(
    ops: Iterable[Op], handles: Mapping[Tensor, int], tables: Mapping[int, _HashTable]
) -> Iterator[Op]:
    for op in ops:
        number = handles.get(op.operand(0), -1)
        if op.is_builtin(*READING) and number in tables:
            yield replace(op, inputs=(*tables[number], *op.inputs[1:]))
        elif not op.is_builtin(*FILLING):
            yield op
