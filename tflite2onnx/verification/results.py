"""The result of a verification as data, with one verdict on each tensor."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from tflite2onnx.utils.processor import list_instructions
from tflite2onnx.verification.inner_tensors import TensorComparison
from tflite2onnx.verification.latency import Latency
from tflite2onnx.verification.runtimes import PLAIN_KERNELS
from tflite2onnx.verification.tolerance import Difference

_KERNELS = (
    "With its optimizations disabled ONNX Runtime computes the right numbers: the cause is its"
    " kernels on this processor, not the conversion. --weights auto or --weights uint8 are right on"
    " every processor, and so is a session with session.x64quantprecision 1"
)


class Verdict(Enum):
    """The verdict on a tensor.

    CLOSE: the tensor exceeds the usual limit of an element, but is accepted by a wider limit; see
    `Difference.bound`. NOTHING_SHOWN: an output is right, but is the same number everywhere. WRONG:
    the operator exceeds its limits on LiteRT's own inputs. DIFFERS: the tensor exceeds its limits,
    but its operator is right on LiteRT's own inputs or was not run on them.
    """

    RIGHT = "right"
    CLOSE = "close"
    NOTHING_SHOWN = "nothing shown"
    DIFFERS = "differs"
    WRONG = "wrong"

    @property
    def conclusion(self) -> str:
        """The word for a whole verification, at the end of a command and on top of a page."""
        words = {"right": "PASSED", "close": "CLOSE", "nothing shown": "UNPROVEN"}
        return words.get(self.value, "FAILED")

    @property
    def accepts(self) -> bool:
        return self not in (Verdict.DIFFERS, Verdict.WRONG)


def describe_kernels(outputs: Sequence[Difference]) -> list[str]:
    """Return a sentence for the outputs of each kind of kernels that are not the plain ones."""
    names: dict[str, list[str]] = {}
    for output in (each for each in outputs if each.comparison):
        names.setdefault(output.comparison, []).append(output.name)
    return [
        f"{', '.join(n)} {'is' if len(n) == 1 else 'are'} {words}" for words, n in names.items()
    ]


def describe_misread(operators: Sequence[str]) -> list[str]:
    """Return a sentence for each operator whose constants LiteRT's kernels misread."""
    return [
        f"LiteRT's kernel misreads the constants of {operator}: LiteRT ran with constants that it"
        " reads as they are meant"
        for operator in operators
    ]


@dataclass(frozen=True)
class SizeComparison:
    """The outputs of one run at other sizes of the dynamic axes, which `sizes` has by name."""

    sizes: Mapping[str, int]
    outputs: tuple[Difference, ...]

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items())

    @property
    def ok(self) -> bool:
        """Whether every output is within its limits."""
        return all(difference.ok for difference in self.outputs)


@dataclass(frozen=True)
class Report:
    """The result of a verification: the worst sample of each output and each inner tensor.

        report = verify("model.tflite", "model.onnx")
        print(report.ok, report.verdict.value, report.diverging)

    Attributes:
        outputs: the difference of each output.
        samples: the number of runs.
        seed: the seed of the random inputs.
        tensors: the tensors between operators, in order of execution; none if the values that store
            them are unknown.
        operators: the same tensors, each computed from LiteRT's own inputs; none unless this was
            requested, or an element exceeds the limit of a single element.
        closed: the operators that run sub-graphs; only their outputs are compared.
        names: the outputs' names in the TFLite model, if they differ from those in the ONNX model.
        right_unoptimized: whether a verification that fails would succeed with ONNX Runtime's
            optimizations disabled; None if it does not fail.
        storage: for each tensor that exceeds its limits, how its operator reads and writes (see
            `quantize.describe_operator`).
        processor: whether the processor has an instruction set; None if this is unknown.
        sample_names: the file of each sample, or the seed of its random numbers.
        latency: the time of an inference in milliseconds, if it was requested.
        other_sizes: the comparisons at other sizes of dynamic axes; None if the model has no
            dynamic axes or its inputs are given.
        kernels: the kernels of LiteRT that ran.
        misread: the operators whose constants LiteRT's kernels misread: it ran with constants that
            they read as meant.
    """

    outputs: tuple[Difference, ...]
    samples: int
    seed: int
    tensors: tuple[TensorComparison, ...] = ()
    operators: tuple[TensorComparison, ...] = ()
    closed: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    right_unoptimized: bool | None = None
    storage: Mapping[str, str] = field(default_factory=dict)
    processor: Mapping[str, bool | None] = field(default_factory=list_instructions)
    sample_names: tuple[str, ...] = ()
    latency: Latency | None = None
    other_sizes: tuple[SizeComparison, ...] | None = None
    kernels: str = PLAIN_KERNELS
    misread: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every output, and every operator that ran alone, is within its limits."""
        alone = (c.difference for c in self.operators)
        is_right = all(difference.ok for difference in (*self.outputs, *alone))
        return is_right and all(difference.ok for difference in self.other_sizes or ())

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole model: the worst of its outputs, WRONG unless `ok`."""
        if not self.ok:
            return Verdict.WRONG
        found = {verdict for _, verdict in self.judged_outputs}
        if Verdict.CLOSE in found:
            return Verdict.CLOSE
        return Verdict.RIGHT if Verdict.RIGHT in found else Verdict.NOTHING_SHOWN

    @property
    def worst(self) -> str | None:
        """The name of the sample with the largest difference of an output, relative to its limit.

        None if there are no differences, or no names of samples.
        """
        worst = max(self.outputs, key=lambda d: d.severity, default=None)
        if worst is None or not worst.largest or not self.sample_names:
            return None
        return self.sample_names[worst.sample]

    @cached_property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The verdict on each tensor, by its name in the TFLite model.

        The verdict on an output comes from the unchanged model, not from the model whose inner
        tensors are outputs. If an operator is wrong, the noise rule does not apply to the outputs,
        because the cause of their noise is then not rounding.
        """
        alone = {c.name: c.difference for c in self.operators}
        sound = all(output.ok for output in alone.values())
        found = alone | {c.name: c.difference for c in self.tensors}
        verdicts = {name: _judge(output, accepted=output.ok) for name, output in found.items()}
        for name, output in self.named_outputs:
            verdicts[name] = _judge(output, accepted=output.ok if sound else output.is_within)
        return verdicts | {name: Verdict.WRONG for name, output in alone.items() if not output.ok}

    @property
    def judged_outputs(self) -> list[tuple[Difference, Verdict]]:
        return [(d, self.verdicts[name]) for name, d in self.named_outputs]

    @property
    def named_outputs(self) -> list[tuple[str, Difference]]:
        """The outputs, each after the name of its tensor in the TFLite model."""
        return [*zip(self.names or [d.name for d in self.outputs], self.outputs, strict=True)]

    @property
    def nothing_shown(self) -> list[Difference]:
        """The outputs that cannot show errors: each is one number everywhere, or not finite."""
        return [d for d, verdict in self.judged_outputs if verdict is Verdict.NOTHING_SHOWN]

    @property
    def cause(self) -> str:
        """The cause and the remedy if ONNX Runtime's kernels caused the failure, else ""."""
        return _KERNELS if self.right_unoptimized else ""

    @property
    def diverging(self) -> TensorComparison | None:
        """The first tensor that an operator computes wrongly, in order of execution.

        If operators did not run alone, it is the first tensor that exceeds its limits. If all
        operators are right, a tensor that exceeds its limits has accumulated rounding errors.
        """
        bad = Verdict.WRONG if self.operators else Verdict.DIFFERS
        comparisons = self.operators or self.tensors
        return next((c for c in comparisons if self.verdicts[c.name] is bad), None)

    @property
    def faults(self) -> frozenset[str]:
        """The tensors where the model is wrong; tensors that differ after them are no faults.

        They are the tensors that operators compute wrongly; if operators did not run alone, the
        first that differs; if every operator is right, the outputs that exceed their limits.
        """
        wrong = {name for name, verdict in self.verdicts.items() if verdict is Verdict.WRONG}
        first = {self.diverging.name} if self.diverging and not self.operators else set()
        outputs = {name for name, output in self.named_outputs if not output.ok}
        return frozenset(wrong or first or outputs)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as numbers, strings, lists and dicts; inf and NaN become None."""
        diverging = self.diverging
        return {
            "ok": self.ok,
            "verdict": self.verdict.value,
            "samples": self.samples,
            "seed": self.seed,
            "sample_names": list(self.sample_names),
            "worst": self.worst,
            "diverging": diverging and diverging.name,
            "outputs": [_to_json(d) | {"verdict": v.value} for d, v in self.judged_outputs],
            "tensors": [self._with_verdict(c) for c in self.tensors],
            "operators": [self._with_verdict(c) for c in self.operators],
            "closed": list(self.closed),
            "misread": list(self.misread),
            "storage": dict(self.storage),
            "right_unoptimized": self.right_unoptimized,
            "processor": dict(self.processor),
            "latency": self.latency and self.latency.to_dict(),
            "other_sizes": [
                {"sizes": dict(item.sizes), "outputs": [_to_json(d) for d in item.outputs]}
                for item in self.other_sizes or ()
            ],
        }

    def _with_verdict(self, compared: TensorComparison) -> dict[str, Any]:
        return _to_json(compared) | {"verdict": self.verdicts[compared.name].value}


def _judge(difference: Difference, *, accepted: bool) -> Verdict:
    if not accepted:
        return Verdict.DIFFERS
    if difference.level is not None:
        return Verdict.NOTHING_SHOWN
    return Verdict.CLOSE if difference.is_relaxed else Verdict.RIGHT


def _to_json(finding: Difference | TensorComparison) -> dict[str, Any]:
    if isinstance(finding, TensorComparison):
        fields = {k: v for k, v in asdict(finding).items() if k != "difference"}
        return _to_json(finding.difference) | {k: _convert_to_json(v) for k, v in fields.items()}
    numbers = asdict(finding) | {
        "relative": finding.relative, "ok": finding.ok, "bound": finding.bound,
        "comparison": finding.comparison,
    }  # fmt: skip
    return {k: _convert_to_json(v) for k, v in numbers.items()}


def _convert_to_json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value
