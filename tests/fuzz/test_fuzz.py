"""No contents of a file may crash, hang or exhaust the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.fuzz.models import MODELS
from tests.fuzz.mutate import mutate
from tests.fuzz.run import convert_outcome
from tests.support import Build, pack
from tests.support.control import add_if, add_less, apply_operator, count_rounds, loop
from tests.support.flex import Type, flex_options
from tests.support.levels import runs_all
from tests.support.reading import int32
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable
from tflite2onnx import convert
from tflite2onnx.errors import OperatorError, UnsupportedOperators, as_operator_error
from tflite2onnx.op import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support import Subgraph, Tensor
    from tests.support.control import Change

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "assets" / "models"
SECONDS = 120


def run_fuzzer(first: int, last: int, paths: Sequence[Path]) -> str:
    """Convert damaged models in another process; return the counts of outcomes."""
    command = [sys.executable, "-m", "tests.fuzz.run", str(first), str(last), *map(str, paths)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # each thread reserves memory
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def save_models(where: Path, models: dict[str, bytes]) -> list[Path]:
    """Write models to files."""
    for name, data in models.items():
        (where / name).write_bytes(data)
    return [where / name for name in models]


@pytest.mark.nightly(cases=4)
@pytest.mark.parametrize("name", MODELS)
def test_undamaged_models_are_converted(name: str) -> None:
    """Damage shows faults only if the undamaged models are converted."""
    if name == "custom":
        with pytest.raises(UnsupportedOperators, match="2 operators"):
            convert(MODELS[name]())
    else:
        assert convert(MODELS[name]()).nodes


def test_damaged_models_are_converted_or_refused(tmp_path: Path) -> None:
    """Damaged models are converted or refused."""
    models = {name: build() for name, build in MODELS.items()}
    # The first level converts about 300 damaged models here.
    last = 100 if runs_all() else 300 // len(models)
    counts = run_fuzzer(0, last, save_models(tmp_path, models))
    assert "'converted'" in counts
    assert "'refused'" in counts


@pytest.mark.nightly
def test_damaged_networks_are_converted_or_refused() -> None:
    """Damaged networks, as converters write them, are converted or refused."""
    assert run_fuzzer(0, 12, sorted(ASSETS.glob("keywords_*.tflite")))


@pytest.mark.nightly
def test_truncated_models_are_refused(tmp_path: Path) -> None:
    """Models that are truncated at any length are refused."""
    small = {name: MODELS[name]() for name in ("quantized", "composite", "custom")}
    assert "refused" in run_fuzzer(0, 0, save_models(tmp_path, small))


def test_the_same_seed_does_the_same_damage() -> None:
    """A seed always makes the same damage, so that a fault can be reproduced."""
    data = MODELS["axes"]()
    mutants = [mutate(data, seed) for seed in range(30)]
    assert mutants == [mutate(data, seed) for seed in range(30)]
    assert len({*mutants}) > 25


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", MODELS)
def test_operators_with_missing_or_extra_operands_convert_or_are_refused(name: str) -> None:
    """Operators with no, missing and extra operands are converted or refused."""
    model = schema.ModelT.InitFromPackedBuf(MODELS[name]())
    for operator in (op for graph in model.subgraphs for op in graph.operators):
        for field in ("inputs", "outputs"):
            whole = getattr(operator, field)
            if whole is None or isinstance(whole, int):  # an empty or absent vector
                continue
            for other in (whole[:0], whole[:-1], np.append(whole, whole[-1:])):
                setattr(operator, field, other)
                convert_outcome(pack(model))
            setattr(operator, field, whole)


def test_flex_max_pool_with_an_option_of_another_type_is_refused() -> None:
    m, words = Build(), {"ksize": Type(1), "strides": [1, 2, 2, 1], "padding": "SAME"}
    options = flex_options("MaxPool", data_format="NHWC", **words)
    m.output(*m.custom("FlexMaxPool", [m.input([1, 5, 7, 3])], [[1, 3, 4, 3]], options))
    with pytest.raises(UnsupportedOperators, match="FlexMaxPool"):
        convert(m.bytes())


# Small files that declare much data


def build_huge(code: str, *shapes: Sequence[int], **options: Any) -> bytes:
    """Return an operator with inputs and an output of large declared shapes."""
    m = Build()
    fields = {name: options[name] for name in ("dtype", "scale", "zero_point") if name in options}
    inputs = [m.input(shape, **fields) for shape in shapes[:-1]]
    m.output(*m.op(code, inputs, [shapes[-1]], **options))
    return m.bytes()


def build_with_constants(
    code: str, shape: Sequence[int], constants: Sequence[Any], made: Sequence[int], **options: Any
) -> bytes:
    """Return an operator with an input and small constants, but large declared shapes."""
    m = Build()
    m.output(*m.op(code, [m.input(shape), *map(m.constant, constants)], [made], **options))
    return m.bytes()


def build_doubling(times: int) -> bytes:
    """Return a constant that a chain of operators doubles repeatedly."""
    m = Build()
    (x,), size = [m.constant(np.ones(1 << 10, np.float32))], 1 << 10
    for _ in range(times):
        size *= 2
        (x,) = m.op("CONCATENATION", [x, x], [[size]], axis=0)
    m.output(*m.op("ADD", [x, m.input([size])], [[size]]))
    return m.bytes()


def build_shared_buffer(count: int) -> bytes:
    """Return many constants that share one buffer: in total they are far larger than the file."""
    m = Build()
    q: dict[str, Any] = {"scale": 0.5, "zero_point": 1}
    x = m.input([1, 128, 128, 64], dtype="int8", **q)
    shared = np.resize(np.arange(128, dtype=np.int8), (1, 128, 128, 64))
    constants = [m.constant(shared if i == 0 else shared[:0], **q) for i in range(count)]
    for tensor in (tensors := m.model().subgraphs[0].tensors)[1:]:
        tensor.buffer, tensor.shape = tensors[1].buffer, tensors[1].shape
    weights = m.constant(np.ones((64, 1, 1, 64), np.int8), scale=0.01)
    window: dict[str, Any] = {"stride_h": 1, "stride_w": 1}
    for constant in constants:
        (x,) = m.op("CONV_2D", [x, weights, None], [x.shape], **q, **window)
        (x,) = m.op("ADD", [x, constant], [x.shape], **q)
    m.output(x)
    return m.bytes()


def build_calls(levels: int) -> bytes:
    """Return nested sub-graphs; each calls the next sub-graph twice."""
    m = Build()
    graphs = [m, *(m.subgraph(f"level {i}") for i in range(levels))]
    for i, graph in enumerate(graphs):
        x = graph.input([2], name="x")
        for _ in range(2):
            if i < levels:
                (x,) = graph.op("CALL", [x], [graph.tensor([2], name="y")], subgraph=i + 1)
            else:
                (x,) = graph.op("ABS", [x], [graph.tensor([2], name="y")])
        graph.output(x)
    return m.bytes()


def build_nested_branches(levels: int) -> bytes:
    """Return nested branches; the innermost branch writes a variable."""
    m = Build()
    condition, x = m.input([], dtype="bool"), m.input(SHAPE)
    initialise(m, memory=np.ones(SHAPE, np.float32))

    def level(left: int) -> Change:
        def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
            if not left:
                (y,) = inner.op("ADD", [read_variable(inner, handle(inner)), xs[0]], [SHAPE])
                assign(inner, handle(inner), y)
                return [y]
            always = inner.op("EQUAL", [xs[0], xs[0]], [SHAPE], dtype="bool")
            axes = inner.constant(int32([0, 1, 2]))
            (every,) = inner.op("REDUCE_ALL", [*always, axes], [[]])
            return add_if(m, every, xs, level(left - 1), apply_operator("NEG"), at=inner)

        return change

    m.output(*add_if(m, condition, [x], level(levels), apply_operator("NEG")))
    return m.bytes()


def build_repeated_condition(tests: int) -> bytes:
    """Return a loop whose condition is a chain of ANDs of the same value."""
    m = Build()

    def condition(inner: Subgraph, xs: Sequence[Tensor]) -> Tensor:
        test = add_less(inner, xs)
        for _ in range(tests):
            (test,) = inner.op("LOGICAL_AND", [test, test], [[]], dtype="bool")
        return test

    count = m.constant(np.array(0, np.int32))
    m.output(*loop(m, [count, m.input(SHAPE)], count_rounds(apply_operator("ABS")), condition))
    return m.bytes()


def build_uninitialized_variables(variables: int) -> bytes:
    """Return variables without initial values."""
    m = Build()
    x = m.input(SHAPE)
    for i in range(variables):
        (x,) = m.op("ADD", [read_variable(m, handle(m, f"{i}")), x], [SHAPE])
        assign(m, handle(m, f"{i}"), x)
    m.output(x)
    return m.bytes()


def build_repeated_output(times: int) -> bytes:
    """Return a model that lists one output many times."""
    m = Build()
    m.output(*m.op("ABS", [m.input([2])], [[2]]) * times)
    return m.bytes()


def build_reshaping_loop(times: int) -> bytes:
    """Return a loop that repeatedly reshapes a tensor of a large declared size."""
    m = Build()

    def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        (x,) = xs
        for shape in [[1 << 10, 1 << 10], [1, 1 << 20]] * times:
            (x,) = inner.op("RESHAPE", [x], [shape], new_shape=shape)
        return [x]

    count = m.constant(np.array(0, np.int32))
    m.output(*loop(m, [count, m.input([1, 1 << 20])], count_rounds(change)))
    return m.bytes()


def build_imported_tables(times: int) -> bytes:
    """Return hash tables that are all filled from the same constants."""
    m = Build()
    keys = m.constant(np.arange(1 << 16))
    for i in range(times):
        fields: dict[str, Any] = {"table_id": i, "key_dtype": "int64", "value_dtype": "int64"}
        (table,) = m.op("HASHTABLE", [], [m.tensor([], dtype="resource")], **fields)
        m.op("HASHTABLE_IMPORT", [table, keys, keys], [])
        m.output(*m.op("HASHTABLE_SIZE", [table], [m.tensor([1], dtype="int64")]))
    return m.bytes()


def build_complex_constants(times: int) -> bytes:
    """Return products with complex constants that share one buffer."""
    m = Build()
    fields: dict[str, Any] = {"in_data_type": "float32", "out_data_type": "complex64"}
    made = m.tensor([1 << 16], dtype="complex64")
    (x,) = m.op("CAST", [m.input([1 << 16])], [made], **fields)
    constant = m.constant(np.ones(1 << 16, np.complex64))
    factors = [m.constant(np.zeros(0, np.complex64)) for _ in range(times)]
    tensors = m.model().subgraphs[0].tensors
    for factor in factors:
        tensor, filled = (tensors[t.index] for t in (factor, constant))
        tensor.buffer, tensor.shape = filled.buffer, filled.shape
        (x,) = m.op("MUL", [x, factor], [m.tensor([1 << 16], dtype="complex64")])
    m.output(*m.op("REAL", [x], [[1 << 16]], dtype="float32"))
    return m.bytes()


def build_large_variables(variables: int) -> bytes:
    """Return variables with large declared shapes."""
    m = Build()
    for _ in range(variables):
        state = m.tensor([1 << 26], variable=True)
        (y,) = m.op("NEG", [state], [state.shape])
        m.op("ABS", [y], [state])
        m.output(*m.op("SUM", [y, m.constant(int32([0]))], [[]]))
    return m.bytes()


def build_diagonals(length: int) -> bytes:
    """Return an operator that reads every diagonal of a matrix with one row."""
    m = Build()
    operands = [
        m.input([1, length]),
        m.constant(int32([0, length - 1])),
        m.constant(np.array(0, np.float32)),
    ]
    options = flex_options("MatrixDiagPartV3", align="RIGHT_LEFT")
    m.output(*m.custom("FlexMatrixDiagPartV3", operands, [[length, 1]], options))
    return m.bytes()


def build_bands(count: int) -> bytes:
    """Return a filter bank over more frequencies than it has weights."""
    m = Build()
    tables = [m.constant(np.ones(count + 1, np.int16)) for _ in range(5)]
    operands = [m.input([1 << 22], dtype="uint32"), *tables]
    made = m.tensor([count], dtype="uint64")
    m.output(*m.custom("SignalFilterBank", operands, [made], {"num_channels": count}))
    return m.bytes()


LONG = 1 << 28
GREEDY: dict[str, Callable[[], bytes]] = {
    "resize": lambda: build_with_constants(
        "RESIZE_NEAREST_NEIGHBOR", [1, LONG, 2, 3], [int32([2, 2])], [1, 2, 2, 3]
    ),
    "resized": lambda: build_with_constants(
        "RESIZE_NEAREST_NEIGHBOR", [1, 2, 2, 3], [int32([LONG, 2])], [1, LONG, 2, 3]
    ),
    "mirror": lambda: build_with_constants(
        "MIRROR_PAD", [LONG, 2], [int32([[2, 2], [0, 0]])], [LONG + 4, 2], mode="SYMMETRIC"
    ),
    "tile": lambda: build_with_constants("TILE", [2], [int32([LONG])], [2 * LONG]),
    "extreme of nothing": lambda: build_with_constants(
        "REDUCE_MAX", [LONG, 0], [int32([1])], [LONG]
    ),
    "softmax of one": lambda: build_huge(
        "SOFTMAX", [LONG, 1], [LONG, 1], dtype="int8", scale=1 / 256, zero_point=-128, beta=1.0
    ),
    "reshape": lambda: build_huge("RESHAPE", [LONG, 7], [7, LONG], new_shape=[7, LONG]),
    "sum": lambda: build_huge("ADD", [LONG, 7, 2], [LONG, 7, 2], [LONG, 7, 2]),
    "doubling": lambda: build_doubling(20),
    "calls": lambda: build_calls(10),
    "too many calls": lambda: build_calls(30),
    "one buffer": lambda: build_shared_buffer(1500),
    "branches": lambda: build_nested_branches(20),
    "conditions": lambda: build_repeated_condition(40),
    "variables": lambda: build_uninitialized_variables(2000),
    "one output": lambda: build_repeated_output(4000),
    "complex ones": lambda: build_complex_constants(1500),
    "states": lambda: build_large_variables(100),
    "reshapes": lambda: build_reshaping_loop(2000),
    "tables": lambda: build_imported_tables(2000),
    "diagonals": lambda: build_diagonals(1 << 22),
    "bands": lambda: build_bands(2900),
}


@pytest.mark.nightly
def test_small_files_that_declare_much_stay_within_limits(tmp_path: Path) -> None:
    """Small files that declare large data are converted or refused within limits."""
    models = {name: build() for name, build in GREEDY.items()}
    assert max(map(len, models.values())) < 1 << 21
    assert run_fuzzer(0, 1, save_models(tmp_path, models))


def test_names_of_often_written_variables_stay_short() -> None:
    """The name of a variable stays short if the variable is written often."""
    m = Build()
    condition, x = m.input([], dtype="bool"), m.input(SHAPE)
    initialise(m, memory=np.ones(SHAPE, np.float32))

    def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        (y,) = inner.op("ADD", [read_variable(inner, handle(inner)), xs[0]], [SHAPE])
        assign(inner, handle(inner), y)
        return [y]

    for _ in range(20):
        (x,) = add_if(m, condition, [x], change, apply_operator("NEG"))
    m.output(x)
    names = [name for node in convert(m.bytes()).model.graph.node for name in node.output]
    assert max(map(len, names)) < 32


# Errors of operators


def test_contradictions_are_errors_of_the_operator() -> None:
    """Errors of Python and numpy in an operator become an OperatorError."""
    for error in (KeyError("k"), ZeroDivisionError(), ValueError("v"), RecursionError()):
        with pytest.raises(OperatorError, match="contradict each other"), as_operator_error():
            raise error
    with pytest.raises(KeyboardInterrupt), as_operator_error():
        raise KeyboardInterrupt


def test_exception_in_shape_inference_names_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in shape inference becomes an error that names the operator."""
    monkeypatch.setattr(OPERATORS["ADD"], "infer_outputs", lambda self: self.missing)
    with pytest.raises(UnsupportedOperators, match=r"ADD \(operator 0, .*contradict each other"):
        convert(build_huge("ADD", [2], [2], [2]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("beta", [1e30, float("inf"), float("nan"), 0.0])
def test_options_that_overflow_float16_print_no_warning(beta: float) -> None:
    """Options that overflow float16 print no warning."""
    assert convert(build_huge("SOFTMAX", [2, 3], [2, 3], beta=beta, dtype="float16")).nodes
