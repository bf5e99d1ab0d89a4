"""Other sizes of the dynamic axes of a model, at which both runtimes are compared again."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tflite2onnx.passes.batch.resize_batch import Batch
from tflite2onnx.verification.onnx_model import OpenedModel

# Networks halve the sizes of pictures up to five times. LiteRT refuses sizes that cannot be halved.
_STEP = 32
STEPS: tuple[Callable[[int], int], ...] = (
    lambda size: size + (_STEP if size >= _STEP else 1),
    lambda size: size + (2 * _STEP if size >= _STEP else 2),
    lambda size: 2 * size,
    lambda size: 3 * size,
)


def list_other_sizes(opened: OpenedModel) -> Iterator[dict[str, int]]:
    """Yield sizes by the names of dynamic axes: first of all axes, then of the first axes only.

    Names of equal sizes get equal sizes, because LiteRT may need them to be equal.
    """
    lengths: dict[str, int] = {}
    first: set[str] = set()
    for e in opened.inputs:
        lengths |= {name: e.tflite_shape[axis] for axis, name in e.symbols.items()}
        first |= {name for axis, name in e.symbols.items() if axis == 0}
    for names in (lengths, first if first != set(lengths) else ()):
        if names:
            yield from (
                {n: s(lengths[n]) if n in names else lengths[n] for n in lengths} for s in STEPS
            )


def resize_endpoints(opened: OpenedModel, sizes: Mapping[str, int]) -> OpenedModel:
    """Return a model whose inputs have these sizes, by the names of dynamic axes."""
    inputs = [
        replace(
            e,
            tflite_shape=tuple(
                sizes.get(e.symbols.get(axis, ""), size) for axis, size in enumerate(e.tflite_shape)
            ),
        )
        for e in opened.inputs
    ]
    if opened.batch is None:
        return opened._replace(inputs=inputs)
    batch = Batch.from_text(opened.batch).size
    return opened._replace(inputs=inputs, batch=sizes.get(str(batch), batch))
