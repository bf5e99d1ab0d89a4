"""A case: a damaged file, and the options of its conversion.

The name of a campaign and a number determine the case, independently of other cases. A campaign
whose name begins with a set and a slash, such as `containers/one`, damages models of this set only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.fuzz.mutate import mutate, mutate_bytes, mutate_container
from tests.fuzz.seeds import Seed, choose_seed
from tflite2onnx.targets.table import TARGETS

# A seed is reused for several cases, because building it takes as long as its conversion.
_CASES_PER_SEED = 16
_CHANGES = {"containers": mutate_container}
# Half of the cases have no option.
_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"quantization": "float"},
    {"allow_custom": True},
    {"static": True},
    {"io_layout": "onnx"},
    {"io_layout": "tflite"},
    {"activations": "uint8"},
    {"activations": "int8", "weights": "int8"},
    {"weights": "uint8"},
    {"names": "signature"},
    {"states": "required"},
    {"forms": "fastest"},
    {"forms": "canonical"},
    {"float16": True},
    *({"target": target} for target in TARGETS),
    *({"opset": opset} for opset in (13, 15, 18, 19, 21, 23, 24, 25, 26)),
)


class FuzzCase(NamedTuple):
    """A damaged file: its set, the seed that it was made of, and the options."""

    number: int
    set_name: str
    seed: Seed
    data: bytes
    options: Mapping[str, Any]

    @property
    def is_bundle(self) -> bool:
        """Whether the file is an archive, or a container of a language model."""
        return self.data[:2] == b"PK" or self.data[:8] == b"LITERTLM"


def make_case(campaign: str, number: int) -> FuzzCase:
    """Return a case of a campaign."""
    only = campaign.rpartition("/")[0]
    set_name, seed = choose_seed(f"seed {campaign} {number // _CASES_PER_SEED}", only)
    generator = random.Random(f"{campaign} {number}")
    options = generator.choice(_OPTIONS) if generator.random() < 0.5 else {}
    if set_name == "containers" and generator.random() < 0.5:
        options = {"target": "genai"}
    change = mutate_bytes
    if generator.random() < 0.95:
        change = _CHANGES.get(set_name, mutate if seed.data[4:8] == b"TFL3" else mutate_bytes)
    number_of_change = generator.getrandbits(32) if generator.random() < 0.98 else 0
    return FuzzCase(number, set_name, seed, change(seed.data, number_of_change), options)
