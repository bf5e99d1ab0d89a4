"""The passes, in the order in which they run; a new pass is one line of one of these tuples.

A pass takes a model or a graph in TFLite's operators and returns an equivalent one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import TypeVar

from tflite2onnx.graph import Graph, Model
from tflite2onnx.passes.dynamic_shapes import infer_custom_shapes, infer_shapes
from tflite2onnx.passes.expand_output_sigmoid import expand_output_sigmoid
from tflite2onnx.passes.flex.translate import translate_flex_operators
from tflite2onnx.passes.fold_constants import fold
from tflite2onnx.passes.fold_hash_tables import fold_hash_tables
from tflite2onnx.passes.fuse_convolutions import (
    fuse_dilated_convolutions,
    fuse_pads_into_convolutions,
)
from tflite2onnx.passes.lower_complex import lower_complex
from tflite2onnx.passes.normalise import (
    absorb_flatten,
    align,
    densify,
    eliminate_dead_operators,
    keep_axes,
)
from tflite2onnx.passes.patterns.chain_products import chain_products
from tflite2onnx.passes.patterns.convolve_padded_channels import convolve_padded_channels
from tflite2onnx.passes.patterns.fold_into_products import fold_into_products
from tflite2onnx.passes.patterns.fuse_activations import fuse_activations
from tflite2onnx.passes.patterns.fuse_normalizations import fuse_normalizations
from tflite2onnx.passes.patterns.multiply_pixels import multiply_pixels
from tflite2onnx.passes.patterns.pad_channels import pad_channels
from tflite2onnx.passes.patterns.split_prelu import split_prelu
from tflite2onnx.passes.recurrent.raise_recurrent_loops import raise_recurrent_loops
from tflite2onnx.passes.resolve_computations import resolve_computations
from tflite2onnx.passes.state.lift_variables import lift_variables
from tflite2onnx.passes.tensor_lists.fuse_list_assignment import fuse_list_assignment
from tflite2onnx.passes.tensor_lists.lower_tensor_lists import lower_tensor_lists

T = TypeVar("T")
ModelPass = Callable[[Model], Model]
GraphPass = Callable[[Graph], Graph]

# The whole model.
MODEL_PASSES: tuple[ModelPass, ...] = (
    translate_flex_operators,  # most TensorFlow operators have an equivalent in TFLite
    resolve_computations,  # the kernels read the codes of these sub-graphs and do not run them
    fold_hash_tables,  # one sub-graph fills a table that another sub-graph reads
)


def entry_point_passes(model: Model, index: int) -> tuple[GraphPass, ...]:
    """Return the passes for the graph that `inline_subgraphs` makes of a model's entry point."""
    return (
        infer_custom_shapes,  # the files of custom operators often declare no shapes
        partial(lift_variables, model=model, index=index),  # ONNX has no variables
        lower_tensor_lists,  # ONNX Runtime lacks operators for most uses of sequences
        lower_complex,  # ONNX Runtime does not compute with complex tensors
        fuse_list_assignment,  # the slices have data-dependent shapes, the replacement has not
        eliminate_dead_operators,  # else the sizes of the slices would become dynamic
        infer_shapes,  # files declare the size 1 wherever a size is dynamic
    )


# The graph of the entry point, after dynamic axes have names.
NORMALISING_PASSES: tuple[GraphPass, ...] = (
    densify,  # the passes below read the elements of constants
    fold,  # fewer operators for the passes below
    raise_recurrent_loops,  # ONNX has operators for LSTM, GRU and RNN
    fuse_activations,  # ONNX has operators for them
    fuse_normalizations,  # as above
    fold_into_products,  # after the patterns, which contain products by constants
    expand_output_sigmoid,  # Sigmoid of ONNX Runtime is inaccurate for small scores
    align,  # the layout planner needs operands with corresponding axes
    keep_axes,  # a RESHAPE between images would need Transposes around it
    absorb_flatten,  # as above, between an image and a dense layer
    fuse_dilated_convolutions,  # one Conv with a dilation instead of three operators
    fuse_pads_into_convolutions,  # ONNX Runtime does not do it for quantized convolutions
    eliminate_dead_operators,  # the passes above leave operators whose outputs nothing reads
)

# After the passes above, if the user wants the forms that are fastest in ONNX Runtime.
FASTEST_PASSES: tuple[GraphPass, ...] = (
    chain_products,  # Gemm adds its third input without another node
    eliminate_dead_operators,  # the layers that were chained
    multiply_pixels,  # the planner may save Transposes
    convolve_padded_channels,  # Pad of channels leaves the blocked layout of convolutions
    split_prelu,  # ONNX Runtime's PRelu is slow, and leaves the blocked layout of convolutions
    pad_channels,  # ONNX Runtime has blocks for multiples of 4 channels only
)


def apply_passes(passes: Iterable[Callable[[T], T]], value: T) -> T:
    """Return the model or graph after all passes, applied in order."""
    return reduce(lambda result, change: change(result), passes, value)
