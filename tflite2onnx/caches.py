"""Caches of keys and values: inputs of a signature, and outputs of the same name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tflite2onnx.graph import Signature
from tflite2onnx.options import ConversionOptions
from tflite2onnx.tensor import DType

CACHE = re.compile(r"kv_cache_([kv])_(\d+)")
_AXES = 4
# Without a mask the caches are [batch, tokens, heads, depth]
# (litert_torch/generative/layers/kv_cache.py).
HEADS_FIRST = ("0123", "0213")


def move_heads_first(options: ConversionOptions, signature: Signature | None) -> ConversionOptions:
    """Return the options with layouts of caches in which the tokens of a head are neighbours.

    Attention reads heads one by one. All signatures of a model get the same layouts. Caches that
    the user lays out stay so, and all of them if a layout or a part of the model is chosen.
    """
    chosen = options.io_layout != "auto" or options.batch is not None or options.inputs is not None
    if options.forms != "fastest" or chosen or options.outputs is not None or signature is None:
        return options
    if any("mask" in name for name in signature.inputs):
        return options
    layouts: dict[str, Sequence[str]] = {}
    for name, cache in signature.inputs.items():
        after = signature.outputs.get(name)
        if after is None or not CACHE.fullmatch(name) or cache.rank != _AXES:
            continue
        if after.shape == cache.shape and cache.dtype is DType.FLOAT32 and cache.shape[0] == 1:
            names = {cache.name, after.name}
            if not names & options.layouts.keys():
                layouts |= dict.fromkeys(names, HEADS_FIRST)
    return replace(options, layouts={**layouts, **options.layouts})
