"""The layout plan: in which axis order each tensor is stored, so that the fewest bytes move.

Words used here:

- An **order** is a tensor's TFLite axes in the sequence in which ONNX stores them:
  (0, 3, 1, 2) is NCHW for an NHWC tensor.
- A **frame** is a set of named axes that move together. Its slots say which operand of an
  operator carries which names on which axes; a **label**, a sequence of the names, fixes the
  order of every operand in the frame. Axes that share a name stay together in TFLite order.
- A **site** is a place with operands: an operator, the graph's inputs, the graph's outputs.

Any label gives the same numbers; only the cost differs. A tensor is moved once for each distinct
order that its readers ask for and its producer does not give; bytes move only where the orders
differ in more than the places of axes of size 1. `plan` works in three steps:

1. *Flood.* Pinned frames hand their orders to their neighbours, these to theirs, and so each
   frame learns the labels that are worth anything; its TFLite order is always one of them. A
   TRANSPOSE hands on names, not positions. Labels that agree along the way are one **colour**.
2. *Choose* a label for each frame at the least cost: first bytes, then moves, then what is
   closest to TFLite. Each colour is a proposal to `labelling`, a minimum cut says who takes it.
3. *Read off* the order of every operand.

What is guaranteed: among the labels that the flood found the plan is the optimum wherever no more
than two colours meet (TFLite's order and one other: nearly every network), and wherever more meet
among few frames; `labelling` says more. No other legal label could do better as long as all
operands of each free frame carry all its names, `legal` forbids none of them, and no axis is of
size 1 in some of these operands only. Otherwise there may be a better label that nobody learns
of; in random graphs made of such frames that is so in up to five of a thousand.

Nothing here knows an operator, and nothing here knows ONNX.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from tflite2onnx.solver.labelling import Hyperedge, minimize_cost
from tflite2onnx.tensor import Shape, Tensor

Order = tuple[int, ...]
Axes = tuple[str, ...]

_MOST_LABELS = 8  # per frame; more than three are rare, and a hostile file must not explode


class Choice(Enum):
    """What a frame may be labelled with."""

    FREE = "any legal label"
    INTERFACE = "the TFLite order, or channels first where an operator means it"
    CHANNELS_FIRST = "channels first wherever an operator means it"


@dataclass(frozen=True, eq=False)
class Frame:
    """Axes that move together.

    `slots` maps operands to the names of their axes in TFLite order; inputs count from 0,
    outputs from ~0 downwards. `names` are all names in their TFLite sequence. A frame with a
    `label` is pinned; `legal` restricts the labels of a free one, but allows `names`. `semantic`
    says that the pinned order is an operator's demand on what the axes are, as a convolution's is.
    """

    slots: Mapping[int, Axes]
    names: Axes
    label: Axes | None = None
    legal: Callable[[Axes], bool] | None = None
    choice: Choice = Choice.FREE
    semantic: bool = False

    def allows(self, label: Axes) -> bool:
        """Return whether the frame can be labelled so."""
        return self.label is None and (self.legal is None or self.legal(label))


@dataclass(frozen=True, eq=False)
class Site:
    """Something that reads and writes tensors, with the frames that its operands live in.

    Operands in no frame keep the TFLite order.
    """

    reads: tuple[Tensor | None, ...]
    writes: tuple[Tensor, ...]
    frames: tuple[Frame, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """The order of each operand of each site; `bytes_moved` and `moves` are what it costs."""

    orders: tuple[Mapping[int, Order], ...]
    bytes_moved: int = 0
    moves: int = 0


def identity(rank: int) -> Order:
    """Return the TFLite order."""
    return tuple(range(rank))


def channels_first(rank: int) -> Order:
    """Return the order that puts the last axis behind the first: NHWC -> NCHW."""
    return (0, rank - 1, *range(1, rank - 1)) if rank > 2 else identity(rank)


def axis_names(rank: int) -> Axes:
    """Return names for the axes of a tensor that has none of its own."""
    return tuple(str(i) for i in range(rank))


def pin_operand(operand: int, order: Order, *, meaning: bool = False) -> Frame:
    """Return a frame that holds one operand in an order."""
    names = axis_names(len(order))
    label = tuple(names[i] for i in order)
    return Frame({operand: names}, names, label, semantic=meaning)


@lru_cache(maxsize=1 << 14)
def order_of(axes: Axes, label: Axes) -> Order:
    """Return the order that a label gives to a tensor with these names on its axes."""
    where: dict[str, list[int]] = {}
    for axis, name in enumerate(axes):
        where.setdefault(name, []).append(axis)
    return tuple(axis for name in label for axis in where.get(name, ()))


@lru_cache(maxsize=1 << 14)
def labels_of(axes: Axes, order: Order, names: Axes) -> tuple[Axes, ...]:
    """Return the labels that give the tensor this order, none if it would split shared names.

    There are two where the tensor lacks some of the names: these follow the name that they
    follow in TFLite order, or precede the name that they precede.
    """
    given = tuple(dict.fromkeys(axes[axis] for axis in order))
    if order_of(axes, given) != order:
        return ()
    after, before = list(given), list(given)
    for name, previous in zip(names, (None, *names), strict=False):
        if name not in after:
            after.insert(after.index(previous) + 1 if previous is not None else 0, name)
    for name, following in zip(names[::-1], (None, *names[::-1]), strict=False):
        if name not in before:
            before.insert(before.index(following) if following is not None else len(before), name)
    return tuple(dict.fromkeys((tuple(after), tuple(before))))


@lru_cache(maxsize=1 << 14)
def without_unit_axes(shape: Shape, order: Order) -> Order:
    """Return the order of the axes that are not of size 1: the sequence of the bytes."""
    return tuple(axis for axis in order if shape[axis] != 1)


def moves_nothing(shape: Shape, a: Order, b: Order) -> bool:
    """Return whether two orders differ only in where axes of size 1 stand."""
    return a == b or without_unit_axes(shape, a) == without_unit_axes(shape, b)


def plan(sites: Sequence[Site]) -> Plan:
    """Choose the order of every operand of every site at the least cost."""
    problem = _Problem(sites)
    flood = _Flood(problem)
    return problem.plan(flood.choices, flood.proposals())


def plan_with(sites: Sequence[Site], choose: Callable[[Frame], Axes]) -> Plan:
    """Label every free frame with `choose`, and read the orders off: legal, if rarely cheap."""
    problem = _Problem(sites)
    return problem.plan([[choose(f) if f.label is None else f.label] for f in problem.frames])


_End = tuple[int, Axes]  # a frame, and its names on the axes of the tensor at hand


@dataclass(frozen=True, eq=False)
class _Edges:
    """Who writes a tensor, first, and who reads it."""

    tensor: Tensor
    ends: Sequence[_End]


class _Problem:
    """The sites as frames over tensors, indexed both ways."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.frames: list[Frame] = []
        self._ends = [self._add(site) for site in sites]
        producers: dict[Tensor, _End] = {}
        readers: dict[Tensor, list[_End]] = {}
        for site, ends in zip(sites, self._ends, strict=True):
            producers |= {tensor: ends[~i] for i, tensor in enumerate(site.writes)}
            for i, tensor in enumerate(site.reads):
                if tensor is not None:
                    readers.setdefault(tensor, []).append(ends[i])
        # A tensor that nobody writes is a constant: any order costs nothing, and it carries no
        # order from one reader to the next.
        self._tensors = [_Edges(t, [end, *readers.get(t, ())]) for t, end in producers.items()]
        self.uses: list[list[tuple[_Edges, Axes]]] = [[] for _ in self.frames]
        for edges in self._tensors:
            for frame, axes in dict.fromkeys(edges.ends):
                self.uses[frame].append((edges, axes))
        # Fewest bytes first, then fewest moves: a move costs 1, a byte more than all moves.
        self._byte = 1 + sum(len(edges.ends) for edges in self._tensors)

    def _add(self, site: Site) -> dict[int, _End]:
        """Add the frames of a site; return where each operand stands."""
        ends: dict[int, _End] = {}
        for frame in site.frames:
            ends |= {operand: (len(self.frames), axes) for operand, axes in frame.slots.items()}
            self.frames.append(frame)
        operands = [(i, t) for i, t in enumerate(site.reads) if t is not None]
        for operand, tensor in [*operands, *((~i, t) for i, t in enumerate(site.writes))]:
            if operand not in ends:
                ends[operand] = (len(self.frames), axis_names(tensor.rank))
                self.frames.append(pin_operand(operand, identity(tensor.rank)))
        return ends

    def plan(
        self, choices: Sequence[Sequence[Axes]], proposals: Sequence[Mapping[int, int]] = ()
    ) -> Plan:
        """Choose a label for each frame, and read the orders off."""
        things = [self._hyperedge(edges, choices) for edges in self._tensors]
        chosen = minimize_cost([len(labels) for labels in choices], things, proposals)
        labels = [labels[number] for labels, number in zip(choices, chosen, strict=True)]
        orders = tuple(
            {operand: order_of(axes, labels[frame]) for operand, (frame, axes) in ends.items()}
            for ends in self._ends
        )
        return Plan(orders, *divmod(sum(thing.cost(chosen) for thing in things), self._byte))

    def _hyperedge(self, edges: _Edges, choices: Sequence[Sequence[Axes]]) -> Hyperedge:
        """Return a tensor as something made and asked for: its orders are forms."""
        forms: dict[Order, int] = {}
        ends = [
            (frame, _number_orders(forms, [order_of(axes, label) for label in choices[frame]]))
            for frame, axes in edges.ends
        ]
        tensor = edges.tensor
        kinds = _number_orders(
            {}, [without_unit_axes(tensor.layout_shape, order) for order in forms]
        )
        return Hyperedge(ends, kinds, tensor.nbytes * self._byte)


def _number_orders(numbered: dict[Order, int], orders: Sequence[Order]) -> list[int]:
    """Return a number for each order, the same for the same, and note those that are new."""
    return [numbered.setdefault(order, len(numbered)) for order in orders]


@dataclass(eq=False)
class _Colour:
    """One label for each of many frames, that agree on one order for each tensor they meet at."""

    meaning: bool
    labels: dict[int, Axes] = field(default_factory=dict)
    orders: dict[_Edges, Order] = field(default_factory=dict)


class _Flood:
    """Hands labels on from frame to frame until nobody learns a new one.

    What operators mean comes first, then what is pinned for other reasons, then the TFLite order
    of every frame.
    """

    def __init__(self, problem: _Problem) -> None:
        self._frames, self._uses = problem.frames, problem.uses
        self._known: list[set[Axes]] = [set() for _ in problem.frames]
        self._spread: set[tuple[_Edges, Order]] = set()
        self._colours: list[_Colour] = []
        pins = [(i, f.label, f.semantic) for i, f in enumerate(self._frames) if f.label is not None]
        own = [(i, f.names, False) for i, f in enumerate(self._frames) if f.label is None]
        waiting = deque([*sorted(pins, key=lambda pin: not pin[2]), *own])
        while waiting:
            frame, label, meaning = waiting.popleft()
            if label not in self._known[frame]:
                self._colours.append(_Colour(meaning))
                waiting.extendleft(self._spread_colour(frame, label, self._colours[-1]))
        self.choices = self._choices()

    def _choices(self) -> list[list[Axes]]:
        """Return the labels that each frame can take, its TFLite order first."""
        choices = [[f.names if f.label is None else f.label] for f in self._frames]
        for colour in self._colours:
            for frame, label in colour.labels.items():
                if label != self._frames[frame].names:
                    choices[frame].append(label)
        for f, labels in zip(self._frames, choices, strict=True):
            if f.choice is Choice.CHANNELS_FIRST:
                del labels[:-1]
        return choices

    def proposals(self) -> list[dict[int, int]]:
        """Return the colours as numbers of choices, those that are closest to TFLite last."""
        proposals = []
        for colour in self._colours:
            numbered = {
                frame: self.choices[frame].index(label)
                for frame, label in colour.labels.items()
                if len(self.choices[frame]) > 1
            }
            if numbered:
                proposals.append(numbered)
        return sorted(proposals, key=lambda labels: sum(not label for label in labels.values()))

    def _spread_colour(
        self, frame: int, label: Axes, colour: _Colour
    ) -> list[tuple[int, Axes, bool]]:
        """Let a colour run as far as it agrees with itself; return what it found beyond."""
        beyond = []
        queue = deque(self._take(frame, label, colour) or ())
        while queue:
            edges, order = queue.popleft()
            for other, axes in edges.ends:
                asked = self._requested_label(other, axes, order, meaning=colour.meaning)
                if asked is None or asked in self._known[other]:
                    continue
                reached = self._take(other, asked, colour)
                if reached is None:
                    beyond.append((other, asked, colour.meaning))
                else:
                    queue.extend(reached)
        return beyond

    def _requested_label(
        self, frame: int, axes: Axes, order: Order, *, meaning: bool
    ) -> Axes | None:
        """Return the label that a neighbour's order asks of a frame, None if it cannot have it."""
        f = self._frames[frame]
        if f.label is not None:
            return None
        for label in labels_of(axes, order, f.names):
            if label == f.names or (
                f.allows(label)
                and (meaning or f.choice is Choice.FREE)
                and len(self._known[frame]) < _MOST_LABELS
            ):
                return label
        return None

    def _take(self, frame: int, label: Axes, colour: _Colour) -> list[tuple[_Edges, Order]] | None:
        """Give a frame the colour and return where that leads; None if they do not agree."""
        orders: dict[_Edges, Order] = {}
        for edges, axes in self._uses[frame]:
            order = order_of(axes, label)
            if orders.setdefault(edges, colour.orders.get(edges, order)) != order:
                return None
        colour.orders |= orders
        if self._frames[frame].label is None:
            self._known[frame].add(label)
            colour.labels[frame] = label
        new = [pair for pair in orders.items() if pair not in self._spread]
        self._spread.update(new)
        return new
