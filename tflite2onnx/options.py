"""What can be chosen about a conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from tflite2onnx.builder.opsets import MIN_OPSET
from tflite2onnx.errors import OptionError
from tflite2onnx.interface import IO_LAYOUTS
from tflite2onnx.quantize import WEIGHTS
from tflite2onnx.signatures import NAMES

QUANTIZATIONS = ("qdq", "float")
ACTIVATIONS = ("auto", "int8", "uint8")
_WORDS = {
    "io_layout": IO_LAYOUTS,
    "quantization": QUANTIZATIONS,
    "activations": ACTIVATIONS,
    "weights": WEIGHTS,
    "names": NAMES,
}


@dataclass(frozen=True)
class ConversionOptions:
    """The options of `convert`, which says what they mean.

    Raises:
        OptionError: one has a value that it cannot have. Layouts and signatures are looked for
            in the model, later.
    """

    layouts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    io_layout: str = "auto"
    opset: int | None = None
    quantization: str = "qdq"
    activations: str = "auto"
    allow_custom: bool = False
    static: bool = False
    signature: str | None = None
    names: str = "tensor"
    weights: str = "auto"

    def __post_init__(self) -> None:
        for name, known in _WORDS.items():
            value = getattr(self, name)
            if value not in known:
                raise OptionError(f"{name} is {value!r}; it can be {', '.join(known)}")
        newest, opset = onnx.defs.onnx_opset_version(), self.opset
        if opset is not None and not (isinstance(opset, int) and MIN_OPSET <= opset <= newest):
            raise OptionError(
                f"opset {opset!r} is not supported: it can be {MIN_OPSET} to {newest}"
            )
