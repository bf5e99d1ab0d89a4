"""TFLite's operators in types that only TensorFlow's kernels support (see `passes.flex.rules`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tflite2onnx.op.elementwise.arithmetic import Elementwise, Row
from tflite2onnx.op.indexing.topk import Arg, TopK
from tflite2onnx.op.reduction.cumsum_range import CumSum
from tflite2onnx.op.reduction.reduce import Reduction, ReductionRule
from tflite2onnx.op.reduction.softmax import LogSoftmax, Softmax


class FlexReduction(Reduction):
    """Sums, means, products and extremes of float64."""

    rows: ClassVar[Mapping[str, ReductionRule]] = {
        f"Flex{name}": Reduction.rows[code]._replace(types="float64")
        for name, code in (
            ("Max", "REDUCE_MAX"),
            ("Mean", "MEAN"),
            ("Min", "REDUCE_MIN"),
            ("Prod", "REDUCE_PROD"),
            ("Sum", "SUM"),
        )
    }


class FlexCumSum(CumSum):
    """FlexCumsum: CUMSUM of float64."""

    codes = ("FlexCumsum",)
    operands = "T:float64 [...], int32~ [1*] -> T [...]"


class FlexTopK(TopK):
    """FlexTopKV2: TOPK_V2 of float64."""

    codes = ("FlexTopKV2",)
    operands = "T:float64, int32~ [1*] -> T, int32"


class FlexArg(Arg):
    """FlexArgMax and FlexArgMin: ARG_MAX and ARG_MIN of float64 and int64."""

    rows: ClassVar[dict[str, str]] = {"FlexArgMax": "ArgMax", "FlexArgMin": "ArgMin"}
    operands = "float64|int64, index~ [1*] -> index"


class FlexSoftmax(Softmax):
    """FlexSoftmax: SOFTMAX of float64."""

    codes = ("FlexSoftmax",)
    types = "float64"


class FlexLogSoftmax(LogSoftmax):
    """FlexLogSoftmax: LOG_SOFTMAX of float64."""

    codes = ("FlexLogSoftmax",)
    types = "float64"


class FlexLeakyRelu(Elementwise):
    """FlexLeakyRelu: LEAKY_RELU of float64."""

    rows: ClassVar[Mapping[str, Row]] = {
        "FlexLeakyRelu": Row(
            lambda g, dtype, options, x: g.in_compute_type(
                "LeakyRelu", dtype, x, alpha=float(options.alpha)
            ),
            "float64",
        ),
    }
