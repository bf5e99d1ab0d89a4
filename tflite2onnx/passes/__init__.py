"""The passes, in the order in which they run; a new pass is a line of a tuple below.

A pass takes a model or a graph in TFLite's operators and returns an equivalent one. Most passes
look for operators that few models have: `apply_if_present` imports and runs them for these models.
scripts/make_gates.py writes the codes of these operators for passes that are rules.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from importlib import import_module
from itertools import chain
from traceback import walk_tb
from typing import TypeAlias, TypeVar

from tflite2onnx.errors import InternalWarning, OperatorError, collect_errors
from tflite2onnx.extensions import list_offered_passes, list_packages
from tflite2onnx.graph import NO_OP, Graph, Model, Op
from tflite2onnx.op import find_operator
from tflite2onnx.op.registry import find_entry_points
from tflite2onnx.passes.dynamic_shapes import infer_shapes
from tflite2onnx.passes.fold_constants import fold_operators
from tflite2onnx.passes.recurrent.step_codes import may_have_steps
from tflite2onnx.passes.shape_walk import OperatorOf
from tflite2onnx.passes.simplify import (
    align_axes,
    densify_constants,
    eliminate_dead_operators,
    remove_copies,
)
from tflite2onnx.passes.state.lift_variables import lift_variables
from tflite2onnx.passes.stored_numbers.flip_negative_scales import flip_negative_scales
from tflite2onnx.tensor import DType

T = TypeVar("T", Model, Graph)
ModelPass: TypeAlias = Callable[[Model], Model]
GraphPass: TypeAlias = Callable[[Graph], Graph]
Group: TypeAlias = tuple[GraphPass, ...]  # passes whose order does not matter

_CONVOLUTIONS = "patterns.convolutions"
# Where passes, and the forms of targets, stand.
_FOLDERS = (f"{__name__}.", "tflite2onnx.targets.")
_NORMALIZATIONS = "patterns.fuse_normalizations"
_FUSE_CONVOLUTIONS = f"{_CONVOLUTIONS}.fuse_convolutions"


def apply_if_present(prefixes: str, path: str, package: str = __name__) -> Callable[[T], T]:
    """Return a pass that runs if an operator's code or activation begins with one of `prefixes`.

    After "float32: " or another type, operators must compute this type. `path` is the path
    of the module below `package`; the function has the name of the module, or the name after a
    colon. The module is imported when the pass runs for the first time.
    """
    kind, _, codes = prefixes.rpartition(": ")
    begins, dtype = tuple(codes.split()), DType[kind.upper()] if kind else None

    def run_if_present(value: T) -> T:
        graphs = value.graphs if isinstance(value, Model) else (value,)
        present = any(code.startswith(begins) for graph in graphs for code in graph.codes)
        if present and dtype:
            typed = (pair for graph in graphs for pair in graph.typed_codes)
            present = any(each is dtype and code.startswith(begins) for code, each in typed)
        return find_pass(path, package)(value) if present else value

    return run_if_present


def apply_pattern(prefixes: str, path: str, package: str = __name__) -> Callable[[T], T]:
    """Return a pass, like `apply_if_present`, whose errors do not end a conversion.

    After an OperatorError the graph is unchanged: the operator raises the error again when it is
    emitted. Any other exception is a bug of the pass, because operators are verified. The graph is
    unchanged then too, and an `InternalWarning` is raised, which is an error in tests.
    """
    change: Callable[[T], T] = apply_if_present(prefixes, path, package)

    def run_or_warn(value: T) -> T:
        try:
            return change(value)
        except OperatorError:
            return value
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - any bug
            bug = f"the model is converted without a pass that has a bug: {describe_bug(error)}"
            warnings.warn(bug, InternalWarning, stacklevel=1)
            return value

    return run_or_warn


def describe_bug(error: Exception) -> str:
    """Return a message with the pass, and the operator if known, that raised an exception."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    modules = [str(frame.f_globals["__name__"]) for frame in frames]
    folders = (*_FOLDERS, *(f"{package}." for package in list_packages()))
    passes = [name.rpartition(".")[2] for name in modules if name.startswith(folders)]
    # The pass of a rule says more than the drivers of all rules and of all forms.
    passes.sort(key=lambda name: name in ("rules", "driver"))
    values = [value for frame in frames for value in frame.f_locals.values()]
    places = [local.place for local in values if isinstance(local, Op) and local is not NO_OP]
    # The repr of an object, as in a KeyError, may be longer than memory: formulas are graphs.
    is_text = all(isinstance(each, str | int | float) for each in error.args)
    reason = str(error) if is_text else ", ".join(type(each).__name__ for each in error.args)
    return ": ".join([*passes[:1], *places[-1:], f"{type(error).__name__}: {reason}"])


def find_pass(path: str, package: str = __name__) -> Callable[[T], T]:
    """Return the function of a path, which `apply_if_present` describes."""
    name, _, function = path.partition(":")
    result: Callable[[T], T] = getattr(
        import_module(f"{package}.{name}"), function or name.rpartition(".")[2]
    )
    return result


def apply_offered(receives: str, value: T) -> T:
    """Return a model or graph after the passes that packages offer for it (`extensions.py`)."""
    find_entry_points()  # packages that are installed, but not imported, offer passes then
    for offered in list_offered_passes(receives):
        package, _, path = offered.path.rpartition(".")
        if offered.codes:
            value = apply_if_present(offered.codes, path, package)(value)
        if offered.dtypes and not _list_dtypes(value).isdisjoint(offered.dtypes.split()):
            value = find_pass(path, package)(value)
    return value


def explain_unchanged(op: Op) -> str:
    """Return why no offered pass has replaced an operator, "" if none knows a reason."""
    for offered in list_offered_passes("models"):
        if offered.explain and op.code.startswith(tuple(offered.codes.split())):
            module, _, name = offered.explain.partition(":")
            why: str = getattr(import_module(module), name)(op)
            if why:
                return why
    return ""


def _list_dtypes(value: Model | Graph) -> set[str]:
    """Return the names of the element types in a model or graph."""
    graphs = value.graphs if isinstance(value, Model) else (value,)
    dtypes = {t.dtype for graph in graphs for t in graph.walk_tensors()}
    return {dtype.name for dtype in dtypes}


# Passes over a whole model.
MODEL_PASSES: tuple[ModelPass, ...] = (
    densify_constants,  # all other passes read the elements of constants
    partial(apply_offered, "models"),
)


def list_entry_point_passes(
    model: Model, index: int, operator_of: OperatorOf = find_operator
) -> tuple[GraphPass, ...]:
    """Return the passes for the graph that `inline_subgraphs` makes of a model's entry point."""
    lowerings: Sequence[GraphPass] = (
        partial(lift_variables, model=model, index=index),  # ONNX has no variables.
        # Keras's layers that count numbers compute a size that two equal limits determine.
        apply_pattern("FlexBincount FlexDenseBincount", "patterns.fold_limits"),
        partial(apply_offered, "graphs"),
        # The slices have data-dependent shapes. The replacement has none.
        apply_pattern("CONCATENATION", "patterns.fuse_list_assignment"),
    )
    return (
        partial(_infer_shapes_around, lowerings, operator_of),
        # Operators have no classes for float16 that only the delegate runs.
        apply_pattern(
            "float16: ABS ADD AVERAGE_POOL_2D BATCH_MATMUL CEIL CONV_2D DEPTHWISE_CONV_2D DIV ELU EXP FULLY_CONNECTED HARD_SWISH LEAKY_RELU LOG MEAN MUL PRELU REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_N1_TO_1 RSQRT SQRT SQUARE SQUARED_DIFFERENCE SUB SUM",  # noqa: E501 - scripts/make_gates.py writes it
            "stored_numbers.widen_half",
        ),
        eliminate_dead_operators,  # an unread operator could make the size of a slice dynamic
        flip_negative_scales,  # QuantizeLinear needs positive scales
        # ONNX's BitCast is of opset 26, which few runtimes load.
        apply_pattern("BITCAST IS_NEGATIVE", "patterns.fuse_bits"),
    )


def _infer_shapes_around(
    lowerings: Sequence[GraphPass], operator_of: OperatorOf, graph: Graph
) -> Graph:
    """Return the graph after passes that read shapes, with the shapes of the new operators.

    The shapes that the file declares for computed tensors are not read after this pass.
    """
    inferred = infer_shapes(graph, operator_of)
    lowered = apply_passes(lowerings, inferred)
    return lowered if lowered is inferred else infer_shapes(lowered, operator_of)


def list_canonical_passes(operator_of: OperatorOf = find_operator) -> tuple[GraphPass, ...]:
    """Return the passes for the graph of the entry point, after dynamic axes have names."""
    return (
        fold_operators,  # fewer operators for the passes below
        remove_copies,  # fewer operators for the passes below
        partial(verify_operators, operator_of),  # the passes below receive valid operators
        *chain.from_iterable(CANONICAL_GROUPS),
    )


def verify_operators(operator_of: OperatorOf, graph: Graph) -> Graph:
    """Return the graph with verified operators; UnsupportedOperators lists all refused ones."""

    def verify(op: Op) -> list[Op]:
        operator = operator_of(op)
        with errors.at(op.place):
            operator.verify()
        return [operator.op]

    with collect_errors() as errors:
        return graph.rewrite(verify)


# All steps have one of these functions.
_raise_steps: GraphPass = apply_pattern("HARD_SIGMOID RELU TANH", "recurrent.raise_recurrent_steps")


def raise_unrolled_layers(graph: Graph) -> Graph:
    """Return the graph after a pass whose modules take long to import, if it may have steps."""
    return _raise_steps(graph) if may_have_steps(graph) else graph


# The groups apply in order. The passes of a group apply in any order, which tests shuffle
# (`tests/support/shuffle.py`): none reads what another makes, or both orders end alike.
CANONICAL_GROUPS: tuple[Group, ...] = (
    # Recurrent layers and rectifiers contain activations.
    (
        apply_pattern(
            "float32: FlexErf MINIMUM RELU6 RELU_0_TO_1 TANH", "patterns.fuse_activations"
        ),
        apply_pattern("SELECT_V2", "patterns.join_assigned"),
    ),
    # Before parts are dropped: layers without a loop have all steps.
    (apply_if_present("WHILE", "recurrent.raise_recurrent_loops"), raise_unrolled_layers),
    (
        apply_pattern("CONCATENATION PACK", "patterns.join_parts:drop_other_parts"),
        apply_pattern("BROADCAST_TO TILE TRANSPOSE", "patterns.fuse_rearrangements"),
        apply_pattern(
            "ABS GREATER LESS MAXIMUM MINIMUM PRELU RELU SELECT SIGN", "patterns.fuse_rectifiers"
        ),
        apply_pattern("float32: EXP", f"{_NORMALIZATIONS}:fuse_softmax"),
        apply_pattern("float32: RSQRT SQRT", f"{_NORMALIZATIONS}:fuse_group_normalizations"),
        apply_pattern("TRANSPOSE", f"{_CONVOLUTIONS}.fuse_spread_sequences"),
    ),
    # After softmax, groups and sequences have been found in the parts that these passes change.
    (
        apply_pattern("PACK SPLIT SPLIT_V", "patterns.join_parts"),
        apply_pattern("float32: SOFTMAX", "patterns.drop_masks"),
        apply_pattern("MEAN", _NORMALIZATIONS),
        apply_pattern("CONV_2D DEPTHWISE_CONV_2D", f"{_CONVOLUTIONS}.compute_images"),
    ),
    # After other normalizations, and convolutions of images.
    (
        apply_pattern("float32: POW RSQRT SQRT", f"{_NORMALIZATIONS}:fuse_rms_normalizations"),
        apply_if_present("BATCH_TO_SPACE_ND", f"{_FUSE_CONVOLUTIONS}:fuse_dilated_convolutions"),
        apply_if_present("float32: LOGISTIC", "expand_output_sigmoid"),
    ),
    # The patterns above contain products by constants.
    (apply_pattern("float32: ADD DIV MUL SUB", "patterns.fold_into_products"),),
    # The layout planner requires operands of equal rank.
    (align_axes,),
    # A RESHAPE between images, or an image and a dense layer, would need Transposes.
    (
        apply_if_present("RESHAPE", "simplify:keep_axes"),
        apply_if_present("FULLY_CONNECTED", "simplify:absorb_flatten"),
    ),
    (
        apply_if_present("PAD PADV2", f"{_FUSE_CONVOLUTIONS}:fuse_pads_into_convolutions"),
        apply_if_present("CAST", "simplify:trust_indices"),
    ),
    # The passes above leave operators whose outputs no operator reads.
    (eliminate_dead_operators,),
)


def apply_passes(passes: Iterable[Callable[[T], T]], value: T) -> T:
    """Return the model or graph after all passes, applied in order."""
    return reduce(lambda result, change: change(result), passes, value)
