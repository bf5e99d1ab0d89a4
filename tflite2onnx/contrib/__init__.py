"""Families of operators that few published networks have.

The core does not import this package. It reaches the core as a package of a user does: `offer`
names the modules of its operators and passes, and a module is imported when a model needs it.
"""

from tflite2onnx.contrib.builtin_modules import MODULE_OF
from tflite2onnx.contrib.flex.names import OTHER_NAMES, PREFIX
from tflite2onnx.extensions import OfferedPass, offer_operators, offer_passes

PASSES = (
    # Most TensorFlow operators have an equivalent in TFLite.
    OfferedPass(
        f"{__name__}.flex.translate:translate_flex_operators",
        "models",
        codes=" ".join((PREFIX, *OTHER_NAMES)),
        explain=f"{__name__}.flex.translate:explain_unmatched",
    ),
    # The kernels read the codes of these sub-graphs and do not run them.
    OfferedPass(f"{__name__}.stablehlo.resolve_computations", "models", codes="STABLEHLO_"),
    # LiteRT has kernels for few of StableHLO's operators. The pass above reads their codes.
    OfferedPass(f"{__name__}.stablehlo.lower_stablehlo", "models", codes="STABLEHLO_"),
    # One sub-graph fills a table that another sub-graph reads.
    OfferedPass(f"{__name__}.hash_tables.fold_hash_tables", "models", codes="HASHTABLE"),
    # ONNX's operators for sequences do not cover the uses of lists.
    OfferedPass(
        f"{__name__}.tensor_lists.lower_tensor_lists",
        "graphs",
        codes="FlexTensorList FlexEmptyTensorList",
    ),
    # ONNX's operators do not compute with complex tensors.
    OfferedPass(
        f"{__name__}.complex_numbers.lower_complex", "graphs", dtypes="COMPLEX64 COMPLEX128"
    ),
)


def offer() -> None:
    """Offer all operators and passes of this package."""
    offer_operators(__name__, MODULE_OF)
    offer_passes(*PASSES)
