"""The signatures that one step of a language model runs.

A language model may be several TFLite models. An embedder computes the rows of tokens. Models for
NPUs leave masks, the cosines and sines of positions, and updates of caches to the signatures of a
further model.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tflite2onnx.graph import Signature
from tflite2onnx.signatures import STATE
from tflite2onnx.tensor import DType, Tensor

DECODE, PREFILL = "decode", "prefill"
LOGITS = "logits"
TOKENS = ("tokens", "token_ids")
ALL_TOKENS = (*TOKENS, "input_tokens")  # Masks of models for NPUs read tokens by another name.
POSITIONS = ("input_pos", "positions")
CACHE, MASK = "cache", "mask"  # The names of caches and masks contain these words.
START = "time_step"  # The position of the first token.
VALID = "valid_mask"  # False for tokens that fill up a prompt.
# The input of models for GPUs that has the first token, and the numbers of tokens after the last.
RANGE = "param_tensor"
# The names of the only output of an embedder, by the names of models: the first that fits.
_EMBEDDERS = {"per_layer_embedder": "per_layer_embeddings", "embedder": "embeddings"}
_GIVEN = {*ALL_TOKENS, *POSITIONS, START, VALID, RANGE}
_MASK_TYPES = {DType.BOOL, DType.FLOAT16, DType.FLOAT32}


@dataclass(frozen=True, eq=False)
class BundleSignature:
    """A signature of one of the models of a bundle.

    `inputs` and `outputs` have TFLite's names of its inputs and outputs, by the names that decoders
    give them.
    """

    model: str
    signature: Signature
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    @property
    def key(self) -> str:
        return self.signature.key

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """The inputs by the names that decoders give them."""
        return {name: self.signature.inputs[own] for name, own in self.inputs.items()}

    @property
    def count(self) -> int:
        """The number of tokens that the signature reads, 0 if no input says it."""
        for name, tensor in self.tensors.items():
            if name in (*ALL_TOKENS, *POSITIONS, VALID) and tensor.rank:
                return tensor.shape[-1]
            if name in _EMBEDDERS.values() and tensor.rank > 1:
                return tensor.shape[1]
        return 0


def make_bundle_signature(model: str, signature: Signature) -> BundleSignature:
    """Return a signature; the only input of an embedder is tokens, and its only output is rows."""
    names = ({name: name for name in signature.inputs}, {name: name for name in signature.outputs})
    rows = next((name for role, name in _EMBEDDERS.items() if role in model.lower()), None)
    if rows is not None and [*map(len, names)] == [1, 1]:
        names = ({TOKENS[0]: next(iter(names[0]))}, {rows: next(iter(names[1]))})
    return BundleSignature(model, signature, *names)


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


def count_tokens(step: Iterable[BundleSignature]) -> int:
    """Return the number of tokens of a step: its other signatures may read one at a time."""
    return max(part.count for part in step)


def has_states(step: Iterable[BundleSignature]) -> bool:
    """Return whether a step has states without positions, which tokens that fill up would change.

    They are states of convolutions, `c`, and of recurrences, `r`.
    """
    return any(STATE.fullmatch(name) for part in step for name in part.inputs)


def list_step(
    main: BundleSignature, parts: Sequence[BundleSignature]
) -> list[BundleSignature] | None:
    """Return the signatures of a step in their sequence, None if an input has an unknown meaning.

    `parts` are the signatures of all models. Signatures that compute inputs of `main` run before
    `main`, and a signature that updates its caches runs after `main`. A signature without caches is
    no part of a language model.
    """
    # A signature for tokens after a prompt without logits chooses none.
    if not main.count or not (main.key.startswith(PREFILL) or LOGITS in main.outputs):
        return None
    others = [each for each in parts if each.model != main.model]
    caches = {name for name in main.inputs if CACHE in name}
    step: list[BundleSignature] = []
    if not caches or not _add_sources(main, others, step):
        return None
    step.append(main)
    if not caches <= main.outputs.keys():
        update = _find_source(caches, main.count, others)
        if update is None or not _add_sources(update, others, step):
            return None
        step.append(update)
    return step


def _add_sources(
    part: BundleSignature, others: Sequence[BundleSignature], step: list[BundleSignature]
) -> bool:
    """Add the signatures that compute inputs of a signature; return whether all are known."""
    for name, tensor in part.tensors.items():
        if CACHE in name or any(name in each.outputs for each in step):
            continue
        source = _find_source({name}, part.count, others)
        if source is not None:
            # A damaged bundle may have signatures that compute each other's inputs.
            if not _add_sources(source, [each for each in others if each is not source], step):
                return False
            step.append(source)
        elif name not in _GIVEN and not (MASK in name and tensor.dtype in _MASK_TYPES):
            return False
    return True


def _find_source(
    names: Collection[str], count: int, others: Sequence[BundleSignature]
) -> BundleSignature | None:
    """Return the signature that computes values for `count` tokens, or else for single tokens."""
    found = {each.count: each for each in others if set(names) <= each.outputs.keys()}
    return found.get(count, found.get(1))
