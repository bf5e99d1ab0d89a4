"""Operators that cannot be converted: the reasons, and nodes that stand for them."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tflite2onnx.graph import Op, Options
from tflite2onnx.made_options import KeptOptions, RefusalOptions
from tflite2onnx.op.base import Builder, Operator, OperatorError, Value, View
from tflite2onnx.op.traits import MadeOperator
from tflite2onnx.quantization.declarations import Integers

DOMAIN, BUILTIN_DOMAIN = "tflite.custom", "tflite.builtin"

_COMPILED = "a part of the model that is compiled for {}, and runs nowhere else: convert {}"
_TEXT = (
    "works on text, for which ONNX has few operators: do its work outside of the model, and convert"
    " the rest of the model, with --inputs or --outputs (extensions of runtimes have tokenisers)"
)
_RANDOM = (
    "uses a random generator that ONNX does not have: generate the numbers outside, and make them"
    " an input of the model"
)
_TRAINING = (
    "is part of training: convert the signature for inference (--signature), or a model that was"
    " exported without training"
)
# The names of TensorFlow's operators for training. Conv2DBackpropInput and Conv3DBackpropInput are
# not among them: they are also the transposed convolutions of Keras.
_TRAINS = (
    r".*Grad(ients?)?([A-Z].*)?|(?!Conv[23]DBackpropInput).*Backprop(Filter|Input)?(V\d)?"
    r"|(Resource)?(Sparse)?Apply[A-Z].*|(Sparse)?SoftmaxCrossEntropy.*|CTCLoss(V\d)?"
)
_BEAM_SEARCH = (
    "decodes logits by a beam search, for which ONNX has no operators: make its input, the logits,"
    " the output of the model (--outputs), and decode them after the model"
)
_FLEX = "TensorFlow operator {}, run by the Flex delegate, {}"
_FLEX_OTHERWISE = (
    "is not supported: convert the original model to TFLite without SELECT_TF_OPS, or replace it"
    " by operators that TFLite has"
)
# The reasons why TensorFlow operators cannot be converted, and what the user can do. The keys are
# regular expressions that match the full name.
_FLEX_REASONS: Mapping[str, str] = {
    "Decode(AndCrop)?(Bmp|Gif|Image|Jpeg|Png|Wav)|Encode(Jpeg|Png|Wav).*": (
        "reads or writes a file format: do so outside of the model, and convert the part of the"
        " model that works on the decoded pixels or samples"
    ),
    "Decode(Base64|CSV|JSONExample|PaddedRaw|Raw|ProtoV2)|EncodeBase64|Parse.*|SerializeTensor": (
        "decodes or encodes bytes: do so outside of the model, and convert the part of the model"
        " that works on the numbers"
    ),
    "StringLength": (
        "counts bytes or characters of text, for which ONNX has no operator: count them before the"
        " model runs, and make its output an input of the model (--inputs)"
    ),
    "String.*|.*Regex.*|Unicode.*|Substr|AsString|ReduceJoin|Fingerprint|.*(Tokenize|Piece|Text).*"
    "|UnsortedSegmentJoin|SparseCross.*|(CaseFold|Normalize)UTF8.*|.*NGrams": _TEXT,
    "CTCBeamSearchDecoder": _BEAM_SEARCH,
    "Random.*|Stateless.*|StatefulUniform.*|Multinomial|TruncatedNormal|.*Dropout.*"
    "|.*SampleDistorted.*": _RANDOM,
    _TRAINS: _TRAINING,
    "(Mutable)?(Dense)?HashTable.*|LookupTable.*|InitializeTable.*|MutableHashTableOfTensors.*": (
        "reads or writes a hash table of TensorFlow: look up outside of the model, or use TFLite's"
        " own hash tables (int64 and text)"
    ),
    ".*Variable.*|VarIsInitializedOp|ResourceScatter.*|ResourceGather.*|ResourceStrided.*"
    "|Resource.*": (
        "changes a variable in place: assign whole variables in the model; they become inputs and"
        " outputs"
    ),
    ".*Dataset.*|.*Queue.*|(Read|Write|Matching)Files?|Save.*|Restore.*|.*Summary|Print.*|Assert"
    "|_.*|.*Session.*|Abort|Timestamp|Shard.*|Iterator.*|Optional.*": (
        "reads or writes something outside of the model, which an ONNX graph cannot: leave it out"
    ),
    "Ragged.*|Sparse.*|.*SetOperation|DeserializeSparse": (
        "works on ragged or sparse tensors: make dense tensors of them before it"
    ),
    "Qr|Svd|Eig|SelfAdjointEig(V2)?|MatrixSquareRoot|MatrixExponential|MatrixLogarithm|Lu": (
        "decomposes matrices, for which ONNX has no operator: do so outside of the model"
    ),
    "TensorList.*|EmptyTensorList|TensorArray.*|Stack.*|TensorMap.*|EmptyTensorMap": (
        "keeps a list of tensors in an unsupported way: convert the original model with"
        " _experimental_lower_tensor_list_ops = True, or unroll its loop"
    ),
    "PartitionedCall|StatefulPartitionedCall|While|StatelessWhile|If|StatelessIf|Case|Enter|Exit"
    "|Merge|Switch|LoopCond|NextIteration|RemoteCall|PyFunc|EagerPyFunc": (
        "calls functions that are not in the file: convert the original model to TFLite again, from"
        " a concrete function"
    ),
}
# The reasons why custom operators cannot be converted. The keys are regular expressions that match
# the full name.
_REASONS: Mapping[str, str] = {
    "edgetpu-custom-op": _COMPILED.format(
        "the Edge TPU", "the input file of edgetpu_compiler (without _edgetpu in its name)"
    ),
    "ethos-u": _COMPILED.format(
        "an Arm Ethos-U", "the input file of vela (without _vela in its name)"
    ),
    "DISPATCH_OP": _COMPILED.format(
        "an NPU, ahead of time, by LiteRT", "the model before its compilation"
    ),
    "NeutronGraph": _COMPILED.format("an NXP Neutron NPU", "the input file of neutron-converter"),
    "MTKEXT_.*|cros-mtk-pre-compile": _COMPILED.format(
        "a MediaTek NPU", "the model before its compilation"
    ),
    "XC_.*": _COMPILED.format("an XMOS xcore", "the input file of xmos-ai-tools"),
    "Lce.*": (
        "it is a binary operator of Larq Compute Engine: convert the Keras model to TFLite without"
        " larq_compute_engine, so that binary layers become float layers"
    ),
    "PosenetDecoderOp": (
        "it decodes poses from the network's heatmaps: convert the network without it"
        " (posenet_..._quant.tflite, not posenet_..._quant_decoder.tflite), and decode them outside"
    ),
    "TFLM_DECODE": (
        "it decompresses weights that were compressed for tflite-micro: convert the model before"
        " its compression"
    ),
    "AlignmentPointsToTransformMatrix": (
        "only a GPU delegate runs it, whose source is not public: register a class of your own, or"
        " keep it with --allow-custom"
    ),
    "TFSentencepiece(Det|T)okenizeOp|(Fast)?(Wordpiece|BertNormalize|BertTokenize|Whitespace).*"
    "|CUSTOM_OP_STRING_.*|NGramHash|Predict|Normalize|ExtractFeatures|ParseExample(V2)?"
    "|RaggedTensorToTensor|tftext:.*|TFText>.*": f"it {_TEXT}",
    "odml\\..*": (
        "it is a composite without the sub-graph that computes it, which only a delegate runs:"
        " export the model with composites as STABLEHLO_COMPOSITE"
    ),
    "RandomUniformInt": f"it {_RANDOM}",
    _TRAINS: f"it {_TRAINING}",
    "CTCBeamSearchDecoder": f"it {_BEAM_SEARCH}",
}
_UNKNOWN = "this custom operator is not supported: register one, or keep it with --allow-custom"


class Unsupported(Operator):
    """An operator without a class; `check` raises the reason."""

    def __init__(self, op: Op, why: str = "") -> None:
        super().__init__(op)
        self.why = why

    def check(self) -> None:
        # A pass that replaces builtin operators leaves the reason why it did not.
        text = self.op.read_made(RefusalOptions).reason or "this operator is not supported"
        raise OperatorError(self.why or (explain_unsupported(self.op) if self.op.custom else text))


def explain_unsupported(op: Op) -> str:
    """Return the reason why a custom operator cannot be converted."""
    name = op.code.removeprefix("Flex")
    if name and name != op.code:
        return _FLEX.format(name, _find_reason(_FLEX_REASONS, name, _FLEX_OTHERWISE))
    return _find_reason(_REASONS, op.code, _UNKNOWN)


def _find_reason(reasons: Mapping[str, str], name: str, otherwise: str) -> str:
    return next((why for form, why in reasons.items() if re.fullmatch(form, name)), otherwise)


class Kept(MadeOperator):
    """KEPT: a node of another domain, which reads and writes tensors as TFLite stores them."""

    codes = ("KEPT",)
    returns_tuple = True
    quantization = Integers(in_file_types=True)

    def check(self) -> None:
        if not self.op.read_made(KeptOptions).name:
            raise OperatorError("it must have a name for the ONNX node, got none")

    def emit(self, g: Builder, ys: tuple[View, ...], *xs: View | None) -> tuple[Value, ...]:
        node = self.op.read_made(KeptOptions)
        return g.add(node.name, len(ys), xs, node.attributes, node.domain)


def keep_as_node(op: Op) -> Op:
    """Return KEPT for an operator: a node of the domain `tflite.custom` or `tflite.builtin`.

    Its attributes are the options that ONNX attributes can hold. For a custom operator these are
    all values of a flexbuffer; otherwise the attribute `custom_options` has the bytes.
    """
    values = {name: _convert_attribute(value) for name, value in op.options.items()}
    attributes = {name: value for name, value in values.items() if name and value is not None}
    if op.custom and (attributes != values or not values):
        attributes = {"custom_options": op.custom_options} if op.custom_options else {}
    domain = DOMAIN if op.custom else BUILTIN_DOMAIN
    made = KeptOptions(name=op.code, domain=domain, attributes=attributes)
    return replace(op, code="KEPT", custom=False, options=Options(), made=made)


def _convert_attribute(value: Any) -> Any:  # noqa: ANN401 - a flexbuffer holds any JSON-like value
    """Return a value as an ONNX attribute, None if no attribute can hold it."""
    if isinstance(value, (bool, int)):
        return int(value) if -(2**63) <= value < 2**63 else None
    if isinstance(value, (float, str, bytes)):
        return value
    if isinstance(value, list) and value:
        items = [_convert_attribute(item) for item in value]
        for kinds in ((int,), (int, float), (str, bytes)):
            if all(isinstance(item, kinds) for item in items):
                return [float(item) for item in items] if float in kinds else items
    return None
