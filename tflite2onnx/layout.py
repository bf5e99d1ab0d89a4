"""The layout plan: in which axis order each tensor is stored, so that the fewest bytes move.

Words used here:

- An **order** is a tensor's TFLite axes in the sequence in which ONNX stores them:
  (0, 3, 1, 2) is NCHW for an NHWC tensor.
- A **frame** is a set of named axes that move together. Its slots say which operand of an
  operator carries which names on which axes; a **label**, a sequence of the names, fixes the
  order of every operand in the frame. Axes that share a name stay together in TFLite order.
- A **site** is a place with operands: an operator, the graph's inputs, the graph's outputs.

Any label gives the same numbers; only the cost differs: a tensor is moved once for each distinct
order that its readers ask for and its producer does not give. `plan` works in four steps:

1. *flood*: pinned frames hand their orders to their neighbours, these to theirs, and so each
   frame learns the labels that are worth anything. A TRANSPOSE hands on names, not positions.
2. *colour*: labels that agree with each other along the flood are one choice of many frames.
3. *expand*: for one colour at a time, which frames should take it is a minimum cut. Where two
   orders meet that is the optimum; where more do, the moves repeat until none pays (alpha
   expansion: Boykov, Veksler, Zabih, "Fast approximate energy minimization via graph cuts",
   2001).
4. *read off* the order of every operand.

Nothing here knows an operator, and nothing here knows ONNX.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from tflite2onnx.mincut import minimum_cut
from tflite2onnx.tensor import Shape, Tensor

Order = tuple[int, ...]
Axes = tuple[str, ...]

_MOST_LABELS = 8  # per frame; more than three are rare, and a hostile file must not explode


class Choice(Enum):
    """What a frame may be labelled with."""

    FREE = "any legal label"
    INTERFACE = "the TFLite order, or channels first where an operator means it"
    MEANT = "channels first wherever an operator means it"


@dataclass(frozen=True, eq=False)
class Frame:
    """Axes that move together.

    `slots` maps operands to the names of their axes in TFLite order; inputs count from 0,
    outputs from ~0 downwards. `names` are all names in their TFLite sequence. A frame with a
    `label` is pinned; `legal` restricts the labels of a free one. `meaning` says that the pinned
    order is an operator's demand on what the axes are, as a convolution's is.
    """

    slots: Mapping[int, Axes]
    names: Axes
    label: Axes | None = None
    legal: Callable[[Axes], bool] | None = None
    choice: Choice = Choice.FREE
    meaning: bool = False

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
    return (0, rank - 1, *range(1, rank - 1)) if rank > 2 else identity(rank)  # noqa: PLR2004


def axis_names(rank: int) -> Axes:
    """Return names for the axes of a tensor that has none of its own."""
    return tuple(str(i) for i in range(rank))


def pinned(operand: int, order: Order, *, meaning: bool = False) -> Frame:
    """Return a frame that holds one operand in an order."""
    names = axis_names(len(order))
    label = tuple(names[i] for i in order)
    return Frame({operand: names}, names, label, meaning=meaning)


@lru_cache(maxsize=1 << 14)
def order_of(axes: Axes, label: Axes) -> Order:
    """Return the order that a label gives to a tensor with these names on its axes."""
    if axes == label:
        return identity(len(axes))
    where: dict[str, list[int]] = {}
    for axis, name in enumerate(axes):
        where.setdefault(name, []).append(axis)
    return tuple(axis for name in label for axis in where.get(name, ()))


@lru_cache(maxsize=1 << 14)
def label_of(axes: Axes, order: Order, names: Axes) -> Axes | None:
    """Return a label that gives the tensor this order, or None if it would split shared names.

    Names that the tensor does not carry follow the name that they follow in TFLite order.
    """
    label: list[str] = []
    for before, axis in zip((None, *order), order, strict=False):
        name = axes[axis]
        if before is not None and axes[before] == name:
            if before > axis:
                return None
        elif name in label:
            return None
        else:
            label.append(name)
    for i, name in enumerate(names):
        if name not in label:
            label.insert(label.index(names[i - 1]) + 1 if i else 0, name)
    return tuple(label)


def same_bytes(shape: Shape, a: Order, b: Order) -> bool:
    """Return whether two orders differ only in where axes of size 1 stand."""
    return a == b or [i for i in a if shape[i] != 1] == [i for i in b if shape[i] != 1]


def plan(sites: Sequence[Site]) -> Plan:
    """Choose the order of every operand of every site at the least cost."""
    problem = _Problem(sites)
    return problem.plan(_optimise(problem, _flood(problem)))


def plan_with(sites: Sequence[Site], choose: Callable[[Frame], Axes]) -> Plan:
    """Label every free frame with `choose`, and read the orders off: legal, if rarely cheap."""
    problem = _Problem(sites)
    return problem.plan([f.label or choose(f) for f in problem.frames])


def cost(sites: Sequence[Site], labels: Callable[[Frame], Axes]) -> int:
    """Return the bytes that the plan with these labels moves."""
    return plan_with(sites, labels).bytes_moved


@dataclass(eq=False)
class _Edges:
    """Who writes a tensor and who reads it: (frame, axes) each."""

    tensor: Tensor
    producer: tuple[int, Axes] | None = None
    readers: list[tuple[int, Axes]] = field(default_factory=list)

    def __iter__(self) -> Iterator[tuple[int, Axes]]:
        if self.producer is not None:
            yield self.producer
        yield from self.readers


@dataclass(eq=False)
class _Colour:
    """One label for each of many frames, agreeing wherever they meet."""

    meaning: bool
    labels: dict[int, Axes] = field(default_factory=dict)


class _Problem:
    """The sites as frames over tensors, indexed both ways."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = sites
        self.frames: list[Frame] = []
        self.tensors: dict[Tensor, _Edges] = {}
        self.at: list[dict[int, tuple[int, Axes]]] = []
        for site in sites:
            self.at.append(self._add(site))
        # A tensor that nobody writes is a constant: any order costs nothing, and it carries no
        # order from one reader to the next.
        self.tensors = {t: e for t, e in self.tensors.items() if e.producer is not None}
        self.touching: list[list[_Edges]] = [[] for _ in self.frames]
        for edges in self.tensors.values():
            for frame in dict.fromkeys(f for f, _ in edges):
                self.touching[frame].append(edges)
        # Fewest bytes first, then fewest moves: a move costs 1, a byte more than all moves.
        self.byte = 1 + sum(len(e.readers) for e in self.tensors.values())
        self.never = 1 + sum(
            len(e.readers) * (e.tensor.nbytes * self.byte + 1) for e in self.tensors.values()
        )

    def _add(self, site: Site) -> dict[int, tuple[int, Axes]]:
        operands: dict[int, Tensor] = {i: t for i, t in enumerate(site.reads) if t is not None}
        operands |= {~i: t for i, t in enumerate(site.writes)}
        at: dict[int, tuple[int, Axes]] = {}
        listed = {operand for frame in site.frames for operand in frame.slots}
        rest = [pinned(o, identity(t.rank)) for o, t in operands.items() if o not in listed]
        for frame in (*site.frames, *rest):
            for operand, axes in frame.slots.items():
                at[operand] = (len(self.frames), axes)
            self.frames.append(frame)
        for operand, tensor in operands.items():
            edges = self.tensors.setdefault(tensor, _Edges(tensor))
            if operand < 0:
                edges.producer = at[operand]
            else:
                edges.readers.append(at[operand])
        return at

    def price(self, tensor: Tensor, a: Order, b: Order) -> int:
        """Return what turning a tensor from one order into another costs."""
        if a == b:
            return 0
        return 1 if same_bytes(tensor.shape, a, b) else tensor.nbytes * self.byte + 1

    def tensor_cost(self, edges: _Edges, labels: Sequence[Axes]) -> int:
        frame, axes = edges.producer or (0, ())
        made = order_of(axes, labels[frame])
        asked = dict.fromkeys(order_of(a, labels[f]) for f, a in edges.readers)
        return sum(self.price(edges.tensor, made, order) for order in asked)

    def plan(self, labels: Sequence[Axes]) -> Plan:
        orders = tuple(
            {operand: order_of(axes, labels[frame]) for operand, (frame, axes) in at.items()}
            for at in self.at
        )
        total = sum(self.tensor_cost(edges, labels) for edges in self.tensors.values())
        return Plan(orders, total // self.byte, total % self.byte)


def _flood(problem: _Problem) -> list[_Colour]:
    """Return the colours: first those that an operator's meaning started."""
    seeds = [
        (i, f.label or f.names, f.meaning)
        for i, f in enumerate(problem.frames)
        if f.label is not None or f.choice is not Choice.FREE
    ]
    seeds.sort(key=lambda seed: not seed[2])
    known: list[set[Axes]] = [set() for _ in problem.frames]
    colours: list[_Colour] = []
    waiting = deque(seeds)
    while waiting:
        frame, label, meaning = waiting.popleft()
        colour = _Colour(meaning)
        if problem.frames[frame].label is None:
            if label in known[frame]:
                continue
            known[frame].add(label)
            colour.labels[frame] = label
        waiting.extendleft(_spread(problem, (frame, label), colour, known))
        if colour.labels:
            colours.append(colour)
    return colours


def _spread(
    problem: _Problem, start: tuple[int, Axes], colour: _Colour, known: list[set[Axes]]
) -> list[tuple[int, Axes, bool]]:
    """Let a colour run as far as it agrees with itself; return what it found beyond."""
    beyond = []
    queue = deque([start])
    while queue:
        frame, label = queue.popleft()
        for edges in problem.touching[frame]:
            for axes in (a for f, a in edges if f == frame):
                order = order_of(axes, label)
                for other, other_axes in edges:
                    asked = _asked(problem.frames[other], other_axes, order, colour)
                    if asked is None or asked in known[other]:
                        continue
                    if other in colour.labels:
                        beyond.append((other, asked, colour.meaning))
                        continue
                    if len(known[other]) < _MOST_LABELS:
                        known[other].add(asked)
                        colour.labels[other] = asked
                        queue.append((other, asked))
    return beyond


def _asked(frame: Frame, axes: Axes, order: Order, colour: _Colour) -> Axes | None:
    """Return the label that a neighbour's order asks of a frame, None if it cannot have it."""
    if frame.label is not None:
        return None
    label = label_of(axes, order, frame.names)
    if label is None or not frame.allows(label):
        return None
    if frame.choice is not Choice.FREE and label != frame.names and not colour.meaning:
        return None
    return label


def _optimise(problem: _Problem, colours: list[_Colour]) -> list[Axes]:
    """Return a label for each frame."""
    frames = problem.frames
    labels = [f.label or f.names for f in frames]
    meant: dict[int, Axes] = {}
    for colour in colours:
        for frame, label in colour.labels.items():
            if not colour.meaning and frames[frame].choice is Choice.FREE:
                labels[frame] = label
            if frames[frame].choice is Choice.MEANT and label != frames[frame].names:
                meant[frame] = label
    for frame, label in meant.items():
        labels[frame] = label
    fixed = {i for i, f in enumerate(frames) if f.label is not None or f.choice is Choice.MEANT}
    waiting = [c for c in colours if c.labels.keys() - fixed]
    for _ in range(2 * _MOST_LABELS):
        better = [_expand(problem, c, labels, fixed) for c in waiting]
        if not any(better) or len(waiting) == 1:
            break
    return labels


def _expand(problem: _Problem, colour: _Colour, labels: list[Axes], fixed: set[int]) -> bool:
    """Let those frames take a colour whose taking it pays; return whether any did."""
    movable = [
        f for f, label in colour.labels.items() if labels[f] != label and f not in fixed
    ]
    touched = list(dict.fromkeys(e for f in movable for e in problem.touching[f]))
    before = sum(problem.tensor_cost(e, labels) for e in touched)
    if before == 0:
        return False
    cut = _Cut(problem, colour, labels, movable)
    for edges in touched:
        cut.add(edges)
    kept = {f: labels[f] for f in cut.solve()}
    for f in kept:
        labels[f] = colour.labels[f]
    if sum(problem.tensor_cost(e, labels) for e in touched) < before:
        return True
    for f, label in kept.items():
        labels[f] = label
    return False


class _Cut:
    """The minimum cut that decides which frames take a colour.

    The source side takes it, the sink side keeps its label. Each term of a tensor's cost is one
    of three shapes, all of them arcs: somebody keeps an order that must then be made (source ->
    keeper), somebody takes what the producer does not give (taker -> producer), or the producer
    takes and somebody stays behind (producer -> keeper). Where several readers ask for one
    order the tensor is moved once: an extra node stands for "any of them".
    """

    TAKE, KEEP = 0, 1

    def __init__(
        self, problem: _Problem, colour: _Colour, labels: Sequence[Axes], movable: Sequence[int]
    ) -> None:
        self._problem = problem
        self._colour = colour
        self._labels = labels
        self._node = {frame: i for i, frame in enumerate(movable, start=2)}
        self._nodes = 2 + len(movable)
        self._arcs: list[tuple[int, int, int]] = []

    def add(self, edges: _Edges) -> None:
        """Add the arcs of one tensor."""
        frame, axes = edges.producer or (0, ())
        target = next(
            order_of(a, self._colour.labels[f]) for f, a in edges if f in self._node
        )
        producer, made = self._state(frame, axes, target)
        keepers: dict[Order, list[int]] = {}
        takers: list[int] = []
        for reader, reader_axes in edges.readers:
            node, order = self._state(reader, reader_axes, target)
            if node != self.KEEP:
                takers.append(node)
            if node != self.TAKE:
                keepers.setdefault(order, []).append(node)
        tensor, price = edges.tensor, self._problem.price
        if takers and producer != self.TAKE:
            self._arc(self._any(takers, taking=True), producer, price(tensor, made, target))
        for order, nodes in keepers.items():
            kept, taken = price(tensor, made, order), price(tensor, target, order)
            kept = taken if producer == self.TAKE else kept
            taken = kept if producer == self.KEEP else taken
            # kept > taken would need an arc that a cut cannot have; it takes three orders, two
            # of them a size-1 move apart, and then the answer is near the optimum, not at it.
            keeper = self._any(nodes, taking=False)
            self._arc(self.TAKE, keeper, min(kept, taken))
            self._arc(producer, keeper, max(taken - kept, 0))

    def solve(self) -> list[int]:
        """Return the frames that take the colour."""
        _, side = minimum_cut(self._nodes, self._arcs, self.TAKE, self.KEEP)
        return [frame for frame, node in self._node.items() if node in side]

    def _state(self, frame: int, axes: Axes, target: Order) -> tuple[int, Order]:
        order = order_of(axes, self._labels[frame])
        if order == target:
            return self.TAKE, order
        return self._node.get(frame, self.KEEP), order

    def _any(self, nodes: list[int], *, taking: bool) -> int:
        fixed = self.TAKE if taking else self.KEEP
        nodes = list(dict.fromkeys(nodes))
        if fixed in nodes:
            return fixed
        if len(nodes) == 1:
            return nodes[0]
        extra, self._nodes = self._nodes, self._nodes + 1
        for node in nodes:
            self._arc(*((node, extra) if taking else (extra, node)), self._problem.never)
        return extra

    def _arc(self, start: int, end: int, capacity: int) -> None:
        if capacity and start != end:
            self._arcs.append((start, end, capacity))
