"""The options of a conversion: the name, type and default of each; `convert` describes them.

Annotations are values here, of which the choices of options are read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from typing import Any, Literal, ParamSpec, Self, TypeGuard, TypeVar, get_args, get_origin

import numpy as np
import onnx

from tflite2onnx.builder.opsets import MIN_OPSET
from tflite2onnx.errors import OptionError
from tflite2onnx.pictures.settings import POSTPROCESS_KEYS, PREPROCESS_KEYS, Settings, read_settings
from tflite2onnx.targets.table import DEFAULT, Target, find_options
from tflite2onnx.utils.contradictions import ABSENT, GIVEN, Contradiction, check_contradictions
from tflite2onnx.utils.suggestions import join_alternatives, suggest_names

IoLayout = Literal["auto", "tflite", "onnx"]
QuantizationMode = Literal[
    "qdq", "qdq-uniform", "symmetric", "qoperator", "qoperator-mixed", "rounded", "float"
]
ActivationType = Literal["auto", "int8", "uint8", "uint16"]
WeightType = Literal["auto", "adaptive", "int8", "uint8", "float"]
DynamicRange = Literal["quantized", "float"]
Caches = Literal["separate", "shared"]
Lengths = Literal["auto", "each", "joined"]
StateInputs = Literal["auto", "optional", "required"]
Forms = Literal["auto", "fastest", "canonical"]
NameSource = Literal["tensor", "signature"]
IoType = Literal["float", "int8", "uint8"]

IO_LAYOUTS = get_args(IoLayout)
ACTIVATIONS = get_args(ActivationType)
WEIGHTS = get_args(WeightType)
DYNAMIC_RANGES = get_args(DynamicRange)
IO_TYPES = get_args(IoType)


_QOPERATOR = ("qoperator", "qoperator-mixed")

# Contradictions of options that both `convert` and the command line have.
_CONTRADICTIONS = (
    Contradiction("float16_io", GIVEN, ("float16",), GIVEN),
    Contradiction("quantization", ("float", "rounded"), ("activations",), ("auto",)),
    Contradiction("quantization", ("float", "rounded"), ("weights",), ("auto",)),
    Contradiction("quantization", ("float",), ("io_type",), (None, "float")),
    Contradiction("quantization", ("symmetric",), ("activations",), ("auto", "int8")),
    Contradiction("quantization", ("symmetric",), ("weights",), ("auto", "int8")),
    Contradiction("quantization", ("symmetric",), ("io_type",), (None, "float", "int8")),
    Contradiction("quantization", _QOPERATOR, ("float16",), ABSENT),
    Contradiction("quantization", _QOPERATOR, ("weights",), ("auto", "int8", "uint8")),
    Contradiction("lengths", ("joined",), ("static", "batch"), ABSENT),
    Contradiction(
        "preprocess", GIVEN, ("batch",), ABSENT, "a model with preprocessing takes one picture"
    ),
    Contradiction(
        "postprocess", GIVEN, ("batch",), ABSENT, "a model with postprocessing takes one picture"
    ),
)

_PICTURES = ("preprocess", "postprocess")
_MOST = 1 << 31
# What users give for the types of inputs and outputs, and what to give.
_IO_TYPE_HINTS = {
    **dict.fromkeys(("float32", "fp32", "f32"), "; did you mean float?"),
    **dict.fromkeys(("float16", "fp16", "half"), "; `float16_io` makes them float16"),
}
_AXES = 13  # the first opset whose QuantizeLinear has an axis


@dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """The options of `convert`, whose docstring describes them.

    Raises:
        OptionError: an option has an invalid value. The names of tensors and signatures are
            looked up in the model later.
    """

    io_layout: IoLayout = "auto"
    layouts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    io_type: IoType | Mapping[str, IoType] | None = None
    opset: int | None = None
    quantization: QuantizationMode = "qdq"
    activations: ActivationType = "auto"
    weights: WeightType = "auto"
    dynamic_range: DynamicRange = "quantized"
    forms: Forms = "auto"
    states: StateInputs = "auto"
    caches: Caches = "separate"
    lengths: Lengths = "auto"
    target: Target = DEFAULT
    allow_custom: bool = False
    static: bool = False
    shapes: Mapping[str, Sequence[int | str]] = field(default_factory=dict)
    batch: int | str | None = None
    signature: str | None = None
    names: NameSource = "tensor"
    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    float16: bool = False
    float16_io: bool = False
    preprocess: Settings = False
    postprocess: Settings = False

    def __post_init__(self) -> None:
        _check_values(self)
        _check_sizes(self.shapes, self.batch)
        newest, opset = onnx.defs.onnx_opset_version(), self.opset
        if opset is not None and not (_is_integer(opset) and MIN_OPSET <= opset <= newest):
            raise OptionError(
                f"`opset` must be {MIN_OPSET} to {newest}, the newest of the onnx package"
                f" {onnx.__version__}, got {opset!r}"
            )
        read_settings("preprocess", self.preprocess, PREPROCESS_KEYS)
        read_settings("postprocess", self.postprocess, POSTPROCESS_KEYS)
        _check_names("inputs", self.inputs)
        _check_names("outputs", self.outputs)
        _check_renaming(self.rename)
        check_contradictions(_CONTRADICTIONS, self)

        as_numbers = {name: [*map(_convert_size, sizes)] for name, sizes in self.shapes.items()}
        object.__setattr__(self, "shapes", as_numbers)
        for name in ("batch", "opset"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _convert_size(getattr(self, name)))

    @property
    def quantizes_data(self) -> bool:
        """Whether float data beside integer weights are quantized at run time."""
        return self.quantization == "qdq" and self.dynamic_range == "quantized"

    @property
    def has_forms(self) -> bool:
        """Whether operators get the forms that the target's runtime computes fastest."""
        return self.forms == "fastest"

    @property
    def frees_states(self) -> bool:
        """Whether states may have the types and orders that are fastest inside the model.

        Callers that must feed a state, or ask for TFLite's layout, get the file's types.
        """
        return self.has_forms and self.states == "optional" and self.io_layout != "tflite"

    @property
    def has_axes(self) -> bool:
        """Whether an axis may have several scales, which needs opset 13."""
        return self.opset is None or self.opset >= _AXES

    def with_target(self) -> Self:
        """Return the options with the target's values for options that are not given."""
        preset, default = find_options(self.target), _make_defaults()
        unset = {n: v for n, v in preset.items() if getattr(self, n) == getattr(default, n)}
        mode = {**vars(self), **unset}["quantization"]
        # Other values of `quantization` determine the type of 8-bit values.
        if mode not in ("qdq", "qdq-uniform"):
            kind = "int8" if mode == "symmetric" else "auto"
            free = (
                n for n in ("activations", "weights") if n in unset or getattr(self, n) == "auto"
            )
            unset |= dict.fromkeys(free, kind)
        try:
            return replace(self, **unset)
        except OptionError as error:
            raise OptionError(name_preset(str(error), self.target, unset)) from None

    def list_given(self) -> dict[str, Any]:
        """Return the options that differ from those of the target: they make an equal network.

        Preprocessing and postprocessing are no part of the network, whose names they keep.
        """
        usual = _make_target_defaults(self.target)
        has_pictures = self.preprocess is not False or self.postprocess is not False
        left_out = {*_PICTURES, *(("rename",) if has_pictures else ())}
        given = {n: v for n, v in vars(self).items() if v != getattr(usual, n)}
        named = {} if self.target == ConversionOptions.target else {"target": self.target}
        return named | {n: v for n, v in given.items() if n not in left_out}


@cache
def _make_defaults() -> ConversionOptions:
    return ConversionOptions()


@cache
def _make_target_defaults(target: Target) -> ConversionOptions:
    return ConversionOptions(target=target).with_target()


def name_preset(reason: str, target: str, preset: Mapping[str, Any]) -> str:
    """Return the reason of an error, and which options in it the target sets."""
    words = {f"`{n}`": "" if value is True else f" {value}" for n, value in preset.items()}
    named = [name + word for name, word in words.items() if name in reason]
    return reason + (f"; the target {target} sets {' and '.join(named)}" if named else "")


def read_given(given: Mapping[str, Any]) -> ConversionOptions:
    """Return the options that `list_given` has listed; those of other versions are left out."""
    return ConversionOptions(**{n: v for n, v in given.items() if n in OPTION_TYPES})


def _check_values(options: ConversionOptions) -> None:
    """Raise OptionError unless each option has one of its values."""
    for name, allowed in CHOICES.items():
        value = getattr(options, name)
        if value not in allowed:
            hint = suggest_names(value, allowed)
            raise OptionError(f"`{name}` must be {join_alternatives(allowed)}, got {value!r}{hint}")
    for name in (name for name, kind in OPTION_TYPES.items() if kind is bool):
        if not isinstance(getattr(options, name), bool):
            raise OptionError(f"`{name}` must be True or False, got {getattr(options, name)!r}")
    _check_io_type(options.io_type)


def _check_names(option: str, names: Sequence[str] | None) -> None:
    """Raise OptionError unless an option is None or a sequence of distinct names."""
    if names is None:
        return
    listed = isinstance(names, (list, tuple)) and names
    if not listed or not all(isinstance(name, str) and name for name in names):
        raise OptionError(f"`{option}` must be a list of names of tensors, got {names!r}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"`{option}` must name each tensor once, got {twice} twice")


def _check_renaming(names: Mapping[str, str]) -> None:
    pairs = names.items() if isinstance(names, Mapping) else [("", names)]
    if not all(isinstance(name, str) and name for pair in pairs for name in pair):
        raise OptionError(f'`rename` must be a mapping such as {{"old": "new"}}, got {names!r}')


def _check_io_type(value: object) -> None:
    """Raise OptionError unless the types of inputs and outputs are known."""
    types = value if isinstance(value, Mapping) else {"": IO_TYPES[0] if value is None else value}
    for kind in types.values():
        if kind not in IO_TYPES:
            hint = _IO_TYPE_HINTS.get(str(kind), "")
            raise OptionError(
                f"`io_type` must be {join_alternatives(IO_TYPES)}, got {kind!r}{hint}"
            )


_NO_NAMES = ("none", "null", "nil")  # what users of other converters write for a dynamic size
_SIZE_EXAMPLES = {"batch": "write 4, or n", "shapes": "write 1,224,224,3, or n,224,224,3"}


def _check_sizes(shapes: object, batch: object) -> None:
    """Raise OptionError unless sizes are positive numbers or names."""
    if not isinstance(shapes, Mapping) or any(
        isinstance(sizes, str) or not isinstance(sizes, Sequence) for sizes in shapes.values()
    ):
        raise OptionError(f'`shapes` must be such as {{"input": [1, 16000]}}, got {shapes!r}')
    if batch == "loop":
        raise OptionError("`batch` must be loop:N or loop:NAME, got loop")
    first = batch.removeprefix("loop:") if isinstance(batch, str) else batch
    first = int(first) if isinstance(first, str) and first.isdecimal() else first
    listed = [("batch", first)] if first is not None else []
    listed += [("shapes", size) for sizes in shapes.values() for size in sizes]
    for option, size in listed:
        named = isinstance(size, str) and size.isidentifier() and size.lower() not in _NO_NAMES
        if not (named or (_is_integer(size) and 0 < size < _MOST)):
            hint = f"; {_SIZE_EXAMPLES[option]} if it is dynamic"
            if _is_integer(size) and size >= _MOST:
                hint = f"; it must be below {_MOST}"
            raise OptionError(
                f"`{option}`: a size must be a positive number or a name, got {size!r}{hint}"
            )


def _convert_size(size: int | str) -> int | str:
    """Return a size that is no type of numpy, which protobuf does not support."""
    return size if isinstance(size, str) else int(size)


def _is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer, of Python or numpy; bools are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


OPTION_TYPES: dict[str, Any] = ConversionOptions.__annotations__
# The values of each option that has a fixed set of values.
CHOICES: dict[str, tuple[str, ...]] = {
    name: get_args(hint) for name, hint in OPTION_TYPES.items() if get_origin(hint) is Literal
}


P = ParamSpec("P")
R = TypeVar("R")

# The arguments of `convert` in tflite2onnx 0.x, by their old names.
_RENAMED = {"tflite_path": "model", "onnx_path": "output", "explicit_layouts": "layouts"}


def accept_legacy_arguments(convert: Callable[P, R]) -> Callable[P, R]:
    """Return `convert` with support for the names that arguments had in 0.x."""

    @wraps(convert)
    def convert_renamed(*args: P.args, **kwargs: P.kwargs) -> R:
        named: Any = {_RENAMED.get(name, name): value for name, value in kwargs.items()}
        return convert(*args, **named)

    return convert_renamed
