"""Graphs as protobuf messages: their parts, their bytes, and the types that ONNX infers."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import onnx
from onnx import TensorProto, helper, shape_inference

from tflite2onnx.builder.builder import WITH_GRAPHS

_INFERRED_NODES = 100


def walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and the graphs that are nested in it."""
    yield graph
    for node in graph.node:
        yield from walk_nested(node)


def walk_nested(node: onnx.NodeProto, constants: Collection[str] = ()) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that are nested in a node; of a choice by a constant, the first branch."""
    if node.op_type in WITH_GRAPHS:
        for attribute in (a for a in node.attribute if a.HasField("g")):
            if attribute.name != "else_branch" or node.input[0] not in constants:
                yield from walk_graphs(attribute.g)


def find_transposes(
    nodes: Iterable[onnx.NodeProto], infos: Iterable[onnx.ValueInfoProto], constants: set[str]
) -> tuple[int, list[onnx.ValueInfoProto]]:
    """Return the number of Transpose nodes of data, and the known types of their outputs.

    The results of nodes that read constants only are added to `constants`.
    """
    outputs = set()
    for node in nodes:
        if constants.issuperset(list_reads(node)):  # branches read values, too
            constants.update(node.output)
        elif node.op_type == "Transpose":
            outputs.add(node.output[0])
    return len(outputs), [info for info in infos if info.name in outputs] if outputs else []


def list_reads(node: onnx.NodeProto) -> list[str]:
    """Return the values that a node reads, and the outer values that its nested graphs read."""
    names = [name for name in node.input if name]
    if node.op_type not in WITH_GRAPHS:
        return names
    for graph in (graph for a in node.attribute for graph in (a.g, *a.graphs)):
        own = {entry.name for entry in (*graph.initializer, *graph.input)}
        own |= {name for inner in graph.node for name in inner.output}
        read = [name for inner in graph.node for name in list_reads(inner)]
        names += [name for name in (*read, *(o.name for o in graph.output)) if name not in own]
    return names


class Inference:
    """ONNX's inference of the types and shapes of a graph's values that are not known.

    `endpoints` has the inputs, the outputs and the small constants of the graph. `describe` returns
    the types and shapes of the values `typed`.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        endpoints: onnx.GraphProto,
        weights: Iterable[TensorProto],
        typed: Collection[str],
        describe: Callable[[str], onnx.ValueInfoProto],
    ) -> None:
        self._model, self._typed, self._describe = model, typed, describe
        self._constants = {header.name: header for header in endpoints.initializer}
        self._weights = {header.name: header for header in weights}
        self._endpoints = {info.name: info for info in (*endpoints.input, *endpoints.output)}
        self._inferred: dict[str, bytes] = {}
        self._symbols: dict[str, None] = {}

    def infer_types(self, nodes: Sequence[bytes]) -> Mapping[str, bytes]:
        """Return the encoded types and shapes of the results of encoded nodes, by name.

        Inference is slow, so it gets only nodes with unknown results, and no large weights. It
        takes several times the memory of the nodes, so it gets some of them at a time.
        """
        for start in range(0, len(nodes), _INFERRED_NODES):
            self._infer_some(b"".join(nodes[start : start + _INFERRED_NODES]))
        return self._inferred

    def _infer_some(self, nodes: bytes) -> None:
        probe = onnx.ModelProto()
        probe.CopyFrom(self._model)
        graph = probe.graph
        graph.MergeFromString(nodes)
        inner = (node for body in walk_graphs(graph) for node in body.node)
        names = dict.fromkeys(name for node in inner for name in (*node.input, *node.output))
        graph.initializer.extend(self._constants[n] for n in names if n in self._constants)
        graph.value_info.extend(filter(None, map(self._find_known, names)))
        # ONNX numbers unknown sizes, and leaves out the names that the graph has.
        graph.value_info.append(helper.make_tensor_value_info("", 1, [*self._symbols]))
        known = {info.name for info in graph.value_info}
        for info in shape_inference.infer_shapes(probe).graph.value_info:
            if info.name not in known:
                self._inferred[info.name] = info.SerializeToString(deterministic=True)
                sizes = info.type.tensor_type.shape.dim
                self._symbols |= dict.fromkeys(d.dim_param for d in sizes if d.dim_param)

    def _find_known(self, name: str) -> onnx.ValueInfoProto | None:
        if name in self._typed:
            return self._describe(name)
        if name in self._inferred:
            known: onnx.ValueInfoProto = onnx.ValueInfoProto.FromString(self._inferred[name])
            return known
        if name in self._weights:
            header = self._weights[name]
            return helper.make_tensor_value_info(name, header.data_type, header.dims)
        return self._endpoints.get(name)


def encode_item(field: int, item: bytes | onnx.NodeProto | onnx.ValueInfoProto) -> bytes:
    """Return a message as an item of a field of the message around it."""
    data = item if isinstance(item, bytes) else item.SerializeToString(deterministic=True)
    return encode_tag(field) + encode_varint(len(data)) + data


def encode_tag(field: int) -> bytes:
    """Return the bytes before the length of a field."""
    return bytes([field << 3 | 2])  # the wire type of fields with a length


def encode_varint(number: int) -> bytes:
    """Return an integer that is not negative."""
    groups = []
    while number > 0x7F:  # each byte holds 7 bits
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])
