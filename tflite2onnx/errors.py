"""Every error a user can meet.

All are `ConversionError`s, so that one `except` catches what a model or an option can provoke.
A message names the operator, its index, the tensor and the reason wherever there is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

_MOST_REASONS = 3  # that are listed of one type of operator


class ConversionError(Exception):
    """The model cannot be converted; the message says why in words meant for its user."""


class ModelFileError(ConversionError):
    """The file is missing, empty, truncated, or no TFLite model."""


class BundleError(ConversionError):
    """The bundle is no archive, is damaged, or holds a model that cannot be converted."""


class LayoutError(ConversionError):
    """The layout mapping names no tensor, or does not fit the tensor that it names."""


class OptionError(ConversionError):
    """An option of the conversion has a value that cannot be honoured."""


class OutputError(ConversionError):
    """The ONNX file cannot be written where it was asked for."""


class VerifyError(ConversionError):
    """The converted model cannot be compared with the original; nothing is said about either."""


class RegistrationError(ConversionError):
    """A class cannot be registered as an operator, or not under that name."""


class OperatorError(ConversionError):
    """One operator cannot be converted.

    Raised inside an operator with the reason alone; `with_place` adds which operator it was.
    """

    def __init__(self, reason: str, place: str = "") -> None:
        self.reason = reason
        self.place = place
        super().__init__(f"{place}: {reason}" if place else reason)

    def with_place(self, place: str) -> OperatorError:
        """Return the same error with the operator's name, index and output tensor in front."""
        return OperatorError(self.reason, place)


class FixedSizeError(OperatorError):
    """An operator that cannot be converted for all sizes of its operands."""

    def with_place(self, place: str) -> FixedSizeError:
        """Return the same error with the operator's name, index and output tensor in front."""
        return FixedSizeError(self.reason, place)


@contextmanager
def as_operator_error() -> Iterator[None]:
    """Raise an OperatorError for what Python and numpy raise when operands make no sense.

    An operator checks what files get wrong. What only a damaged file says (an options table of
    another operator, sizes that overflow, a shape that does not belong to these inputs) need
    not be thought of in each: it comes to light as one of these errors, and ends here. What is no
    error to numpy, such as an infinite option, it says nothing about.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise OperatorError(
            f"its options, shapes or constants contradict each other ({error})"
        ) from error


class UnsupportedOperators(ConversionError):  # noqa: N818 - reads better where it is raised
    """One or more operators of the model cannot be converted; all of them are listed."""

    def __init__(self, problems: Sequence[OperatorError]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{count} operator{'s' if count > 1 else ''} cannot be converted:"
        super().__init__("\n  ".join([head, *(str(p) for p in self.problems)]))


class ErrorCollector:
    """Collects what is wrong with each of several operators: see `collect_errors`."""

    def __init__(self) -> None:
        self.problems: list[OperatorError] = []

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Collect an error of one operator, whose place in the model the message names."""
        try:
            with as_operator_error():
                yield
        except OperatorError as error:
            self.problems.append(error.with_place(place))


@contextmanager
def collect_errors() -> Iterator[ErrorCollector]:
    """Raise the errors of several operators together, at the end.

    Raises:
        UnsupportedOperators: there are errors.
    """
    collector = ErrorCollector()
    yield collector
    if collector.problems:
        raise UnsupportedOperators(collector.problems)


@contextmanager
def as_unsupported(place: str) -> Iterator[None]:
    """Raise an error of one operator at once, as UnsupportedOperators."""
    try:
        with as_operator_error():
            yield
    except OperatorError as error:
        raise UnsupportedOperators([error.with_place(place)]) from error
