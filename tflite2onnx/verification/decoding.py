"""A language model in both runtimes: a prompt by one signature, then token after token by another.

Each runtime keeps its own caches from run to run. Both get the tokens that LiteRT chooses, those
with the largest logits, so that a different choice does not change all later tokens. A step of a
model runs its signatures one after another, with TFLite's names and layouts.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from time import get_clock_info, process_time
from typing import Any, Protocol, TypeAlias

import numpy as np

from tflite2onnx.errors import VerifyError
from tflite2onnx.language_steps import (
    ALL_TOKENS,
    CACHE,
    DECODE,
    LOGITS,
    MASK,
    POSITIONS,
    RANGE,
    START,
    VALID,
    BundleSignature,
    count_tokens,
    has_states,
    list_pairs,
    list_step,
    make_bundle_signature,
)
from tflite2onnx.passes.patterns.repair_attention import has_wrong_attention
from tflite2onnx.reader.model import read_model
from tflite2onnx.reader.source import AnySource
from tflite2onnx.tensor import Array
from tflite2onnx.verification.entry_point import embed_external_weights, replace_misread_constants
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

STEPS = 20
_MOST_PROMPT = 7  # the largest number of tokens of a prompt
# The runtimes add numbers in different sequences, while LiteRT's own kernels may agree exactly.
_LEAST_NOISE = 1e-5
_ROWS = 1  # the axis of tokens in the outputs of an embedder
_HIDDEN = -1e9  # the score of a token that is hidden from another token


class RunnableSignature(Protocol):
    """A signature in a runtime: the shapes and types of its inputs, and a run by TFLite's names."""

    @property
    def shapes(self) -> Mapping[str, tuple[Sequence[int], Any]]: ...

    def compute_outputs(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]: ...


class LiteRTSignature:
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

    def repeat(self) -> None:
        """Run once more with the last inputs, and copy nothing."""
        with as_verify_error("LiteRT"):
            self._runner._interpreter_wrapper.Invoke(self._runner._subgraph_index)  # noqa: SLF001


class OnnxSignature:
    """A converted signature in ONNX Runtime."""

    def __init__(self, converted: ConvertedModel, key: str) -> None:
        opened = open_model(converted)
        names = opened.signatures.get(key)
        if names is None:
            raise VerifyError(f"the ONNX model must be of the signature {key}")
        self._session = opened.session
        endpoints = {e.name: e for e in (*opened.inputs, *opened.outputs)}
        self._inputs = {n: endpoints[o] for n, o in names["inputs"].items()}
        self._outputs = {n: endpoints[o] for n, o in names["outputs"].items()}
        self.shapes = {n: (e.tflite_shape, np.dtype(e.dtype)) for n, e in self._inputs.items()}

    def compute_outputs(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the outputs in TFLite's layout."""
        arrays = {
            e.name: np.ascontiguousarray(feeds[name].transpose(e.order))
            for name, e in self._inputs.items()
        }
        names_wanted = [e.name for e in self._outputs.values()]
        outputs = run_onnx(self._session, arrays, names_wanted)
        return {
            name: array.transpose(np.argsort(e.order))
            for (name, e), array in zip(self._outputs.items(), outputs, strict=True)
        }


# Signatures in the sequence of their runs.
Step: TypeAlias = Sequence[tuple[BundleSignature, RunnableSignature]]


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


@dataclass(frozen=True)
class Decoding:
    """The tokens of a prompt, and the tokens that each runtime chose after it.

    `difference` is the largest difference of a logit from LiteRT's, and `noise` is the largest
    difference between LiteRT's two sets of kernels, both as parts of the standard deviation of the
    logits. `wrong` are the steps with another token although LiteRT's two best logits are farther
    apart than the noise. `misread` is that of a `Report`.
    """

    signatures: tuple[str, str]
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    litert: tuple[int, ...]
    difference: float
    noise: float
    wrong: tuple[int, ...]
    misread: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.wrong

    @property
    def equal(self) -> int:
        return sum(a == b for a, b in zip(self.tokens, self.litert, strict=True))

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "equal": self.equal, **asdict(self)}

    def __str__(self) -> str:
        ties = len(self.tokens) - self.equal - len(self.wrong)
        tied = f" and {ties} where LiteRT's two best logits tie" if ties else ""
        return (
            f"{' and '.join(self.signatures)}: {self.equal} of {len(self.tokens)} tokens equal"
            f" LiteRT's{tied}; logits differ by at most {self.difference:.1e} of their deviation"
            f" ({self.noise:.1e} between LiteRT's kernels)"
        )


def verify_decoders(
    models: Mapping[str, AnySource],
    converted: Mapping[tuple[str, str | None], ConvertedModel],
    prompt: Sequence[int] = (),
    steps: int | None = None,
) -> dict[str, Decoding]:
    """Verify each language model of a bundle: run a prompt, and then tokens, in both runtimes.

    Models whose inputs are not known, and models without caches, are left out.

    Args:
        models: the TFLite models, by name.
        converted: the ONNX model of each signature, by the names of the model and of the signature;
            None is the only signature of a model.
        prompt: the token ids of the prompt, by default random numbers.
        steps: the number of tokens, by default 20.

    Raises:
        VerifyError: a model cannot be run; the prompt is too long, or has an invalid token.
    """
    parts, files = _list_parts(models, converted)
    found = {}
    for model in models:
        steps_of = {part.key: list_step(part, parts) for part in parts if part.model == model}
        known = {key: step for key, step in steps_of.items() if step is not None}
        for keys in list_pairs(known):
            name = model if keys[1] == DECODE else f"{model} ({keys[1]})".strip()
            pair = [known[key] for key in keys]
            found[name] = _verify_decoding(models, files, keys, pair, prompt, steps or STEPS)
    return found


def _list_parts(
    models: Mapping[str, AnySource], converted: Mapping[tuple[str, str | None], ConvertedModel]
) -> tuple[list[BundleSignature], dict[tuple[str, str], ConvertedModel]]:
    parts, files = [], {}
    for model, source in models.items():
        signatures = read_model(source).signatures
        for signature in signatures:
            only = (model, None) if len(signatures) == 1 else (model, signature.key)
            file = converted.get((model, signature.key), converted.get(only))
            if file is not None:
                files[model, signature.key] = file
                parts.append(make_bundle_signature(model, signature))
    return parts, files


def _verify_decoding(
    models: Mapping[str, AnySource],
    converted: Mapping[tuple[str, str], ConvertedModel],
    keys: tuple[str, str],
    pair: Sequence[Sequence[BundleSignature]],
    prompt: Sequence[int],
    count: int,
) -> Decoding:
    """Run a prompt by the first step of a pair, and then `count` tokens by the second step."""
    litert = LiteRTSteps(models, pair)
    onnx = {
        part: OnnxSignature(converted[part.model, part.key], part.key)
        for part in dict.fromkeys(part for step in pair for part in step)
    }
    length = count_tokens(pair[0]) + 1
    length = length if has_states(pair[0]) else min(_MOST_PROMPT, length)
    steps = [[(part, onnx[part]) for part in step] for step in pair]
    return litert.compare(
        keys, prompt or litert.make_prompt(length), lambda given: _TokenRun(steps, given), count
    )


class RunOfPrompt(Protocol):
    """A run of a prompt, and of tokens after it, in a runtime."""

    def run_step(self, token: int | None) -> Array:
        """Return the logits after a token, None for the last token of the prompt."""


class LiteRTSteps:
    """The two steps of a language model, for a prompt and for a token, by both sets of kernels.

    With `one_by_one` the plain kernels compute a prompt by the step for a token. The tokens of both
    steps have the same numbers up to rounding, but some numbers are on the edge of two integers.
    """

    def __init__(
        self,
        models: Mapping[str, AnySource],
        pair: Sequence[Sequence[BundleSignature]],
        *,
        one_by_one: bool = False,
    ) -> None:
        used = dict.fromkeys(part.model for step in pair for part in step)
        real = {n: replace_misread_constants(embed_external_weights(models[n])) for n in used}
        files = {name: file for name, (file, _) in real.items()}
        self._misread = dict.fromkeys(each for _, operators in real.values() for each in operators)
        self._fastest = self._plain = _open_litert(files, pair, FASTEST_KERNELS)
        # LiteRT's plain kernels run the sub-graph of a composite, which `repair_attention` changes.
        if not any(has_wrong_attention(read_model(file)) for file in files.values()):
            with suppress(LiteRTError):
                self._plain = _open_litert(files, pair, PLAIN_KERNELS)
        if one_by_one:
            self._plain = [self._plain[1]] * 2
        self._size = run_step(self._fastest[1], [0], 0, {})[LOGITS].size

    def make_prompt(self, length: int) -> list[int]:
        tokens: list[int] = np.random.default_rng(0).integers(1, self._size, length).tolist()
        return tokens

    def compare(
        self,
        keys: tuple[str, str],
        prompt: Sequence[int],
        start: Callable[[Sequence[int]], RunOfPrompt],
        count: int,
    ) -> Decoding:
        """Run a prompt and `count` tokens, which LiteRT chooses, in LiteRT and in a runtime."""
        others = [str(token) for token in prompt if not 0 <= token < self._size]
        if others:
            raise VerifyError(
                f"a prompt must have tokens from 0 to {self._size - 1}, got {', '.join(others)}"
            )
        runs = [_TokenRun(self._fastest, prompt), _TokenRun(self._plain, prompt), start(prompt)]
        results = [[run.run_step(None) for run in runs]]
        while len(results) < count:
            token = int(results[-1][0].argmax())
            results.append([run.run_step(token) for run in runs])
        return replace(_compare_logits(keys, prompt, results), misread=(*self._misread,))

    def measure(self, run: RunOfPrompt, steps: int) -> tuple[float, float]:
        """Return the tokens per second of processor time of a run, and of LiteRT."""
        run.run_step(None)

        own, litert = [], []
        for _ in range(steps):
            begin = process_time()
            run.run_step(0)
            middle = process_time()
            for _, signature in self._fastest[1]:
                signature.repeat()
            own.append(middle - begin)
            litert.append(process_time() - middle)
        tick = get_clock_info("process_time").resolution  # on Windows longer than a step
        return steps / max(sum(own), tick), steps / max(sum(litert), tick)


def _open_litert(
    files: Mapping[str, ModelFile], pair: Sequence[Sequence[BundleSignature]], kernels: str
) -> list[Sequence[tuple[BundleSignature, LiteRTSignature]]]:
    interpreters = {name: open_interpreter(file, kernels) for name, file in files.items()}
    return [
        [(part, LiteRTSignature(interpreters[part.model], part.key)) for part in step]
        for step in pair
    ]


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


class _TokenRun:
    """The runs of one runtime: the prompt first, without its last token, then single tokens.

    A prompt runs in parts as long as prefill takes. A short prompt is filled up, unless the model
    has states. The rest of a long prompt runs token by token, because a part that is filled up
    could exceed the caches.
    """

    def __init__(self, pair: Sequence[Step], prompt: Sequence[int]) -> None:
        prefill, self._decode = pair
        self._place, self._last = 0, prompt[-1]
        self._caches: Mapping[str, Array] = {}
        parts = [part for part, _ in prefill]
        length = count_tokens(parts)
        missing = 0 if has_states(parts) else length - len(prompt) + 1
        tokens = [*prompt[:-1], *[0] * missing]
        while len(tokens) - self._place >= length:
            part = tokens[self._place : self._place + length]
            self._caches = run_step(prefill, part, self._place, self._caches)
            self._place += length
        self._place = min(self._place, len(prompt) - 1)
        for token in prompt[self._place : -1]:
            self.run_step(token)

    def run_step(self, token: int | None) -> Array:
        """Return the logits after a token, None for the last token of the prompt."""
        last_token = self._last if token is None else token
        self._caches = run_step(self._decode, [last_token], self._place, self._caches)
        self._place += 1
        return self._caches[LOGITS].reshape(-1)
