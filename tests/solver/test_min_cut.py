"""solver/min_cut.py, compared with all cuts of small graphs, and with formulas for large ones."""

from __future__ import annotations

from itertools import chain, combinations, product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tflite2onnx.solver.min_cut import find_cut

Arcs = list[tuple[int, int, int]]

SOURCE, SINK = 0, 1
ENDLESS = 10**30

CAPACITIES = st.one_of(st.integers(0, 3), st.integers(0, 100), st.just(ENDLESS))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Arcs]:
    """Draw graphs of 2 to 8 nodes, with loops, parallel arcs, and arcs into the source."""
    nodes = draw(st.integers(2, 8))
    node = st.integers(0, nodes - 1)
    return nodes, draw(st.lists(st.tuples(node, node, CAPACITIES), max_size=30))


def cost(arcs: Arcs, side: frozenset[int]) -> int:
    return sum(capacity for tail, head, capacity in arcs if tail in side and head not in side)


@given(graphs())
def test_no_cut_is_cheaper_and_no_minimum_cut_is_smaller(graph: tuple[int, Arcs]) -> None:
    nodes, arcs = graph
    inner = range(2, nodes)
    sides = chain.from_iterable(combinations(inner, size) for size in range(len(inner) + 1))
    costs = {side: cost(arcs, side) for side in (frozenset({SOURCE, *some}) for some in sides)}

    value, side = find_cut(nodes, arcs, SOURCE, SINK)

    assert value == costs[side] == min(costs.values())
    assert all(side <= other for other in costs if costs[other] == value)


@given(graphs(), st.data())
def test_order_of_arcs_does_not_matter(graph: tuple[int, Arcs], data: st.DataObject) -> None:
    nodes, arcs = graph
    shuffled = iter(data.draw(st.permutations(arcs)))
    assert find_cut(nodes, arcs, SOURCE, SINK) == find_cut(nodes, shuffled, SOURCE, SINK)


def test_long_chain_is_cut_at_the_first_of_its_weakest_arcs() -> None:
    onward, back = np.random.default_rng(0).integers(10, 10**6, (2, 60_000)).tolist()
    onward[20_000] = onward[40_000] = 7
    arcs = [(node, node + 1, capacity) for node, capacity in enumerate(onward)]
    arcs += [(node + 1, node, capacity) for node, capacity in enumerate(back)]
    assert find_cut(60_001, arcs, 0, 60_000) == (7, frozenset(range(20_001)))


def test_star_is_cut_on_the_weaker_side_of_every_leaf() -> None:
    leaves = np.random.default_rng(0).integers(0, 10, (20_000, 2)).tolist()
    arcs = [(SOURCE, 2, ENDLESS)]
    for leaf, (enter, leave) in enumerate(leaves, start=3):
        arcs += [(2, leaf, enter), (leaf, SINK, leave)]
    well_fed = {leaf for leaf, (enter, leave) in enumerate(leaves, start=3) if enter > leave}
    value = sum(map(min, leaves))
    assert find_cut(20_003, arcs, SOURCE, SINK) == (value, frozenset({SOURCE, 2} | well_fed))


def band(nodes: int, width: int) -> Arcs:
    """Return a graph in which each node is joined both ways to the next `width` nodes."""
    draw = np.random.default_rng(0)
    inner = range(2, nodes)
    ends = [(tail, tail + step) for step in range(1, width + 1) for tail in inner[:-step]]
    ends += [(head, tail) for tail, head in ends]
    ends += [(SOURCE, node) if draw.random() < 0.5 else (node, SINK) for node in inner[::3]]
    capacities = draw.integers(1, 1000, len(ends)).tolist()
    return [(tail, head, capacity) for (tail, head), capacity in zip(ends, capacities, strict=True)]


def minimum_cut_cost(nodes: int, arcs: Arcs, width: int) -> int:
    """Return the cost of a band's minimum cut by dynamic programming."""
    arriving: list[Arcs] = [[] for _ in range(nodes)]
    for arc in arcs:
        arriving[max(arc[:2])].append(arc)
    costs = {frozenset({SOURCE}): 0}
    for node in range(2, nodes):
        grown: dict[frozenset[int], int] = {}
        for side, joining in product(costs, ((), (node,))):
            joined = side.union(joining)
            recent = joined - {node - width} | {SOURCE}
            paid = costs[side] + cost(arriving[node], joined)
            grown[recent] = min(paid, grown.get(recent, paid))
        costs = grown
    return min(costs.values())


@pytest.mark.parametrize(("nodes", "width"), [(60_000, 1), (20_000, 3)])
def test_cut_of_long_graphs_costs_the_minimum(nodes: int, width: int) -> None:
    arcs = band(nodes, width)
    value, side = find_cut(nodes, arcs, SOURCE, SINK)
    assert value == cost(arcs, side) == minimum_cut_cost(nodes, arcs, width)


def test_graph_of_terminals_alone_is_cut_at_the_source() -> None:
    assert find_cut(2, [], SOURCE, SINK) == (0, frozenset({SOURCE}))
    assert find_cut(2, [(SOURCE, SINK, 5)], SOURCE, SINK) == (5, frozenset({SOURCE}))


def test_source_must_differ_from_sink() -> None:
    with pytest.raises(ValueError, match="source and sink must be different nodes, got 1"):
        find_cut(2, [(0, 1, 1)], 1, 1)


def test_capacities_must_not_be_negative() -> None:
    with pytest.raises(ValueError, match="the capacity of arc 0 -> 1 must be at least 0, got -2"):
        find_cut(2, [(0, 1, -2)], 0, 1)
