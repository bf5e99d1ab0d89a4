"""The names that a pass over models or graphs needs; see docs/adding-an-operator.md.

A pass replaces operators (`Op` of the module `operators`) before their nodes are planned. It maps a
`Model` or a `Graph` to another one, and is offered by `extensions.offer_passes`.
"""

from tflite2onnx.errors import (
    ModelFileError as ModelFileError,
    as_operator_error as as_operator_error,
    collect_errors as collect_errors,
)
from tflite2onnx.graph import Graph as Graph, Model as Model, Producers as Producers
from tflite2onnx.made_options import MadeOptions as MadeOptions, RefusalOptions as RefusalOptions
from tflite2onnx.op import has_class as has_class
from tflite2onnx.passes.dynamic_shapes import infer_dimensions as infer_dimensions
from tflite2onnx.passes.rewriter import (
    Rewriter as Rewriter,
    as_builtin as as_builtin,
    make_constant as make_constant,
    make_int32 as make_int32,
    make_like as make_like,
)
from tflite2onnx.passes.shape_walk import InferredTensors as InferredTensors
from tflite2onnx.reader.sparsity import count_distinct_bytes as count_distinct_bytes
from tflite2onnx.utils.disjoint_sets import DisjointSets as DisjointSets
