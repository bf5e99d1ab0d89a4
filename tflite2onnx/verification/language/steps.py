"""A step of a language model in a runtime: the inputs of its signatures, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.language_steps import (
    ALL_TOKENS,
    CACHE,
    LOGITS,
    MASK,
    POSITIONS,
    RANGE,
    START,
    VALID,
    BundleSignature,
)
from tflite2onnx.tensor import Array
from tflite2onnx.verification.language.signatures import RunnableSignature

# Signatures in the sequence of their runs.
Step: TypeAlias = Sequence[tuple[BundleSignature, RunnableSignature]]
_ROWS = 1  # The axis of tokens in the outputs of an embedder.
_HIDDEN = -1e9  # The score of a token that is hidden from another token.


def run_step(
    step: Step, tokens: Sequence[int], place: int, caches: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the caches, and the logits if there are any, after tokens from a position on."""
    values = dict(caches)
    for part, signature in step:
        count = part.count or len(tokens)
        runs = [
            signature.compute_outputs(
                _make_feeds(part, signature, tokens[first : first + count], place + first, values)
            )
            for first in range(0, len(tokens), count)
        ]
        for read, name in part.outputs.items():
            made = [outputs[name] for outputs in runs]
            values[read] = made[0] if len(made) == 1 else np.concatenate(made, _ROWS)
    return {name: array for name, array in values.items() if name == LOGITS or CACHE in name}


def _make_feeds(
    part: BundleSignature,
    signature: RunnableSignature,
    tokens: Sequence[int],
    place: int,
    values: Mapping[str, Array],
) -> dict[str, Array]:
    """Return the inputs of a signature for tokens from a position on.

    `values` are inputs that other signatures have computed. Other masks are causal, and other
    caches are zeros.
    """
    positions = np.arange(place, place + len(tokens))
    given: dict[str, Array] = {START: np.array(place), VALID: np.ones(len(tokens))}
    given |= dict.fromkeys(ALL_TOKENS, np.array(tokens)) | dict.fromkeys(POSITIONS, positions)
    names = {own: name for name, own in part.inputs.items()}
    feeds = {}
    for own, (shape, dtype) in signature.shapes.items():
        name = names.get(own, own)
        if name in values:
            feeds[own] = values[name]
        elif name in given:
            feeds[own] = given[name].reshape(shape).astype(dtype)
        elif MASK in name:
            seen = np.arange(shape[-1])[None] <= positions[:, None]
            hidden = 0 if dtype == np.bool_ else max(_HIDDEN, float(np.finfo(dtype).min))
            mask = seen if dtype == np.bool_ else np.where(seen, 0, hidden)
            feeds[own] = mask.reshape(shape).astype(dtype)
        elif name == RANGE:
            feeds[own] = np.zeros(shape, dtype)
            feeds[own].flat[:3] = place, place + len(tokens), place + len(tokens)
        elif CACHE in name:
            feeds[own] = np.zeros(shape, dtype)
        else:
            raise VerifyError(f"the input {own} of a language model is not known")
    return feeds
