"""HASHTABLE_LOOKUP, and hash tables that are filled before they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs
from tests.references import check_reference
from tests.support import Build, Subgraph, Tensor
from tests.support.flex import flex_options
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

TYPES = (
    "float32",
    "float16",
    "float64",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "string",
)
WANTED = np.array([3, -7, 0, 11, 4, 3, 12], np.int32)
KEYS = np.array([-7, 0, 3, 11, 12], np.int32)


def add_lookup(m: Build, rows: Tensor, keys: Any = KEYS, **fields: Any) -> list[Tensor]:
    wanted = m.input([7], dtype="int32")
    made = m.tensor([7, *rows.shape[1:]], dtype=rows.dtype, **fields)
    table = keys if isinstance(keys, Tensor) else m.constant(keys)
    inputs = [wanted, table, rows]
    return m.op("HASHTABLE_LOOKUP", inputs, [made, m.tensor([7], dtype="uint8")])


@pytest.mark.parametrize("shape", [[5], [5, 3], [5, 2, 3]], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_every_type_equal_litert(dtype: str, shape: list[int]) -> None:
    if dtype == "string" and len(shape) > 1:  # the kernel supports rank 1 only
        shape = [5]
    m = Build()
    values = np.arange(int(np.prod(shape))).reshape(shape) + 1
    rows = m.constant(values.astype(str).tolist() if dtype == "string" else values.astype(dtype))
    check_outputs(m, *add_lookup(m, rows), inputs=[WANTED])


def test_keys_and_rows_may_be_computed() -> None:
    m = Build()
    rows, keys = m.input([5, 3]), m.input([5], dtype="int32")
    values = np.arange(15, dtype=np.float32).reshape(5, 3)
    check_outputs(m, *add_lookup(m, rows, keys), inputs=[values, KEYS, WANTED])


def test_missing_rows_are_the_stored_integer_0() -> None:
    """Rows of missing keys are the stored integer 0, whatever the zero point is."""
    m, scale = Build(), {"scale": 0.5, "zero_point": 3}
    rows = add_input(m, [5, 3], "int8", **scale)
    table = np.arange(15, dtype=np.int8).reshape(5, 3)
    check_outputs(m, *add_lookup(m, rows, **scale), inputs=[table, WANTED])


def test_missing_rows_of_int8_stored_as_uint8_equal_litert() -> None:
    m, scale = Build(), {"scale": 0.5, "zero_point": 3}
    rows = add_input(m, [5, 3], "int8", **scale)
    values = np.arange(15, dtype=np.int8).reshape(5, 3)
    outputs = add_lookup(m, rows, **scale)
    check_outputs(m, *outputs, inputs=[values, WANTED], activations="uint8")


def test_hashtable_lookup_refuses_unsorted_keys_and_wrong_shapes() -> None:
    for keys, shape, reason in (
        (np.array([0, 3, 3, 4, 5], np.int32), [5], "must be in strictly ascending order"),
        (np.array([0, 3, 2, 4, 5], np.int32), [5], "must be in strictly ascending order"),
        (np.array([0, 3], np.int32), [5], r"float32\[2\], got float32\[5\]"),
        (np.array([0, 3], np.int64), [2], r"int32\[2\], got int64\[2\]"),
    ):
        m = Build()
        m.output(*add_lookup(m, m.input(shape), keys))
        with pytest.raises(ConversionError, match=reason):
            convert(m.bytes())


NUMBERS = np.array([5, -3, 2**40, 5, 0], np.int64)
WORDS = ["five", "minus", "large", "again", "\u00fc"]


def table(graph: Subgraph, number: int, dtypes: tuple[str, str]) -> Tensor:
    (handle,) = graph.op(
        "HASHTABLE",
        [],
        [graph.tensor([1], dtype="resource")],
        table_id=number,
        key_dtype=dtypes[0],
        value_dtype=dtypes[1],
    )
    return handle


def add_filled_table(graph: Subgraph, number: int, keys: Any, values: Any) -> Tensor:
    """Return the handle of a table that the same graph fills."""
    inputs = [graph.constant(each) for each in (keys, values)]
    handle = table(graph, number, (inputs[0].dtype, inputs[1].dtype))
    graph.op("HASHTABLE_IMPORT", [handle, *inputs], [])
    return handle


def add_find(m: Build, handle: Tensor, shape: list[int], dtype: str, default: Tensor) -> Tensor:
    wanted = m.input(shape, dtype="int64" if dtype == "string" else "string")
    made = m.tensor(shape, dtype=dtype)
    return m.op("HASHTABLE_FIND", [handle, wanted, default], [made])[0]


def add_initialised_table(m: Build, number: int, keys: Any, values: Any) -> Tensor:
    """Return the handle of a table that a sub-graph fills."""
    inner = m.subgraph("init")
    dtypes = ("int64", "string") if isinstance(values, list) else ("string", "int64")
    add_filled_table(inner, number, keys, values)
    m.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)
    return table(m, number, dtypes)


@pytest.mark.parametrize("fill", [add_filled_table, add_initialised_table])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("shape", [[6], [2, 3], [1]], ids=str)
def test_words_are_found_by_numbers(shape: list[int], fill: Any, *, constant: bool) -> None:
    m = Build()
    handle = fill(m, 7, NUMBERS, WORDS)
    default = m.constant(["?", "!"]) if constant else m.input([2], dtype="string")
    y = add_find(m, handle, shape, "string", default)
    wanted = np.resize(np.array([5, 1, 2**40, -3, 0, 4], np.int64), shape)
    given = [] if constant else [np.array(["?", "!"], object)]
    check_outputs(m, y, inputs=[*given, wanted])


@pytest.mark.parametrize("fill", [add_filled_table, add_initialised_table])
@pytest.mark.parametrize("constant", [True, False])
def test_numbers_are_found_by_words(fill: Any, *, constant: bool) -> None:
    m = Build()
    handle = fill(m, 7, WORDS, NUMBERS)
    default = m.constant(np.array([-9])) if constant else m.input([1], dtype="int64")
    y = add_find(m, handle, [2, 3], "int64", default)
    wanted = np.array([["five", "", "\u00fc"], ["Five", "large", "again"]], object)
    given = [] if constant else [np.array([-9])]
    check_outputs(m, y, inputs=[*given, wanted])


def test_second_imports_into_a_table_are_ignored() -> None:
    """The first import fills a table, later imports are ignored; equal keys count once."""
    m = Build()
    handle = add_initialised_table(m, 7, NUMBERS, WORDS)
    add_filled_table(m, 7, np.array([1, 2, 3]), ["a", "b", "c"])
    other = add_filled_table(m, 8, np.array([1, 2, 3]), ["a", "b", "c"])
    sizes = [
        m.op("HASHTABLE_SIZE", [each], [m.tensor([1], dtype="int64")])[0]
        for each in (handle, other)
    ]
    y = add_find(m, other, [3], "string", m.constant(["?"]))
    check_outputs(m, *sizes, y, inputs=[np.array([2, 5, 3])])


def test_refuses_tables_filled_with_computed_keys() -> None:
    m = Build()
    keys, values = m.input([3], dtype="int64"), m.constant(["a", "b", "c"])
    handle = table(m, 7, ("int64", "string"))
    m.op("HASHTABLE_IMPORT", [handle, keys, values], [])
    m.output(add_find(m, handle, [3], "string", m.constant(["?"])))
    m.output(*m.op("HASHTABLE_SIZE", [handle], [m.tensor([1], dtype="int64")]))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    assert str(error.value).count("its table must be filled with constants") == 2


def test_empty_table_gives_the_default() -> None:
    """Every lookup in an empty table gives the default."""
    m = Build()
    handle = add_filled_table(m, 7, np.zeros(0, np.int64), np.array([], object))
    check_outputs(
        m, add_find(m, handle, [3], "string", m.constant(["?"])), inputs=[np.array([2, 5, 3])]
    )


def refusal_reason(m: Build, *outputs: Tensor) -> str:
    m.output(*outputs)
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    return str(error.value)


def test_refuses_tables_of_numbers_and_empty_defaults() -> None:
    """Tables of numbers to numbers, and an empty default, are refused."""
    m = Build()
    handle = add_filled_table(m, 7, NUMBERS, NUMBERS)
    default = m.constant(np.array([-9]))
    said = refusal_reason(
        m,
        *m.op(
            "HASHTABLE_FIND",
            [handle, m.input([3], dtype="int64"), default],
            [m.tensor([3], dtype="int64")],
        ),
    )
    assert "keys of int64 and values of int64" in said
    m = Build()
    default = m.input([0], dtype="string")
    said = refusal_reason(
        m, add_find(m, add_filled_table(m, 7, NUMBERS, WORDS), [3], "string", default)
    )
    assert "must have at least one element" in said


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("keys", "values", "default"),
    [
        (np.array([10, 20, -3]), np.array([2, 3, 4]), np.array(-1)),
        (np.array([10, 20, -3]), np.array([2.5, 3, 4], np.float32), np.array(-1, np.float32)),
        (["a", "b"], ["x", "y"], ["?"]),
        (["a", "b"], np.array([True, True]), np.array(False)),
    ],
    ids=str,
)
def test_tensorflow_has_more_tables(
    keys: Any, values: Any, default: Any, *, constant: bool
) -> None:
    """Keras's IntegerLookup has a table of int64 to int64."""
    m = Build()
    (handle,) = m.custom(
        "FlexHashTableV2", [], [m.tensor([], dtype="resource")],
        flex_options("HashTableV2", shared_name="table"),
    )  # fmt: skip
    lists = [m.constant(each) for each in (keys, values)]
    m.custom("FlexLookupTableImportV2", [handle, *lists], [], flex_options("Import"))
    x = [keys[1], "other" if isinstance(keys, list) else 7, keys[0]]
    wanted = np.array(x, np.object_ if isinstance(keys, list) else np.int64)
    inputs = [m.input([3], dtype=lists[0].dtype)]
    other = m.constant(default) if constant else m.input(np.shape(default), dtype=lists[1].dtype)
    made = [m.tensor([3], dtype=lists[1].dtype)]
    options = flex_options("LookupTableFindV2")
    m.output(*m.custom("FlexLookupTableFindV2", [handle, *inputs, other], made, options))
    first = default[0] if isinstance(default, list) else default
    kind = np.object_ if isinstance(values, list) else values.dtype
    want = np.array([values[1], first, values[0]], kind)
    array = np.array(default, np.object_) if isinstance(default, list) else default
    check_reference(m, [wanted, *([] if constant else [array])], [want], tolerance=0)
