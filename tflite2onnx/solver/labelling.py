"""Minimum-cost labelling: choose a label for each node so that few values must be converted.

This is the problem of the layout plan in general terms. Nodes choose labels. A hyperedge connects
the node that produces a value with the nodes that consume the value, and the label of each node
decides the state in which it produces or consumes the value. A state that is consumed but not
produced costs 1. If no other available state belongs to its class, it also costs the weight of the
hyperedge.

`minimize_cost` has two steps.

- *Expand.* A proposal is one label for each of many nodes, such that nodes with these labels agree
  on the state of each hyperedge. A minimum cut decides which nodes take the proposal while the
  other nodes keep their labels. The proposals are tried in turn until none lowers the cost (alpha
  expansion: Boykov, Veksler, Zabih, "Fast approximate energy minimization via graph cuts", 2001).
- *Search.* If a hyperedge still has a cost, and more than two proposals meet there, the nodes
  around it are relabelled together, by dynamic programming over the available states.

Guarantees: where no more than two proposals meet, the cut finds the optimum for any number of
nodes. Where more proposals meet, the problem is NP-hard (it contains the multiway cut): neither a
proposal nor a window of `_MOST_NODES` nodes around a cost can improve the result. The result is the
optimum if the window has all nodes and the search never drops a partial labelling.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from tflite2onnx.solver.min_cut import find_cut

Proposal = Mapping[int, int]

_MOST_ROUNDS = 16  # the largest number of rounds of expansion; more than three are rare
_MOST_NODES = 24  # the largest number of nodes in a window
_MOST_PARTIALS = 128  # the largest number of partial labellings that a search keeps
_MOST_STEPS = 200_000  # the largest number of steps of all searches together; each node adds 20


@dataclass(frozen=True, eq=False, slots=True)
class Hyperedge:
    """A value that one node produces and other nodes consume.

    `ends` are these nodes, the producer first. Each node has a state for each of its labels.
    `classes` has the class of each state, and `weight` is the cost of a new class.
    """

    ends: Sequence[tuple[int, Sequence[int]]]
    classes: Sequence[int]
    weight: int

    @property
    def producer(self) -> int:
        """The node that produces the value."""
        return self.ends[0][0]

    def compute_cost(self, labels: Sequence[int]) -> int:
        """Return the cost under these labels, one for each node."""
        node, states = self.ends[0]
        produced = states[labels[node]]
        new = {states[labels[node]] for node, states in self.ends} - {produced}
        return self.compute_conversion_cost((produced,), new) if new else 0

    def compute_conversion_cost(self, available: Iterable[int], new: Collection[int]) -> int:
        """Return the cost of states that are new, given the states that are available."""
        classes = {self.classes[state] for state in new}
        classes -= {self.classes[state] for state in available}
        return len(new) + len(classes) * self.weight


def minimize_cost(
    choices: Sequence[int], edges: Sequence[Hyperedge], proposals: Sequence[Proposal]
) -> list[int]:
    """Return a label for each node, from 0 to its number of choices - 1.

    The first labels are 0; the proposals overwrite them in sequence. Later a label changes only if
    the change lowers the cost. Nodes are numbered so that a producer comes before its consumers.
    """
    uses: _Uses = [[] for _ in choices]
    for edge in edges:
        for node, states in edge.ends:
            uses[node].append((edge, states))
    labels = [0] * len(choices)
    for proposal in proposals:
        for node, label in proposal.items():
            labels[node] = label
    idle_count = 0
    for proposal in chain.from_iterable(repeat(proposals, _MOST_ROUNDS)):
        idle_count = 0 if _expand(proposal, uses, labels) else idle_count + 1
        if idle_count == len(proposals):
            break
    steps = _MOST_STEPS + 20 * len(choices)
    for window, neighbours in _list_windows(choices, edges, proposals, uses, labels):
        search = _Search(choices, uses, labels, window, neighbours)
        for node, label in search.improve_labels().items():
            labels[node] = label
        steps -= search.steps
        if steps < 0:
            break
    return labels


_Uses = list[list[tuple[Hyperedge, Sequence[int]]]]


def _expand(proposal: Proposal, uses: _Uses, labels: list[int]) -> bool:
    """Apply a proposal to the nodes where it lowers the cost; return whether a label changed."""
    movable = [node for node, label in proposal.items() if labels[node] != label]
    touched = list(dict.fromkeys(edge for node in movable for edge, _ in uses[node]))
    if not any(edge.compute_cost(labels) for edge in touched):
        return False
    cut = _Cut(proposal, labels, movable)
    for edge in touched:
        cut.add(edge)
    takers = cut.solve()
    for node in takers:
        labels[node] = proposal[node]
    return bool(takers)


class _Cut:
    """The minimum cut that decides which nodes take a proposal.

    The nodes on the source side take the proposal, the nodes on the sink side keep their labels. A
    state has a cost if a node consumes it and no node produces it. So each term of the cost is the
    condition "any of these nodes takes (or keeps), and the producer does not", which is an arc. For
    several nodes, an extra node stands for "any of these nodes". `find_cut` returns the smallest
    source side, so a proposal is taken only if it is strictly cheaper.
    """

    TAKE, KEEP = 0, 1

    def __init__(self, proposal: Proposal, labels: Sequence[int], movable: Sequence[int]) -> None:
        self._proposal = proposal
        self._labels = labels
        self._number = {node: i for i, node in enumerate(movable, start=2)}
        self._nodes = 2 + len(movable)
        self._arcs: list[tuple[int, int, int]] = []
        self._ties: list[tuple[int, int]] = []  # arcs that no cut may contain

    def add(self, edge: Hyperedge) -> None:
        """Add the cost of a hyperedge, at least one of whose nodes is movable."""
        ends = [
            (self._number.get(node, self.KEEP), states[self._labels[node]])
            for node, states in edge.ends
        ]
        target = next(s[self._proposal[n]] for n, s in edge.ends if n in self._number)
        classes = edge.classes
        if len({*classes}) == len(classes):  # a new state is a new class
            self._add_price(ends, target, 1 + edge.weight)
            return
        self._add_price(ends, target, 1)
        self._add_price([(n, classes[state]) for n, state in ends], classes[target], edge.weight)

    def _add_price(self, ends: Sequence[tuple[int, int]], target: int, price: int) -> None:
        """Add the price to the cost of each state that is consumed and not produced."""
        (producer, produced), *consumers = ends
        consumers_of: dict[int, list[int]] = {}
        for number, current in consumers:
            if current == target:
                consumers_of.setdefault(target, []).append(self.TAKE)
                continue
            consumers_of.setdefault(current, []).append(number)
            if number != self.KEEP:
                consumers_of.setdefault(target, []).append(number)
        for state, numbers in consumers_of.items():
            if state != target:
                start = producer if state == produced else self.TAKE
                self._arcs.append((start, self._add_any(numbers, self.KEEP), price))
            elif state != produced:
                self._arcs.append((self._add_any(numbers, self.TAKE), producer, price))

    def _add_any(self, numbers: Sequence[int], side: int) -> int:
        """Return a node that is on a side if at least one of these nodes is on the side."""
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
        infinite_price = 1 + sum(price for _, _, price in self._arcs)
        arcs = chain(self._arcs, ((start, end, infinite_price) for start, end in self._ties))
        _, side = find_cut(self._nodes, arcs, self.TAKE, self.KEEP)
        return [node for node, number in self._number.items() if number in side]


def _list_windows(
    choices: Sequence[int],
    edges: Sequence[Hyperedge],
    proposals: Sequence[Proposal],
    uses: _Uses,
    labels: Sequence[int],
) -> Iterator[tuple[Sequence[int], Sequence[Hyperedge]]]:
    """Yield windows around hyperedges with a cost, where more than two proposals meet.

    A window has the nearest nodes that have a choice, and all hyperedges of these nodes.
    """
    costly = [edge for edge in edges if edge.compute_cost(labels)]
    proposals_of: list[set[int]] = [set() for _ in choices if costly]
    for i, proposal in enumerate(proposals if costly else ()):
        for node in proposal:
            proposals_of[node].add(i)
    seen: set[Hyperedge] = set()
    for start in costly:
        if start in seen or not start.compute_cost(labels):
            continue
        window: dict[int, None] = {}
        neighbours = {start: None}
        queue = deque(neighbours)
        while queue:
            for node, _ in queue.popleft().ends:
                if choices[node] > 1 and node not in window and len(window) < _MOST_NODES:
                    window[node] = None
                    new = dict.fromkeys(edge for edge, _ in uses[node] if edge not in neighbours)
                    neighbours |= new
                    queue.extend(new)
        seen |= neighbours.keys()
        if len(set().union(*(proposals_of[node] for node in window))) > 2:
            yield list(window), list(neighbours)


_States = frozenset[int]
_Available = dict[Hyperedge, _States]
_Partial = tuple[int, _Available, tuple[int, ...]]


class _Search:
    """The search for the cheapest labels of a window's nodes; other labels are fixed.

    The nodes are labelled one after another. A partial labelling is its cost so far, the available
    states of each hyperedge that has nodes left to label, and the labels. A partial labelling is
    dropped if another partial labelling, plus the cost of adding the available states that only the
    first has, is not more expensive.
    """

    def __init__(
        self,
        choices: Sequence[int],
        uses: _Uses,
        labels: Sequence[int],
        window: Sequence[int],
        neighbours: Sequence[Hyperedge],
    ) -> None:
        self._choices, self._uses = choices, uses
        self._sequence = sorted(window, key=self._find_position)
        self._last = {edge: node for node in self._sequence for edge, _ in uses[node]}
        # The states that nodes outside the window produce, and that they consume.
        fixed_edges = [
            (edge, frozenset(states[labels[node]] for node, states in ends if node not in window))
            for edge in neighbours
            for ends in (edge.ends[:1], edge.ends[1:])
        ]
        self._produced = {edge: states for edge, states in fixed_edges[::2] if states}
        self._consumed = dict(fixed_edges[1::2])
        self._before = sum(edge.compute_cost(labels) for edge in neighbours)
        self.steps = sum(len(edge.ends) for edge in neighbours)

    def _find_position(self, node: int) -> float:
        """Return a node's position; a node that only produces precedes its first consumer."""
        consumers = []
        for edge, _ in self._uses[node]:
            if edge.producer != node:
                return node
            consumers += [consumer for consumer, _ in edge.ends[1:]]
        return min(consumers, default=node) - 0.5

    def improve_labels(self) -> dict[int, int]:
        """Return cheaper labels by node, empty if no labels are cheaper."""
        cost, available = 0, _Available()
        for edge, produced in self._produced.items():
            cost += self._add_states(available, edge, produced, self._consumed[edge])
        partials: list[_Partial] = [(cost, available, ())]
        for node in self._sequence:
            best: dict[tuple[_States, ...], _Partial] = {}
            for spent, available, labels in partials:
                for label in range(self._choices[node]):
                    cost, after = self._take_step(node, label, available)
                    key = tuple(after.values())
                    if key not in best or spent + cost < best[key][0]:
                        best[key] = (spent + cost, after, (*labels, label))
            # Costs only grow, so that no dropped labelling would be cheaper in the end.
            cheaper = [partial for partial in best.values() if partial[0] < self._before]
            partials = sorted(cheaper, key=lambda partial: partial[0])[:_MOST_PARTIALS]
            if not partials:
                return {}
        _, _, labels = partials[0]
        return dict(zip(self._sequence, labels, strict=True))

    def _take_step(self, node: int, label: int, available: _Available) -> tuple[int, _Available]:
        """Return the cost of a label, and the states that are available with the label."""
        self.steps += len(available)
        cost, available = 0, dict(available)
        for edge, states in self._uses[node]:
            state = frozenset([states[label]])
            if edge.producer == node:
                cost += self._add_states(available, edge, state, self._consumed[edge])
            else:
                cost += self._add_states(available, edge, available.get(edge, _States()), state)
        return cost, {e: states for e, states in available.items() if self._last[e] != node}

    def _add_states(
        self, available: _Available, edge: Hyperedge, present: _States, consumed: _States
    ) -> int:
        """Add consumed states to the present states of a hyperedge, and return the cost."""
        available[edge] = present | consumed
        new = consumed - present
        return edge.compute_conversion_cost(present, new) if new else 0
