"""The layout plan: the axis order of each stored tensor, chosen so that the fewest bytes move.

docs/layout.md describes orders, frames, labels and colours. A **site** has operands: it is an
operator, or the inputs and outputs of the graph. `plan` propagates labels along the tensors between
sites (`_Flood`), chooses a label for each frame (`labelling`), and derives the orders (`_Problem`).
Axes that share a name stay together in TFLite order. A TRANSPOSE propagates names, not positions.

Guarantees: among the labels that are propagated, the plan is the optimum wherever no more than two
colours meet (TFLite's order and one other, as in nearly every network), and wherever more colours
meet among few frames; see `labelling`. No other legal label can do better as long as all operands
of each free frame carry all its names, `legal` forbids none of the labels, and no axis has size 1
in some of these operands only. Otherwise there may be a better label that is not propagated; in
random graphs of such frames this happens in up to 0.5 % of the graphs.

This module depends neither on operators nor on ONNX.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from tflite2onnx.solver.labelling import Hyperedge, minimize_cost
from tflite2onnx.tensor import Shape, Tensor

Order = tuple[int, ...]
Axes = tuple[str, ...]

# The largest number of labels of a frame. More than three are rare. More than this limit would let
# a damaged file take forever.
_MOST_LABELS = 8


class Choice(Enum):
    """The labels that a frame may have."""

    FREE = "any legal label"
    INTERFACE = "the TFLite order, or channels first where an operator gives the axes a meaning"
    CHANNELS_FIRST = "channels first wherever an operator gives the axes a meaning"


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """Axes that move together.

    `slots` maps operands to the names of their axes in TFLite order; inputs count from 0, outputs
    from ~0 downwards. `names` are all names in their TFLite sequence. A frame with a `label` is
    pinned. `legal` restricts the labels of a free frame, but always allows `names`. `semantic` is
    set if the pinned order gives the axes a meaning, such as the channels of a convolution. A free
    frame may have a `meaning`: its label in such an order.
    """

    slots: Mapping[int, Axes]
    names: Axes
    label: Axes | None = None
    legal: Callable[[Axes], bool] | None = None
    choice: Choice = Choice.FREE
    semantic: bool = False
    meaning: Axes | None = None

    def allows(self, label: Axes) -> bool:
        """Return whether the frame is free and can have this label."""
        return self.label is None and (self.legal is None or self.legal(label))


@dataclass(frozen=True, eq=False, slots=True)
class Site:
    """An operator or the graph's interface: the tensors that it reads and writes, and its frames.

    Operands in no frame keep the TFLite order.
    """

    reads: tuple[Tensor | None, ...]
    writes: tuple[Tensor, ...]
    frames: tuple[Frame, ...]


class Plan(NamedTuple):
    """The order of each operand of each site; `bytes_moved` and `moves` are the cost."""

    orders: tuple[Mapping[int, Order], ...]
    bytes_moved: int = 0
    moves: int = 0


def make_identity(rank: int) -> Order:
    """Return the TFLite order."""
    return tuple(range(rank))


def make_channels_first(rank: int) -> Order:
    """Return the order that puts the last axis after the first: NHWC -> NCHW."""
    return (0, rank - 1, *range(1, rank - 1)) if rank > 2 else make_identity(rank)


def axis_names(rank: int) -> Axes:
    """Return names for the axes of a tensor whose axes have no names: their numbers."""
    return tuple(str(i) for i in range(rank))


def pin_operand(operand: int, order: Order, *, meaning: bool = False) -> Frame:
    """Return a frame that pins one operand to an order."""
    names = axis_names(len(order))
    label = tuple(names[i] for i in order)
    return Frame({operand: names}, names, label, semantic=meaning)


@lru_cache(maxsize=1 << 14)
def make_order(axes: Axes, label: Axes) -> Order:
    """Return the order that a label gives to a tensor with these names on its axes."""
    axes_of: dict[str, list[int]] = {}
    for axis, name in enumerate(axes):
        axes_of.setdefault(name, []).append(axis)
    return tuple(axis for name in label for axis in axes_of.get(name, ()))


@lru_cache(maxsize=1 << 14)
def find_labels(axes: Axes, order: Order, names: Axes) -> tuple[Axes, ...]:
    """Return the labels that give a tensor an order, none if axes of one name would be separated.

    There are two labels if the tensor lacks some of the names: each missing name follows the name
    that it follows in TFLite order, or precedes the name that it precedes.
    """
    present = tuple(dict.fromkeys(axes[axis] for axis in order))
    if make_order(axes, present) != order:
        return ()
    after = _insert_missing(present, names)
    before = _insert_missing(present[::-1], names[::-1])[::-1]
    return tuple(dict.fromkeys((after, before)))


def _insert_missing(present: Axes, names: Axes) -> Axes:
    """Return names, with each missing name after the name that it follows, else in front."""
    result = list(present)
    for name, previous in zip(names, (None, *names), strict=False):
        if name not in result:
            result.insert(0 if previous is None else result.index(previous) + 1, name)
    return tuple(result)


@lru_cache(maxsize=1 << 14)
def without_unit_axes(shape: Shape, order: Order) -> Order:
    """Return the order of the axes whose size is not 1, which fixes the sequence of the bytes."""
    return tuple(axis for axis in order if shape[axis] != 1)


def moves_nothing(shape: Shape, a: Order, b: Order) -> bool:
    """Return whether two orders differ only in the positions of axes of size 1."""
    return a == b or without_unit_axes(shape, a) == without_unit_axes(shape, b)


def plan(sites: Sequence[Site]) -> Plan:
    """Choose the order of every operand of every site at the least cost."""
    problem = _Problem(sites)
    flood = _Flood(problem)
    return problem.plan(flood.choices, flood.list_proposals())


def plan_with(sites: Sequence[Site], choose: Callable[[Frame], Axes]) -> Plan:
    """Return the plan that labels every free frame with `choose`: legal, but rarely cheap."""
    problem = _Problem(sites)
    return problem.plan([[choose(f) if f.label is None else f.label] for f in problem.frames])


_End = tuple[int, Axes]  # a frame, and the names that it gives to the axes of a tensor


@dataclass(frozen=True, eq=False, slots=True)
class _Edges:
    """The frame that writes a tensor, first, and the frames that read the tensor."""

    tensor: Tensor
    ends: Sequence[_End]


class _Problem:
    """The frames of all sites, and the tensors between them, indexed both ways."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.frames: list[Frame] = []
        self._unmoved: dict[int, _End] = {}
        self._written = {tensor for site in sites for tensor in site.writes}
        self._ends = [self._add(site) for site in sites]
        producers: dict[Tensor, _End] = {}
        readers: dict[Tensor, list[_End]] = {}
        for site, ends in zip(sites, self._ends, strict=True):
            producers |= {tensor: ends[~i] for i, tensor in enumerate(site.writes)}
            for i, tensor in enumerate(site.reads):
                if tensor in self._written:
                    readers.setdefault(tensor, []).append(ends[i])
        # A tensor without a producer is a constant: moving it costs nothing, and it propagates no
        # order from one reader to another.
        self.tensors = [_Edges(t, [end, *readers.get(t, ())]) for t, end in producers.items()]
        # Bytes count more than moves: a move costs 1, and a byte costs more than all moves
        # together.
        self._byte_cost = 1 + sum(len(edges.ends) for edges in self.tensors)

    def _add(self, site: Site) -> dict[int, _End]:
        """Add the frames of a site; return the frame and the axis names of each operand."""
        ends: dict[int, _End] = {}
        for frame in site.frames:
            ends |= {operand: (len(self.frames), axes) for operand, axes in frame.slots.items()}
            self.frames.append(frame)
        operands = [(i, t) for i, t in enumerate(site.reads) if t is not None]
        for operand, tensor in [*operands, *((~i, t) for i, t in enumerate(site.writes))]:
            if operand not in ends:
                is_computed = tensor in self._written
                ends[operand] = self._pin(tensor.rank) if is_computed else self._keep(tensor.rank)
        return ends

    def _pin(self, rank: int) -> _End:
        """Add a frame that keeps the TFLite order of an operand."""
        self.frames.append(pin_operand(0, make_identity(rank)))
        return len(self.frames) - 1, axis_names(rank)

    def _keep(self, rank: int) -> _End:
        """Return the frame that keeps the TFLite order of all constants of a rank."""
        if rank not in self._unmoved:
            self._unmoved[rank] = self._pin(rank)
        return self._unmoved[rank]

    def plan(
        self, choices: Sequence[Sequence[Axes]], proposals: Sequence[Mapping[int, int]] = ()
    ) -> Plan:
        """Choose a label for each frame, and derive the orders."""
        hyperedges = [
            self._make_hyperedge(edges, choices)
            for edges in self.tensors
            if self._may_move(edges, choices)
        ]
        labelling = minimize_cost([len(labels) for labels in choices], hyperedges, proposals)
        labels = [labels[number] for labels, number in zip(choices, labelling, strict=True)]
        orders = tuple(
            {operand: make_order(axes, labels[frame]) for operand, (frame, axes) in ends.items()}
            for ends in self._ends
        )
        return Plan(
            orders,
            *divmod(sum(edge.compute_cost(labelling) for edge in hyperedges), self._byte_cost),
        )

    @staticmethod
    def _may_move(edges: _Edges, choices: Sequence[Sequence[Axes]]) -> bool:
        """Return whether the frames of a tensor have a choice, or give it several orders."""
        if any(len(choices[frame]) > 1 for frame, _ in edges.ends):
            return True
        return len({make_order(axes, choices[frame][0]) for frame, axes in edges.ends}) > 1

    def _make_hyperedge(self, edges: _Edges, choices: Sequence[Sequence[Axes]]) -> Hyperedge:
        """Return a tensor as a hyperedge whose states are the orders of the tensor."""
        states: dict[Order, int] = {}
        ends = [
            (frame, _number_orders(states, [make_order(axes, label) for label in choices[frame]]))
            for frame, axes in edges.ends
        ]
        shape = edges.tensor.layout_shape
        classes = _number_orders({}, [without_unit_axes(shape, order) for order in states])
        return Hyperedge(ends, classes, edges.tensor.nbytes * self._byte_cost)


def _number_orders(numbered: dict[Order, int], orders: Sequence[Order]) -> list[int]:
    return [numbered.setdefault(order, len(numbered)) for order in orders]


@dataclass(eq=False, slots=True)
class _FrameColour:
    """Labels of frames, which give each tensor between the frames one order."""

    semantic: bool
    labels: dict[int, Axes] = field(default_factory=dict)
    orders: dict[_Edges, Order] = field(default_factory=dict)


class _Flood:
    """Propagates labels from frame to frame until no frame gets a new label.

    Semantic orders come first, then orders that are pinned for other reasons, then the TFLite order
    of every frame.
    """

    def __init__(self, problem: _Problem) -> None:
        self._frames = problem.frames
        self._uses: list[list[tuple[_Edges, Axes]]] = [[] for _ in problem.frames]
        # The frames of each tensor that can take a label.
        self._free: dict[_Edges, list[_End]] = {}
        for edges in problem.tensors:
            ends = dict.fromkeys(edges.ends)
            for frame, axes in ends:
                self._uses[frame].append((edges, axes))
            self._free[edges] = [end for end in ends if self._frames[end[0]].label is None]
        self._known: list[tuple[Axes, ...]] = [()] * len(problem.frames)
        self._spread: set[tuple[_Edges, Order]] = set()
        self._colours: list[_FrameColour] = []
        # A pinned frame of constants alone, such as filters, has no neighbours.
        asking = [(i, f) for i, f in enumerate(self._frames) if f.label is None or self._uses[i]]
        requests = [(i, f.label or f.meaning, f.semantic) for i, f in asking]
        pins = [(i, label, semantic) for i, label, semantic in requests if label is not None]
        defaults = [(i, f.names, False) for i, f in enumerate(self._frames) if f.label is None]
        queue = deque([*sorted(pins, key=lambda pin: not pin[2]), *defaults])
        while queue:
            frame, label, semantic = queue.popleft()
            if label not in self._known[frame]:
                self._colours.append(_FrameColour(semantic))
                queue.extendleft(self._spread_colour(frame, label, self._colours[-1]))
        self.choices = self._list_choices()

    def _list_choices(self) -> list[list[Axes]]:
        """Return the labels that each frame may take, its TFLite order first."""
        choices = [[f.names if f.label is None else f.label] for f in self._frames]
        for colour in self._colours:
            for frame, label in colour.labels.items():
                if label != self._frames[frame].names:
                    choices[frame].append(label)
        for f, labels in zip(self._frames, choices, strict=True):
            if f.choice is Choice.CHANNELS_FIRST:
                del labels[:-1]
        return choices

    def list_proposals(self) -> list[dict[int, int]]:
        """Return each colour as choices by frame; the colours closest to TFLite come last."""
        proposals = [
            {
                frame: self.choices[frame].index(label)
                for frame, label in colour.labels.items()
                if len(self.choices[frame]) > 1
            }
            for colour in self._colours
        ]
        return sorted(filter(None, proposals), key=lambda labels: [*labels.values()].count(0))

    def _spread_colour(
        self, frame: int, label: Axes, colour: _FrameColour
    ) -> list[tuple[int, Axes, bool]]:
        """Give a colour to all neighbours that it fits; return the labels that do not fit."""
        conflicts = []
        queue = deque(self._assign_colour(frame, label, colour) or ())
        while queue:
            edges, order = queue.popleft()
            for other, axes in self._free[edges]:
                request = self._find_requested_label(other, axes, order, semantic=colour.semantic)
                if request is None or request in self._known[other]:
                    continue
                reached = self._assign_colour(other, request, colour)
                if reached is None:
                    conflicts.append((other, request, colour.semantic))
                else:
                    queue.extend(reached)
        return conflicts

    def _find_requested_label(
        self, frame: int, axes: Axes, order: Order, *, semantic: bool
    ) -> Axes | None:
        """Return the label that an order requests of a free frame, None if it cannot have it."""
        f = self._frames[frame]
        spreads = semantic or f.choice is Choice.FREE
        accepts_more = spreads and len(self._known[frame]) < _MOST_LABELS
        labels = find_labels(axes, order, f.names)
        return next((x for x in labels if x == f.names or (accepts_more and f.allows(x))), None)

    def _assign_colour(
        self, frame: int, label: Axes, colour: _FrameColour
    ) -> list[tuple[_Edges, Order]] | None:
        """Give a frame the colour; return the tensors that get a new order, None on a conflict."""
        orders: dict[_Edges, Order] = {}
        for edges, axes in self._uses[frame]:
            order = make_order(axes, label)
            if orders.setdefault(edges, colour.orders.get(edges, order)) != order:
                return None
        colour.orders |= orders
        if self._frames[frame].label is None:
            self._known[frame] = tuple(dict.fromkeys((*self._known[frame], label)))
            colour.labels[frame] = label
        new = [pair for pair in orders.items() if pair not in self._spread]
        self._spread.update(new)
        return new
