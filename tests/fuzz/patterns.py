"""Small models of computations that a model spells out, and that passes recognise.

A damaged model may have almost the form that a pass looks for: the conditions of the pass decide.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.passes.patterns import (
    test_fuse_group_normalizations as groups,
    test_fuse_normalizations as layers,
    test_fuse_rearrangements as rearrangements,
    test_fuse_repeats as repeats,
    test_fuse_rms_normalizations as rms,
    test_fuse_softmax as softmax,
    test_join_parts as parts,
)
from tests.passes.patterns.convolutions import (
    test_compute_images as sequences,
    test_fuse_convolutions as convolutions,
)
from tests.support import Build
from tests.targets.onnxruntime.forms.attention import test_fuse_attention as attention
from tests.targets.onnxruntime.forms.convolutions import test_split_prelu as prelus
from tests.targets.onnxruntime.forms.movement import (
    test_flatten_packs as packs,
    test_slice_before_transpose as packed,
    test_split_slices as slices,
)
from tests.targets.onnxruntime.forms.products import test_swap_products as products


def build_upsampling() -> bytes:
    """Build repeated rows and columns of an image."""
    m = repeats.Repeats()
    m.convolve(m.upsample(m.image(), 2, 3))
    return m.bytes()


def build_padded() -> bytes:
    """Build PAD before a convolution."""
    m = Build()
    convolutions.add_padded_convolution(m, "CONV_2D", convolutions.AROUND)
    return m.bytes()


def build_spread() -> bytes:
    """Build a convolution between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND."""
    m = Build()
    pads, crops = [[2, 3], [2, 3]], [[0, 1], [0, 1]]
    convolutions.add_spread_convolution(m, "CONV_2D", [2, 2], pads, crops)
    return m.bytes()


def build_rows() -> bytes:
    """Build the normalizations of litert-torch: of rows, and of instances."""
    m = layers.Spelled([-1])
    m.output(layers.normalize_rows(m, m.input([1, 5, 8])))
    m.output(layers.normalize_instances(m, m.input([1, 6, 4]), keeps=True))
    return m.bytes()


PATTERNS: dict[str, Callable[[], bytes]] = {
    "attention": lambda: attention.spell(attention.spell_keras),
    "packed attention": lambda: packed.spell("SLICE", 1, 4, 2, 3).bytes(),
    "shared keys": products.attention,
    "dynamic batch": lambda: products.attention(batch=-1),
    "groups": groups.spell,
    "layers": lambda: layers.spell(layers.keras, [2, 3, 8], [-1]),
    "rows": build_rows,
    "instances": lambda: layers.spell(layers.keras, [2, 5, 7, 3], [1, 2]),
    "rms": lambda: rms.spell(rms.reshape_sum, [4, 8]),
    "softmax": lambda: softmax.spell(softmax.softmax, [4, 8]),
    "sequences": lambda: sequences.spell_layers(sequences.ROW, 12, 3, [2]),
    "columns": lambda: sequences.spell_layers(sequences.COLUMN, 9, 2, [3]),
    "upsampling": build_upsampling,
    "padded": build_padded,
    "spread": build_spread,
    "shuffle": lambda: rearrangements.spell(rearrangements.shuffle),
    "blocks": lambda: rearrangements.spell(rearrangements.depth_to_space),
    "packs": lambda: packs.pack_negated([2, 3], 1),
    "states": lambda: slices.spell_states(4),
    "parts": lambda: parts.concatenate_split(Build()),
    "slopes": lambda: prelus.model([0.1, 0.2, -0.3, 0.4]),
}
