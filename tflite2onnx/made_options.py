"""The options of operators in forms that no file has: passes and the forms of targets set them.

They are to the operators that this package makes what TFLite's schema is to the operators of a
file. A record that only a target uses stands beside the target's operators.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform


@dataclass_transform(kw_only_default=True, frozen_default=True)
class _Record:
    """Base of classes of immutable values, whose fields have default values.

    The classes are no dataclasses because the start of a conversion would take 4 % longer.
    """

    defaults: ClassVar[Mapping[str, object]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        names = [name for name in vars(cls).get("__annotations__", ()) if name != "codes"]
        cls.defaults = {**cls.defaults, **{name: vars(cls)[name] for name in names}}

    def __init__(self, **values: object) -> None:
        if unknown := values.keys() - self.defaults.keys():
            raise TypeError(f"{type(self).__name__} must not have {min(unknown)}")
        vars(self).update({**self.defaults, **values})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be assigned: call `replace`")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

    def replace(self, **changes: object) -> Self:
        """Return the record with other values of some fields."""
        return type(self)(**{**vars(self), **changes})


class MadeOptions(_Record):
    """Options that TFLite's schema lacks.

    Attributes:
        codes: the operators that may have the options; all if there are none.
        of_tensorflow: TensorFlow's kernel computes the operator. It accepts more element types,
            shapes that broadcast, and an empty ellipsis.
    """

    codes: ClassVar[tuple[str, ...]] = ()
    of_tensorflow: bool = False

    def suits(self, code: str) -> bool:
        return not self.codes or code in self.codes

    def list_set(self) -> dict[str, object]:
        """Return the options that do not have their default values, by name."""
        return {name: v for name, v in vars(self).items() if v != self.defaults[name]}


class GateActivation(NamedTuple):
    """The function of a gate: an operator's code, or NONE, and the numbers of its options."""

    name: str
    alpha: float | None = None
    beta: float | None = None


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


class HardSigmoidOptions(MadeOptions):
    """alpha * x + beta, limited to 0 and 1."""

    codes = ("HARD_SIGMOID",)
    alpha: float = 0.0
    beta: float = 0.0


class NormalizationOptions(MadeOptions):
    """The summand of the variance, the axes of NORMALIZATION, and the groups of channels."""

    codes = ("NORMALIZATION", "RMS_NORMALIZATION", "GROUP_NORMALIZATION")
    epsilon: float = 0.0
    axes: tuple[int, ...] = ()
    num_groups: int = 0


class SignOptions(MadeOptions):
    """With `zeros_only`, the result is read for zeros only."""

    codes = ("IS_NEGATIVE",)
    zeros_only: bool = False


class OrderOptions(MadeOptions):
    """The order of axes that the user chose."""

    codes = ("AS_PLANNED",)
    order: Sequence[int] = ()


class CastOptions(MadeOptions):
    """Floats outside of the range of the integers saturate, unless LiteRT refuses them."""

    codes = ("CAST",)
    saturates: bool = True


class UpdateOptions(MadeOptions):
    """With `is_causal`, the row of a token is written, and no earlier token's result reads it.

    So the rows of several tokens may be written before any of them is read. Each has start indices.
    """

    codes = ("DYNAMIC_UPDATE_SLICE",)
    is_causal: bool = False


class QuantizeOptions(MadeOptions):
    """With `divides`, real numbers are divided by the scale."""

    codes = ("QUANTIZE",)
    divides: bool = False


class WindowOptions(MadeOptions):
    """The options of convolutions and pooling.

    Attributes:
        pads: (top, left, bottom, right), if `padding` is VALID.
        rounds_data: a convolution of float data and integer weights rounds the data at run time, to
            the real numbers to which an image is quantized.
        data_are_positive: the data that are quantized at run time are not negative.
        excess: by how many pixels a transposed convolution exceeds its output along each axis.
    """

    pads: tuple[int, ...] = ()
    rounds_data: bool = False
    data_are_positive: bool = False
    excess: tuple[int, ...] | None = None


class DenseOptions(MadeOptions):
    """With `data_are_positive`, the data that are quantized at run time are not negative."""

    codes = ("FULLY_CONNECTED",)
    data_are_positive: bool = False


class BlockOptions(MadeOptions):
    """The mode of ONNX's DepthToSpace: DCR, or CRD for float32 elements."""

    codes: ClassVar[tuple[str, ...]] = ("DEPTH_TO_SPACE",)
    mode: str = "DCR"


class ReshapeOptions(MadeOptions):
    """The options of RESHAPE and SQUEEZE.

    Attributes:
        keeps_shape: the output has the shape of the input, whatever `new_shape` is.
        squeezes_at_run_time: the sizes of the input decide which axes are removed.
    """

    codes = ("RESHAPE", "SQUEEZE")
    keeps_shape: bool = False
    squeezes_at_run_time: bool = False


class KeptOptions(MadeOptions):
    """The ONNX node that stands for an operator of the file which cannot be converted."""

    codes = ("KEPT",)
    name: str = ""
    domain: str = ""
    attributes: Mapping[str, Any] = MappingProxyType({})


class RefusalOptions(MadeOptions):
    """The reason why a pass could not replace an operator that has no class."""

    reason: str = ""
