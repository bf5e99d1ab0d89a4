"""Writes `.task` files of language models, as MediaPipe's bundler does."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

from tests.support.litertlm import message

if TYPE_CHECKING:
    from collections.abc import Mapping

# LlmParameters: a start token, stop tokens, and the texts around a message.
METADATA = message(
    (6, "<s>"),
    (5, "</s>"),
    (5, "</turn>"),
    (8, message((1, "Be kind.\n"), (2, "<turn>user\n"), (3, "</turn>\n<turn>model\n"))),
)
_BPE, _UNKNOWN, _CONTROL = 2, 2, 3
# A SentencePiece model: two tokens for the ends of texts, and pieces with scores.
PIECES = b"".join(
    [
        *(message((1, message((1, text), (3, _CONTROL)))) for text in ("<s>", "</s>")),
        message((1, message((1, "<unk>"), (3, _UNKNOWN)))),
        *(message((1, message((1, text), (2, -1.0)))) for text in ("ab", "▁", "a", "b")),
        message((2, message((3, _BPE), (40, 2)))),
        message((3, message((2, b"table"), (3, 0), (4, 0)))),
    ]
)


def pack_task(model: bytes, tokenizer: bytes = PIECES, metadata: bytes = METADATA) -> bytes:
    """Return a `.task` file of a decoder, a SentencePiece model and metadata."""
    return pack_files(
        {"TF_LITE_PREFILL_DECODE": model, "TOKENIZER_MODEL": tokenizer, "METADATA": metadata}
    )


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Return files as an archive, without compression."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return made.getvalue()
