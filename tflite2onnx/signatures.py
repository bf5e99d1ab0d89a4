"""Signatures: the entry points of a model, each a sub-graph with names of its own for its ends."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence

from tflite2onnx.builder.builder import Port
from tflite2onnx.emit import Emitted
from tflite2onnx.errors import OptionError
from tflite2onnx.graph import Graph, Model, Signature
from tflite2onnx.tensor import Tensor
from tflite2onnx.utils.unique_names import Names

_logger = logging.getLogger(__name__)


def find_signature(model: Model, key: str | None) -> tuple[int, Signature | None]:
    """Return the sub-graph to convert, the main one if no signature is asked for, and a signature.

    Raises:
        OptionError: the model has no signature of that name.
    """
    if key is None:
        return 0, next((s for s in model.signatures if s.subgraph == 0), None)
    for signature in model.signatures:
        if signature.key == key:
            return signature.subgraph, signature
    close = difflib.get_close_matches(str(key), [s.key for s in model.signatures], n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise OptionError(f"there is no signature {key}: the model has {_keys(model) or 'none'}{hint}")


def has_signature(model: Model, key: str | None) -> bool:
    """Return whether the sub-graph to convert has a signature.

    Raises:
        OptionError: the model has no signature of that name.
    """
    return find_signature(model, key)[1] is not None


def warn_unconverted(model: Model, key: str | None) -> None:
    """Log which signatures are left out if none is asked for."""
    _, chosen = find_signature(model, key)
    if key is None and any(s.subgraph != 0 for s in model.signatures):
        what = f"only {chosen.key} is" if chosen else "none of them is"
        _logger.warning(
            'the model has the signatures %s; %s converted: choose one with signature="NAME", on'
            " the command line with --signature NAME, or --signature all -o FOLDER for all",
            _keys(model),
            what,
        )


def _keys(model: Model) -> str:
    return ", ".join(s.key for s in model.signatures)


def rename_endpoints(emitted: Emitted, graph: Graph, signature: Signature | None) -> Emitted:
    """Return an ONNX model with a signature's names for its inputs and outputs.

    `graph` is the sub-graph in the file. What the signature does not name keeps its own name; of
    several that are called the same the later ones are numbered, inputs before outputs before
    states.

    Raises:
        OptionError: there is no signature.
    """
    if signature is None:
        raise OptionError("the model has no signature that gives names to its inputs and outputs")
    inputs, outputs = len(graph.inputs), len(graph.outputs)
    own = inputs + outputs
    wishes = [
        *_tensor_names(graph.inputs, signature.inputs),
        *_tensor_names(graph.outputs, signature.outputs),
        *(port.name for port in (*emitted.inputs[inputs:], *emitted.outputs[outputs:])),
    ]  # fmt: skip
    names = list(map(Names().make_unique, wishes))
    after = own + len(emitted.initial)
    return emitted._replace(
        inputs=_rename_ports(emitted.inputs, [*names[:inputs], *names[own:after]]),
        outputs=_rename_ports(emitted.outputs, [*names[inputs:own], *names[after:]]),
    )


def signature_io_names(
    model: Model, index: int, emitted: Emitted
) -> dict[str, dict[str, dict[str, str]]]:
    """Return what each signature of a sub-graph calls the inputs and outputs of the ONNX model."""
    graph = model.graphs[index]

    def endpoint_names(
        names: Mapping[str, Tensor], tensors: Sequence[Tensor], ports: Sequence[Port]
    ) -> dict[str, str]:
        called = {t: p.name for t, p in reversed([*zip(tensors, ports, strict=False)])}
        return {name: called.get(tensor, tensor.name) for name, tensor in names.items()}

    return {
        s.key: {
            "inputs": endpoint_names(s.inputs, graph.inputs, emitted.inputs),
            "outputs": endpoint_names(s.outputs, graph.outputs, emitted.outputs),
        }
        for s in model.signatures
        if s.subgraph == index
    }


def _tensor_names(tensors: Sequence[Tensor], names: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors, of which one may be there twice, by two names."""
    left: dict[Tensor, list[str]] = {}
    for name, tensor in names.items():
        left.setdefault(tensor, []).append(name)
    return [left[t].pop(0) if left.get(t) else t.name for t in tensors]


def _rename_ports(ports: Sequence[Port], names: Sequence[str]) -> tuple[Port, ...]:
    return tuple(p._replace(name=name) for p, name in zip(ports, names, strict=True))
