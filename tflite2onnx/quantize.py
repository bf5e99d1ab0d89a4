"""The storage plan: how each tensor is stored, and how each operator reads and writes it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from tflite2onnx.errors import as_unsupported
from tflite2onnx.graph import Op
from tflite2onnx.quantization.declarations import (
    Declaration,
    Declared,
    Integers,
    Moves,
    Product,
    Real,
    drop_common_zero_point,
    find_tensor_without_scale,
    has_one_scale,
    list_operands,
    reads_integers,
)
from tflite2onnx.quantization.rules import (
    BIAS,
    ENDPOINT,
    INNER,
    READINGS,
    STATE,
    TENSORS,
    OperandCase,
    Reading,
    TensorCase,
    choose,
    find_bias_storage,
    find_weight_storage,
    quantizes_data,
)
from tflite2onnx.quantization.storage import Storage, clamp, compute_real_bounds, is_quantized
from tflite2onnx.tensor import DType, Quantization, Tensor


class OperandStorage(NamedTuple):
    """How an operator reads or writes a tensor, and the reasons.

    `storage` is the storage of an input before it is dequantized, or of an output after it is
    quantized. `written` is the storage in which the kernel writes if it ignores the output's
    quantization. `limits` are the least and the greatest element that an output may have, if the
    kernel clamps: stored integers, or real numbers if the output has no integers; None if the
    kernel does not clamp.
    """

    storage: Storage
    reading: Reading = Reading.STORED
    reasons: tuple[str, ...] = ()
    written: Storage | None = None
    limits: tuple[float, float] | None = None

    @property
    def why(self) -> str:
        """The reasons, each once."""
        return "; ".join(dict.fromkeys(self.reasons))


class StorageOptions(Protocol):
    """The options of a conversion that the plan reads (`options.ConversionOptions`)."""

    @property
    def quantization(self) -> str: ...
    @property
    def activations(self) -> str: ...
    @property
    def weights(self) -> str: ...
    @property
    def dynamic_range(self) -> str: ...
    @property
    def forms(self) -> str: ...
    @property
    def float16(self) -> bool: ...


class StoragePlan(NamedTuple):
    """The storage of all operands; an operator's input i has the key i, its output i the key ~i.

    A plan that is made without operators has only the storage of tensors.
    """

    float_only: bool = False
    rounds: bool = False  # whether these floats are those that the stored integers stand for
    int8_as_uint8: bool = False
    weights: str = "auto"
    canonical: bool = False
    symmetric: bool = False
    uniform: bool = False  # whether each tensor has one scale for all operators
    keeps_data: bool = False  # whether float data that LiteRT quantizes at run time stay float
    qoperator: str = ""  # the value of the option `quantization`, if it asks for QLinear products
    finds_processor: bool = False  # whether nodes of the model test the processor
    inner_states: Collection[Tensor] = ()  # the states that are stored as inside the model
    operands: Mapping[Op, Mapping[int, OperandStorage]] = MappingProxyType({})
    tensors: Mapping[Tensor, OperandStorage] = MappingProxyType({})

    def find_storage(self, tensor: Tensor) -> OperandStorage:
        if tensor in self.tensors:
            return self.tensors[tensor]
        case = TensorCase(tensor, self.float_only, self.int8_as_uint8)
        storage, rule = choose(TENSORS, case)
        return OperandStorage(storage, reasons=(rule.why,))

    def find_endpoint_storage(self, tensor: Tensor) -> OperandStorage:
        """Return the storage of a tensor as an input, output or state of the model."""
        rule = STATE if tensor in self.inner_states else ENDPOINT
        float_only = self.float_only and (rule is STATE or not self.rounds)
        case = TensorCase(tensor, float_only, self.int8_as_uint8)
        return OperandStorage(rule.choose(case), reasons=(rule.why,))

    def applies_activation(self, output: OperandStorage) -> bool:
        """Return whether an activation is applied to real numbers, before they are quantized.

        The range of integers with the zero point 0 implies no activation, and runtimes for
        symmetric integers fuse an activation before QuantizeLinear.
        """
        return self.symmetric and output.reading is Reading.DEQUANTIZED

    def find_result_storage(self, tensor: Tensor) -> OperandStorage:
        """Return how a sub-graph reads its result, with the reasons."""
        inside = self.find_storage(tensor)
        is_float = self.float_only and inside.storage.quantization is not None
        return inside._replace(reading=Reading.FLOAT if is_float else Reading.STORED)

    def find_inner_storage(self, storage: Storage) -> Storage:
        """Return the storage of a value inside an operator, given the storage in the kernel."""
        chosen_storage: Storage = INNER.choose(OperandCase(storage, float_only=self.float_only))
        return chosen_storage

    def find_inner_weights(self, x: Tensor, weights: Tensor) -> OperandStorage:
        """Return the storage of weights of a recurrent layer that multiply x."""
        storage, rule = find_weight_storage(x, weights, self.weights, folds=True)
        role = "weights" if weights.rank > 1 else "vector"
        case = OperandCase(storage, role, float_only=self.float_only)
        reading, reading_rule = choose(READINGS, case)
        return OperandStorage(storage, reading, (rule.why, reading_rule.why))


def plan(
    operators: Sequence[Declared], options: StorageOptions, inner_states: Collection[Tensor] = ()
) -> StoragePlan:
    """Plan the storage of all operands of all operators, also in sub-graphs.

    `inner_states` are the inputs and outputs that are stored as inside the model.

    Raises:
        UnsupportedOperators: the options or constants of an operator contradict each other.
    """
    activation_type = options.activations
    uses_uint8 = activation_type in ("uint8", "uint16") or (
        activation_type == "auto" and _prefers_uint8(operators)
    )
    mode = options.quantization
    common = StoragePlan(
        mode in ("float", "rounded"),
        mode == "rounded",
        uses_uint8,
        options.weights,
        options.forms == "canonical",
        mode == "symmetric",
        mode == "qdq-uniform",
        # `keeps_data`: data that are quantized at run time have a zero point, or are float.
        mode in ("float", "rounded", "symmetric") or options.dynamic_range == "float",
        mode if mode.startswith("qoperator") else "",
        # `finds_processor`: in float16 runtimes would dequantize adaptive weights in each run.
        options.weights == "adaptive" and not options.float16,
        inner_states,
    )
    used_tensors = dict.fromkeys(t for o in operators for t in list_operands(o.op).values())
    tensors = {t: common.find_storage(t) for t in used_tensors}
    common = common._replace(tensors=tensors)
    nested = {op for o in operators for graph in o.op.graphs for op in graph.ops}
    operands: dict[Op, Mapping[int, OperandStorage]] = {}
    for operator in operators:
        op, operands_of_op = operator.op, list_operands(operator.op)
        if not any(tensor.quantization for tensor in operands_of_op.values()):
            operands[op] = {i: tensors[tensor] for i, tensor in operands_of_op.items()}
            continue
        with as_unsupported(op.place):
            operands[op] = _Planner(operator, common, is_nested=op in nested).plan_operands()
    return common._replace(operands=operands)


def _prefers_uint8(operators: Sequence[Declared]) -> bool:
    """Return whether int8 activations are better stored as uint8: an operator computes with them.

    If any int8 tensor has no scale, all int8 tensors stay int8: an operator may move elements from
    a tensor without a scale to a tensor with a scale.
    """
    int8 = [(t, o) for o in operators for t in o.op.outputs if t.dtype is DType.INT8]
    return all(is_quantized(t) for t, _ in int8) and any(not reads_integers(o) for _, o in int8)


class _Planner:
    def __init__(self, operator: Declared, plan: StoragePlan, *, is_nested: bool) -> None:
        self.op, self.declared = operator.op, operator.quantization
        self.activation = operator.activation
        if plan.uniform and operator.activation == self.op.code:
            self.activation = "NONE"  # The operator itself limits real numbers.
        in_file_types = isinstance(self.declared, Integers) and self.declared.in_file_types
        has_unscaled = find_tensor_without_scale(self.op) is not None
        if in_file_types or has_unscaled:
            plan = plan._replace(int8_as_uint8=False, tensors={})
        self.plan = plan
        self.integers = plan._replace(float_only=False, tensors={}) if plan.float_only else plan
        if plan.symmetric and isinstance(self.declared, Real):
            self.declared = drop_common_zero_point(self.declared)
        # Split, Tile, Resize and ArgMax do not support int8 in some runtimes. Sub-graphs pass
        # stored integers on. Integers without a scale are no real numbers.
        is_portable = plan.uniform or (plan.symmetric and plan.canonical)
        has_real_numbers = not (operator.op.graphs or has_unscaled)
        is_real = plan.float_only or (is_portable and has_real_numbers)
        self.real = _computes_real_numbers(operator, prefers_real=is_real)
        # One input is moved as real numbers in its own scale, which the output may not have.
        self.rescales = plan.uniform and is_real and _moves_one_input(operator)
        self.real |= self.rescales
        self.dynamic = "" if plan.keeps_data else quantizes_data(operator)
        # Some runtimes do not find the weights of a product of float data and integers in a nested
        # graph, and reject the model.
        self.is_nested = is_nested

    def plan_operands(self) -> dict[int, OperandStorage]:
        return {i: self._plan_operand(i, t) for i, t in list_operands(self.op).items()}

    def _plan_operand(self, operand: int, tensor: Tensor) -> OperandStorage:
        declaration, plan, x = self.declared, self.plan, self.op.inputs[0]
        is_real = self.real
        if isinstance(declaration, Real) and operand in declaration.multiplies and x is not None:
            return plan.find_inner_weights(x, tensor)
        if isinstance(declaration, Real) and operand in declaration.moves:
            is_real = plan.float_only
        role = _find_role(declaration, operand)
        storage, reason = self._choose_storage(operand, role, tensor)
        # The bias of QLinearConv is int32.
        real_bias = (plan.canonical or plan.weights == "float") and not plan.qoperator
        real_bias |= x is not None and x.dtype is DType.INT16
        case = OperandCase(
            storage, role, is_real, plan.float_only, self.dynamic, real_bias, plan.uniform
        )
        reading, reading_rule = choose(READINGS, case)
        planned = OperandStorage(storage, reading, (reason, reading_rule.why))
        return planned if operand >= 0 else self._plan_output(planned, operand, tensor)

    def _choose_storage(self, operand: int, role: str, tensor: Tensor) -> tuple[Storage, str]:
        declaration = self.declared
        if isinstance(declaration, Product) and tensor.data is not None:
            x, w = self.op.inputs[declaration.data], self.op.inputs[declaration.weights]
            if x is not None and w is not None and role == "weights":
                storage, rule = find_weight_storage(
                    x,
                    w,
                    self.plan.weights,
                    folds=declaration.folds
                    or self.dynamic == "rows"
                    or (self.is_nested and not self.dynamic),
                    depthwise=declaration.depthwise,
                    as_integers=self.dynamic == "integers",
                    results=self.op.outputs[0].shape,
                    units=declaration.units,
                )
                if x.dtype is DType.INT16 and not self.plan.canonical:
                    storage = storage._replace(folds=storage.quantization is not None)
                return storage, rule.why
            if x is not None and w is not None and role == "bias":
                stored = find_bias_storage(x, w, tensor)
                if stored is not None:
                    return stored, BIAS.why
        if isinstance(declaration, Real) and declaration.folds and tensor.data is not None:
            storage, reason = self._find_tensor_storage(tensor)
            return storage._replace(folds=True), reason
        if (
            isinstance(declaration, Real)
            and self.real
            and not self.plan.float_only
            and not (self.plan.uniform and tensor.data is None)
            and operand >= 0
        ):
            reads = declaration.reads[operand] if operand < len(declaration.reads) else None
            if reads is not None:
                tensor = _with_quantization(tensor, reads)
        return self._find_tensor_storage(tensor)

    def _plan_output(self, planned: OperandStorage, operand: int, tensor: Tensor) -> OperandStorage:
        activation = self.activation if operand == ~0 else "NONE"
        written = self._find_written_storage(tensor) if operand == ~0 else None
        if planned.reading is not Reading.FLOAT:
            is_written = planned.reading in (Reading.DEQUANTIZED, Reading.UNIFORM)
            written = written if is_written else None
            applied = self.plan.applies_activation(planned)
            bounds = None if applied else clamp(activation, planned.storage)
            return planned._replace(written=written, limits=bounds)
        source = written or planned.storage
        # Converters omit an activation that the range of the integers implies. Without the limits
        # of this range, the activation would be missing.
        limits = compute_real_bounds(activation, planned.storage, source)
        declaration = self.declared
        moves = (
            operand in declaration.moves
            if isinstance(declaration, Real)
            else isinstance(declaration, Moves)
        )
        # Numbers of another scale are rounded even if they are only moved.
        moves &= activation == "NONE" and not (self.plan.rounds and not has_one_scale(self.op))
        has_limits = len(source.scale) == 1 and not moves
        return planned._replace(written=written, limits=limits if has_limits else None)

    def _find_written_storage(self, tensor: Tensor) -> Storage | None:
        declaration = self.declared
        if self.rescales and self.op.inputs[0] is not None:
            scale = self.op.inputs[0].quantization
        elif not isinstance(declaration, (Real, Integers)):
            return None
        else:
            scale = declaration.kernel_writes
        if isinstance(declaration, Real) and not (self.plan.float_only or self.plan.uniform):
            scale = declaration.writes or scale
        if scale is None or scale.same_as(tensor.quantization):
            return None
        return self._find_tensor_storage(_with_quantization(tensor, scale))[0]

    def _find_tensor_storage(self, tensor: Tensor) -> tuple[Storage, str]:
        planned = self.integers.find_storage(tensor)
        return planned.storage, planned.reasons[0]


def _computes_real_numbers(operator: Declared, *, prefers_real: bool) -> bool:
    """Return whether an operator reads and writes real numbers.

    With `prefers_real`, an operator on stored integers also reads real numbers if the result is the
    same.
    """
    declaration = operator.quantization
    if isinstance(declaration, Real):
        return prefers_real or not declaration.tabulates
    if isinstance(declaration, Product) or not reads_integers(operator):
        return not reads_integers(operator)
    if isinstance(declaration, Integers) and declaration.in_file_types:
        return False
    return prefers_real and (declaration.keeps_scales or has_one_scale(operator.op))


def _moves_one_input(operator: Declared) -> bool:
    """Return whether an operator moves the stored integers of its first input to one output.

    The zero points must be equal: PAD adds that of the output.
    """
    quantized = [t.quantization for t in operator.op.present if is_quantized(t)]
    written = [t.quantization for t in operator.op.outputs if is_quantized(t)]
    is_movement = isinstance(operator.quantization, Moves) and reads_integers(operator)
    if not is_movement or len(quantized) != 1 or len(written) != 1:
        return False
    (x,), (y,) = quantized, written
    return x is not None and y is not None and np.array_equal(x.zero_point, y.zero_point)


def _with_quantization(tensor: Tensor, quantization: Quantization) -> Tensor:
    return replace(tensor, quantization=quantization) if is_quantized(tensor) else tensor


def _find_role(declaration: Declaration, operand: int) -> str:
    """Return "data", "weights" or "bias" for an operand of a product, "" for others."""
    if not isinstance(declaration, Product):
        return ""
    roles = {declaration.bias: "bias", declaration.weights: "weights", declaration.data: "data"}
    return roles.get(operand, "")
