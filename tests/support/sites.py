"""Random small graphs in the form of the layout planner, and a cheapest plan of a graph."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tflite2onnx.graph import Op, Options
from tflite2onnx.layout import (
    Choice,
    Frame,
    Plan,
    Site,
    axis_names,
    find_labels,
    make_channels_first,
    make_identity,
    make_order,
    pin_operand,
    plan_with,
)
from tflite2onnx.op import find_operator
from tflite2onnx.tensor import DType, Tensor

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from tflite2onnx.layout import Axes, Order

MODES = ("auto", "tflite", "onnx")


def tensor(*shape: int, name: str = "t") -> Tensor:
    """Return a float32 tensor."""
    return Tensor(name, shape, DType.FLOAT32)


def elementwise(reads: Sequence[Tensor], writes: Sequence[Tensor]) -> Site:
    """Return an operator whose operands share all axes."""
    names = axis_names(writes[0].rank)
    slots = dict.fromkeys(range(len(reads)), names) | {~i: names for i in range(len(writes))}
    return Site(tuple(reads), tuple(writes), (Frame(slots, names),))


def transpose_site(x: Tensor, y: Tensor, permutation: Sequence[int]) -> Site:
    """Return a TRANSPOSE."""
    names = axis_names(x.rank)
    return Site((x,), (y,), (Frame({0: names, ~0: tuple(names[i] for i in permutation)}, names),))


def convolution_site(x: Tensor, y: Tensor, before: Order, after: Order) -> Site:
    """Return an operator like a convolution, which prefers an order for input and output."""
    frames = pin_operand(0, before, meaning=True), pin_operand(~0, after, meaning=True)
    return Site((x,), (y,), frames)


def terminate_site(x: Tensor, y: Tensor) -> Site:
    """Return an operator that keeps the TFLite order."""
    return Site((x,), (y,), ())


def interface(operand: int, t: Tensor, mode: str) -> Frame:
    """Return the frame of an input or an output of the graph, as `tflite2onnx.interface` does."""
    if mode == "tflite":
        return pin_operand(operand, make_identity(t.rank))
    names, allowed = axis_names(t.rank), (make_channels_first(t.rank), make_identity(t.rank))
    choice = Choice.INTERFACE if mode == "auto" else Choice.CHANNELS_FIRST
    return Frame(
        {operand: names}, names, None, lambda label: make_order(names, label) in allowed, choice
    )


@dataclass
class Graphs:
    """Generator of random graphs; `kinds` are the methods that add operators.

    Axes have `rank` names. Demanded orders are from a small set. At most `frames` frames are free,
    not counting the frames of the interface.
    """

    random: random.Random
    kinds: Sequence[str]
    rank: int = 3
    demands: int = 2
    frames: int = 4
    sizes: Sequence[int] = (2, 3, 5)
    tensors: list[Tensor] = field(default_factory=list)

    def draw(self, operators: int) -> list[Site]:
        """Return the sites of a graph: its inputs, operators, outputs."""
        shape = self.shape(self.rank)
        inputs = [tensor(*shape), tensor(*shape)][: self.random.randint(1, 2)]
        orders = list(itertools.permutations(range(self.rank)))
        self.orders = self.random.sample(orders, self.demands)
        self.tensors = list(inputs)
        sites: list[Site] = []
        free = 0
        for _ in range(operators):
            kinds = self.kinds if free < self.frames else ("demanding", "terminating")
            made = getattr(self, self.random.choice(kinds))(self.pick())
            for site in [made] if isinstance(made, Site) else made:
                free += any(frame.label is None for frame in site.frames)
                self.tensors += site.writes
                sites.append(site)
        outputs = self.random.sample(self.tensors, min(2, len(self.tensors)))
        mode = self.random.choice(MODES)
        ends = [interface(~i, t, mode) for i, t in enumerate(inputs)]
        first = Site((), tuple(inputs), tuple(ends))
        ends = [interface(i, t, mode) for i, t in enumerate(outputs)]
        return [first, *sites, Site(tuple(outputs), (), tuple(ends))]

    def pick(self) -> Tensor:
        """Return one of the newest tensors that have axes."""
        return self.random.choice([t for t in self.tensors if t.rank][-4:])

    def shape(self, rank: int) -> list[int]:
        """Return random sizes."""
        return [self.random.choice(self.sizes) for _ in range(rank)]

    def order(self, rank: int) -> Order:
        """Return an order from the small set, or any order for another rank."""
        if rank == self.rank:
            return self.random.choice(self.orders)
        return tuple(self.random.sample(range(rank), rank))

    def demanding(self, x: Tensor) -> Site:
        """Demand two orders, equal more often than not."""
        before, after = self.order(x.rank), self.order(x.rank)
        return convolution_site(
            x, tensor(*x.shape), before, self.random.choice((before, before, after))
        )

    def terminating(self, x: Tensor) -> Site:
        """Keep the TFLite order."""
        return terminate_site(x, tensor(*x.shape))

    def elementwise(self, x: Tensor) -> Site:
        """Share axes among up to three inputs, some of them constant, and up to two outputs."""
        like = [t for t in self.tensors if t.shape == x.shape] + [tensor(*x.shape)]
        others = self.random.sample(like, self.random.randint(0, min(2, len(like))))
        writes = [tensor(*x.shape) for _ in range(self.random.choice((1, 1, 2)))]
        return elementwise([x, *others], writes)

    def loop(self, x: Tensor) -> list[Site]:
        """Run an operator in a loop: a variable is one frame, and the body reads it."""
        last, now = tensor(*x.shape), tensor(*x.shape)
        body = self.random.choice((self.demanding, self.elementwise))(now)
        return [elementwise([x, body.writes[0]], [last, now]), body]

    def renaming(self, x: Tensor) -> Site:
        """Rename the axes."""
        permutation = self.random.sample(range(x.rank), x.rank)
        return transpose_site(x, tensor(*(x.shape[i] for i in permutation)), permutation)

    def resizing(self, x: Tensor) -> Site:
        """Change sizes, as a concatenation does, or a reduction that keeps its axes."""
        pairs = zip(x.shape, self.shape(x.rank), strict=True)
        return elementwise([x], [tensor(*(self.random.choice(s) for s in pairs))])

    def reduction(self, x: Tensor) -> Site:
        """Drop some axes."""
        names = axis_names(x.rank)
        kept = [i for i in range(x.rank) if self.random.random() < 0.5]
        y = tensor(*(x.shape[i] for i in kept))
        return Site((x,), (y,), (Frame({0: names, ~0: tuple(names[i] for i in kept)}, names),))

    def reshape(self, x: Tensor) -> Site:
        """Merge two axes, or insert or remove an axis of size 1."""
        shape, at = list(x.shape), self.random.randrange(max(x.rank, 1))
        if 1 in shape and self.random.random() < 0.5:
            shape.remove(1)
        elif self.random.random() < 0.5 and x.rank <= self.rank:
            shape.insert(at, 1)
        else:
            shape[at : at + 2] = [math.prod(shape[at : at + 2])]
        op = Op("RESHAPE", 0, (x,), (tensor(*shape),), Options({"new_shape": shape}))
        return Site(op.inputs, op.outputs, tuple(find_operator(op).frames()))

    def product(self, x: Tensor) -> Site:
        """Replace the last axis by another, which must stay last: a matrix product."""
        inner = axis_names(x.rank)
        names = (*inner, "out")
        slots = {0: inner, 1: ("out", inner[-1]), ~0: (*inner[:-1], "out")}
        frame = Frame(slots, names, legal=lambda label: label[-2:] == names[-2:])
        return Site((x, tensor(7, x.shape[-1])), (tensor(*x.shape[:-1], 7),), (frame,))


def free_frames(sites: Sequence[Site]) -> list[Frame]:
    """Return the frames with a choice of labels."""
    return [frame for site in sites for frame in site.frames if frame.label is None]


def legal_labels(frame: Frame) -> list[Axes]:
    """Return all legal labels of a free frame."""
    return [label for label in itertools.permutations(frame.names) if frame.allows(label)]


def semantic_labels(sites: Sequence[Site]) -> set[tuple[Frame, Axes]]:
    """Return each free frame with each label propagated to it by the semantics of operators."""
    ends: dict[Tensor, list[tuple[Frame, Axes]]] = {}
    for site in sites:
        operands = {i: t for i, t in enumerate(site.reads) if t is not None}
        operands |= {~i: t for i, t in enumerate(site.writes)}
        for frame in site.frames:
            for operand, axes in frame.slots.items():
                ends.setdefault(operands[operand], []).append((frame, axes))
    made = {t for site in sites for t in site.writes}
    frames = [frame for site in sites for frame in site.frames]
    found = {(f, f.label) for f in frames if f.label is not None and f.semantic}
    waiting = list(found)
    while waiting:
        frame, label = waiting.pop()
        orders = {
            (t, make_order(axes, label)) for t in made for f, axes in ends.get(t, ()) if f is frame
        }
        for t, order in orders:
            for other, axes in ends[t]:
                asked = [x for x in find_labels(axes, order, other.names) if other.allows(x)][:1]
                new = {(other, label) for label in asked} - found
                found |= new
                waiting += new
    return found


def candidates(sites: Sequence[Site]) -> Iterator[tuple[Frame, list[Axes]]]:
    """Yield each free frame and all labels that a plan may give it."""
    reached = semantic_labels(sites)
    for frame in free_frames(sites):
        labels = legal_labels(frame)
        if frame.choice is not Choice.FREE:
            first = [x for x in labels if x != frame.names and (frame, x) in reached]
            labels = (
                first if first and frame.choice is Choice.CHANNELS_FIRST else [frame.names, *first]
            )
        yield frame, labels


def find_cheapest_plan(sites: Sequence[Site], most: int) -> Plan | None:
    """Return a cheapest plan by exhaustive search; None if there are more than `most` plans."""
    frames, labels = zip(*candidates(sites), strict=True) if free_frames(sites) else ((), ())
    count = 1
    for choices in labels:
        count *= len(choices)
    if count > most:
        return None
    combinations = (dict(zip(frames, chosen, strict=True)) for chosen in itertools.product(*labels))
    plans = (plan_with(sites, chosen.__getitem__) for chosen in combinations)
    return min(plans, key=lambda plan: (plan.bytes_moved, plan.moves))
