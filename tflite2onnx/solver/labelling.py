"""Labels at the least cost: what each thing is made as and asked for as, so that little changes.

This is the problem behind the layout plan, free of what it is for. Nodes choose labels, and
things lie between nodes: one node makes a thing, others ask for it, and the label of each says in
which form. A form that is asked for and not made costs 1; if no form of its kind is there either,
it costs the weight of the thing as well.

`minimize_cost` goes about it in two ways.

- *Expand.* A proposal is one label for each of many nodes, such that those who take it agree
  about the form of each thing. Which of them should take it, while all others keep the label they
  have, is a minimum cut. One proposal after the other has its turn until none pays (alpha
  expansion: Boykov, Veksler, Zabih, "Fast approximate energy minimization via graph cuts", 2001).
- *Search.* Where something is still paid and more than two proposals meet, the nodes around it
  are labelled anew, all together, by dynamic programming over the forms that there are.

What is guaranteed: where no more than two proposals meet, the cut finds the optimum, however many
nodes there are. Where more do, the problem is NP-hard (it contains the multiway cut): neither a
proposal nor a window of `_MOST_NODES` nodes around what is paid can better the result. That is
the optimum if the window holds all there is, and if the search never had to drop a state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from tflite2onnx.solver.min_cut import minimum_cut

Proposal = Mapping[int, int]

_MOST_ROUNDS = 16  # of expansion; more than three are rare
_MOST_NODES = 24  # in a window
_MOST_STATES = 32  # that a search keeps
_MOST_STEPS = 200_000  # of all searches, and a few more for each node


@dataclass(frozen=True, eq=False)
class Hyperedge:
    """What one node makes and others ask for.

    `ends` are these nodes, the maker first, each with the form that each of its labels means.
    `classes` has the kind of each form, and `weight` is what a new kind costs.
    """

    ends: Sequence[tuple[int, Sequence[int]]]
    classes: Sequence[int]
    weight: int

    @property
    def maker(self) -> int:
        """The node that makes it."""
        return self.ends[0][0]

    def cost(self, labels: Sequence[int]) -> int:
        """Return what it costs under these labels, one for each node."""
        made, *asked = [forms[labels[node]] for node, forms in self.ends]
        wanted = {form for form in asked if form != made}
        return self.conversion_cost((made,), wanted) if wanted else 0

    def conversion_cost(self, there: Iterable[int], wanted: Collection[int]) -> int:
        """Return what it costs to have the wanted forms too, none of which is there yet."""
        new = {self.classes[form] for form in wanted} - {self.classes[form] for form in there}
        return len(wanted) + len(new) * self.weight


def minimize_cost(
    choices: Sequence[int], things: Sequence[Hyperedge], proposals: Sequence[Proposal]
) -> list[int]:
    """Return a label for each node, from 0 up to its number of choices.

    The start is 0, then what the proposals say, the last one above all; from there nothing
    changes that does not pay. Nodes are numbered so that a maker comes before those who ask.
    """
    uses: _Uses = [[] for _ in choices]
    for thing in things:
        for node, forms in thing.ends:
            uses[node].append((thing, forms))
    labels = [0] * len(choices)
    for proposal in proposals:
        for node, label in proposal.items():
            labels[node] = label
    idle = 0
    for proposal in chain.from_iterable(repeat(proposals, _MOST_ROUNDS)):
        idle = 0 if _expand(proposal, uses, labels) else idle + 1
        if idle == len(proposals):
            break
    steps = _MOST_STEPS + 20 * len(choices)
    for window, near in _windows(choices, things, proposals, uses, labels):
        search = _Search(choices, uses, labels, window, near)
        for node, label in search.improve_labels().items():
            labels[node] = label
        steps -= search.steps
        if steps < 0:
            break
    return labels


_Uses = list[list[tuple[Hyperedge, Sequence[int]]]]


def _expand(proposal: Proposal, uses: _Uses, labels: list[int]) -> bool:
    """Let those nodes take a proposal whose taking it pays; return whether any did."""
    movable = [node for node, label in proposal.items() if labels[node] != label]
    touched = list(dict.fromkeys(thing for node in movable for thing, _ in uses[node]))
    if not any(thing.cost(labels) for thing in touched):
        return False
    cut = _Cut(proposal, labels, movable)
    for thing in touched:
        cut.add(thing)
    takers = cut.solve()
    for node in takers:
        labels[node] = proposal[node]
    return bool(takers)


class _Cut:
    """The minimum cut that decides which nodes take a proposal.

    The source side takes it, the sink side keeps its label. A form has to be paid for as soon as
    anybody asks for it, unless it is made; so each term of the cost says "any of these takes (or
    keeps), and the maker does not", which is an arc. An extra node stands for "any of these"
    where they are several. The smallest source side is strictly cheaper than none.
    """

    TAKE, KEEP = 0, 1

    def __init__(self, proposal: Proposal, labels: Sequence[int], movable: Sequence[int]) -> None:
        self._proposal = proposal
        self._labels = labels
        self._number = {node: i for i, node in enumerate(movable, start=2)}
        self._nodes = 2 + len(movable)
        self._arcs: list[tuple[int, int, int]] = []
        self._ties: list[tuple[int, int]] = []  # arcs that cannot be cut

    def add(self, thing: Hyperedge) -> None:
        """Add what a thing costs, one of whose ends at least can move."""
        ends = [
            (self._number.get(node, self.KEEP), forms[self._labels[node]])
            for node, forms in thing.ends
        ]
        target = next(f[self._proposal[n]] for n, f in thing.ends if n in self._number)
        self._charge(ends, target, 1)
        if thing.weight:
            kinds = thing.classes
            self._charge([(n, kinds[form]) for n, form in ends], kinds[target], thing.weight)

    def _charge(self, ends: Sequence[tuple[int, int]], target: int, price: int) -> None:
        """Charge the price for each form that is asked for and not made."""
        (maker, made), *users = ends
        asking: dict[int, list[int]] = {}
        for number, kept in users:
            if kept == target:
                asking.setdefault(target, []).append(self.TAKE)
                continue
            asking.setdefault(kept, []).append(number)
            if number != self.KEEP:
                asking.setdefault(target, []).append(number)
        for form, numbers in asking.items():
            if form != target:
                start = maker if form == made else self.TAKE
                self._arcs.append((start, self._any(numbers, self.KEEP), price))
            elif form != made:
                self._arcs.append((self._any(numbers, self.TAKE), maker, price))

    def _any(self, numbers: Sequence[int], side: int) -> int:
        """Return a node that is on this side as soon as one of these is."""
        if side in numbers:
            return side
        first, *others = dict.fromkeys(numbers)
        if not others:
            return first
        extra, self._nodes = self._nodes, self._nodes + 1
        for number in (first, *others):
            self._ties.append((number, extra) if side == self.TAKE else (extra, number))
        return extra

    def solve(self) -> list[int]:
        """Return the nodes that take the proposal."""
        never = 1 + sum(price for _, _, price in self._arcs)
        arcs = chain(self._arcs, ((start, end, never) for start, end in self._ties))
        _, side = minimum_cut(self._nodes, arcs, self.TAKE, self.KEEP)
        return [node for node, number in self._number.items() if number in side]


def _windows(
    choices: Sequence[int],
    things: Sequence[Hyperedge],
    proposals: Sequence[Proposal],
    uses: _Uses,
    labels: Sequence[int],
) -> Iterator[tuple[Sequence[int], Sequence[Hyperedge]]]:
    """Yield windows around what is paid for, where more than two proposals meet.

    A window is the nearest nodes that have a choice, and all things that they make or ask for.
    """
    paid = [thing for thing in things if thing.cost(labels)]
    told: list[set[int]] = [set() for _ in choices if paid]
    for i, proposal in enumerate(proposals if paid else ()):
        for node in proposal:
            told[node].add(i)
    seen: set[Hyperedge] = set()
    for start in paid:
        if start in seen or not start.cost(labels):
            continue
        window: dict[int, None] = {}
        near = {start: None}
        queue = deque(near)
        while queue:
            for node, _ in queue.popleft().ends:
                if choices[node] > 1 and node not in window and len(window) < _MOST_NODES:
                    window[node] = None
                    new = dict.fromkeys(t for t, _ in uses[node] if t not in near)
                    near |= new
                    queue.extend(new)
        seen |= near.keys()
        if len(set().union(*(told[node] for node in window))) > 2:
            yield list(window), list(near)


_Forms = frozenset[int]
_There = dict[Hyperedge, _Forms]
_State = tuple[int, _There, tuple[int, ...]]


class _Search:
    """The cheapest labels for the nodes of a window, while all others keep theirs.

    Node by node. A state is what was spent so far, the forms that there are by now of each thing
    that somebody has still to ask for, and the labels taken. Another state that can be made into
    it at no greater cost makes it superfluous.
    """

    def __init__(
        self,
        choices: Sequence[int],
        uses: _Uses,
        labels: Sequence[int],
        window: Sequence[int],
        near: Sequence[Hyperedge],
    ) -> None:
        self._choices, self._uses = choices, uses
        self._turn = sorted(window, key=self._position)
        self._last = {thing: node for node in self._turn for thing, _ in uses[node]}
        # What those outside the window make, and what they ask for.
        held = [
            (thing, frozenset(forms[labels[node]] for node, forms in ends if node not in window))
            for thing in near
            for ends in (thing.ends[:1], thing.ends[1:])
        ]
        self._made = {thing: forms for thing, forms in held[::2] if forms}
        self._asked = dict(held[1::2])
        self._before = sum(thing.cost(labels) for thing in near)
        self.steps = sum(len(thing.ends) for thing in near)

    def _position(self, node: int) -> float:
        """Return a node's place; who only makes comes just before the first who asks."""
        users = []
        for thing, _ in self._uses[node]:
            if thing.maker != node:
                return node
            users += [user for user, _ in thing.ends[1:]]
        return min(users, default=node) - 0.5

    def improve_labels(self) -> dict[int, int]:
        """Return better labels, none if there are none."""
        spent, there = 0, _There()
        for thing, made in self._made.items():
            spent += self._add(there, thing, made, self._asked[thing])
        states: list[_State] = [(spent, there, ())]
        for node in self._turn:
            best: dict[tuple[_Forms, ...], _State] = {}
            for spent, there, taken in states:
                for label in range(self._choices[node]):
                    cost, after = self._step(node, label, there)
                    key = tuple(after.values())
                    if key not in best or spent + cost < best[key][0]:
                        best[key] = (spent + cost, after, (*taken, label))
            states = self._best_states(best.values())
        spent, _, taken = states[0]
        return dict(zip(self._turn, taken, strict=True)) if spent < self._before else {}

    def _step(self, node: int, label: int, there: _There) -> tuple[int, _There]:
        """Return what a label costs, and the forms that there are then."""
        self.steps += len(there)
        spent, there = 0, dict(there)
        for thing, forms in self._uses[node]:
            form = frozenset([forms[label]])
            if thing.maker == node:
                spent += self._add(there, thing, form, self._asked[thing])
            else:
                spent += self._add(there, thing, there.get(thing, _Forms()), form)
        return spent, {t: forms for t, forms in there.items() if self._last[t] != node}

    def _add(self, there: _There, thing: Hyperedge, made: _Forms, asked: _Forms) -> int:
        """Note the forms that there are now, and return the price of those that are new."""
        there[thing] = made | asked
        return thing.conversion_cost(made, asked - made)

    def _best_states(self, states: Iterable[_State]) -> list[_State]:
        kept: list[_State] = []
        for state in sorted(states, key=lambda state: state[0]):
            if len(kept) == _MOST_STATES:
                break
            if all(state[0] < other[0] + self._path_cost(other[1], state[1]) for other in kept):
                kept.append(state)
        return kept

    def _path_cost(self, start: _There, end: _There) -> int:
        """Return what it costs to have all forms of the end, given those of the start."""
        self.steps += len(end)
        return sum(
            thing.conversion_cost(start[thing], forms - start[thing])
            for thing, forms in end.items()
            if not forms <= start[thing]
        )
