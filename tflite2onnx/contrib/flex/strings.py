"""TensorFlow's string operators that ONNX can represent; strings are UTF-8."""

from collections.abc import Sequence
from functools import reduce
from typing import ClassVar

from tflite2onnx.operators import (
    AnySizes,
    Builder,
    DType,
    OperatorError,
    Options,
    OutputShape,
    Value,
    View,
)


def _read_text(options: Options, name: str) -> str:
    """Return a string attribute; OperatorError if it is bytes that are not UTF-8."""
    text = options.get(name, "")
    if not isinstance(text, str):
        raise OperatorError(f"its {name} must be UTF-8 text, got {text!r}")
    return text


class FlexCase(AnySizes):
    """FlexStringLower and FlexStringUpper: change the case of ASCII letters."""

    rows: ClassVar[dict[str, str]] = {"FlexStringLower": "LOWER", "FlexStringUpper": "UPPER"}
    operands = "string [...] -> string [...]"

    def check(self) -> None:
        if self.options.get("encoding", ""):
            raise OperatorError(
                "its encoding must be empty: ONNX does not specify the case of letters beyond ASCII"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        converted = g.StringNormalizer(g.reshape(x, [-1]), case_change_action=self.row, locale="C")
        return g.reshape(converted, y.sizes)


class FlexStringJoin(AnySizes):
    """FlexStringJoin: concatenate strings, which broadcast."""

    codes = ("FlexStringJoin",)
    operands = "string* -> string"

    @property
    def _separator(self) -> str:
        return _read_text(self.options, "separator")

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [next((t.shape for t in self.op.present if t.rank), ())]

    def check(self) -> None:
        _ = self._separator  # the property raises OperatorError
        shapes = {t.shape for t in self.op.inputs if t and t.rank}
        if len(shapes) > 1:
            raise OperatorError(
                f"all inputs with axes must have the same shape, got {sorted(map(list, shapes))}"
            )

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        text = g.text(self._separator)

        def join(a: Value, b: Value) -> Value:
            return g.StringConcat(g.StringConcat(a, text) if self._separator else a, b)

        return reduce(join, (x.value for x in xs))


class FlexMatch(AnySizes):
    """FlexRegexFullMatch and FlexStaticRegexFullMatch: whether an RE2 pattern matches a string."""

    codes = ("FlexRegexFullMatch", "FlexStaticRegexFullMatch")
    operands = "string [...], any? -> bool [...]"

    @property
    def _pattern(self) -> str:
        if self.op.code == "FlexStaticRegexFullMatch":
            return _read_text(self.options, "pattern")
        data = self.input(1).data
        if data is None or data.size != 1:
            raise OperatorError("its pattern must be a constant string")
        pattern = data.reshape(-1)[0]
        return pattern.decode() if isinstance(pattern, bytes) else str(pattern)

    def check(self) -> None:
        _ = self._pattern  # the property raises OperatorError

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        return g.RegexFullMatch(x, pattern=self._pattern)


class FlexStringToNumber(AnySizes):
    """FlexStringToNumber: parse strings as numbers."""

    codes = ("FlexStringToNumber",)
    operands = "string [...] -> float32|float64|int32|int64 [...]"

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.cast(x, y.dtype)


class FlexAsString(AnySizes):
    """FlexAsString: format integers as strings."""

    codes = ("FlexAsString",)
    operands = "integers [...] -> string [...]"

    def check(self) -> None:
        width, fill = self.options.get("width", -1), self.options.get("fill", "")
        if width > 0 or fill:
            raise OperatorError(
                f"its width must not be positive and its fill empty, got {width} and {fill!r}"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.cast(x, DType.STRING)
