"""The tokenizer of a language model, in the form that onnxruntime-genai reads.

onnxruntime-genai reads a tokenizer of Hugging Face, `tokenizer.json`. The `tokenizer_class` in
`tokenizer_config.json` chooses the code that runs it. A SentencePiece model is converted.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tflite2onnx.errors import BundleError
from tflite2onnx.reader.containers.bundle import Bundle
from tflite2onnx.targets.genai.sentencepiece import SPACE, convert_sentencepiece

_logger = logging.getLogger(__name__)

CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
_SENTENCEPIECE = ("tokenizer.model", "TOKENIZER_MODEL")
# The classes are in tokenizer_jsconfig.hpp and bpe_kernels.cc of onnxruntime-extensions. Other
# classes for the same kinds of tokenizers split words, or add tokens.
_UNIGRAM, _BPE_OF_PIECES, _BPE_OF_BYTES = (
    "XLMRobertaTokenizer",
    "GemmaTokenizer",
    "PreTrainedTokenizerFast",
)
_READ = ("BPE", "Unigram")

# For each message of a chat: the condition, the role, and the role's template in the metadata.
_TURNS = (("if", "system", "system"), ("elif", "user", "user"), ("elif", "assistant", "model"))


class Tokenizer(NamedTuple):
    """A tokenizer: its class in onnxruntime-genai, and the numbers of tokens, by their texts.

    `converted` is the content of tokenizer.json, if the bundle has another tokenizer.
    """

    kind: str = ""
    vocabulary: Mapping[str, int] = {}
    converted: str = ""

    def find_token(self, token: Mapping[str, Any], known: range) -> list[int]:
        """Return the number of a token that is given as a number, or as a text.

        `known` are the numbers of the model's tokens.
        """
        numbers = token.get("token_ids", {}).get("ids", [])
        number = (
            numbers[0] if len(numbers) == 1 else self.vocabulary.get(token.get("token_str", ""))
        )
        return [number] if number is not None and number in known else []

    def list_files(
        self, metadata: Mapping[str, Any], tokens: Mapping[str, Sequence[int]]
    ) -> dict[str, memoryview]:
        """Return the files of the tokenizer that the bundle does not have.

        `tokens` are the numbers of the tokens that begin and end texts, by "bos", "eos" and "pad".
        """
        if not self.vocabulary:
            return {}
        texts = {number: text for text, number in self.vocabulary.items()}
        named = {
            f"{name}_token": texts[numbers[0]]
            for name, numbers in tokens.items()
            if numbers and numbers[0] in texts
        }
        template = _make_chat_template(metadata, named.get("bos_token", ""))
        if template and self.kind == _UNIGRAM:
            # tokenizer_impl.cc of onnxruntime-extensions loads the template of BPE only.
            _logger.warning(
                "onnxruntime-genai does not load the chat template of a Unigram tokenizer: give"
                " chat_template of %s to apply_chat_template() as template_str",
                CONFIG,
            )
        config = {
            "tokenizer_class": self.kind,
            "add_bos_token": "bos_token" in named,
            "add_eos_token": False,
            **named,
            **({"chat_template": template} if template else {}),
        }
        files = {CONFIG: json.dumps(config, indent=2) + "\n"}
        files |= {TOKENIZER: self.converted} if self.converted else {}
        return {name: memoryview(text.encode()) for name, text in files.items()}


def read_tokenizer(bundle: Bundle) -> Tokenizer:
    """Return the tokenizer of a bundle; an empty one if onnxruntime-genai cannot run it.

    Raises:
        BundleError: tokenizer.json is damaged.
    """
    raw = bundle.files.get(TOKENIZER)
    if raw is not None:
        try:
            return _describe_tokenizer(json.loads(bytes(raw)))
        except (ValueError, AttributeError, LookupError, TypeError) as error:
            raise BundleError(f"{TOKENIZER} is damaged ({error})") from error
    name = next((name for name in _SENTENCEPIECE if name in bundle.files), None)
    if name is None:
        return Tokenizer()
    if bundle.description.get("metadata", {}).get("maps_bytes_to_characters"):
        _logger.warning("onnxruntime-genai has no tokenizer: %s maps bytes to characters", name)
        return Tokenizer()
    try:
        content, difference = convert_sentencepiece(bytes(bundle.files[name]))
    except ValueError as error:
        _logger.warning(
            "onnxruntime-genai has no tokenizer: %s is not converted because %s", name, error
        )
        return Tokenizer()
    if difference:
        _logger.warning(
            "onnxruntime-genai finds other tokens than SentencePiece in some texts: it %s",
            difference,
        )
    converted = json.dumps(content, ensure_ascii=False)
    return _describe_tokenizer(content)._replace(converted=converted)


def _describe_tokenizer(content: Mapping[str, Any]) -> Tokenizer:
    words = content.get("model", {}).get("vocab", {})
    kind = _BPE_OF_PIECES if SPACE in json.dumps(content.get("decoder"), ensure_ascii=False) else ""
    if isinstance(words, list):  # pairs of a text and its score
        words = {word: number for number, (word, _) in enumerate(words)}
        kind = _UNIGRAM
    added = {token["content"]: token["id"] for token in content.get("added_tokens", ())}
    named = content.get("model", {}).get("type", _READ[0])
    if named not in _READ:
        _logger.warning(
            "onnxruntime-genai cannot read %s: the type of the tokenizer must be %s, got %s",
            TOKENIZER, " or ".join(_READ), named,
        )  # fmt: skip
    numbers = {t: number for t, number in {**words, **added}.items() if isinstance(number, int)}
    return Tokenizer(kind or _BPE_OF_BYTES, numbers)


def _make_chat_template(metadata: Mapping[str, Any], start: str) -> str:
    """Return the template of a chat, in the language of Jinja; "" if the metadata have none.

    LiteRT-LM puts the start token before the first message (session_utils.cc), unless the template
    does it.
    """
    template: str = metadata.get("jinja_prompt_template", "")
    if template:
        begin = _quote(start)
        return template if "bos_token" in template or start in template else begin + template
    parts = metadata.get("prompt_templates", {})
    if not parts:
        return ""
    turns = "".join(
        f"{{% {word} message['role'] == '{role}' %}}"
        + _quote(parts.get(part, {}).get("prefix", ""))
        + "{{ message['content'] }}"
        + _quote(parts.get(part, {}).get("suffix", ""))
        for word, role, part in _TURNS
    )
    answer = _quote(parts.get("model", {}).get("prefix", ""))
    return (
        f"{_quote(start + parts.get('session_prefix', ''))}"
        f"{{% for message in messages %}}{turns}{{% endif %}}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{answer}{{% endif %}}"
    )


def _quote(text: str) -> str:
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" if text else ""
