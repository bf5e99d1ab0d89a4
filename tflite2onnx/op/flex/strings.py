"""TensorFlow's operators on text that ONNX has, too: text is strings of UTF-8."""

from __future__ import annotations

from functools import reduce
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.nodes import onnx_type
from tflite2onnx.graph import Options
from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType

_INTEGERS = (
    DType.INT8,
    DType.INT16,
    DType.INT32,
    DType.INT64,
    DType.UINT8,
    DType.UINT16,
    DType.UINT32,
    DType.UINT64,
)
_NUMBERS = (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64)


def _text(options: Options, name: str) -> str:
    """Return an attribute that is text; OperatorError if it is something else, such as bytes."""
    text = options.get(name, "")
    if not isinstance(text, str):
        raise OperatorError(f"its {name} is {text!r}")
    return text


class FlexCase(DynamicShape):
    """FlexStringLower and FlexStringUpper: text in other letters of ASCII."""

    nodes: ClassVar[dict[str, str]] = {"FlexStringLower": "LOWER", "FlexStringUpper": "UPPER"}
    codes = tuple(nodes)
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    def check(self) -> None:
        x = self.input(0)
        expect(x, x.shape, DType.STRING)
        expect(self.output, x.shape, DType.STRING)
        if self.options.get("encoding", ""):
            raise OperatorError(
                "which letters beyond ASCII it turns is the runtime's affair in ONNX"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        turned = g.StringNormalizer(
            g.reshape(x, [-1]), case_change_action=self.nodes[self.op.code], locale="C"
        )
        return g.reshape(turned, y.sizes)


class FlexStringJoin(DynamicShape):
    """FlexStringJoin: texts that broadcast, one behind the other."""

    codes = ("FlexStringJoin",)
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    @property
    def _separator(self) -> str:
        return _text(self.options, "separator")

    def check(self) -> None:
        _ = self._separator  # checks it
        inputs = [self.input(i) for i in range(len(self.op.inputs))]
        for tensor in inputs:
            expect(tensor, tensor.shape, DType.STRING)
        shapes = {t.shape for t in inputs if t.rank} or {()}
        if len(shapes) != 1:
            raise OperatorError(f"shapes {sorted(map(list, shapes))} that differ")
        expect(self.output, shapes.pop(), DType.STRING)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        between = self._separator
        if not between:
            return reduce(g.StringConcat, (x.value for x in xs))
        text = g.constant(np.array(between.encode(), np.object_), DType.STRING)
        return reduce(
            lambda a, b: g.StringConcat(g.StringConcat(a, text), b), (x.value for x in xs)
        )


class FlexMatch(DynamicShape):
    """FlexRegexFullMatch: whether all of a text is what a pattern of RE2 describes."""

    codes = ("FlexRegexFullMatch", "FlexStaticRegexFullMatch")
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    @property
    def _pattern(self) -> str:
        if self.op.code == "FlexStaticRegexFullMatch":
            return _text(self.options, "pattern")
        data = self.input(1).data
        if data is None or data.size != 1:
            raise OperatorError("its pattern is not constant")
        found = data.reshape(-1)[0]
        return found.decode() if isinstance(found, bytes) else str(found)

    def check(self) -> None:
        x, _ = self.input(0), self._pattern
        expect(x, x.shape, DType.STRING)
        expect(self.output, x.shape, DType.BOOL)

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        return g.RegexFullMatch(x, pattern=self._pattern)


class FlexStringToNumber(DynamicShape):
    """FlexStringToNumber: the number that a text spells."""

    codes = ("FlexStringToNumber",)
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    def check(self) -> None:
        x = self.input(0)
        expect(x, x.shape, DType.STRING)
        expect_type(self.output, _NUMBERS)
        expect(self.output, x.shape, self.output.dtype)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.Cast(x, to=onnx_type(y.dtype))


class FlexAsString(DynamicShape):
    """FlexAsString: integers as text."""

    codes = ("FlexAsString",)
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    def check(self) -> None:
        x = self.input(0)
        expect_type(x, _INTEGERS)
        expect(self.output, x.shape, DType.STRING)
        width, fill = self.options.get("width", -1), self.options.get("fill", "")
        if width > 0 or fill:
            raise OperatorError(f"it fills up to {width} letters with {fill!r}")

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.Cast(x, to=onnx_type(DType.STRING))
