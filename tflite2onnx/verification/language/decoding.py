"""A language model in both runtimes: a prompt by one signature, then token after token by another.

Each runtime keeps its own caches from run to run. Both get the tokens that LiteRT chooses, those
with the largest logits, so that a different choice does not change all later tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.passes.patterns.attention.repair_attention import has_wrong_attention
from tflite2onnx.reader.model import read_model
from tflite2onnx.reader.source import AnySource
from tflite2onnx.tensor import Array
from tflite2onnx.verification.entry_point import embed_external_weights
from tflite2onnx.verification.onnx_model import ConvertedModel, open_model
from tflite2onnx.verification.runtimes import (
    FASTEST_KERNELS,
    PLAIN_KERNELS,
    LiteRTError,
    ModelFile,
    as_verify_error,
    open_interpreter,
    run_onnx,
)

DECODE, PREFILL = "decode", "prefill"
STEPS = 20
LOGITS = "logits"
_TOKENS, _POSITIONS, _MASK = ("tokens", "token_ids"), ("input_pos", "positions"), "mask"
_CACHE = "cache"
# The input of models for GPUs that has the first token, and the numbers of tokens behind the last.
_RANGE = "param_tensor"
_MOST_PROMPT = 7  # the largest number of tokens of a prompt
_HIDDEN = -1e9  # The score of a token that is hidden from another token.
# The runtimes add numbers in different sequences, while LiteRT's own kernels may agree exactly.
_LEAST_NOISE = 1e-5


@dataclass(frozen=True)
class Decoding:
    """The tokens of a prompt, and the tokens that each runtime chose after it.

    `difference` is the largest difference of a logit from LiteRT's, and `noise` is the largest
    difference between LiteRT's two sets of kernels, both as parts of the standard deviation of the
    logits. `wrong` are the steps with another token although LiteRT's two best logits are farther
    apart than the noise.
    """

    signatures: tuple[str, str]
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    litert: tuple[int, ...]
    difference: float
    noise: float
    wrong: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """Whether all tokens are right."""
        return not self.wrong

    @property
    def equal(self) -> int:
        """The number of equal tokens."""
        return sum(a == b for a, b in zip(self.tokens, self.litert, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as dictionaries, lists, strings and numbers."""
        return {"ok": self.ok, "equal": self.equal, **asdict(self)}

    def __str__(self) -> str:
        ties = len(self.tokens) - self.equal - len(self.wrong)
        tied = f" and {ties} where LiteRT's two best logits tie" if ties else ""
        return (
            f"{' and '.join(self.signatures)}: {self.equal} of {len(self.tokens)} tokens equal"
            f" LiteRT's{tied}; logits differ by at most {self.difference:.1e} of their deviation"
            f" ({self.noise:.1e} between LiteRT's kernels)"
        )


class _Signature(Protocol):
    """A signature in a runtime: the shapes and types of its inputs, and a run by TFLite's names."""

    @property
    def shapes(self) -> Mapping[str, tuple[Sequence[int], Any]]: ...

    def compute_outputs(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]: ...


def verify_decoders(
    models: Mapping[str, AnySource],
    converted: Mapping[tuple[str, str | None], ConvertedModel],
    prompt: Sequence[int] = (),
) -> dict[str, Decoding]:
    """Verify each language model of a bundle, of its signatures by model and name.

    Models that do not read tokens, but embeddings, and models without caches are left out.
    """
    signatures: dict[str, dict[str, ConvertedModel]] = {}
    for (model, key), item in converted.items():
        if key is not None and key.startswith((DECODE, PREFILL)):
            signatures.setdefault(model, {})[key] = item
    found = {}
    for model, items in signatures.items():
        for pair in _list_pairs(_choose_signatures(models[model], items)):
            key = pair[1]
            name = model if key == DECODE else f"{model} ({key})".strip()
            chosen = {key: items[key] for key in pair}
            found[name] = verify_decoding(models[model], chosen, prompt=prompt)
    return found


def _list_pairs(keys: Collection[str]) -> Iterator[tuple[str, str]]:
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


def _choose_signatures(model: AnySource, converted: Mapping[str, ConvertedModel]) -> list[str]:
    """Return the signatures of a language model that read only what `_make_feeds` makes.

    They have caches. Signatures that read pictures, for example, are left out.
    """
    names = {*_TOKENS, *_POSITIONS, _MASK, _RANGE}
    return [
        each.key
        for each in read_model(model).signatures
        if each.key in converted
        and (each.key.startswith(PREFILL) or LOGITS in each.outputs)
        and all(n in names or (_CACHE in n and n in each.outputs) for n in each.inputs)
    ]


def verify_decoding(
    model: AnySource,
    signatures: Mapping[str, ConvertedModel],
    *,
    steps: int | None = None,
    prompt: Sequence[int] = (),
) -> Decoding:
    """Run a prompt and then `steps` tokens in both runtimes.

    Args:
        model: the TFLite model.
        signatures: the converted signatures: one whose name begins with "prefill", and one whose
            name begins with "decode".
        steps: the number of tokens, by default 20.
        prompt: the token ids of the prompt, by default random numbers.

    Raises:
        VerifyError: a signature is missing, has other inputs than tokens, positions, a mask and
            caches, or cannot be run; the prompt is too long, or has an invalid token.
    """
    keys = next(_list_pairs(signatures), None)
    if keys is None:
        raise VerifyError(
            f"a language model must have the signatures {PREFILL} and {DECODE},"
            f" got {', '.join(signatures)}"
        )
    file = embed_external_weights(model)
    litert = _open_litert(file, keys, FASTEST_KERNELS)
    kernels = litert
    # LiteRT's plain kernels run the sub-graph of a composite, which `repair_attention` changes.
    if not has_wrong_attention(read_model(file)):
        with suppress(LiteRTError):
            kernels = _open_litert(file, keys, PLAIN_KERNELS)
    converted = [_Onnx(signatures[key], key) for key in keys]
    length = litert[0].shapes[_find_input(litert[0], _TOKENS)][0][-1]
    logits = litert[1].compute_outputs(_make_feeds(litert[1], [0], 0, {}))[LOGITS]
    count = min(_MOST_PROMPT, length + 1)
    prompt = prompt or np.random.default_rng(0).integers(1, logits.size, count).tolist()
    others = [str(token) for token in prompt if not 0 <= token < logits.size]
    if others:
        raise VerifyError(
            f"a prompt must have tokens from 0 to {logits.size - 1}, got {', '.join(others)}"
        )
    pairs: tuple[Sequence[_Signature], ...] = (litert, kernels, converted)
    runs = [_Run(pair, prompt) for pair in pairs]
    results = [[run.run_step(None) for run in runs]]
    while len(results) < (STEPS if steps is None else steps):
        token = int(results[-1][0].argmax())
        results.append([run.run_step(token) for run in runs])
    return _compare_logits(keys, prompt, results)


def _compare_logits(
    keys: tuple[str, str], prompt: Sequence[int], logits: Sequence[Sequence[Array]]
) -> Decoding:
    """Compare the logits of each step by LiteRT, by its plain kernels, and by ONNX Runtime."""
    deviation = float(np.std(logits[0][0])) or 1.0
    noise = max(_LEAST_NOISE, *(_measure_distance(a, b) / deviation for a, b, _ in logits))
    wrong = []
    for i, (litert, _, got) in enumerate(logits):
        best = np.sort(litert)[-2:]
        if litert.argmax() != got.argmax() and best[1] - best[0] > noise * deviation:
            wrong.append(i)
    return Decoding(
        keys,
        tuple(prompt),
        tuple(int(got.argmax()) for _, _, got in logits),
        tuple(int(litert.argmax()) for litert, _, _ in logits),
        max(_measure_distance(litert, got) / deviation for litert, _, got in logits),
        noise,
        tuple(wrong),
    )


def _measure_distance(a: Array, b: Array) -> float:
    return float(np.abs(a - b).max())


class _Run:
    """The runs of one runtime: the prompt first, without its last token, then single tokens.

    A prompt runs in parts as long as prefill takes. A short prompt is filled up. The rest of a long
    prompt runs token by token, because a part that is filled up could exceed the caches.
    """

    def __init__(self, signatures: Sequence[_Signature], prompt: Sequence[int]) -> None:
        prefill, self._decode = signatures
        self._place, self._last = 0, prompt[-1]
        self._state: Mapping[str, Array] = {}
        length = prefill.shapes[_find_input(prefill, _TOKENS)][0][-1]
        tokens = [*prompt[:-1], *[0] * (length - len(prompt) + 1)]
        while len(tokens) - self._place >= length:
            part = tokens[self._place : self._place + length]
            outputs = prefill.compute_outputs(_make_feeds(prefill, part, self._place, self._state))
            self._state = {n: outputs[n] for n in outputs if n in self._decode.shapes}
            self._place += length
        self._place = min(self._place, len(prompt) - 1)
        for token in prompt[self._place : -1]:
            self.run_step(token)

    def run_step(self, token: int | None) -> Array:
        """Return the logits after a token, None for the last token of the prompt."""
        last_token = self._last if token is None else token
        outputs = self._decode.compute_outputs(
            _make_feeds(self._decode, [last_token], self._place, self._state)
        )
        self._state = {name: outputs[name] for name in self._state}
        self._place += 1
        return outputs[LOGITS].reshape(-1)


def _find_input(signature: _Signature, names: Sequence[str]) -> str:
    """Return the first of these names that an input has."""
    for name in names:
        if name in signature.shapes:
            return name
    raise VerifyError(
        f"a language model must read {names[0]}, got {', '.join(sorted(signature.shapes))}"
    )


def _make_feeds(
    signature: _Signature, tokens: Sequence[int], place: int, state: Mapping[str, Array]
) -> dict[str, Array]:
    """Return the inputs of a signature for tokens from a place on; the mask is causal."""
    positions = np.arange(place, place + len(tokens))
    given: dict[str, Array] = {_find_input(signature, _TOKENS): np.array(tokens)}
    given[_find_input(signature, _POSITIONS)] = positions
    feeds = {}
    for name, (shape, dtype) in signature.shapes.items():
        if name == _MASK:
            seen = np.arange(shape[-1])[None] <= positions[:, None]
            hidden = 0 if dtype == np.bool_ else max(_HIDDEN, float(np.finfo(dtype).min))
            mask = seen if dtype == np.bool_ else np.where(seen, 0, hidden)
            feeds[name] = mask.reshape(shape).astype(dtype)
        elif name == _RANGE:
            numbers = np.zeros(shape, dtype)
            numbers.flat[:3] = place, place + len(tokens), place + len(tokens)
            feeds[name] = numbers
        elif name in given:
            feeds[name] = given[name].reshape(shape).astype(dtype)
        elif _CACHE in name:
            feeds[name] = state[name] if name in state else np.zeros(shape, dtype)
        else:
            raise VerifyError(f"the input {name} of a language model is not known")
    return feeds


def _open_litert(model: ModelFile, keys: Sequence[str], kernels: str) -> list[_LiteRT]:
    interpreter = open_interpreter(model, kernels)
    return [_LiteRT(interpreter, key) for key in keys]


class _LiteRT:
    """A signature in LiteRT."""

    def __init__(self, interpreter: Any, key: str) -> None:
        with as_verify_error("LiteRT"):
            self._runner = interpreter.get_signature_runner(key)
        details = self._runner.get_input_details()
        self.shapes = {n: (tuple(d["shape"]), d["dtype"]) for n, d in details.items()}

    def compute_outputs(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return copies of the outputs: LiteRT may overwrite them in the next run."""
        with as_verify_error("LiteRT"):
            return {name: np.array(made) for name, made in self._runner(**feeds).items()}


class _Onnx:
    """A converted signature in ONNX Runtime, with the names and the layouts of TFLite."""

    def __init__(self, converted: ConvertedModel, key: str) -> None:
        opened = open_model(converted)
        names = opened.signatures.get(key)
        if names is None:
            raise VerifyError(f"the ONNX model must be of the signature {key}")
        self._session = opened.session
        ends = {end.name: end for end in (*opened.inputs, *opened.outputs)}
        self._inputs = {n: ends[o] for n, o in names["inputs"].items()}
        self._outputs = {n: ends[o] for n, o in names["outputs"].items()}
        self.shapes = {
            n: (end.tflite_shape, np.dtype(end.dtype)) for n, end in self._inputs.items()
        }

    def compute_outputs(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the outputs in TFLite's layout."""
        arrays = {
            end.name: np.ascontiguousarray(feeds[name].transpose(end.order))
            for name, end in self._inputs.items()
        }
        names_wanted = [end.name for end in self._outputs.values()]
        outputs = run_onnx(self._session, arrays, names_wanted)
        return {
            name: array.transpose(np.argsort(end.order))
            for (name, end), array in zip(self._outputs.items(), outputs, strict=True)
        }
