"""Recognise rotary embeddings of positions that a model spells out.

    y = [a cos - b sin, b cos + a sin] for x = [a, b], halves of the last axis

Language models rotate queries and keys so. They are replaced by ROTARY_EMBEDDING, which no file
contains, if

1. it is spelled so, or as x cos + [-b, a] sin, whose cosines and sines are those of an angle that
   is repeated along the last axis;
2. x has four axes: a batch, heads and positions in any sequence, and the last axis of even size;
3. cosines and sines vary along the positions and the last axis only;
4. all tensors are float32 and have fixed sizes.
"""

from tflite2onnx.graph import Op
from tflite2onnx.op.movement.slice import SLICES
from tflite2onnx.passes.operands import are_fixed_floats, find_taken_ranges, joins_last_axis
from tflite2onnx.passes.patterns.matching import (
    Match,
    Named,
    OneOf,
    Pattern,
    Shared,
    Through,
    any_of,
)
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.targets.onnxruntime.operators.attention import RotationOptions
from tflite2onnx.tensor import Tensor

_AXES = 4
_UNLESS = "the halves must be joined along the last axis"
_POSITIONS = (2, 1)  # the axes that may be positions; of two axes of size 1 the first counts


def _rotate_halves(found: Match) -> list[Op] | str:
    angles = found.tensors["cosines"], found.tensors["sines"]
    return _rotate(found, Rewriter(found.last), *angles) if joins_last_axis(found.last) else _UNLESS


def _rotate_whole(found: Match) -> list[Op] | str:
    rw, tensors, angles = Rewriter(found.last), found.tensors, []
    for code in ("COS", "SIN"):
        # RESHAPE may stand after the function.
        if tensors[f"whole {code}"].shape[-1:] != tensors[f"twice {code}"].shape[-1:]:
            return "sines and cosines must be the same angles twice"
        angle = tensors[f"angle {code}"]
        angles.append(rw.op(code, angle, like=angle, name=code.lower()))
    joined = (found.graph.producers[tensors[n]] for n in ("swapped", "twice COS", "twice SIN"))
    return _rotate(found, rw, *angles) if all(map(joins_last_axis, joined)) else _UNLESS


def _rotate(found: Match, rw: Rewriter, cosines: Tensor, sines: Tensor) -> list[Op] | str:
    """Return the operators that rotate x, or why not."""
    x, y = found.x, found.output
    if x.rank != _AXES or x.shape != y.shape or not are_fixed_floats(x, y, cosines, sines):
        return "x must be float32, of four axes of known sizes"
    last, half = _AXES - 1, x.shape[-1] // 2
    parts = (found.graph.producers[found.tensors[name]] for name in ("first", "second"))
    if [*map(find_taken_ranges, parts)] != [{last: range(half)}, {last: range(half, 2 * half)}]:
        return "the halves of the features must be taken"
    sizes = [(*(1,) * (_AXES - t.rank), *t.shape) for t in (cosines, sines)]
    for axis in _POSITIONS:
        expected = (*(n if i == axis else 1 for i, n in enumerate(x.shape[:-1])), half)
        if sizes == [expected] * 2:
            shape = (x.shape[axis], half)
            angles = [rw.reshape(t, shape, like=t, name="rows") for t in (cosines, sines)]
            rw.op("ROTARY_EMBEDDING", x, *angles, output=y, made=RotationOptions(positions=axis))
            return rw.ops
    return "no axis of x has the positions"


def _name_half(name: str) -> Shared:
    """Return the pattern of a slice of x."""
    return Shared(Named(name, any_of(SLICES, "x", ...)))


def _repeat_angle(code: str) -> Named:
    """Return the pattern of a cosine or sine of an angle that is repeated; layers share it."""
    twice: Pattern = ("CONCATENATION", f"angle {code}", f"angle {code}")
    return Named(f"whole {code}", Shared(Through((code, Named(f"twice {code}", twice)))))


_FIRST, _SECOND = _name_half("first"), _name_half("second")
_MINUS = OneOf(("MUL", _SECOND, -1.0), ("NEG", _SECOND))
_SWAPPED: Pattern = Named("swapped", ("CONCATENATION", _MINUS, _FIRST))
fuse_rotations = Rules(
    Rule(
        "rotary embedding of one half after the other",
        "ROTARY_EMBEDDING",
        (
            "CONCATENATION",
            ("SUB", ("MUL", _FIRST, "cosines"), ("MUL", _SECOND, "sines")),
            ("ADD", ("MUL", _SECOND, "cosines"), ("MUL", _FIRST, "sines")),
        ),
        _rotate_halves,
        needs=("COS",),
    ),
    Rule(
        "rotary embedding of both halves at once",
        "ROTARY_EMBEDDING",
        ("ADD", ("MUL", "x", _repeat_angle("COS")), ("MUL", _SWAPPED, _repeat_angle("SIN"))),
        _rotate_whole,
    ),
)
