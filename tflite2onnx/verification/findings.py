"""What a verification found, as data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tflite2onnx.verification.difference import Difference
from tflite2onnx.verification.tensors import Compared


@dataclass(frozen=True)
class Report:
    """What a verification found: for each output, and each tensor inside, the worst of all samples.

    `tensors` are in order of execution; there are none if the ONNX model does not tell where its
    tensors are. `operators` are the same tensors, each computed from LiteRT's own inputs; there
    are none unless that was asked for, or tensors are further off than is allowed. `closed` are
    the operators that run sub-graphs: what is computed in these is compared where it leaves them.
    """

    outputs: tuple[Difference, ...]
    samples: int
    seed: int
    tensors: tuple[Compared, ...] = ()
    operators: tuple[Compared, ...] = ()
    closed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if every output is as it should be, and every operator that was run alone."""
        return all(d.ok for d in (*self.outputs, *(c.difference for c in self.operators)))

    @property
    def diverging(self) -> Compared | None:
        """The first tensor that an operator computes wrongly, in order of execution.

        A tensor that is too far off while all operators are right shows how roundings add up.
        """
        return next((c for c in self.operators or self.tensors if not c.difference.ok), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as numbers, strings, lists and dicts; what is infinite is None."""
        diverging = self.diverging
        return {
            "ok": self.ok,
            "samples": self.samples,
            "seed": self.seed,
            "diverging": diverging and diverging.name,
            "outputs": [_plain(d) for d in self.outputs],
            "tensors": [_plain(c) for c in self.tensors],
            "operators": [_plain(c) for c in self.operators],
            "closed": list(self.closed),
        }


def _plain(found: Difference | Compared) -> dict[str, Any]:
    if isinstance(found, Compared):
        rest = {k: v for k, v in asdict(found).items() if k != "difference"}
        return _plain(found.difference) | {k: _listed(v) for k, v in rest.items()}
    numbers = asdict(found) | {"relative": found.relative, "ok": found.ok}
    return {k: _listed(v) for k, v in numbers.items()}


def _listed(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value
