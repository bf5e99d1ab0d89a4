"""What a verification found, as data, and the one verdict on each tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from tflite2onnx.verification.inner_tensors import TensorComparison
from tflite2onnx.verification.processor import instruction_sets
from tflite2onnx.verification.tolerance import Difference

_KERNELS = (
    "With its optimizations disabled ONNX Runtime computes the right numbers: the cause is its"
    " kernels on this processor, not the conversion. Convert with --weights auto or --weights"
    " uint8, which are right on every processor (int8 is for processors with VNNI or ARM's dot"
    " product), or run the model with SessionOptions.graph_optimization_level = ORT_DISABLE_ALL"
)


class Verdict(Enum):
    """What is said of a tensor.

    It is WRONG if its operator computes it wrongly from LiteRT's own inputs. It DIFFERS if it is
    too far off and its operator is right, or was not run on LiteRT's own inputs.
    """

    RIGHT = "right"
    DIFFERS = "differs"
    WRONG = "wrong"


@dataclass(frozen=True)
class Report:
    """What a verification found: for each output, and each tensor inside, the worst of all samples.

    `tensors` are in order of execution; there are none if the ONNX model does not tell where its
    tensors are. `operators` are the same tensors, each computed from LiteRT's own inputs; there
    are none unless that was asked for, or an element is further off than an operator alone may be.
    `closed` are the operators that run sub-graphs: what is computed in these is compared where it
    leaves them. `names` are the outputs' names in the TFLite model, where they have others.
    `right_unoptimized` is True if the model is not right, but is with the optimizations of ONNX
    Runtime disabled. `processor` tells which instruction sets there are, None of what is unknown.
    """

    outputs: tuple[Difference, ...]
    samples: int
    seed: int
    tensors: tuple[TensorComparison, ...] = ()
    operators: tuple[TensorComparison, ...] = ()
    closed: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    right_unoptimized: bool = False
    processor: Mapping[str, bool | None] = field(default_factory=instruction_sets)

    @property
    def ok(self) -> bool:
        """True if every output is as it should be, and every operator that was run alone."""
        return all(d.ok for d in (*self.outputs, *(c.difference for c in self.operators)))

    @cached_property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The verdict on each tensor, by its name in the TFLite model.

        Of an output the model as it is counts, not the one whose tensors are outputs. Noise is no
        excuse for an output if an operator is wrong: it is not rounding that makes it.
        """
        alone = {c.name: c.difference.ok for c in self.operators}
        sound = all(alone.values())
        close = {c.name: c.difference.ok for c in self.tensors}
        for name, found in zip(self._names, self.outputs, strict=True):
            close[name] = found.ok if sound else found.is_within
        return {
            name: (Verdict.RIGHT if ok else Verdict.DIFFERS)
            if alone.get(name, True)
            else Verdict.WRONG
            for name, ok in (alone | close).items()
        }

    @property
    def judged_outputs(self) -> list[tuple[Difference, Verdict]]:
        """The outputs, each with the verdict on its tensor."""
        return [(d, self.verdicts[name]) for name, d in zip(self._names, self.outputs, strict=True)]

    @property
    def _names(self) -> tuple[str, ...]:
        return self.names or tuple(d.name for d in self.outputs)

    @property
    def cause(self) -> str:
        """Why the model is not right and what to do, where ONNX Runtime's kernels are the cause."""
        return _KERNELS if self.right_unoptimized else ""

    @property
    def diverging(self) -> TensorComparison | None:
        """The first tensor that an operator computes wrongly, in order of execution.

        A tensor that is too far off while all operators are right shows how roundings add up.
        """
        bad = Verdict.WRONG if self.operators else Verdict.DIFFERS
        found = self.operators or self.tensors
        return next((c for c in found if self.verdicts[c.name] is bad), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as numbers, strings, lists and dicts; what is infinite is None."""
        diverging = self.diverging
        return {
            "ok": self.ok,
            "samples": self.samples,
            "seed": self.seed,
            "diverging": diverging and diverging.name,
            "outputs": [_to_json(d) | {"verdict": v.value} for d, v in self.judged_outputs],
            "tensors": [self._with_verdict(c) for c in self.tensors],
            "operators": [self._with_verdict(c) for c in self.operators],
            "closed": list(self.closed),
            "right_unoptimized": self.right_unoptimized,
            "processor": dict(self.processor),
        }

    def _with_verdict(self, compared: TensorComparison) -> dict[str, Any]:
        return _to_json(compared) | {"verdict": self.verdicts[compared.name].value}


def _to_json(found: Difference | TensorComparison) -> dict[str, Any]:
    if isinstance(found, TensorComparison):
        rest = {k: v for k, v in asdict(found).items() if k != "difference"}
        return _to_json(found.difference) | {k: _json_value(v) for k, v in rest.items()}
    numbers = asdict(found) | {"relative": found.relative, "ok": found.ok}
    return {k: _json_value(v) for k, v in numbers.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value
