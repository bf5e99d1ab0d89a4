"""Forms of operators that ONNX Runtime computes faster than the canonical ones, in groups.

A form rewrites operators of a planned graph: it may ask for the order in which the plan stores an
image (`has_channels_first`). The graph is planned only then, so this is the last condition. A new
form is a line of a group. The groups apply in order. The forms of a group apply in any order, which
tests shuffle (`tests/support/shuffle.py`): none reads what another makes, or both orders end alike.
"""

from functools import partial

from tflite2onnx.graph import Graph
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes import Group, apply_if_present, apply_passes, apply_pattern
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.targets.onnxruntime.forms.order_states import find_state_orders
from tflite2onnx.tensor import DType

__all__ = ["find_state_orders", "list_groups"]

_apply = partial(apply_pattern, package=__name__)
_apply_if_present = partial(apply_if_present, package=__name__)


def list_groups(options: ConversionOptions) -> tuple[Group, ...]:
    """Return the forms that the options ask for."""
    quantizes, chooses = options.quantizes_data and options.has_axes, _chooses(options)
    is_float = options.quantization in ("float", "rounded")
    return (
        *_WHOLE,
        *(((partial(_quantize_data, chooses=chooses),),) if quantizes else ()),
        *_FORMS,
        *(_CHOOSE if chooses else ()),
        *_JOIN_PIXELS,
        *(() if is_float else _KEEP_LAST),
        *(_WRITE_CACHES if options.caches == "shared" else _READ_CACHES),
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


# TensorFlow's converter has split these operators. All other forms see the whole ones.
_WHOLE: tuple[Group, ...] = (
    (
        _apply("SPLIT SPLIT_V", "convolutions.join_groups"),
        _apply("float32: FULLY_CONNECTED", "products.join_products"),
        _apply("float32: TRANSPOSE", "convolutions.permute_filters"),
    ),
    # Joined products may be columns.
    (_apply("BATCH_MATMUL", "products.merge_columns"),),
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

_FORMS: tuple[Group, ...] = (
    (
        _apply("float32: BATCH_MATMUL", "products.join_states"),
        _apply("float32: BATCH_MATMUL", "products.share_experts"),
        _apply("float32: BATCH_MATMUL", "products.broadcast_products"),
        _apply("float32: CONCATENATION", "movement.gather_rows"),
        _apply("float32: BATCH_MATMUL", "movement.split_slices:slice_before_transpose"),
        _apply("float32: SELECT_V2", "attention.repeat_masks"),
        _apply(
            "float32: RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR",
            "convolutions.convolve_before_resizes",
        ),
        _apply("float32: MAX_POOL_2D", "functions.pool_before_functions"),
        _apply("float32: PAD", "functions.average_zeros"),
        _apply("float32: PAD", "convolutions.keep_blocks:convolve_padded_channels"),
    ),
    # They see the products, convolutions and functions that the group above moves.
    (
        _apply("SLICE SPLIT STRIDED_SLICE UNPACK", "join_steps"),
        _apply("float32: BATCH_MATMUL", "attention.fuse_attention"),
        _apply("float32: COS", "attention.fuse_rotations"),
        _apply("TRANSPOSE", "products.multiply_pixels"),
        _apply("float32: ELU EXP LOCAL_RESPONSE_NORMALIZATION", "functions.spell_out"),
        _apply("float32: CONV_2D", "convolutions.pad_channels:leave_out_copies"),
        _apply("float32: PRELU", "convolutions.keep_blocks:split_prelu"),
    ),
    # Products of attention, and steps that could not be joined, are those that stay.
    (
        _apply("SLICE STRIDED_SLICE", "movement.split_slices"),
        _apply("float32: BROADCAST_TO", "attention.share_heads"),
        _apply("float32: BATCH_MATMUL", "products.swap_products"),
        _apply("float32: CONV_2D", "convolutions.compose_convolutions"),
    ),
    # Convolutions of blocks of channels; those that could be left out or composed are gone.
    (
        _apply("PACK UNPACK", "movement.flatten_packs"),
        _apply("float32: RESIZE_BILINEAR", "products.multiply_resizes"),
        _apply("float32: CONV_2D", "convolutions.keep_blocks:merge_groups"),
        _apply("float32: CONV_2D DEPTHWISE_CONV_2D", "convolutions.keep_blocks:repeat_factors"),
        _apply("float32: CONV_2D DEPTHWISE_CONV_2D", "convolutions.scale_channels"),
    ),
    # Dense layers of pixels become convolutions, and convolutions several of fewer filters.
    (
        _apply("float32: SLICE STRIDED_SLICE", "convolutions.split_convolutions"),
        _apply("float32: CONV_2D", "convolutions.convolve_pixel_blocks"),
        _apply("FULLY_CONNECTED", "convolutions.join_pixels:convolve_pixels"),
    ),
    # The filters of all convolutions are known.
    (
        _apply("CONV_2D DEPTHWISE_CONV_2D", "convolutions.pad_channels"),
        _apply("CONV_2D DEPTHWISE_CONV_2D", "convolutions.scale_channels:repeat_constants"),
        _apply("FULLY_CONNECTED", "products.flatten_rows"),
    ),
)

# ONNX Runtime has a direct kernel for some numbers of channels only, which the passes above create.
# Processors first choose between forms, of which the second pass sees those that stay as they are.
_CHOOSE: tuple[Group, ...] = ((_apply("CONV_2D", "convolutions.join_pixels:choose_pixels"),),)
_JOIN_PIXELS: tuple[Group, ...] = ((_apply("CONV_2D", "convolutions.join_pixels"),),)

_KEEP_LAST: tuple[Group, ...] = (
    (_apply("FULLY_CONNECTED MEAN RESHAPE TRANSPOSE", "movement.keep_channels_last"),),
)

# The product of matrices copies its second operand, unless the first one has a single row.
_READ_CACHES: tuple[Group, ...] = ((_apply("DYNAMIC_UPDATE_SLICE", "attention.read_caches"),),)
_WRITE_CACHES: tuple[Group, ...] = (
    # Caches in shared memory need ONNX Runtime 1.23; linear attention 1.25.1.
    (
        _apply("gated_delta_update", "attention.fuse_linear_attention"),
        _apply("DYNAMIC_UPDATE_SLICE", "attention.read_caches:write_caches"),
    ),
    # Only the caches that are written may be marked.
    (_apply("float16: DYNAMIC_UPDATE_SLICE", "attention.mark_updates"),),
)
