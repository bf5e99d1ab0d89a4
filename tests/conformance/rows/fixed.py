"""The axes of inputs that are not dynamic, with their reasons: "0.1" is axis 1 of input 0.

`tests.conformance.dynamic_axes` makes all other axes dynamic.
"""

from __future__ import annotations

_WEIGHTS = "LiteRT's kernel requires the size that the weights have"
_SHAPE = "LiteRT's kernel requires the size that a constant operand has"
_OUTPUTS = "the axis has an element, or a part, for each output"
_FORMAT = "the size is given by the format of the operand"
_STATE = "the state, which LiteRT does not resize, has the size"
_VARIABLE = "the variable, which LiteRT does not resize, has the size"
_RANK = "the number of axes of the output depends on the size"
_NODES = "not converted: the nodes have the size as a constant"
_PAST_END = "LiteRT's kernel writes past the end of a buffer of the size in the file"

_RECURRENT = ("LSTM", "RNN", "SVDF")
_SEQUENCES = tuple(f"{way}DIRECTIONAL_SEQUENCE_{cell}" for way in ("UNI", "BI")
                   for cell in ("LSTM", "RNN"))  # fmt: skip
_VARIABLES = ("ASSIGN_VARIABLE", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE")
_ALL_AXES = ("0.0", "0.1", "0.2", "0.3")

FIXED: dict[str, dict[str, str]] = {
    "BROADCAST_TO": {"0.1": "LiteRT's kernel requires the size of the constant output shape"},
    "CONV_2D": {"0.3": "not converted: the number of groups follows from the channels"},
    "CONV_3D": {"0.4": _WEIGHTS},
    "CONV_3D_TRANSPOSE": {"0.4": _WEIGHTS},
    "DENSIFY": {"0.0": _SHAPE, "0.1": _SHAPE},
    "DEPTHWISE_CONV_2D": {"0.3": _WEIGHTS},
    "DYNAMIC_UPDATE_SLICE": {
        "1.0": "LiteRT's kernel requires an update that fits in: two sizes only",
        "2.0": _FORMAT,
    },
    "EMBEDDING_LOOKUP_SPARSE": {"0.0": _SHAPE, "1.0": _SHAPE, "2.1": _NODES},
    "FULLY_CONNECTED": {"0.1": "not converted: the axis has several rows of the weights' size"},
    "GATHER_ND": {"1.1": _RANK},
    "HASHTABLE_SIZE": {"computed": "no operand has an axis"},
    "HASHTABLE_LOOKUP": {"0.0": _SHAPE},
    "LSH_PROJECTION": {"0.0": _NODES, "1.0": _NODES},
    "MATRIX_SET_DIAG": dict.fromkeys(
        ("0.1", "1.2"), "the diagonal has the smaller of two sizes, which LiteRT does not check"
    ),
    "Mfcc": {
        "0.2": "not converted: the weights of the bands are computed from the size",
        "1.0": "the sample rate is one number",
    },
    "NON_MAX_SUPPRESSION_V4": {"0.1": _FORMAT},
    "NON_MAX_SUPPRESSION_V5": {"0.1": _FORMAT},
    "REVERSE_SEQUENCE": {"0.0": _SHAPE},
    "SCATTER_ND": {"0.1": _RANK},
    "SEGMENT_SUM": {"0.0": _SHAPE},
    "SLICE": {"0.2": "the constant slice has the whole axis"},
    "SPARSE_TO_DENSE": {"0.0": _SHAPE},
    "SPLIT_V": {"0.3": "the constant sizes of the parts add up to the size"},
    "SQUEEZE": {"0.1": "only an axis of size 1 is removed", "0.3": "see axis 1"},
    "STABLEHLO_GATHER": dict.fromkeys(("0.0", "0.1", "0.2", "1.1"), _NODES),
    "STABLEHLO_RNG_BIT_GENERATOR": {"0.0": _FORMAT},
    "STABLEHLO_SCATTER": dict.fromkeys(
        ("0.0", "0.1", "0.2", "1.0", "2.0", "2.1", "2.2", "2.3"), _NODES
    ),
    "TFLite_Detection_PostProcess": {
        "0.0": "LiteRT's kernel requires a batch of 1",
        "1.0": "LiteRT's kernel requires a batch of 1",
        "1.2": "the number of classes is an option",
        "2.1": "not converted: elements after the first four are unused",
    },
    "TRANSPOSE_CONV": {"0.3": _WEIGHTS},
    "UNPACK": {"0.3": _OUTPUTS},
    **{code: {"0.0": _STATE, "0.1": _WEIGHTS} for code in _RECURRENT},
    **{code: {"0.0": _STATE, "0.2": _WEIGHTS} for code in _SEQUENCES},
    **{code: dict.fromkeys(_ALL_AXES, _VARIABLE) for code in _VARIABLES},
}
# Axes that are not run, because LiteRT corrupts its memory.
UNSAFE: dict[str, dict[str, str]] = {
    "BROADCAST_ARGS": {"0.0": _RANK, "1.0": _RANK},
    "aeq.hadamard_rotation": {"0.0": _PAST_END, "0.1": _PAST_END},
}
# Operators with sub-graphs, whose inputs have the sizes in the file.
DECLARED = frozenset({"WHILE"})
# Operators whose operands have equal sizes, which LiteRT does not compare: it reads past the end.
TOGETHER = frozenset(
    {"ATAN2", "MATRIX_SET_DIAG", "NumericVerify", "STABLEHLO_SHIFT_LEFT",
     "TFLite_Detection_PostProcess"}
)  # fmt: skip
# Operators with a constant operand that is out of range at smaller sizes; LiteRT does not check it.
ENLARGED = frozenset({"REVERSE_SEQUENCE"})
# Kinds in place of the first kind, whose elements are no sizes.
KINDS = {"RANGE": "int32"}
# Operators whose `shape_inputs` have no sizes but numbers of axes or blocks.
NO_SIZES = frozenset(
    {"BATCH_TO_SPACE_ND", "MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN",
     "REDUCE_PROD", "RFFT2D", "SPACE_TO_BATCH_ND", "SUM", "TRANSPOSE"}
)  # fmt: skip
