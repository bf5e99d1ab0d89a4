"""A language model in the runtime of a target: the tokens after several prompts, and the speed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from tflite2onnx.errors import VerifyError
from tflite2onnx.graph import Model
from tflite2onnx.language_steps import list_pairs, list_step, make_bundle_signature
from tflite2onnx.reader.containers.bundle import Bundle
from tflite2onnx.reader.model import read_model
from tflite2onnx.reader.source import AnySource
from tflite2onnx.signatures import find_signature
from tflite2onnx.targets.table import TARGETS, has_part, import_part
from tflite2onnx.utils.mapped_files import digest_elements
from tflite2onnx.verification.decoding import STEPS, Decoding, LiteRTSteps, RunOfPrompt
from tflite2onnx.verification.runtimes import as_verify_error, import_runtime

_PROMPTS = (7, 40, 400)  # the numbers of tokens of prompts


class RuntimeDecoder(Protocol):
    """A runtime that has loaded a decoder: the length of its caches, and a run of a prompt."""

    length: int

    def start(self, prompt: Sequence[int]) -> RunOfPrompt: ...


@dataclass(frozen=True)
class Chat:
    """The tokens after several prompts, and the tokens per second of the runtime and of LiteRT."""

    decodings: tuple[Decoding, ...]
    speeds: tuple[float, float]

    @property
    def wrong(self) -> list[str]:
        return [f"{step} after {len(d.prompt)}" for d in self.decodings for step in d.wrong]

    @property
    def misread(self) -> list[str]:
        """The operators whose constants LiteRT misreads."""
        return [*dict.fromkeys(each for d in self.decodings for each in d.misread)]

    @property
    def ok(self) -> bool:
        return not self.wrong

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}

    def __str__(self) -> str:
        count = sum(len(decoding.tokens) for decoding in self.decodings)
        equal = sum(decoding.equal for decoding in self.decodings)
        lengths = ", ".join(str(len(decoding.prompt)) for decoding in self.decodings)
        first, last = self.decodings[0].signatures
        weights = f" with the weights of {last}" if first == last else ""
        wrong = len(self.wrong)
        difference = max(decoding.difference for decoding in self.decodings)
        own, litert = self.speeds
        return (
            f"{equal} of {count} tokens equal LiteRT's, {count - equal - wrong} ties, {wrong} wrong"
            f" (prompts of {lengths} tokens{weights}); logits differ by at most {difference:.1e} of"
            f" their deviation; {own:,.0f} tokens per second, LiteRT {litert:,.0f}"
        )


def find_target(folder: Path) -> str | None:
    """Return the target whose runtime loads a folder, None if there is none."""
    targets = (target for target in TARGETS if has_part(target, "sessions"))
    return next((t for t in targets if import_part(t, "sessions").is_folder(folder)), None)


def verify_folder(bundle: Bundle, target: str, folder: Path, prompt: Sequence[int] = ()) -> Chat:
    """Verify the decoder of a bundle in the folder of a target, which the target's runtime runs.

    Args:
        bundle: the TFLite models.
        target: the target; its runtime must be installed.
        folder: the converted files.
        prompt: the token ids of a prompt, by default several prompts of random ones.

    Raises:
        VerifyError: a model cannot be run; the prompt is too long, or has an invalid token.
    """
    part = import_part(target, "sessions")
    model, key = part.find_decoder_signature(bundle)
    with as_verify_error(part.PACKAGE):
        session = part.LoadedDecoder(import_runtime(part.MODULE, part.PACKAGE), folder)
        return _verify_decoder(bundle.models, model, key, session, prompt)


def _verify_decoder(
    models: Mapping[str, AnySource],
    model: str,
    key: str,
    session: RuntimeDecoder,
    prompt: Sequence[int],
) -> Chat:
    signatures = {name: read_model(source).signatures for name, source in models.items()}
    parts = [make_bundle_signature(name, s) for name, found in signatures.items() for s in found]
    known = {p.key: step for p in parts if p.model == model and (step := list_step(p, parts))}
    if key not in known:
        raise VerifyError(f"the inputs of {key} must be those of a language model")
    keys = next((pair for pair in list_pairs(known) if pair[1] == key), (key, key))
    # The folder has the weights of `key` only. Exporters may multiply the weights of a prompt's
    # signature by the scales of a normalization before they are quantized, and those of `key` not.
    if not _shares_weights(read_model(models[model]), *keys):
        keys = (key, key)
    litert = LiteRTSteps(models, [known[each] for each in keys], one_by_one=True)
    steps = min(STEPS, max(1, session.length // 2))
    counts = dict.fromkeys(min(count, session.length - steps) for count in _PROMPTS)
    prompts = [prompt] if prompt else [litert.make_prompt(count) for count in counts]
    decodings = tuple(litert.compare(keys, given, session.start, steps) for given in prompts)
    return Chat(decodings, litert.measure(session.start(prompts[0]), steps))


def _shares_weights(model: Model, prompt: str, token: str) -> bool:
    """Return whether the weights of a signature are weights of another one, too."""
    first, second = (
        {
            digest_elements(t.data)
            for op in model.graphs[find_signature(model, key)[0]].walk_ops()
            if op.is_builtin("FULLY_CONNECTED", "DEQUANTIZE")
            for t in op.present
            if t.data is not None
        }
        for key in (prompt, token)
    )
    return first <= second
