"""The errors that users may get.

Each except `InternalError` is a `ConversionError`, so that one `except` catches every error of a
model or an option. The message of an error in an operator has the operator's code, index and
output, and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

_MOST_REASONS = 10  # a message lists at most this number of reasons for one type of operator


class ConversionError(Exception):
    """The model cannot be converted; the message gives the reason."""


class ModelFileError(ConversionError, ValueError):
    """The file is missing, empty, truncated, or not a TFLite model.

    It is a ValueError too, as in tflite2onnx 0.x.
    """


class BundleError(ConversionError):
    """The bundle is not an archive, is damaged, or has a model that cannot be converted."""


class LayoutError(ConversionError):
    """A layout is not for a tensor of the model, or does not fit the tensor."""


class OptionError(ConversionError):
    """An option of the conversion is invalid, or the model does not support its value.

    Messages have the names of options in backticks, which the command line replaces by its own
    spelling: `float16_io` is --float16-io there.
    """


class PictureError(OptionError):
    """The model takes no picture, or its outputs are no boxes or scores that are known.

    Attributes:
        option: the option that must be left out, "preprocess" or "postprocess".
    """

    def __init__(self, option: str, reason: str) -> None:
        self.option = option
        super().__init__(f"`{option}`: {reason}")


class OutputError(ConversionError):
    """The ONNX file cannot be written to the output path."""


class VerifyError(ConversionError):
    """The converted model cannot be compared with the original; either may be right."""


class RegistrationError(ConversionError):
    """A class cannot be registered as an operator, or not under this name."""


class InternalError(Exception):
    """A bug in tflite2onnx; the message names the pass and the operator that raised an exception.

    It is no ConversionError, because the model is not the reason.
    """


class InternalWarning(RuntimeWarning):
    """A bug in a pass that a conversion does not depend on: the model is converted without it."""


class OperatorError(ConversionError):
    """One operator cannot be converted.

    Operators raise it with the reason only; `with_place` adds the operator.
    """

    def __init__(self, reason: str, place: str = "") -> None:
        self.reason = reason
        self.place = place
        super().__init__(f"{place}: {reason}" if place else reason)

    def with_place(self, place: str) -> OperatorError:
        """Return the same error with the operator's name, index and output tensor in front."""
        return OperatorError(self.reason, place)


class FixedSizeError(OperatorError):
    """An operator does not support a dynamic axis, but may be converted with fixed sizes.

    Attributes:
        axes: the names of the dynamic axes of inputs that must be fixed; none if it may be any of
            them.
    """

    def __init__(self, reason: str, place: str = "", axes: Iterable[str] = ()) -> None:
        self.axes = frozenset(axes)
        super().__init__(reason, place)

    def with_place(self, place: str) -> FixedSizeError:
        """Return the same error with the operator's name, index and output tensor in front."""
        return FixedSizeError(self.reason, place, self.axes)


class DeclaredShapeError(OperatorError):
    """The declared shape of an output is not the one that follows from the inputs."""


# The exceptions that Python and numpy raise for contradictory operands.
_CLASHES = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError


def _as_operator_error(error: BaseException | None) -> OperatorError | None:
    """Return an OperatorError, also for contradictory operands; None for other exceptions."""
    if isinstance(error, _CLASHES):
        return OperatorError(f"its options, shapes or constants contradict each other ({error})")
    return error if isinstance(error, OperatorError) else None


_SHOWN = 100  # characters of a longer name
_LONG_NAME = re.compile(rf"\S{{{_SHOWN + 20},}}")


class UnsupportedOperators(ConversionError):  # noqa: N818 - reads better where it is raised
    """Operators of the model cannot be converted; the message lists all of them, and a hint."""

    def __init__(self, problems: Sequence[OperatorError], hint: str = "") -> None:
        self.problems, self.hint = tuple(problems), hint
        count = len(self.problems)
        head = f"{count} operator{'s' if count > 1 else ''} cannot be converted:"
        hints = [hint] if hint else []
        super().__init__("\n  ".join([head, *_group_problems(self.problems), *hints]))

    def __reduce__(self) -> tuple[type[UnsupportedOperators], tuple[Sequence[OperatorError], str]]:
        # Exceptions are pickled with their message as the argument.
        return UnsupportedOperators, (self.problems, self.hint)


def _group_problems(problems: Sequence[OperatorError]) -> Iterator[str]:
    """Yield a line for each type of operator and reason; the rest of many reasons is counted."""
    types: dict[str, dict[str, list[OperatorError]]] = {}
    for problem in problems:
        reasons = types.setdefault(problem.place.partition(" (")[0], {})
        reasons.setdefault(problem.reason, []).append(problem)
    for code, reasons in types.items():
        groups = list(reasons.values())
        for first, *more in groups[:_MOST_REASONS]:
            place = f"{first.place.removesuffix(')')}, and {len(more):,} more)"
            line = str(first.with_place(place) if more else first)
            # PyTorch's exporter joins the paths of modules to names of hundreds of characters.
            yield _LONG_NAME.sub(lambda name: f"...{name[0][-_SHOWN:]}", line)
        number = sum(map(len, groups[_MOST_REASONS:]))
        if number:
            yield f"{code}: {number:,} more operators, for other reasons"


class _OperatorErrors:
    """A context for the errors of one operator; a generator would take twice the time.

    The errors are appended to `problems`. Without `problems` they are raised, with a `place` as
    UnsupportedOperators.
    """

    def __init__(self, place: str = "", problems: list[OperatorError] | None = None) -> None:
        self._place, self._problems = place, problems

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        problem = _as_operator_error(error)
        if problem is None:
            return False
        if self._problems is not None:
            self._problems.append(problem.with_place(self._place))
        elif self._place:
            raise UnsupportedOperators([problem.with_place(self._place)]) from error
        elif problem is not error:
            try:
                raise problem from error
            finally:
                # The error has a reference to this frame, and would keep all variables of the
                # callers in memory.
                del problem
        return self._problems is not None


def as_operator_error() -> AbstractContextManager[None]:
    """Turn the errors that Python and numpy raise for contradictory operands into OperatorError.

    Operators check the contents that valid files may have. They need not check for the contents of
    a damaged file (an options table of another operator, sizes that overflow, a shape that
    contradicts the inputs): these raise an error that this context catches.
    """
    return _OperatorErrors()


def as_unsupported(place: str) -> AbstractContextManager[None]:
    """Raise an error of one operator at once; the message names the operator's place."""
    return _OperatorErrors(place)


class ErrorCollector:
    """Collects the errors of several operators: see `collect_errors`."""

    def __init__(self) -> None:
        self.problems: list[OperatorError] = []

    def at(self, place: str) -> AbstractContextManager[None]:
        """Collect an error of one operator; the message names the operator's place."""
        return _OperatorErrors(place, self.problems)


@contextmanager
def collect_errors() -> Iterator[ErrorCollector]:
    """Raise the errors of several operators together at the end, as UnsupportedOperators."""
    collector = ErrorCollector()
    yield collector
    if collector.problems:
        raise UnsupportedOperators(collector.problems)
