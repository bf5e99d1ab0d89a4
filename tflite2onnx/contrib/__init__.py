"""Families of operators that few published networks have.

The core does not import this package. It reaches the core as a package of a user does: `offer`
names the modules of its operators and passes, and a module is imported when a model needs it.
"""

from __future__ import annotations

from tflite2onnx.contrib.builtin_modules import MODULE_OF
from tflite2onnx.extensions import OfferedPass, offer_operators, offer_passes

PASSES = (
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
