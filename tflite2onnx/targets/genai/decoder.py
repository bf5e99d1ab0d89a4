"""The folder that onnxruntime-genai loads: a decoder, its configuration, and the tokenizer.

onnxruntime-genai passes tokens and positions as [batch, length], and caches as [batch, heads,
length, depth]. It finds the inputs and outputs by their names. It passes no float mask, so the
graph computes the mask: a token attends to itself and to all earlier tokens.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.errors import BundleError
from tflite2onnx.graph import NO_OP, Graph, Model, Signature
from tflite2onnx.language_steps import DECODE, LOGITS, POSITIONS, RANGE, TOKENS
from tflite2onnx.passes.rewriter import Rewriter, make_constant, make_int32
from tflite2onnx.reader.containers.bundle import Bundle
from tflite2onnx.signatures import CACHE, STATE, find_updated_axes
from tflite2onnx.targets.genai.tokenizer import read_tokenizer
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.constant_budget import MOST_ELEMENTS

_logger = logging.getLogger(__name__)

FILE = "model.onnx"
CONFIG = "genai_config.json"
_ROLES = ("prefill_decode", "TF_LITE_PREFILL_DECODE", "")
_MASKS = ("mask",)
# Exports for GPUs read where the tokens are written: the position of the first token, the position
# after the last token (twice), the number of tokens, and three numbers without a meaning.
_PARAMETERS = (RANGE,)
_PARAMETER_SHAPE, _PARAMETER_FACTORS = (1, 1, 1, 7), ([1, 1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0, 0])
_KINDS = {"k": "key", "v": "value"}
_NAMES = {"tokens": "input_ids", "positions": "position_ids", "logits": "logits"}
_AXES = 4
_FLOATS = (DType.FLOAT16, DType.FLOAT32)
# The axes of states of convolutions and of recurrences.
_STATE_AXES = {"c": "batch, channels, rows", "r": "batch, heads, depth, width"}
# The names of states, by whether the decoder has recurrences (Qwen 3.5) or not (LFM2).
_STATE_NAMES = {
    False: {"c": ("past.%d.conv", "present.%d.conv")},
    True: {
        kind: (f"past_key_values.%d.{name}_state", f"present.%d.{name}_state")
        for kind, name in (("c", "conv"), ("r", "recurrent"))
    },
}
_CHUNK = 256  # tokens of a prompt in one run; attention needs memory for each pair of tokens
_SAMPLING = (1, 2)  # SamplerParameters.Type: TOP_K and TOP_P.
# LiteRT-LM adds this number to the scores of tokens that are hidden from a token.
_HIDDEN = -0.7  # of the largest number of the mask's type


class DecoderCache(NamedTuple):
    """A cache: its kind "k" or "v", its layer, and the axis of its tokens in TFLite."""

    kind: str
    layer: int
    source: Tensor
    target: Tensor
    axis: int

    @property
    def layout(self) -> tuple[str, str]:
        """The axes in TFLite, and in onnxruntime-genai: the tokens before the depth."""
        order = {1: "0213", 2: "0123", 3: "0132"}[self.axis]
        return "0123", order

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of heads, tokens and elements of a head."""
        _, heads, length, depth = (self.source.shape[int(i)] for i in self.layout[1])
        return heads, length, depth


class LayerState(NamedTuple):
    """A state of a layer: "c" the last rows before a convolution, or "r" that of a recurrence."""

    kind: str
    layer: int
    source: Tensor
    target: Tensor


class BundleDecoder(NamedTuple):
    """The decoder of a bundle, with the inputs of onnxruntime-genai, and how it is converted."""

    name: str
    model: Model
    signature: str
    caches: tuple[DecoderCache, ...]
    states: tuple[LayerState, ...]
    logits: Tensor
    options: Mapping[str, Any]
    takes_prompts: bool = False  # whether one run takes several tokens


def find_decoder(bundle: Bundle) -> str:
    """Return the name of the model that decodes tokens; BundleError if the bundle has none."""
    names = [name for name in bundle.models if name in _ROLES]
    if not names:
        raise BundleError(
            f"the target genai needs a model that decodes tokens ({_ROLES[0]}),"
            f" got {', '.join(bundle.models)}"
        )
    return names[0]


def prepare_decoder(name: str, model: Model, description: Mapping[str, Any]) -> BundleDecoder:
    """Return a decoder with the inputs and outputs of onnxruntime-genai.

    Raises:
        BundleError: onnxruntime-genai cannot run the decoder.
    """
    signature = choose_signature(model)
    roles = (*TOKENS, *POSITIONS, *_MASKS, *_PARAMETERS)
    others = [
        n
        for n in signature.inputs
        if n not in roles and not any(name.fullmatch(n) for name in (CACHE, STATE))
    ]
    tokens, positions, mask, parameters = (
        next((signature.inputs[n] for n in names if n in signature.inputs), None)
        for names in (TOKENS, POSITIONS, _MASKS, _PARAMETERS)
    )
    logits = signature.outputs.get(LOGITS)
    if others or tokens is None or positions is None or logits is None or not logits.rank:
        raise BundleError(
            f"onnxruntime-genai gives a decoder tokens, positions and caches, but {signature.key}"
            f" reads {', '.join(signature.inputs)} and returns {', '.join(signature.outputs)}"
        )
    place = signature.subgraph
    old = model.graphs[place]
    strangers = {*signature.inputs.values()}.difference(old.inputs)
    strangers |= {*signature.outputs.values()}.difference(old.outputs)
    if strangers:
        raise BundleError(
            f"the signature {signature.key} must list inputs and outputs of its sub-graph,"
            f" got {', '.join(sorted(tensor.name for tensor in strangers))}"
        )
    _check_logits(logits)
    caches, states = _find_caches(signature, old, description, mask), _find_states(signature)
    graph, positions_input = _compute_inputs(old, positions, mask, parameters)
    graphs = (*model.graphs[:place], graph, *model.graphs[place + 1 :])
    inputs = {n: t for n, t in signature.inputs.items() if t not in (positions, mask, parameters)}
    inputs[_NAMES["positions"]] = positions_input
    signatures = tuple(
        s._replace(inputs=inputs) if s is signature else s
        for s in model.signatures
        if s is signature or s.subgraph != place
    )
    rename = {tokens.name: _NAMES["tokens"], logits.name: _NAMES["logits"]}
    layouts = {}
    for cache in caches:
        for tensor, form in ((cache.source, "past_key_values"), (cache.target, "present")):
            rename[tensor.name] = f"{form}.{cache.layer}.{_KINDS[cache.kind]}"
            layouts[tensor.name] = cache.layout
    named = _STATE_NAMES[_has_recurrences(states)]
    for state in states:
        for tensor, form in zip((state.source, state.target), named[state.kind], strict=True):
            rename[tensor.name] = form % state.layer
    adapted = model._replace(graphs=graphs, signatures=signatures)
    options = {"rename": rename, "layouts": layouts, "signature": signature.key}
    return BundleDecoder(name, adapted, signature.key, caches, states, logits, options)


def _check_logits(logits: Tensor) -> None:
    """Raise BundleError for quantized logits, which static quantization makes."""
    if logits.dtype not in _FLOATS:
        raise BundleError(
            f"onnxruntime-genai reads logits of float32 or float16, got {logits.dtype.label}:"
            " quantize the weights only, as for dynamic range"
        )


def choose_signature(model: Model) -> Signature:
    """Return the signature `decode`, or the one with the largest caches (`decode_cache_1024`)."""
    found = [s for s in model.signatures if s.key.startswith(DECODE)]
    if not found:
        keys = ", ".join(s.key for s in model.signatures) or "none"
        raise BundleError(f"the target genai needs the signature {DECODE}, got {keys}")
    largest = max(found, key=lambda s: sum(tensor.elements for tensor in s.inputs.values()))
    return next((s for s in found if s.key == DECODE), largest)


def _find_caches(
    signature: Signature, graph: Graph, description: Mapping[str, Any], mask: Tensor | None
) -> tuple[DecoderCache, ...]:
    """Return the caches of a signature; a mask has an element for each token of a cache."""
    length = None if mask is None else (0, *mask.shape)[-1]
    executor = description.get("metadata", {}).get("llm_executor_metadata", {})
    axes = {
        buffer.get("decode_input_name"): buffer.get("sequence_axis")
        for buffer in executor.get("state_buffers", ())
    }
    caches, updated = [], find_updated_axes(graph)
    for name, source in signature.inputs.items():
        parts = CACHE.fullmatch(name)
        if parts is None:
            continue
        target = signature.outputs.get(name)
        axis = axes.get(name)
        if axis is None:
            axis = updated.get(source)
        if axis is None:
            axis = _guess_axis(source, parts[1], length)
        if target is None or axis not in range(1, _AXES) or source.rank != _AXES:
            raise BundleError(
                f"the cache {name} must be an input and an output [batch, heads, tokens, depth], in"
                f" any order, got {list(source.shape)}"
            )
        caches.append(DecoderCache(parts[1], int(parts[2]), source, target, axis))
    # onnxruntime-genai reads the heads and the depth of each layer from the model.
    if not caches or len({cache.sizes[1] for cache in caches}) > 1:
        raise BundleError(
            "onnxruntime-genai wants caches of one length,"
            f" got {[list(cache.source.shape) for cache in caches]}"
        )
    tokens = caches[0].sizes[1]
    if mask is not None and mask.shape[-1:] != (tokens,):
        raise BundleError(
            f"the mask must have an element for each of the {tokens} tokens of a cache,"
            f" got {length if mask.shape else 'a scalar'}"
        )
    return tuple(sorted(caches, key=lambda cache: (cache.layer, cache.kind)))


def _find_states(signature: Signature) -> tuple[LayerState, ...]:
    """Return the states of convolutions (LFM2) and recurrences (Qwen 3.5) of a signature."""
    states = []
    for name, source in signature.inputs.items():
        parts, target = STATE.fullmatch(name), signature.outputs.get(name)
        if parts is None:
            continue
        axes = _STATE_AXES[parts[1]]
        rank = len(axes.split())
        if target is None or source.rank != rank or target.shape != source.shape:
            raise BundleError(
                f"the state {name} must be an input and an output [{axes}],"
                f" got {list(source.shape)}"
            )
        states.append(LayerState(parts[1], int(parts[2]), source, target))
    shapes = {(state.kind, state.source.shape) for state in states}
    if len(shapes) > len({kind for kind, _ in shapes}):
        raise BundleError(
            "onnxruntime-genai wants states of one shape,"
            f" got {[list(state.source.shape) for state in states]}"
        )
    return tuple(states)


def _has_recurrences(states: Sequence[LayerState]) -> bool:
    return any(state.kind == "r" for state in states)


def _guess_axis(cache: Tensor, kind: str, length: int | None) -> int:
    """Return the axis of the tokens, as litert-torch's exporters choose it.

    Without a mask the caches are [batch, tokens, heads, depth]
    (litert_torch/generative/layers/kv_cache.py). With a mask, keys are [batch, heads, tokens,
    depth], and values [batch, heads, depth, tokens] (export_hf/core/cache.py).
    """
    if length is None:
        return 1
    default_axis = 2 if kind == "k" else 3
    if cache.rank == _AXES and cache.shape[default_axis] == length:
        return default_axis
    return next((i for i in range(1, cache.rank) if cache.shape[i] == length), 0)


def _compute_inputs(
    graph: Graph, positions: Tensor, mask: Tensor | None, parameters: Tensor | None
) -> tuple[Graph, Tensor]:
    """Return a graph that computes its other inputs from one input, positions, and the input."""
    rw = Rewriter(next(iter(graph.ops), NO_OP))
    position = Tensor(_NAMES["positions"], (1, 1), positions.dtype)
    rw.reshape(position, output=positions)
    if mask is not None:
        _compute_mask(rw, positions, mask)
    if parameters is not None:
        _compute_parameters(rw, positions, parameters)
    results = [tensor for op in rw.ops for tensor in op.outputs]
    inputs = tuple(
        position if t is positions else t for t in graph.inputs if t not in (mask, parameters)
    )
    tensors = (*graph.tensors, position, *(t for t in results if t not in graph.tensors))
    return replace(graph, inputs=inputs, ops=(*rw.ops, *graph.ops), tensors=tensors), position


def _compute_mask(rw: Rewriter, positions: Tensor, mask: Tensor) -> None:
    """Add operators that compute a causal mask; BundleError if it has too many tokens."""
    length = mask.shape[-1]
    if length > MOST_ELEMENTS:
        raise BundleError(f"the mask must have at most {MOST_ELEMENTS:,} tokens, got {length:,}")
    places = make_int32("mask/places", range(length))
    seen = Tensor("mask/seen", (length,), DType.BOOL)
    visible = rw.op("LESS_EQUAL", places, positions, output=seen)
    if mask.dtype is not DType.BOOL:
        dtype = DType.FLOAT16 if mask.dtype is DType.FLOAT16 else DType.FLOAT32
        zero, hidden = (
            Tensor(f"mask/{name}", (), dtype, np.array(number, dtype.numpy))
            for name, number in (("zero", 0), ("hidden", _HIDDEN * np.finfo(dtype.numpy).max))
        )
        added = Tensor("mask/added", (length,), dtype)
        visible = rw.op("SELECT_V2", seen, zero, hidden, output=added)
    rw.reshape(visible, output=mask)


def _compute_parameters(rw: Rewriter, positions: Tensor, parameters: Tensor) -> None:
    """Add operators that compute where a token is written; BundleError for another input."""
    if (parameters.shape, parameters.dtype) != (_PARAMETER_SHAPE, positions.dtype):
        raise BundleError(
            f"{parameters.name} must be {positions.dtype.label}{list(_PARAMETER_SHAPE)},"
            f" got {parameters.dtype.label}{list(parameters.shape)}"
        )
    factors, terms = (
        make_constant(f"parameters/{numbers}", np.array(numbers, np.int32), positions)
        for numbers in _PARAMETER_FACTORS
    )
    product = rw.op("MUL", positions, factors, like=parameters, shape=factors.shape)
    rw.reshape(rw.op("ADD", product, terms, like=product), output=parameters)


def list_decoder_files(decoder: BundleDecoder, bundle: Bundle) -> dict[str, memoryview]:
    """Return the files beside the decoder: its configuration, and the tokenizer's."""
    tokenizer = read_tokenizer(bundle)
    metadata = bundle.description.get("metadata", {})
    known = range(decoder.logits.shape[-1])
    listed = metadata.get("stop_tokens", ())
    stops = [tokenizer.find_token(token, known) for token in listed]
    others = [token for token, number in zip(listed, stops, strict=True) if not number]
    if others:
        _logger.warning(
            "onnxruntime-genai stops at tokens of the vocabulary only, not at %s",
            ", ".join(json.dumps(next(iter(token.values()), "")) for token in others),
        )
    tokens = {
        "eos": list(dict.fromkeys(number for numbers in stops for number in numbers)),
        "bos": tokenizer.find_token(metadata.get("start_token", {}), known),
        "pad": tokenizer.find_token(metadata.get("pad_token", {}), known),
    }
    text = json.dumps(_describe_decoder(decoder, metadata, tokens), indent=2) + "\n"
    return {CONFIG: memoryview(text.encode()), **tokenizer.list_files(metadata, tokens)}


def _describe_decoder(
    decoder: BundleDecoder, metadata: Mapping[str, Any], tokens: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Return the content of genai_config.json."""
    heads, length, depth = decoder.caches[0].sizes
    context = min(length, metadata.get("max_num_tokens") or length)
    described: dict[str, Any] = {
        "type": "llama",  # onnxruntime-genai runs all decoders of this form in the same way
        "vocab_size": decoder.logits.shape[-1],
        "context_length": context,
        "eos_token_id": tokens["eos"],
        "bos_token_id": (*tokens["bos"], *tokens["eos"], 0)[0],
        "pad_token_id": (*tokens["pad"], 0)[0],
        "decoder": {
            "session_options": {},
            "filename": FILE,
            "head_size": depth,
            # The file does not contain the number of query heads, and onnxruntime-genai does not
            # use it.
            "hidden_size": heads * depth,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "num_hidden_layers": 1 + max(_list_layers(decoder)),
            "inputs": {
                "input_ids": _NAMES["tokens"],
                "position_ids": _NAMES["positions"],
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": _NAMES["logits"],
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
        },
    }
    if decoder.states:
        _add_states(decoder, described)
    chunk = _CHUNK if decoder.takes_prompts else 1
    return {"model": described, "search": _describe_search(metadata, context, chunk)}


def _list_layers(decoder: BundleDecoder) -> list[int]:
    layers = [cache.layer for cache in decoder.caches]
    return layers + [state.layer for state in decoder.states]


def _add_states(decoder: BundleDecoder, described: dict[str, Any]) -> None:
    """Add the states to the content of genai_config.json."""
    config, layers = described["decoder"], {state.layer for state in decoder.states}
    recurs = _has_recurrences(decoder.states)
    described["type"], other = ("qwen3_5_text", "linear_attention") if recurs else ("lfm2", "conv")
    config["layer_types"] = [
        other if layer in layers else "full_attention"
        for layer in range(config["num_hidden_layers"])
    ]
    if not recurs:
        config["conv_cache_size"] = decoder.states[0].source.shape[-1]
        names = _STATE_NAMES[recurs]["c"]
        config["inputs"]["past_conv_names"], config["outputs"]["present_conv_names"] = names


def _describe_search(metadata: Mapping[str, Any], context: int, chunk: int) -> dict[str, Any]:
    """Return how tokens are chosen; the caches have a fixed length and are updated in place."""
    sampler = metadata.get("sampler_params", {})
    search = {
        "max_length": context,
        "do_sample": sampler.get("type", 0) in _SAMPLING,
        "num_beams": 1,
        "past_present_share_buffer": True,
        "chunk_size": chunk,
    }
    names = (("top_k", "k"), ("top_p", "p"), ("temperature", "temperature"))
    return search | {name: sampler[key] for name, key in names if key in sampler}
