"""A graph with its layout plan, which the forms of a target read.

The plan is made when it is first needed, and again for each graph that a form returns.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import NamedTuple

from tflite2onnx.errors import collect_errors
from tflite2onnx.graph import Graph
from tflite2onnx.interface import make_interface
from tflite2onnx.layout import Order, Plan, Site, make_channels_first, make_order
from tflite2onnx.op.base import Operator
from tflite2onnx.passes.shape_walk import OperatorOf
from tflite2onnx.tensor import Tensor

Planner = Callable[[Sequence[Site]], Plan]
_IMAGE = 4  # axes


def make_sites(operators: Iterable[Operator], known: dict[Operator, Site]) -> list[Site]:
    """Return operators as sites of the plan; UnsupportedOperators lists all that are not valid.

    `known` has the sites that were made before, and receives the others.
    """
    operator_sites = []
    with collect_errors() as errors:
        for operator in operators:
            op = operator.op
            with errors.at(op.place):
                if operator not in known:
                    operator.verify()
                    frames = tuple(operator.frames())
                    known[operator] = Site(op.plan_inputs, op.plan_outputs, frames)
                operator_sites.append(known[operator])
    return operator_sites


class Planned(NamedTuple):
    """The operators of a graph, the graph's interface, the operators as sites, and their plan.

    The first orders of the plan are those of the interface.
    """

    operators: Sequence[Operator]
    interface: Site
    sites: Sequence[Site]
    plan: Plan


class Planning(NamedTuple):
    """What a plan depends on besides the operators: the orders that the user wants, and options.

    Most operators are the same in the next graph that is planned: `sites` has their sites.
    """

    operator_of: OperatorOf
    planner: Planner
    user_orders: Mapping[Tensor, Order]
    io_layout: str
    sites: dict[Operator, Site]

    def plan(self, graph: Graph) -> Planned:
        """Plan the orders of all tensors of a graph; see `make_sites` for the errors."""
        operators = [*map(self.operator_of, graph.walk_ops())]
        sites = make_sites(operators, self.sites)
        interface = make_interface(graph, self.user_orders, self.io_layout)
        return Planned(operators, interface, sites, self.planner([interface, *sites]))


@dataclass(frozen=True, eq=False)
class PlannedGraph(Graph):
    """A graph whose plan is known."""

    planning: Planning = field(kw_only=True)

    @cached_property
    def planned(self) -> Planned:
        return self.planning.plan(self)

    @cached_property
    def orders(self) -> Mapping[Tensor, Order]:
        """The order in which each input and each computed tensor is stored."""
        _, interface, sites, plan = self.planned
        return {
            tensor: orders[~i]
            for site, orders in zip((interface, *sites), plan.orders, strict=True)
            for i, tensor in enumerate(site.writes)
        }

    def without_plan(self) -> Graph:
        """Return the graph without its plan, and without the tensors that the file lists."""
        parts = {part.name: getattr(self, part.name) for part in fields(Graph)}
        return Graph(**{**parts, "tensors": ()})


def plan_graph(graph: Graph, planning: Planning) -> PlannedGraph:
    """Return a graph with its plan."""
    parts = {part.name: getattr(graph, part.name) for part in fields(Graph)}
    return PlannedGraph(**parts, planning=planning)


def has_channels_first(graph: Graph, image: Tensor) -> bool:
    """Return whether a `PlannedGraph` stores an image with channels first.

    No plan is made if the operator that computes the image pins its order.
    """
    if not isinstance(graph, PlannedGraph):
        raise TypeError(f"the graph must be planned, got a {type(graph).__name__}")
    if image.rank != _IMAGE:
        return False
    order = _find_pinned_order(graph, image) or graph.orders.get(image)
    return order == make_channels_first(_IMAGE)


def _find_pinned_order(graph: PlannedGraph, tensor: Tensor) -> Order | None:
    op = graph.producers.find(tensor)
    frames = graph.planning.operator_of(op).frames() if tensor in op.outputs else ()
    for frame in frames:
        axes = frame.slots.get(~op.outputs.index(tensor))
        if axes and frame.label:
            return make_order(axes, frame.label)
    return None
