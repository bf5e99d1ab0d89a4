"""Operators that nobody converts: why not, and how they can stay in the graph all the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tflite2onnx.graph import Op
from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View

DOMAIN = "tflite.custom"

_COMPILED = "a part of the model that was compiled for {}, which nothing else can run: convert {}"
_TEXT = (
    "it works on text, for which ONNX has no operators: do what it does before the model runs, and"
    " convert the model from there on (onnxruntime-extensions has tokenisers)"
)
_FLEX = "TensorFlow operator {}, run by the Flex delegate, {}"
_FLEX_OTHERWISE = (
    "is not supported: convert the original model to TFLite without SELECT_TF_OPS, or replace it"
    " by operators that TFLite has"
)
# What those of TensorFlow's are that ONNX has nothing for, and what to do; whole names, too.
_FLEX_REASONS: Mapping[str, str] = {
    "Decode(AndCrop)?(Bmp|Gif|Image|Jpeg|Png|Wav)|Encode(Jpeg|Png|Wav).*": (
        "reads or writes a file's format: do so outside of the model, and convert it from the"
        " decoded pixels or samples on"
    ),
    "Decode(Base64|CSV|JSONExample|PaddedRaw|Raw|ProtoV2)|EncodeBase64|Parse.*|SerializeTensor": (
        "takes bytes apart: do so before the model runs, and convert it from the numbers on"
    ),
    "String.*|.*Regex.*|Unicode.*|Substr|AsString|ReduceJoin|Fingerprint|.*(Tokenize|Piece|Text).*"
    "|UnsortedSegmentJoin|SparseCross.*|(CaseFold|Normalize)UTF8.*|.*NGrams|CTCBeamSearchDecoder": (
        "works on text, for which ONNX has few operators: do what it does before the model runs,"
        " and convert the model from there on (onnxruntime-extensions has tokenisers)"
    ),
    "Random.*|Stateless.*|StatefulUniform.*|Multinomial|TruncatedNormal|.*Dropout.*"
    "|.*SampleDistorted.*": (
        "draws numbers by chance in a way that ONNX has not: draw them outside, and make them an"
        " input of the model"
    ),
    ".*Grad(V2)?|.*BackpropFilter(V2)?|(Resource)?(Sparse)?Apply.*|SoftmaxCrossEntropy.*"
    "|SparseSoftmaxCrossEntropy.*|.*BackpropInput": (
        "is part of training: convert the signature that infers (--signature), or a model that was"
        " exported without training"
    ),
    "(Mutable)?(Dense)?HashTable.*|LookupTable.*|InitializeTable.*|MutableHashTableOfTensors.*": (
        "looks up a table that TensorFlow keeps: look up outside of the model, or let TFLite's own"
        " hash tables do so (of int64 and text)"
    ),
    ".*Variable.*|VarIsInitializedOp|ResourceScatter.*|ResourceGather.*|ResourceStrided.*"
    "|Resource.*": (
        "works on a variable in place: let the model assign whole variables, which become inputs"
        " and outputs"
    ),
    ".*Dataset.*|.*Queue.*|(Read|Write|Matching)Files?|Save.*|Restore.*|.*Summary|Print.*|Assert"
    "|_.*|.*Session.*|Abort|Timestamp|Shard.*|Iterator.*|Optional.*": (
        "talks to what is around the model, which a graph of ONNX cannot: leave it out"
    ),
    "Ragged.*|Sparse.*|.*SetOperation|DeserializeSparse": (
        "works on ragged or sparse tensors: make dense tensors of them before it"
    ),
    "Qr|Svd|Eig|SelfAdjointEig(V2)?|MatrixSquareRoot|MatrixExponential|MatrixLogarithm|Lu": (
        "decomposes matrices, for which ONNX has no operator: do so outside of the model"
    ),
    "TensorList.*|EmptyTensorList|TensorArray.*|Stack.*|TensorMap.*|EmptyTensorMap": (
        "keeps a list of tensors in a way that is not understood: convert the original model with"
        " _experimental_lower_tensor_list_ops = True, or unroll its loop"
    ),
    "PartitionedCall|StatefulPartitionedCall|While|StatelessWhile|If|StatelessIf|Case|Enter|Exit"
    "|Merge|Switch|LoopCond|NextIteration|RemoteCall|PyFunc|EagerPyFunc": (
        "runs other functions, which are not in the file: convert the original model to TFLite anew"
        " by a concrete function of it"
    ),
}
# What custom operators are that no class can ever convert; whole names, as regular expressions.
_REASONS: Mapping[str, str] = {
    "edgetpu-custom-op": _COMPILED.format(
        "the Edge TPU", "the file that edgetpu_compiler was given (without _edgetpu in its name)"
    ),
    "ethos-u": _COMPILED.format(
        "an Arm Ethos-U", "the file that vela was given (without _vela in its name)"
    ),
    "DISPATCH_OP": _COMPILED.format(
        "an NPU, ahead of time, by LiteRT", "the model from before its compilation"
    ),
    "NeutronGraph": _COMPILED.format(
        "an NXP Neutron NPU", "the file that neutron-converter was given"
    ),
    "MTKEXT_.*": _COMPILED.format("a MediaTek NPU", "the model from before its compilation"),
    "XC_.*": _COMPILED.format("an XMOS xcore", "the file that xmos-ai-tools was given"),
    "Lce.*": (
        "it computes with single bits, in Larq Compute Engine: convert the Keras model to TFLite"
        " without larq_compute_engine, whose binary layers are real ones then"
    ),
    "PosenetDecoderOp": (
        "it searches for people in what the network finds: make its inputs the model's outputs, and"
        " decode these outside of the model"
    ),
    "TFLM_DECODE": (
        "it unpacks weights that were compressed for tflite-micro: convert the model from before"
        " its compression"
    ),
    "AlignmentPointsToTransformMatrix": (
        "only a GPU delegate ever ran it, whose source is not public: register a class of your own"
        " for it, or keep it with --allow-custom"
    ),
    r"TFSentencepiece(Det|T)okenizeOp": _TEXT,
    r"(TFText>|tftext:)?(Fast)?(Wordpiece|BertNormalize|BertTokenize|Whitespace).*": _TEXT,
    "CUSTOM_OP_STRING_.*|NGramHash|Predict|Normalize|ExtractFeatures|ParseExample(V2)?": _TEXT,
    "RaggedTensorToTensor|tftext:.*|TFText>.*": _TEXT,
    "CTCBeamSearchDecoder": (
        "a beam search over text, for which ONNX has no operators: make the logits before it the"
        " model's output, and decode these"
    ),
}
_UNKNOWN = "this custom operator is not supported: register one, or keep it with --allow-custom"


class Unsupported(Operator):
    """An operator that no class converts; it says why when it is checked."""

    category = Category.TERMINATE

    def __init__(self, op: Op, why: str = "") -> None:
        super().__init__(op)
        self.why = why

    def check(self) -> None:
        """Raise OperatorError."""
        own = reason(self.op) if self.op.custom else "this operator is not supported"
        raise OperatorError(self.why or own)


def reason(op: Op) -> str:
    """Return why a custom operator is not converted."""
    code = op.code
    for pattern, text in _REASONS.items():
        if re.fullmatch(pattern, code):
            return text
    name = code.removeprefix("Flex")
    if not name or name == code:
        return _UNKNOWN
    found = (why for pattern, why in _FLEX_REASONS.items() if re.fullmatch(pattern, name))
    return _FLEX.format(name, next(found, _FLEX_OTHERWISE))


class Kept(Operator):
    """A custom operator that stays what it is, in a domain of its own.

    It reads and writes tensors as TFLite stores them. Its attributes are its options, as far as
    they are a flexbuffer whose values ONNX has attributes for; else `custom_options` has the bytes.
    """

    category = Category.TERMINATE
    returns_tuple = True
    fuses_activation = False
    computes_on_stored_integers = True

    def check(self) -> None:
        if not self.op.code:
            raise OperatorError("it has no name, and a node must have one")

    def emit(self, g: Builder, ys: tuple[View, ...], *xs: View | None) -> tuple[Value, ...]:
        return g.add(self.op.code, len(ys), xs, self._attributes, DOMAIN)

    @property
    def _attributes(self) -> dict[str, Any]:
        found = {name: _attribute(value) for name, value in self.options.items()}
        if found and all(name and value is not None for name, value in found.items()):
            return found
        return {"custom_options": self.op.custom_options} if self.op.custom_options else {}


def _attribute(value: Any) -> Any:  # noqa: ANN401 - a flexbuffer holds any JSON-like value
    """Return a value as an ONNX attribute takes it, None if none does."""
    if isinstance(value, (bool, int)):
        return int(value) if -(2**63) <= value < 2**63 else None
    if isinstance(value, (float, str, bytes)):
        return value
    if isinstance(value, list) and value:
        items = [_attribute(item) for item in value]
        for kinds in ((int,), (int, float), (str, bytes)):
            if all(isinstance(item, kinds) for item in items):
                return [float(item) for item in items] if float in kinds else items
    return None
