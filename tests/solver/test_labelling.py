"""solver/labelling.py, compared with an exhaustive search."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from tflite2onnx.solver import labelling
from tflite2onnx.solver.labelling import Hyperedge, minimize_cost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tflite2onnx.solver.labelling import Proposal

Problem = tuple[list[int], list[Hyperedge], list["Proposal"]]


def total(things: Sequence[Hyperedge], labels: Sequence[int]) -> int:
    """Return the cost of labels."""
    return sum(thing.compute_cost(labels) for thing in things)


def minimum_cost(choices: Sequence[int], things: Sequence[Hyperedge]) -> int:
    """Return the lowest cost of all labellings."""
    return min(total(things, labels) for labels in itertools.product(*map(range, choices)))


def make_hyperedge(*ends: tuple[int, Sequence[int]], weight: int = 1) -> Hyperedge:
    """Return a hyperedge whose states are all of different classes."""
    return Hyperedge(ends, range(9), weight)


def random_problem(random: random.Random, nodes: int, labels: int) -> Problem:
    """Return a random problem: each label is a state, and some states have equal classes.

    There is a proposal for each label, and a few nodes are pinned to a label.
    """
    choices = [1 if random.random() < 0.2 else labels for _ in range(nodes)]
    held = [random.randrange(labels) for _ in choices]
    things = []
    for maker in range(nodes - 1):
        users = random.sample(range(maker + 1, nodes), random.randint(1, min(4, nodes - maker - 1)))
        ends = [
            (node, range(labels) if choices[node] > 1 else [held[node]]) for node in (maker, *users)
        ]
        kinds = [random.randrange(labels) for _ in range(labels)]
        things.append(Hyperedge(ends, kinds, random.randrange(5)))
    free = [node for node, count in enumerate(choices) if count > 1]
    return choices, things, [dict.fromkeys(free, label) for label in range(labels)]


@pytest.mark.parametrize(
    ("made", "asked", "cost"),
    [
        (0, [0, 0], 0),
        (0, [1], 8),
        (0, [1, 1], 8),
        (0, [2], 1),
        (0, [1, 2], 9),
        (1, [0, 2], 9),
        (0, [1, 3, 2, 0], 17),
    ],
)
def test_cost_counts_missing_states_and_weights_of_classes(
    made: int, asked: Sequence[int], cost: int
) -> None:
    """Each requested state that is not produced costs 1, and each new class costs the weight."""
    ends = [(0, [made]), *((1, [form]) for form in asked)]
    assert Hyperedge(ends, [0, 1, 0, 3], 7).compute_cost([0, 0]) == cost


def test_start_is_kept_without_nodes_or_proposals() -> None:
    """A problem without nodes, or without proposals, keeps its start."""
    assert minimize_cost([], [], []) == []
    assert minimize_cost([1, 1], [make_hyperedge((0, [0]), (1, [1]))], []) == [0, 0]


def test_start_is_kept_if_costs_are_equal() -> None:
    """If all costs are equal the start is kept."""
    ends = (0, [0]), (1, [0, 1]), (2, [1])
    things = [make_hyperedge(ends[0], ends[1]), make_hyperedge(ends[1], ends[2])]
    assert minimize_cost([1, 2, 1], things, [{1: 0}, {1: 1}]) == [0, 1, 0]
    assert minimize_cost([1, 2, 1], things, [{1: 1}, {1: 0}]) == [0, 0, 0]


@given(st.randoms(use_true_random=False), st.integers(2, 8))
@settings(max_examples=200, derandomize=True)
def test_two_proposals_give_the_optimum(random: random.Random, nodes: int) -> None:
    """With two proposals a minimum cut finds the optimum."""
    choices, things, proposals = random_problem(random, nodes, 2)
    assert total(things, minimize_cost(choices, things, proposals)) == minimum_cost(choices, things)


@given(st.randoms(use_true_random=False), st.integers(2, 5), st.integers(3, 4))
@settings(max_examples=200, derandomize=True)
def test_small_problems_are_solved_optimally(
    random: random.Random, nodes: int, labels: int
) -> None:
    """Small problems are solved optimally for any number of proposals."""
    choices, things, proposals = random_problem(random, nodes, labels)
    assert total(things, minimize_cost(choices, things, proposals)) == minimum_cost(choices, things)


@given(st.randoms(use_true_random=False), st.integers(25, 35), st.integers(3, 4))
@settings(max_examples=20, derandomize=True)
def test_no_single_proposal_lowers_the_cost(random: random.Random, nodes: int, labels: int) -> None:
    """The result is a local optimum: no proposal for all or single nodes lowers its cost."""
    choices, things, proposals = random_problem(random, nodes, labels)
    found = minimize_cost(choices, things, proposals)
    cost = total(things, found)
    for proposal in proposals:
        whole = [proposal.get(node, label) for node, label in enumerate(found)]
        assert cost <= total(things, whole)
        for node in proposal:
            assert cost <= total(things, [*found[:node], proposal[node], *found[node + 1 :]])


# More than two proposals


def crossing_problem(first: int = 0) -> Problem:
    """Return two nodes that should take two different proposals at the same time.

    Pinned nodes with state 1 are at both ends, and one with state 0 is between them. The cost falls
    only if both nodes leave state 0. A third proposal keeps both at state 0.
    """
    low, left, right, high, middle = range(first, first + 5)
    things = [
        make_hyperedge((low, [1]), (left, [0, 1]), weight=5),
        make_hyperedge((left, [0, 1]), (right, [0, 1]), weight=8),
        make_hyperedge((right, [0, 1]), (high, [1]), weight=5),
        make_hyperedge((right, [0, 1]), (middle, [0]), weight=4),
    ]
    return [1, 2, 2, 1, 1], things, [{left: 1}, {right: 1}, {left: 0, right: 0}]


def repeat_crossing(count: int) -> Problem:
    """Return many copies of the problem in one graph."""
    parts = [crossing_problem(5 * i) for i in range(count)]
    choices, things, proposals = (list(itertools.chain(*each)) for each in zip(*parts, strict=True))
    return choices, things, proposals


def test_two_proposals_are_accepted_together() -> None:
    """Both changes together lower the cost, although each alone raises it."""
    assert minimize_cost(*crossing_problem()) == [0, 1, 1, 0, 0]


def test_search_changes_no_nodes_beyond_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a window of one node the search finds no better labels."""
    monkeypatch.setattr(labelling, "_MOST_NODES", 1)
    assert minimize_cost(*crossing_problem()) == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("seed", [28, 31, 40, 70])
def test_limited_search_costs_no_more_than_none(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A limited search may cost more than a full search, but not more than no search."""
    choices, things, proposals = random_problem(random.Random(seed), 20, 4)
    full = total(things, minimize_cost(choices, things, proposals))
    monkeypatch.setattr(labelling, "_MOST_PARTIALS", 1)
    few = total(things, minimize_cost(choices, things, proposals))
    monkeypatch.setattr(labelling, "_MOST_NODES", 0)
    none = total(things, minimize_cost(choices, things, proposals))
    assert full < few <= none


def test_search_ends_at_its_limit_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that reaches its limit of steps ends with fewer improvements."""
    choices, things, proposals = repeat_crossing(10)
    found = minimize_cost(choices, things, proposals)
    assert sum(found) == 20
    monkeypatch.setattr(labelling, "_MOST_STEPS", 100 - 20 * len(choices))
    assert 2 <= sum(minimize_cost(choices, things, proposals)) < 20


def test_search_ends_with_valid_labels_after_0_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit of 0 rounds the search ends with valid labels."""
    monkeypatch.setattr(labelling, "_MOST_ROUNDS", 0)
    ends = (0, [0]), (1, [0, 1])
    assert minimize_cost([1, 2], [make_hyperedge(*ends)], [{1: 1}]) == [0, 1]


def test_consumers_may_have_lower_numbers_than_producers() -> None:
    """A consumer may have a lower number than its producer."""
    choices, things, proposals = crossing_problem()
    back = [Hyperedge([(4 - n, forms) for n, forms in t.ends], t.classes, t.weight) for t in things]
    turned = [{4 - node: label for node, label in p.items()} for p in proposals]
    assert len(minimize_cost(choices[::-1], back, turned)) == 5
