"""TensorFlow's operators (Flex), by tables: with and without an equivalent in TFLite.

LiteRT has no kernels of Flex operators without TensorFlow. If TFLite has an equivalent operator,
LiteRT runs the equivalent for the types that its kernel takes. Else the reference is in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.bench import Array, Bench
from tests.conformance.rows import (
    elementwise,
    flex_images,
    flex_random,
    flex_scans,
    flex_search,
    indices,
    layers,
    moves,
    others,
)
from tests.conformance.rows.elementwise import PAIRS, RANKS, SIZES, broadcast_shapes, kinds
from tests.conformance.rows.flex_forms import FORMS, Fed, Form
from tests.conformance.table import Bound, Row
from tests.contrib.flex import (
    test_bitwise,
    test_elementwise,
    test_matmul,
    test_translate as translated,
    test_wide_types,
)
from tests.contrib.flex.test_bitwise import OPERATORS as BITS
from tests.contrib.flex.test_elementwise import BINARY, UNARY
from tests.support import run_tflite
from tests.support.facts import type_name
from tests.support.flex import flex_options
from tflite2onnx.contrib.flex.elementwise import FlexBinary, FlexCheck, FlexComparison, FlexUnary

# The types that both numpy and LiteRT's interpreter have.
_TYPES = kinds("float32 float16 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool")
_BOUNDS = {
    **dict.fromkeys(("float64", "complex128"), Bound(1e-12)),
    "float16": Bound(3e-3, 0, "each step of a function rounds to the 11 bits of float16"),
}
_MAKE_FLOAT32 = ("CropAndResize", "ResizeBicubic")
_ONE = ("random",)
_PAIRS = {"pair": PAIRS, "constant": (False, True)}


def _tensorflow_name(code: str) -> str:
    """Return the name of the operator in TensorFlow."""
    return code.removeprefix("Flex")


def _seed(b: Bench) -> int:
    return int(b.generator.integers(99))


def unary(b: Bench, code: str, *, rank: int) -> None:
    """Build an operator with one input in its domain."""
    operand = test_elementwise.operand(_tensorflow_name(code), b.kind, SIZES[:rank], _seed(b))
    x = b.add_input(SIZES[:rank], within=operand)
    made = b.output_tensor(SIZES[:rank], "bool" if code in FlexCheck.rows else b.kind)
    b.add_outputs(*b.custom(code, [x], [made], flex_options(_tensorflow_name(code))))


def binary(b: Bench, code: str, *, pair: str, constant: bool) -> None:
    """Build an operator with two inputs that broadcast."""
    first, second, made = broadcast_shapes(pair)
    if _tensorflow_name(code) in BITS:
        operands = [
            b.add_input(first),
            (b.add_constant if constant else b.add_input)(second, within=(-2, 70)),
        ]
    else:
        x, y = test_elementwise.pair(_tensorflow_name(code), b.kind, first, second, seed=_seed(b))
        operands = [
            b.add_input(first, within=x),
            (b.add_constant if constant else b.add_input)(second, within=y),
        ]
    outputs = [b.output_tensor(made, "bool" if code in FlexComparison.rows else b.kind)]
    told = {"tolerance": 0.5} if code == "FlexApproximateEqual" else {}
    b.add_outputs(*b.custom(code, operands, outputs, flex_options(_tensorflow_name(code), **told)))


def loss(b: Bench, code: str, *, rank: int) -> None:
    """Build an operator that reduces all elements to a scalar."""
    x = b.add_input(SIZES[:rank])
    b.add_outputs(*b.custom(code, [x], [b.output_tensor(())], flex_options(_tensorflow_name(code))))


class Formed:
    """Builds an operator in one of several forms; each form has its own types."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self.forms = forms

    def form_of(self, kind: str, form: int) -> Form:
        """Return a form of a type; a number beyond its forms starts again."""
        mine = [each for each in self.forms if kind in each.kinds]
        return mine[form % len(mine)]

    def __call__(self, b: Bench, code: str, *, form: int) -> None:
        """Build the operator in a form."""
        chosen = self.form_of(b.kind, form)
        operands = [self._operand(b, each) for each in chosen.operands]
        made = chosen.made(*b.operands)
        outputs = [
            b.output_tensor(np.shape(each), type_name(np.asarray(each).dtype))
            for each in (made if isinstance(made, list) else [made])
        ]
        b.add_outputs(
            *b.custom(
                code, operands, outputs, flex_options(_tensorflow_name(code), **chosen.attributes)
            )
        )

    def reference(self, *operands: Array, form: int, kind: str) -> Any:
        """Return the outputs of the form in numpy."""
        return self.form_of(kind, form).made(*operands)

    @staticmethod
    def _operand(b: Bench, operand: Any) -> Any:
        if isinstance(operand, Fed):
            dtype = b.kind if operand.typed else type_name(operand.array.dtype)
            return b.add_input(operand.array.shape, dtype, operand.array)
        if isinstance(operand, tuple):
            return b.add_input(operand, within=(-3, 3))
        array = translated.cast_operand(np.asarray(operand), b.kind)
        return b.add_constant(array.shape, type_name(array.dtype), array)


def run_equivalent(*operands: Array, case: translated.Case) -> list[Array]:
    """Run the equivalent TFLite operator in LiteRT; its convolutions require biases."""
    name, attributes, theirs, code, options, ours, shape, made = case
    if "CONV" in code:
        ours = [*ours, np.zeros(made[0][-1], np.float32)]
    whole = name, attributes, theirs, code, options, ours, shape, made
    x, *_ = operands
    return run_tflite(translated.model(whole, flex=False, dtype=x.dtype.name), [x])


def _equivalent_forms() -> dict[str, list[Form]]:
    """Return the forms with a TFLite equivalent, in the types of LiteRT's kernel."""
    theirs = {
        row.code: row.kinds
        for module in (elementwise, indices, layers, moves, others)
        for row in module.ROWS
    }
    forms: dict[str, list[Form]] = {}
    for case in translated.CASES:
        name, attributes, constants, code, _, _, shape, _ = case
        taken = tuple(kind for kind in theirs[code] if kind in _TYPES)
        form = Form(
            [tuple(shape), *constants], partial(run_equivalent, case=case), attributes, taken
        )
        forms.setdefault(name, []).append(form)
    return forms


def _of_first(made: Callable[[Array], Any]) -> Callable[..., Any]:
    return lambda x, *_: made(x)


def _typed_forms() -> dict[str, list[Form]]:
    """Return the forms in types that LiteRT's kernel does not take."""
    forms: dict[str, list[Form]] = {}
    for name, types, attributes, constants, made in test_wide_types.CASES:
        form = Form([(2, 5, 7), *constants], _of_first(made), attributes, tuple(types))
        forms.setdefault(name, []).append(form)
    for name, turns, given in test_matmul.PRODUCTS:
        product = partial(test_matmul.multiply, turns=turns)
        form = Form(given, product, turns, ("float32", *test_matmul.TYPES))
        forms.setdefault(name, []).append(form)
    return forms


def _sums() -> list[Form]:
    return [
        Form(given, partial(np.einsum, equation), {"equation": equation})
        for equation, given in test_matmul.SUMS
    ]


def _join_tables(*tables: Mapping[str, Sequence[Form]]) -> dict[str, list[Form]]:
    joined: dict[str, list[Form]] = {}
    for table in tables:
        for name, forms in table.items():
            joined.setdefault(name, []).extend(forms)
    return joined


def _row_of_forms(name: str, forms: Sequence[Form]) -> Row:
    """Return a row with all forms of an operator."""
    build = Formed(forms)
    every = tuple(dict.fromkeys(kind for form in forms for kind in form.kinds))
    most = max(sum(kind in form.kinds for form in forms) for kind in every)
    bounds = {} if name in _MAKE_FLOAT32 else _BOUNDS
    return Row(
        f"Flex{name}",
        build,
        every,
        {"form": range(most)},
        bounds=bounds,
        reference=build.reference,
        told=("form", "kind"),
    )


def _numpy_kinds(words: str) -> tuple[str, ...]:
    """Return the types that numpy has."""
    return tuple(kind for kind in words.split() if kind in _TYPES)


ROWS = (
    *(
        Row(
            code,
            unary,
            _numpy_kinds(row.types),
            {"rank": RANKS},
            _ONE,
            bounds=_BOUNDS,
            reference=UNARY[_tensorflow_name(code)],
        )
        for code, row in {**test_elementwise.ZEROS, **FlexUnary.rows, **FlexCheck.rows}.items()
    ),
    *(
        Row(
            code,
            binary,
            _numpy_kinds(row.types),
            _PAIRS,
            _ONE,
            bounds=_BOUNDS,
            reference=BINARY[_tensorflow_name(code)],
        )
        for code, row in {**FlexBinary.rows, **FlexComparison.rows}.items()
    ),
    *(
        Row(f"Flex{name}", binary, test_bitwise.TYPES, _PAIRS, exact=True, reference=function)
        for name, function in BITS.items()
    ),
    Row(
        "FlexL2Loss",
        loss,
        ("float32", "float64"),
        {"rank": RANKS},
        bounds=_BOUNDS,
        reference=lambda x: np.square(x).sum() / 2,
    ),
    *(
        _row_of_forms(name, forms)
        for name, forms in _join_tables(
            _equivalent_forms(),
            _typed_forms(),
            FORMS,
            flex_images.FORMS,
            flex_random.FORMS,
            flex_scans.FORMS,
            flex_search.FORMS,
            {"Einsum": _sums()},
        ).items()
        if name not in UNARY
    ),
)
