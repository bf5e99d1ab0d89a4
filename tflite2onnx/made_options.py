"""The options of operators in forms that no file has: passes and the forms of targets set them.

They are to the operators that this package makes what TFLite's schema is to the operators of a
file. A record that only a target uses stands beside the target's operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple


@dataclass(frozen=True)
class MadeOptions:
    """Options that TFLite's schema lacks.

    Attributes:
        codes: the operators that may have the options; all if there are none.
        of_tensorflow: TensorFlow's kernel computes the operator. It accepts more element types, and
            shapes that broadcast.
    """

    codes: ClassVar[tuple[str, ...]] = ()
    of_tensorflow: bool = False

    def suits(self, code: str) -> bool:
        """Return whether an operator may have the options."""
        return not self.codes or code in self.codes

    def list_set(self) -> dict[str, object]:
        """Return the options that do not have their default values, by name."""
        values = {field.name: (field.default, getattr(self, field.name)) for field in fields(self)}
        return {name: value for name, (default, value) in values.items() if value != default}


class GateActivation(NamedTuple):
    """The function of a gate: an operator's code, or NONE, and the numbers of its options."""

    name: str
    alpha: float | None = None
    beta: float | None = None


@dataclass(frozen=True)
class RecurrentOptions(MadeOptions):
    """The options of recurrent layers.

    Attributes:
        activations: one for each function of the ONNX node, such as those of gates and candidate of
            a GRU; those of the file's operator if there are none.
        reset_after: a GRU applies its reset gate after the recurrent matrix.
        shared_state: several states of the file are the same variable.
    """

    activations: tuple[GateActivation, ...] = ()
    reset_after: bool = False
    shared_state: bool = False


@dataclass(frozen=True)
class HardSigmoidOptions(MadeOptions):
    """alpha * x + beta, limited to 0 and 1."""

    codes = ("HARD_SIGMOID",)
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class NormalizationOptions(MadeOptions):
    """The summand of the variance, the axes of NORMALIZATION, and the groups of channels."""

    codes = ("NORMALIZATION", "RMS_NORMALIZATION", "GROUP_NORMALIZATION")
    epsilon: float = 0.0
    axes: tuple[int, ...] = ()
    num_groups: int = 0


@dataclass(frozen=True)
class SignOptions(MadeOptions):
    """With `zeros_only`, the result is read for zeros only."""

    codes = ("IS_NEGATIVE",)
    zeros_only: bool = False


@dataclass(frozen=True)
class OrderOptions(MadeOptions):
    """The order of axes that the user chose."""

    codes = ("AS_PLANNED",)
    order: Sequence[int] = ()


@dataclass(frozen=True)
class CastOptions(MadeOptions):
    """Floats outside of the range of the integers saturate, unless LiteRT refuses them."""

    codes = ("CAST",)
    saturates: bool = True


@dataclass(frozen=True)
class QuantizeOptions(MadeOptions):
    """With `divides`, real numbers are divided by the scale."""

    codes = ("QUANTIZE",)
    divides: bool = False


@dataclass(frozen=True)
class WindowOptions(MadeOptions):
    """The options of convolutions and pooling.

    Attributes:
        pads: (top, left, bottom, right), if `padding` is EXPLICIT.
        rounds_data: a convolution of float data and integer weights rounds the data at run time, to
            the real numbers to which an image is quantized.
        excess: by how many pixels a transposed convolution exceeds its output along each axis.
    """

    pads: tuple[int, ...] = ()
    rounds_data: bool = False
    excess: tuple[int, ...] | None = None


@dataclass(frozen=True)
class DenseOptions(MadeOptions):
    """With `data_are_positive`, the data that are quantized at run time are not negative."""

    codes = ("FULLY_CONNECTED",)
    data_are_positive: bool = False


@dataclass(frozen=True)
class BlockOptions(MadeOptions):
    """The mode of ONNX's DepthToSpace: DCR, or CRD for float32 elements."""

    codes: ClassVar[tuple[str, ...]] = ("DEPTH_TO_SPACE",)
    mode: str = "DCR"


@dataclass(frozen=True)
class ReshapeOptions(MadeOptions):
    """The options of RESHAPE and SQUEEZE.

    Attributes:
        keeps_shape: the output has the shape of the input, whatever `new_shape` is.
        squeezes_at_run_time: the sizes of the input decide which axes are removed.
    """

    codes = ("RESHAPE", "SQUEEZE")
    keeps_shape: bool = False
    squeezes_at_run_time: bool = False


@dataclass(frozen=True)
class RefusalOptions(MadeOptions):
    """The reason why a pass could not replace an operator that has no class."""

    reason: str = ""
