"""Flex operators in types that only TensorFlow's kernels have; numpy is the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex, random_numbers
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runtimes import Array

AXIS = np.array(1, np.int32)
WRAPS = ["float64", "float16", "int8", "int16", "uint8", "uint16", "uint32"]
ORDERED = ["float64", "float16", "uint16", "uint32"]
BOUNDS = {"float64": 1e-12, "float16": 3e-3}


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def compute_wide(x: Array, reduce: Callable[..., Any]) -> Array:
    """Return a reduction computed in float64 or int64, and cast to the type."""
    wide = x.astype({"f": np.float64, "u": np.int64, "i": np.int64}[x.dtype.kind])
    return np.asarray(reduce(wide)).astype(x.dtype)


CASES: list[tuple[str, list[str], dict[str, Any], list[Array], Callable[[Array], Any]]] = [
    (
        "Sum",
        WRAPS,
        {"keep_dims": True},
        [AXIS],
        lambda x: compute_wide(x, lambda v: v.sum(1, keepdims=True)),
    ),
    ("Prod", WRAPS, {}, [AXIS], lambda x: compute_wide(x, lambda v: v.prod(1))),
    ("Mean", ["float64", "float16"], {}, [AXIS], lambda x: compute_wide(x, lambda v: v.mean(1))),
    ("Max", ORDERED, {}, [AXIS], lambda x: x.max(1)),
    ("Min", ORDERED, {"keep_dims": True}, [AXIS], lambda x: x.min(1, keepdims=True)),
    (
        "Cumsum",
        WRAPS,
        {"exclusive": True},
        [AXIS],
        lambda x: compute_wide(x, lambda v: v.cumsum(1) - v),
    ),
    (
        "Cumsum",
        ["float64"],
        {"reverse": True},
        [AXIS],
        lambda x: np.flip(np.flip(x, 1).cumsum(1), 1),
    ),
    ("ArgMax", ["float64", "int64", "int16", "uint16"], {}, [AXIS], lambda x: x.argmax(1)),
    ("ArgMin", ["float64", "int64", "int16", "float16"], {}, [AXIS], lambda x: x.argmin(1)),
    ("Softmax", ["float64", "float16"], {}, [], softmax),
    ("LogSoftmax", ["float64", "float16"], {}, [], lambda x: np.log(softmax(x))),
    ("LeakyRelu", ["float64", "float16"], {"alpha": 0.5}, [], lambda x: np.where(x > 0, x, x / 2)),
    (
        "ReverseSequence",
        ["float16", "int8", "uint16"],
        {"seq_dim": 1, "batch_dim": 0},
        [np.array([5, 5], np.int32)],
        lambda x: np.flip(x, 1),
    ),
]


@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, dtype) for case in CASES for dtype in case[1]],
    ids=lambda each: each if isinstance(each, str) else each[0],
)
def test_operators_of_wide_types_equal_numpy(case: Any, dtype: str) -> None:
    name, _, attributes, constants, reference = case
    x = random_numbers(dtype, 2, 5, 7, low=-3, high=3)
    want = np.asarray(reference(x))
    want = want if want.dtype.kind == "i" and name.startswith("Arg") else want.astype(dtype)
    model = build_flex(name, [x], [want], constants, **attributes)
    check_reference(model, [x], [want], tolerance=BOUNDS.get(dtype, 0))


def test_largest_elements_are_sorted_for_any_option() -> None:
    """TopKV2 returns sorted elements for both values of `sorted`."""
    x = np.random.default_rng(0).permutation(35).reshape(5, 7).astype(np.float64)
    places = np.argsort(-x, -1)[:, :3]
    want: list[Array] = [np.take_along_axis(x, places, -1), places.astype(np.int32)]
    constants = [np.array(3, np.int32)]
    for is_sorted in (True, False):
        check_reference(build_flex("TopKV2", [x], want, constants, sorted=is_sorted), [x], want)


@pytest.mark.parametrize("dtype", ["float64", "uint16", "uint32", "int32", "float32"])
def test_clipping_equals_numpy(dtype: str) -> None:
    x = random_numbers(dtype, 3, 5)
    bounds = [np.array(each, dtype) for each in (1, 3)]
    want = np.clip(x, 1, 3).astype(dtype)
    check_reference(build_flex("ClipByValue", [x], [want], bounds), [x], [want])


def test_refuses_a_list_as_a_numeric_attribute() -> None:
    """A list as the value of a numeric attribute is an error."""
    x, odd = random_numbers("float64", 3, 5), [0.5, 0.5]
    for model, reason in (
        (
            build_flex("LeakyRelu", [x], [x], alpha=odd),
            r"not with .* attributes \(alpha=\[0.5, 0.5\]",
        ),
        (build_flex("ApproximateEqual", [x, x], [x > 0], tolerance=odd), "contradict each other"),
    ):
        with pytest.raises(ConversionError, match=reason):
            convert(model.bytes())


def test_integer_2_as_boolean_option_means_true() -> None:
    x = random_numbers("float64", 7)
    want, axis = np.cumsum(x[::-1])[::-1].copy(), np.array(0, np.int32)
    model = build_flex("Cumsum", [x], [want], [axis], exclusive=False, reverse=2)
    check_reference(model, [x], [want], tolerance=1e-12)


def test_identity_of_several_tensors_returns_its_inputs() -> None:
    inputs = [random_numbers("float32", 2, 3), random_numbers("uint16", 5)]
    check_reference(build_flex("IdentityN", inputs, inputs), inputs, inputs)


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint64"])
def test_bias_of_any_type_is_added(dtype: str) -> None:
    x, bias = (random_numbers(dtype, *shape, seed=1) for shape in ((2, 3, 4, 5), (3,)))
    model = build_flex("BiasAdd", [x], [x + bias[:, None, None]], [bias], data_format="NCHW")
    check_reference(model, [x], [x + bias[:, None, None]])


NORMALIZATIONS = ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"]


def normalize(x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
    return np.asarray((x - mean) / np.sqrt(variance + np.float32(0.01)) * scale + offset)


@pytest.mark.parametrize("name", NORMALIZATIONS)
@pytest.mark.parametrize("constant", [True, False])
def test_batch_normalization_equals_numpy(name: str, *, constant: bool) -> None:
    x = random_numbers("float32", 2, 3, 5, 7)
    learned = [random_numbers("float32", 7, seed=i, low=1) for i in range(4)]
    want = normalize(x, *learned)
    inputs, constants = ([x], learned) if constant else ([x, *learned], [])
    wanted = [want, *learned[2:]]  # the statistics are outputs, too
    model = build_flex(name, inputs, wanted, constants, is_training=False, epsilon=0.01)
    result = check_reference(model, inputs, wanted)
    if constant:
        assert {node.op_type for node in result.model.graph.node} <= {
            "Mul",
            "Add",
            "Transpose",
            "Identity",
        }
