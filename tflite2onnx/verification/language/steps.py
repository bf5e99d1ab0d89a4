"""The signatures that one step of a language model runs, and their inputs.

A language model may be several TFLite models. An embedder computes the rows of tokens. Models for
NPUs leave masks, the cosines and sines of positions, and updates of caches to the signatures of a
further model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.graph import Signature as TFLiteSignature
from tflite2onnx.tensor import Array, DType, Tensor
from tflite2onnx.verification.language.signatures import Signature

DECODE, PREFILL = "decode", "prefill"
LOGITS = "logits"
_TOKENS = ("tokens", "token_ids", "input_tokens")
_POSITIONS = ("input_pos", "positions")
_CACHE, _MASK = "cache", "mask"
_START = "time_step"  # The position of the first token.
_VALID = "valid_mask"  # False for tokens that fill up a prompt.
# The input of models for GPUs that has the first token, and the numbers of tokens behind the last.
_RANGE = "param_tensor"
# The names of the only output of an embedder, by the names of models: the first that fits.
_EMBEDDERS = {"per_layer_embedder": "per_layer_embeddings", "embedder": "embeddings"}
_GIVEN = {*_TOKENS, *_POSITIONS, _START, _VALID, _RANGE}
_MASK_TYPES = {DType.BOOL, DType.FLOAT16, DType.FLOAT32}
_ROWS = 1  # The axis of tokens in the outputs of an embedder.
_HIDDEN = -1e9  # The score of a token that is hidden from another token.


@dataclass(frozen=True, eq=False)
class Part:
    """A signature of one of the models.

    `outputs` has TFLite's names of its outputs, by the names of the inputs that read them.
    """

    model: str
    key: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, str]

    @property
    def count(self) -> int:
        """The number of tokens that the signature reads, 0 if no input says it."""
        for name, tensor in self.inputs.items():
            if name in (*_TOKENS, *_POSITIONS) and tensor.rank:
                return tensor.shape[-1]
            if name in _EMBEDDERS.values() and tensor.rank > 1:
                return tensor.shape[1]
        return 0


Step: TypeAlias = Sequence[tuple[Part, Signature]]  # signatures in the sequence of their runs


def make_part(model: str, signature: TFLiteSignature) -> Part:
    """Return a signature; the only output of an embedder has the name that decoders read."""
    outputs = {name: name for name in signature.outputs}
    read = next((name for role, name in _EMBEDDERS.items() if role in model.lower()), None)
    if read is not None and len(outputs) == 1:
        outputs = {read: next(iter(outputs))}
    return Part(model, signature.key, signature.inputs, outputs)


def list_pairs(keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield signatures for a prompt and for tokens after it, of the same caches.

    The signatures of a model with several lengths of caches have the length in their names, such as
    prefill_8_cache_64 and decode_cache_64.
    """
    for key in keys:
        suffix = key.removeprefix(DECODE)
        prompts = (each for each in keys if each.startswith(PREFILL) and each.endswith(suffix))
        first = next(prompts, None) if suffix != key else None
        if first is not None:
            yield first, key


def count_tokens(step: Iterable[Part]) -> int:
    """Return the number of tokens of a step: its other signatures may read one at a time."""
    return max(part.count for part in step)


def list_step(main: Part, parts: Sequence[Part]) -> list[Part] | None:
    """Return the signatures of a step in their sequence, None if an input has an unknown meaning.

    `parts` are the signatures of all models. Signatures that compute inputs of `main` run before
    `main`, and a signature that updates its caches runs after `main`. A signature without caches is
    no part of a language model.
    """
    # A signature for tokens after a prompt without logits chooses none.
    if not main.key.startswith(PREFILL) and LOGITS not in main.outputs:
        return None
    others = [each for each in parts if each.model != main.model]
    caches = {name for name in main.inputs if _CACHE in name}
    step: list[Part] = []
    if not caches or not _add_sources(main, others, step):
        return None
    step.append(main)
    if not caches <= main.outputs.keys():
        update = _find_source(caches, main.count, others)
        if update is None or not _add_sources(update, others, step):
            return None
        step.append(update)
    return step


def _add_sources(part: Part, others: Sequence[Part], step: list[Part]) -> bool:
    """Add the signatures that compute inputs of a signature; return whether all are known."""
    for name, tensor in part.inputs.items():
        if _CACHE in name or any(name in each.outputs for each in step):
            continue
        source = _find_source({name}, part.count, others)
        if source is not None:
            # A damaged bundle may have signatures that compute each other's inputs.
            if not _add_sources(source, [each for each in others if each is not source], step):
                return False
            step.append(source)
        elif name not in _GIVEN and not (_MASK in name and tensor.dtype in _MASK_TYPES):
            return False
    return True


def _find_source(names: Collection[str], count: int, others: Sequence[Part]) -> Part | None:
    """Return the signature that computes values for `count` tokens, or else for single tokens."""
    found = {each.count: each for each in others if set(names) <= each.outputs.keys()}
    return found.get(count, found.get(1))


def run_step(
    step: Step,
    tokens: Sequence[int],
    place: int,
    caches: Mapping[str, Array],
) -> dict[str, Array]:
    """Return the caches, and the logits if there are any, after tokens from a position on."""
    values = dict(caches)
    for part, signature in step:
        count = part.count or len(tokens)
        runs = [
            signature.compute_outputs(
                _make_feeds(signature, tokens[first : first + count], place + first, values)
            )
            for first in range(0, len(tokens), count)
        ]
        for read, name in part.outputs.items():
            made = [outputs[name] for outputs in runs]
            values[read] = made[0] if len(made) == 1 else np.concatenate(made, _ROWS)
    return {name: array for name, array in values.items() if name == LOGITS or _CACHE in name}


def _make_feeds(
    signature: Signature, tokens: Sequence[int], place: int, values: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the inputs of a signature for tokens from a position on.

    `values` are inputs that other signatures have computed. Other masks are causal, and other
    caches are zeros.
    """
    positions = np.arange(place, place + len(tokens))
    given: dict[str, Array] = {_START: np.array(place), _VALID: np.ones(len(tokens))}
    given |= dict.fromkeys(_TOKENS, np.array(tokens)) | dict.fromkeys(_POSITIONS, positions)
    feeds = {}
    for name, (shape, dtype) in signature.shapes.items():
        if name in values:
            feeds[name] = values[name]
        elif name in given:
            feeds[name] = given[name].reshape(shape).astype(dtype)
        elif _MASK in name:
            seen = np.arange(shape[-1])[None] <= positions[:, None]
            hidden = 0 if dtype == np.bool_ else max(_HIDDEN, float(np.finfo(dtype).min))
            mask = seen if dtype == np.bool_ else np.where(seen, 0, hidden)
            feeds[name] = mask.reshape(shape).astype(dtype)
        elif name == _RANGE:
            feeds[name] = np.zeros(shape, dtype)
            feeds[name].flat[:3] = place, place + len(tokens), place + len(tokens)
        elif _CACHE in name:
            feeds[name] = np.zeros(shape, dtype)
        else:
            raise VerifyError(f"the input {name} of a language model is not known")
    return feeds
