"""Operators with the nodes that ONNX Runtime computes fastest, in place of the canonical ones."""

from tflite2onnx.extensions import list_paths

# By module. A class is a subclass of the class of the canonical operator, or forms make the
# operator.
PATHS = list_paths(
    __name__,
    {
        "attention": "ATTENTION LINEAR_ATTENTION ROTARY_EMBEDDING",
        "blocks": "DEPTH_TO_SPACE MUL SPACE_TO_DEPTH",
        "choice": "EXACT_CHOICE",
        "convolution": "CONV_2D INTEGER_CONV_2D",
        "dense": "FULLY_CONNECTED",
        "embedding": "EMBEDDING_LOOKUP",
        "experts": "EXPERT_PRODUCT",
        "mean": "MEAN",
        "reshape": "RESHAPE TRANSPOSE",
        "resize": "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR",
        "softmax": "LOG_SOFTMAX SOFTMAX",
        "tables": "HARD_SWISH PRELU Table",
    },
)
