"""Forms of TensorFlow's stateless random operators; see `flex_forms`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.conformance.bench import Array
from tests.conformance.rows.flex_forms import Fed, Form
from tests.contrib.flex.test_translate import ints, scalar
from tests.contrib.random import test_stateless as stateless

_KEY, _COUNTER = stateless.encrypt_seed(stateless.SEED)
_PLACES = [ints(3, 7), Fed(_KEY), Fed(_COUNTER), scalar(1)]


def _draw(*operands: Array, kind: str, dtype: str) -> Array:
    shape, key, counter, _, *bounds = operands
    made = stateless.draw(kind, dtype, int(np.prod(shape)), key, counter, *bounds)
    return made.reshape(shape)


def _draw_seeded(shape: Array, seed: Array, *bounds: Array, kind: str, dtype: str) -> Array:
    return _draw(shape, *stateless.encrypt_seed(seed), seed, *bounds, kind=kind, dtype=dtype)


def _list_forms(kind: str) -> dict[str, list[Form]]:
    """Return the forms of an operator, of a key and of a seed."""
    types = [case.split()[1] for case in stateless.DRAWN if case.split()[0] == kind]
    forms: dict[str, list[Form]] = {}
    for made, first in ((_draw, _PLACES), (_draw_seeded, [ints(3, 7), Fed(stateless.SEED)])):
        name = stateless.NAMES[kind].removesuffix("" if made is _draw else "V2")
        for dtype in types:
            bounds = stateless.BOUNDS if kind == "range" else ()
            operands: list[Any] = [*first, *(np.array(n, dtype) for n in bounds)]
            draw: Any = partial(made, kind=kind, dtype=dtype)
            forms.setdefault(name, []).append(Form(operands, draw, kinds=(dtype,)))
    return forms


FORMS: dict[str, list[Form]] = {
    "StatelessRandomGetAlg": [Form([], lambda: scalar(1))],
    "StatelessRandomGetKeyCounter": [
        Form([Fed(stateless.SEED)], stateless.encrypt_seed, kinds=("int32",))
    ],
    "StatelessRandomGetKeyCounterAlg": [
        Form(
            [Fed(stateless.SEED)],
            lambda seed: [*stateless.encrypt_seed(seed), scalar(1)],
            kinds=("int32",),
        )
    ],
    **{name: forms for kind in stateless.NAMES for name, forms in _list_forms(kind).items()},
}
