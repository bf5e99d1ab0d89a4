"""Cut an ONNX model into pieces that run one after another and output the inner tensors.

A runtime keeps every output until the end of the run. If all tensors of a network were outputs of
one model, all would be in memory at once. With pieces, only the outputs of one piece are in memory.
ONNX Runtime does not fuse nodes across a value that is an output, so the pieces have fewer fusions.
Nodes that decode a constant are in every piece that reads the constant, because fusions need the
nodes in the same graph.
"""

import json
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from typing import NamedTuple

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from tflite2onnx.builder.messages import list_reads
from tflite2onnx.interface import CACHES
from tflite2onnx.tensor import Array
from tflite2onnx.writer import Skeleton, nbytes

MOST_BYTES = 1 << 27  # The largest number of bytes of the outputs of a piece.
# The largest number of bytes of the weights of a piece, which must fit into a protobuf.
_MOST_WEIGHTS = 1 << 30
_COMPUTED = "/computed"
_AGAIN = "/again"  # values that are read from the input of a piece, in another shape
# Nodes that decode constants. The last three choose the type of weights
# (`builder.adaptive_weights`).
_DECODE = ("Cast", "DequantizeLinear", "MatMulInteger", "Equal", "If")


class Segment(NamedTuple):
    """A piece of a model: it reads `feeds` and computes `fetches`, both names of values.

    `tensors` are the fetches that store tensors of the TFLite model, as pairs (name in this piece,
    name in the model).
    """

    model: bytes
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]
    tensors: tuple[tuple[str, str], ...]


def cut_segments(
    skeleton: Skeleton, seen: Sequence[str], *, alone: bool = False, most: int = MOST_BYTES
) -> Iterator[Segment]:
    """Yield the pieces of a model, whose outputs include the values named in `seen`.

    Args:
        skeleton: the model.
        seen: names of values that nodes compute.
        alone: nodes that read a value in `seen` get it as an input of the piece instead of the
            computed value, so that each operator of the TFLite model runs on its own.
        most: a new piece starts after the values in `seen` of a piece exceed this many bytes.
    """
    cutter = _Cutter(skeleton, seen, alone=alone)
    start = 0
    for end in cutter.find_segment_ends(most):
        segment = cutter.make_segment(start, end)
        if segment.fetches:
            yield segment
        start = end


class _Cutter:
    def __init__(self, skeleton: Skeleton, seen: Sequence[str], *, alone: bool) -> None:
        self._proto, self._alone = skeleton.proto, alone
        graph = self._proto.graph
        self._dynamic_sizes = skeleton.dynamic_sizes
        self._nodes = list(graph.node)
        self._small = {each.name: each for each in graph.initializer}
        self._large: Mapping[str, tuple[TensorProto, Array]] = {
            header.name: (header, data) for header, data in skeleton.weights
        }
        self._inputs = {each.name for each in graph.input}
        self._infos = {i.name: i for i in (*graph.value_info, *graph.output, *graph.input)}
        results = {name for node in self._nodes for name in node.output}
        # The inputs of a piece must have known types.
        self._seen = {n for n in seen if n in results and (n in self._infos or not alone)}
        self._reads = [{*list_reads(node)} for node in self._nodes]
        # The indices of the nodes that decode constants. `sources` are the names of constants and
        # of decoded constants.
        sources = (self._small.keys() | self._large.keys()) - self._inputs
        self._decoders = []
        for i, node in enumerate(self._nodes):
            if node.op_type in _DECODE and self._reads[i] <= sources:
                self._decoders.append(i)
                sources |= set(node.output)
        # Values in another shape than the value in `seen` that a Reshape makes of them.
        # If there are several, all others are computed from the first.
        reshapes = map(self._find_reshaped, reversed(self._nodes)) if alone else ()
        self._reshaped = dict(filter(None, reshapes))
        reads = ((i, name) for i, names in enumerate(self._reads) for name in names)
        self._last = {name: i for i, name in reads if name not in sources}

    def _find_reshaped(self, node: NodeProto) -> tuple[str, NodeProto] | None:
        """Return a value that a Reshape makes a value in `seen`, and a node that undoes it.

        Forms compute in rows what a TFLite model computes in images or tokens.
        """
        if node.op_type != "Reshape" or node.output[0] not in self._seen:
            return None
        name, info = node.input[0], self._infos.get(node.input[0])
        dims = info.type.tensor_type.shape.dim if info else ()
        sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in dims]
        is_known = sizes and 0 not in sizes and sizes.count(-1) < 2  # a Reshape finds one size
        if name in self._seen or name in self._inputs or not is_known:
            return None
        shape = TensorProto(dims=[len(sizes)], data_type=TensorProto.INT64, name=f"{name}/shape")
        shape.int64_data.extend(sizes)
        self._small[shape.name] = shape
        again = NodeProto(op_type="Reshape", name=f"{name}{_AGAIN}", output=[name + _AGAIN])
        again.input.extend((node.output[0], shape.name))
        return name, again

    def _read_again(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Return nodes that read values in `seen`, in place of values of other shapes."""
        undone, changed = dict[str, NodeProto](), list[NodeProto]()
        for node in nodes:
            names = {
                name: name + _AGAIN
                for name in node.input
                if (again := self._reshaped.get(name)) and again.input[0] not in node.output
            }
            undone |= {name: self._reshaped[name] for name in names}
            changed.append(_rename(node, names, {}))
        return [*undone.values(), *changed]

    def find_segment_ends(self, most: int) -> Iterator[int]:
        """Yield the end of each piece: the index after its last node."""
        live: set[str] = set()
        sizes = {name: len(header.raw_data) for name, header in self._small.items()}
        sizes |= {name: data.nbytes for name, (_, data) in self._large.items()}
        room, weights = most, _MOST_WEIGHTS
        for i, node in enumerate(self._nodes):
            if i and (room < 0 or weights < 0) and live <= self._infos.keys():
                yield i
                room, weights = most, _MOST_WEIGHTS
            live |= {name for name in node.output if self._last.get(name, -1) > i}
            live -= {name for name in self._reads[i] if self._last.get(name) == i}
            seen = (self._infos[n] for n in node.output if n in self._seen and n in self._infos)
            room -= sum(nbytes(info.type.tensor_type, self._dynamic_sizes) for info in seen)
            weights -= sum(sizes.get(name, 0) for name in self._reads[i])
        yield len(self._nodes)

    def make_segment(self, start: int, end: int) -> Segment:
        decoders = self._find_decoders(start, end)
        nodes = [*decoders, *self._read_again(self._nodes[start:end])]
        results = dict.fromkeys(name for node in nodes for name in node.output if name)
        names_read = dict.fromkeys(name for node in nodes for name in list_reads(node))
        constants = [n for n in names_read if n in self._small or n in self._large]
        seen = [name for name in results if name in self._seen]
        renamed = {name: name + _COMPUTED for name in seen} if self._alone else {}
        fed = [n for n in names_read if n not in constants and (n not in results or n in renamed)]
        live = [n for n in results if self._last.get(n, -1) >= end and n not in renamed]
        tensors = tuple((renamed.get(name, name), name) for name in seen)
        fetches = tuple(dict.fromkeys([*(name for name, _ in tensors), *live]))
        graph = GraphProto(name=self._proto.graph.name)
        graph.node.extend(_rename(node, {}, renamed) for node in nodes)
        graph.initializer.extend(self._small[n] for n in constants if n in self._small)
        graph.input.extend(self._infos[n] for n in fed)
        # A state has an initial value, and is an input, too.
        graph.input.extend(self._infos[n] for n in constants if n in self._inputs)
        back = {new: old for old, new in renamed.items()}
        for name in fetches:
            graph.output.add().CopyFrom(self._infos.get(back.get(name, name), ValueInfoProto()))
            graph.output[-1].name = name
        whole = self._proto
        model = ModelProto(ir_version=whole.ir_version, graph=graph)
        model.opset_import.extend(whole.opset_import)
        model.functions.extend(whole.functions)
        caches = {
            output: name
            for node in graph.node
            if node.op_type == "GroupQueryAttention"
            for output, name in zip(node.output[1:], node.input[3:5], strict=True)
            if output in fetches and name in fed
        }
        model.metadata_props.add(key=CACHES, value=json.dumps(caches))
        weights = tuple(self._large[n] for n in constants if n in self._large)
        data = Skeleton(model, weights).serialize()
        return Segment(data, tuple(fed), fetches, tensors)

    def _find_decoders(self, start: int, end: int) -> list[NodeProto]:
        """Return the nodes before a piece that decode the constants that the piece reads."""
        names_read = {name for names in self._reads[start:end] for name in names}
        decoders = []
        for i in reversed([i for i in self._decoders if i < start]):
            if not names_read.isdisjoint(self._nodes[i].output):
                decoders.append(_keep_outputs(self._nodes[i], names_read))
                names_read.update(list_reads(decoders[-1]))
        return decoders[::-1]


def _rename(node: NodeProto, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> NodeProto:
    if inputs.keys().isdisjoint(node.input) and outputs.keys().isdisjoint(node.output):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [inputs.get(name, name) for name in node.input]
    copy.output[:] = [outputs.get(name, name) for name in node.output]
    return copy


def _keep_outputs(node: NodeProto, names: AbstractSet[str]) -> NodeProto:
    """Return an If with only the named outputs and their nodes; other nodes are not changed."""
    indices = [i for i, name in enumerate(node.output) if name in names]
    if node.op_type != "If" or len(indices) == len(node.output):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.output[:] = [node.output[i] for i in indices]
    for branch in (attribute.g for attribute in copy.attribute):
        outputs = [branch.output[i] for i in indices]
        names_read, nodes = {output.name for output in outputs}, []
        for inner in reversed(branch.node):
            if not names_read.isdisjoint(inner.output):
                nodes.append(inner)
                names_read.update(list_reads(inner))
        body = GraphProto(name=branch.name, node=nodes[::-1], output=outputs)
        body.initializer.extend(item for item in branch.initializer if item.name in names_read)
        branch.CopyFrom(body)
    return copy
