"""Builder of TFLite models.

    m = Build()
    x = m.input([2, 5, 7, 3])
    w = m.constant(np.ones((11, 3, 3, 3), np.float32))
    b = m.constant(np.zeros(11, np.float32))
    (y,) = m.op("CONV_2D", [x, w, b], [[2, 5, 7, 11]], stride_h=1, stride_w=1, padding="SAME")
    m.output(y)
    data = m.bytes()

The methods take and return tensors; a tensor belongs to the sub-graph that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from tests.support import facts
from tests.support.pack import Buffer, External, encode_array, pack
from tests.support.tensor import (
    Shape,
    Tensor,
    TensorFields,
    output_fields,
    quantization_of,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, DTypeLike
    from typing_extensions import Unpack


class File:
    """The buffers and operator codes shared by all sub-graphs of a model."""

    def __init__(self, description: str | None) -> None:
        # Buffer 0 is by convention empty, and used by all tensors without data.
        self.model = schema.ModelT(
            version=3,
            description=description,
            operatorCodes=[],
            subgraphs=[],
            buffers=[Buffer()],
            metadata=[],
            signatureDefs=[],
        )
        self.external: list[External] = []
        self._codes: dict[tuple[int, str | None, int], int] = {}

    def buffer(self, data: bytes, *, external: bool) -> int:
        """The number of a new buffer that holds `data`."""
        buffer = Buffer(b"" if external else data)
        if external:
            self.external.append(External(data, buffer))
        self.model.buffers.append(buffer)
        return len(self.model.buffers) - 1

    def code(self, builtin: int, custom: str | None, version: int) -> int:
        """The number of an operator code, listed once."""
        key = (builtin, custom, version)
        if key not in self._codes:
            self._codes[key] = len(self._codes)
            # The first field is a byte: files from before 2020 have only this field. Codes that
            # do not fit have the placeholder 127 in it.
            old = min(builtin, schema.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES)
            code = schema.OperatorCodeT(old, custom, version, builtin)
            self.model.operatorCodes.append(code)
        return self._codes[key]


class Subgraph:
    """One sub-graph of a model."""

    def __init__(self, file: File, name: str) -> None:
        self._file = file
        self.index = len(file.model.subgraphs)
        self._graph = schema.SubGraphT(tensors=[], inputs=[], outputs=[], operators=[], name=name)
        file.model.subgraphs.append(self._graph)

    def input(self, shape: Shape | None, **fields: Unpack[TensorFields]) -> Tensor:
        """A new input, by default float32."""
        tensor = self.tensor(shape, **fields)
        self._graph.inputs.append(tensor.index)
        return tensor

    def tensor(self, shape: Shape | None, **fields: Unpack[TensorFields]) -> Tensor:
        """A new tensor without data. A shape of `None` is an unknown rank."""
        return self._tensor(shape, fields, buffer=0)

    def constant(
        self,
        values: ArrayLike,
        *,
        shape: Sequence[int] | None = None,
        external: bool = False,
        **fields: Unpack[TensorFields],
    ) -> Tensor:
        """A new tensor with data, by default of the array's type.

        Python lists are float32, int32, bool or string. "int4", "uint4" and "int2" take one value
        per element and are packed here. `shape` is the dense shape where `sparsity` is given;
        `external` puts the data after the flatbuffer.

        Raises:
            ValueError: an integer that the type cannot hold.
        """
        array = np.asarray(values)
        dtype = facts.type_name(fields.get("dtype", type_of(values)))
        buffer = self._file.buffer(encode_array(array, dtype), external=external)
        dense = array.shape if shape is None else shape
        return self._tensor(dense, {**fields, "dtype": dtype}, buffer)

    def op(
        self,
        code: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Shape | Tensor],
        /,
        *,
        dtype: DTypeLike | str | None = None,
        scale: ArrayLike | None = None,
        zero_point: ArrayLike | None = None,
        intermediates: Sequence[Tensor] = (),
        op_version: int | None = None,
        **options: facts.Option,
    ) -> list[Tensor]:
        """A new operator, and its outputs.

        An output is a shape, or a tensor of `m.tensor` if it needs other fields. A shape makes a
        tensor of the type (and the per-tensor quantization) of the operator's data, which is its
        first input but for facts.DATA_INPUT; `dtype`, `scale` and `zero_point` override that for
        all shapes. `None` is an absent optional input.

        Options have the names of the schema in snake case and its defaults (a stride is 0, an
        axis 0); enumerations are numbers or names: padding="SAME",
        fused_activation_function="RELU6", out_data_type="int32".

        Raises:
            TypeError: an option that this operator does not have.
        """
        data = inputs[facts.DATA_INPUT.get(code, 0)] if inputs else None
        fields = output_fields(data, dtype, scale, zero_point)
        table = facts.options_table(code, options)
        extra = [self._index_of(tensor) for tensor in intermediates]
        operator = schema.OperatorT(intermediates=extra or None)
        if table is not None:
            _, union, number = facts.OPTIONS[code]
            suffix = "" if union == 1 else str(union)
            setattr(operator, f"builtinOptions{suffix}Type", number)
            setattr(operator, f"builtinOptions{suffix}", table)
        version = op_version or facts.VERSIONS.get(code, 1)
        operator.opcodeIndex = self._file.code(facts.OPERATORS[code], None, version)
        return self._operator(operator, inputs, outputs, fields)

    def custom(
        self,
        name: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Shape | Tensor],
        options: bytes | Mapping[str, Any] = b"",
        *,
        external: bool = False,
        op_version: int = 1,
    ) -> list[Tensor]:
        """A new custom operator, and its outputs; see `op`. A mapping becomes a flexbuffer."""
        data = options if isinstance(options, bytes) else bytes(flexbuffers.Dumps(dict(options)))
        operator = schema.OperatorT(
            opcodeIndex=self._file.code(schema.BuiltinOperator.CUSTOM, name, op_version)
        )
        if external:
            fields = ("largeCustomOptionsOffset", "largeCustomOptionsSize")
            self._file.external.append(External(data, operator, *fields))
        else:
            operator.customOptions = np.frombuffer(data, np.uint8)
        inherited = output_fields(inputs[0] if inputs else None)
        return self._operator(operator, inputs, outputs, inherited)

    def output(self, *tensors: Tensor) -> None:
        """Make tensors the next outputs."""
        self._graph.outputs += [self._index_of(tensor) for tensor in tensors]

    def _index_of(self, tensor: Tensor | None) -> int:
        if tensor is not None and tensor.subgraph != self.index:
            raise ValueError(f"sub-graph {self.index} cannot use {tensor}")
        return -1 if tensor is None else tensor.index

    def _tensor(self, shape: Shape | None, fields: TensorFields, buffer: int) -> Tensor:
        index = len(self._graph.tensors)
        dtype = facts.type_name(fields.get("dtype", "float32"))
        quantization = quantization_of(fields)
        sizes = None if shape is None else tuple(1 if size is None else int(size) for size in shape)
        signature = fields.get("shape_signature")
        if shape is not None and None in shape:
            signature = [-1 if size is None else size for size in shape]
        self._graph.tensors.append(
            schema.TensorT(
                shape=None if sizes is None else np.array(sizes, np.int32),
                type=facts.TENSOR_TYPES[dtype],
                buffer=buffer,
                name=fields.get("name", f"tensor_{index}"),
                quantization=quantization,
                isVariable=fields.get("variable", False),
                sparsity=fields.get("sparsity"),
                shapeSignature=None if signature is None else np.array(signature, np.int32),
                hasRank=shape is not None,
            )
        )
        return Tensor(self.index, index, sizes or (), dtype, quantization)

    def _operator(
        self,
        operator: facts.Table,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Shape | Tensor],
        fields: TensorFields,
    ) -> list[Tensor]:
        results = [
            each if isinstance(each, Tensor) else self.tensor(each, **fields) for each in outputs
        ]
        operator.inputs = np.array([self._index_of(tensor) for tensor in inputs], np.int32)
        operator.outputs = np.array([self._index_of(tensor) for tensor in results], np.int32)
        self._graph.operators.append(operator)
        return results


class Build(Subgraph):
    """A model under construction; it is itself the primary sub-graph."""

    def __init__(self, description: str | None = None) -> None:
        super().__init__(File(description), "main")

    def subgraph(self, name: str) -> Subgraph:
        """A further sub-graph, for control flow (its `.index`) or for a signature."""
        return Subgraph(self._file, name)

    def signature(
        self, key: str, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]
    ) -> None:
        """Give inputs and outputs of one sub-graph the names of a signature."""
        tensors = [*inputs.values(), *outputs.values()]
        (subgraph,) = {tensor.subgraph for tensor in tensors}
        maps = [
            [schema.TensorMapT(name, tensor.index) for name, tensor in names.items()]
            for names in (inputs, outputs)
        ]
        self._file.model.signatureDefs.append(schema.SignatureDefT(*maps, key, subgraph))

    def metadata(self, name: str, data: bytes) -> None:
        """Add an entry of metadata."""
        entry = schema.MetadataT(name, self._file.buffer(data, external=False))
        self._file.model.metadata.append(entry)

    def model(self) -> facts.Table:
        """The ModelT itself, for a test that corrupts it; see `pack`."""
        return self._file.model

    def bytes(self) -> bytes:
        """The file."""
        return pack(self._file.model, self._file.external)
