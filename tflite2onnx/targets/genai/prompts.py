"""A decoder that takes one token becomes a decoder that takes all tokens of a prompt at once."""

import logging

from tflite2onnx.canonical import (
    OperatorCache,
    check_sizes,
    keep_file_sizes,
    make_canonical,
    open_graph,
)
from tflite2onnx.errors import BundleError, ConversionError
from tflite2onnx.graph import Graph
from tflite2onnx.layout import plan
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes.batch.add_tokens import add_tokens
from tflite2onnx.passes.resize_inputs import resize_inputs
from tflite2onnx.planning import Planning, plan_graph
from tflite2onnx.signatures import find_signature
from tflite2onnx.targets.driver import apply_forms
from tflite2onnx.targets.genai.decoder import BundleDecoder
from tflite2onnx.tensor import Tensor

_logger = logging.getLogger(__name__)
_SIZE = "tokens"  # the name of the number of tokens


def take_prompts(decoder: BundleDecoder) -> BundleDecoder:
    """Return a decoder whose tokens and positions are [1, tokens], in place of [1, 1].

    The logits belong to the last token. The decoder is not changed unless the forms of the target
    have the attention of all layers, and no other operator depends on earlier tokens.

    Raises:
        BundleError: a decoder with states cannot take several tokens.
    """
    model, key = decoder.model, decoder.signature
    options = ConversionOptions(target="genai", **decoder.options).with_target()
    index, signature = find_signature(model, key)
    if signature is None:
        return decoder
    old = model.graphs[index]
    operator_of = OperatorCache(options)
    try:
        graph = open_graph(model, index, operator_of.read_op)
        sized = keep_file_sizes(graph, operator_of.read_op).graph
        canonical, orders, _ = make_canonical(sized, options, operator_of.read_op)
        planning = Planning(operator_of, plan, orders, options.io_layout, {})
        normal = apply_forms(plan_graph(canonical, planning), options).without_plan()
        endpoints = _pair(old, normal)
        caches = {endpoints[cache.source]: endpoints[cache.target] for cache in decoder.caches}
        caches |= {endpoints[state.source]: endpoints[state.target] for state in decoder.states}
        prompts = add_tokens(normal, operator_of, caches, endpoints[decoder.logits])
        shapes = {t.name: (1, _SIZE) for t in prompts.inputs if t.dynamic_axes}
        check_sizes(*resize_inputs(prompts, shapes), operator_of)
    except ConversionError as error:
        if decoder.states:
            raise BundleError(
                "onnxruntime-genai gives a decoder with states all tokens of a prompt at once, but"
                f" the decoder takes one token: {error}"
            ) from error
        _logger.warning(
            "onnxruntime-genai runs the decoder once for each token of a prompt, which takes longer"
            " than one run for all tokens: %s",
            error,
        )
        return decoder
    endpoints = _pair(old, prompts)
    inputs = {name: endpoints[t] for name, t in signature.inputs.items()}
    outputs = {name: endpoints[t] for name, t in signature.outputs.items()}
    graphs = (*model.graphs[:index], prompts, *model.graphs[index + 1 :])
    signatures = (signature._replace(inputs=inputs, outputs=outputs),)
    return decoder._replace(
        model=model._replace(graphs=graphs, signatures=signatures),
        options={**decoder.options, "shapes": shapes},
        takes_prompts=True,
    )


def _pair(old: Graph, new: Graph) -> dict[Tensor, Tensor]:
    """Return the inputs and outputs of a new graph by the inputs and outputs of the old graph."""
    pairs = zip((*old.inputs, *old.outputs), (*new.inputs, *new.outputs), strict=True)
    return dict(pairs)
