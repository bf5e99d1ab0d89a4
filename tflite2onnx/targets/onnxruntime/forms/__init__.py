"""Forms of operators that ONNX Runtime computes faster than the canonical ones, in order.

A form rewrites operators of a planned graph: it may ask for the order in which the plan stores an
image (`has_channels_first`). The graph is planned only then, so this is the last condition. A new
form is a line below.
"""

from functools import partial

from tflite2onnx.graph import Graph
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes import GraphPass, apply_if_present, apply_passes, apply_pattern
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.targets.onnxruntime.forms.order_states import find_state_orders
from tflite2onnx.tensor import DType

__all__ = ["FORMS", "find_state_orders", "list_forms"]

_apply = partial(apply_pattern, package=__name__)
_apply_if_present = partial(apply_if_present, package=__name__)


def list_forms(options: ConversionOptions) -> tuple[GraphPass, ...]:
    """Return the forms that the options ask for."""
    quantizes, chooses = options.quantizes_data and options.has_axes, _chooses(options)
    is_float = options.quantization in ("float", "rounded")
    return (
        *_JOINED,
        *((partial(_quantize_data, chooses=chooses),) if quantizes else ()),
        *FORMS,
        *((_CHOOSE,) if chooses else ()),
        _JOIN_PIXELS,
        *(() if is_float else (_KEEP_LAST,)),
        *(_WRITE_CACHES if options.caches == "shared" else (_READ_CACHES,)),
    )


def _chooses(options: ConversionOptions) -> bool:
    """Return whether a model tests the processor; WebAssembly has no direct kernel."""
    adapts = options.weights == "adaptive" and not options.float16
    return adapts and options.target == "onnxruntime"


def _quantize_data(graph: Graph, *, chooses: bool) -> Graph:
    """Return the graph after the forms for float data, if it has integers to multiply them by."""
    has_weights = any(
        op.outputs[0].dtype is DType.FLOAT32 and any(map(is_quantized, op.present[:2]))
        for op in graph.walk_ops()
        if op.is_builtin("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
    )
    quantize = _CHOOSE_PRODUCTS if chooses else _QUANTIZE_DATA
    return apply_passes((_JOIN_WINDOWS, quantize), graph) if has_weights else graph


# Operators that TensorFlow's converter has split. All other forms see the whole ones.
_JOINED: tuple[GraphPass, ...] = (
    _apply("SPLIT SPLIT_V", "convolutions.join_groups"),
    _apply("float32: FULLY_CONNECTED", "products.join_products"),
    _apply("BATCH_MATMUL", "products.merge_columns"),
    # A TRANSPOSE of channels costs nothing in the filters.
    _apply("float32: TRANSPOSE", "convolutions.permute_filters"),
)

# Convolutions quantize float data at run time. These forms are before the others, which see the
# order in which products of integers store images.
# Windows of integer convolutions are copied into matrices.
_JOIN_WINDOWS = _apply("float32: CONV_2D", "dynamic_range.join_windows")
_quantize = partial(
    _apply_if_present, "float32: CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV"
)
_QUANTIZE_DATA = _quantize("dynamic_range.quantize_data")
_CHOOSE_PRODUCTS = _quantize("dynamic_range.quantize_data:choose_products")

FORMS: tuple[GraphPass, ...] = (
    # Each step of a recurrence takes ten nodes.
    _apply("float32: BATCH_MATMUL", "products.join_states"),
    # A token copies the matrices of its experts.
    _apply("float32: BATCH_MATMUL", "products.share_experts"),
    # Each step of a recurrence repeats operators that wait for no other step.
    _apply("SLICE SPLIT STRIDED_SLICE UNPACK", "join_steps"),
    # ONNX Runtime multiplies the matrices of a batch one by one, and repeated numbers each time.
    _apply("float32: BATCH_MATMUL", "products.broadcast_products"),
    # Each slice and each join of an image copies it. Later passes take slices apart.
    _apply("float32: CONCATENATION", "movement.gather_rows"),
    # Each slice of a state takes a Slice and a Reshape.
    _apply("SLICE STRIDED_SLICE", "movement.split_slices"),
    # The pass of attention expects a TRANSPOSE before each operand.
    _apply("float32: BATCH_MATMUL", "movement.split_slices:slice_before_transpose"),
    # The passes of caches look for a mask that is repeated for the queries that share a head.
    _apply("float32: SELECT_V2", "attention.repeat_masks"),
    # ONNX Runtime fuses MatMul with a Transpose that has no batch axis.
    _apply("float32: BATCH_MATMUL", "attention.fuse_attention"),
    # ONNX Runtime has an operator for rotary embeddings.
    _apply("float32: COS", "attention.fuse_rotations"),
    # BROADCAST_TO copies the long caches of language models for each token.
    _apply("float32: BROADCAST_TO", "attention.share_heads"),
    # ONNX has no PACK and UNPACK.
    _apply("PACK UNPACK", "movement.flatten_packs"),
    # A resize makes several pixels of one, each of which takes as long to convolve.
    _apply(
        "float32: RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR", "convolutions.convolve_before_resizes"
    ),
    # A product of pixels may need fewer Transposes in another layout.
    _apply("TRANSPOSE", "products.multiply_pixels"),
    # A Transpose of the last axis and another axis is slow.
    _apply("float32: BATCH_MATMUL", "products.swap_products"),
    # Functions after pooling have fewer elements. This pass is before the pass that replaces ELU.
    _apply("float32: MAX_POOL_2D", "functions.pool_before_functions"),
    # Zeros need no average.
    _apply("float32: PAD", "functions.average_zeros"),
    # ONNX Runtime has slow kernels for these operators.
    _apply("float32: ELU EXP LOCAL_RESPONSE_NORMALIZATION", "functions.spell_out"),
    # Resize computes each pixel on its own. This pass is after the passes that rearrange products.
    _apply("float32: RESIZE_BILINEAR", "products.multiply_resizes"),
    # A Pad of channels leaves the blocked layout of convolutions.
    _apply("float32: PAD", "convolutions.keep_blocks:convolve_padded_channels"),
    # A convolution that pads channels takes as long as any other convolution.
    _apply("float32: CONV_2D", "convolutions.pad_channels:leave_out_copies"),
    # ONNX Runtime's PRelu is slow, and leaves the blocked layout of convolutions.
    _apply("float32: PRELU", "convolutions.keep_blocks:split_prelu"),
    # An image of few channels between two convolutions is slow to store and to read.
    _apply("float32: CONV_2D", "convolutions.compose_convolutions"),
    # ONNX Runtime computes groups of few channels one by one.
    _apply("float32: CONV_2D", "convolutions.keep_blocks:merge_groups"),
    # A product of an image and one pixel leaves the blocked layout of convolutions.
    _apply("float32: CONV_2D DEPTHWISE_CONV_2D", "convolutions.keep_blocks:repeat_factors"),
    # ONNX Runtime adds constants outside of the blocked layout of convolutions.
    _apply("float32: CONV_2D DEPTHWISE_CONV_2D", "convolutions.scale_channels"),
    # ONNX Runtime slices channels outside of the blocked layout of convolutions.
    _apply("float32: SLICE STRIDED_SLICE", "convolutions.split_convolutions"),
    # ONNX Runtime computes filters in blocks of 8 or 16.
    _apply("float32: CONV_2D", "convolutions.convolve_pixel_blocks"),
    # A dense layer of each pixel is a Conv. The next passes look for convolutions.
    _apply("FULLY_CONNECTED", "convolutions.join_pixels:convolve_pixels"),
    # ONNX Runtime has blocks for multiples of 4 channels only.
    _apply("CONV_2D DEPTHWISE_CONV_2D", "convolutions.pad_channels"),
    # Kernels of integers are called once for each pixel whose channels have constants of their own.
    _apply("CONV_2D DEPTHWISE_CONV_2D", "convolutions.scale_channels:repeat_constants"),
    # Dense layers are products of matrices between two RESHAPE.
    _apply("FULLY_CONNECTED", "products.flatten_rows"),
)

# ONNX Runtime has a direct kernel for some numbers of channels only, which the passes above create.
# Processors first choose between forms, of which the second pass sees those that stay as they are.
_CHOOSE = _apply("CONV_2D", "convolutions.join_pixels:choose_pixels")
_JOIN_PIXELS = _apply("CONV_2D", "convolutions.join_pixels")

_KEEP_LAST = _apply("FULLY_CONNECTED MEAN RESHAPE TRANSPOSE", "movement.keep_channels_last")

# The product of matrices copies its second operand, unless the first one has a single row.
_READ_CACHES: GraphPass = _apply("DYNAMIC_UPDATE_SLICE", "attention.read_caches")
_WRITE_CACHES: tuple[GraphPass, ...] = (
    # Caches in shared memory need ONNX Runtime 1.23; linear attention 1.25.1.
    _apply("gated_delta_update", "attention.fuse_linear_attention"),
    _apply("DYNAMIC_UPDATE_SLICE", "attention.read_caches:write_caches"),
    _apply("float16: DYNAMIC_UPDATE_SLICE", "attention.mark_updates"),
)
