"""Names of the values of an ONNX model."""

import re
from collections.abc import Iterable, Sequence

from tflite2onnx.builder.builder import Port, Value, find_bodies, walk_nodes
from tflite2onnx.builder.nodes import Node
from tflite2onnx.utils.unique_names import Names

_LONG_NAME = 64  # The largest number of characters.
# The package in a part of a name: "torch.nn.modules.linear." before "Linear_query".
_PACKAGES = re.compile(r"(?<![^/;])(?:\w+\.)+(?=[A-Z])")


class ValueNames:
    """A unique name for each value: inputs and outputs come first, then tensors.

    Constants have the names of their tensors, and other values have numbers. Long names are
    shortened: in a small quantized network they would take as many bytes as the weights. PyTorch's
    exporter names a tensor after all modules around it, each with its Python package, in 300
    characters.
    """

    def __init__(
        self, endpoints: Sequence[Port], tensors: Iterable[Port], nodes: Iterable[Node]
    ) -> None:
        self._names: dict[Value, str] = {}
        self._free = Names(port.name for port in endpoints).make_unique
        for port in endpoints:
            self._names.setdefault(port.value, port.name)
        bodies = (body for node in walk_nodes(nodes) for body in find_bodies(node).values())
        for port in (*tensors, *(port for body in bodies for port in body.tensors)):
            if port.value not in self._names:
                self._names[port.value] = self._free(_shorten_name(port.name))

    def rename(self, port: Port) -> Port:
        name = self.find_name(port.value)
        return port if port.name == name else port._replace(name=name)

    def find_name(self, value: Value) -> str:
        """Return a value's name."""
        if value not in self._names:
            # TensorFlow's converter names a product of constants after all of their operators,
            # joined by ";".
            name = value.name.partition(";")[0] if value.data is not None else value.name
            self._names[value] = self._free(_shorten_name(name))
        return self._names[value]


def _shorten_name(name: str) -> str:
    """Return the name of an inner tensor; a long name is without the Python packages of modules."""
    return _PACKAGES.sub("", name) if len(name) > _LONG_NAME else name
