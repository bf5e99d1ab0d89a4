"""Minimum cut of a directed graph, by push-relabel.

The algorithm is the first-in-first-out preflow-push of Goldberg and Tarjan ("A New Approach to the
Maximum-Flow Problem", JACM 35(4), 1988), with the periodic global relabelling of Cherkassky and
Goldberg ("On Implementing the Push-Relabel Method for the Maximum Flow Problem", Algorithmica 19,
1997). Graphs of neural networks are long. Augmenting paths, as in the algorithms of Dinic and of
Boykov and Kolmogorov, cross thousands of nodes to saturate a single arc, and again for the next
arc. Pushes cross these nodes once for many arcs, which is many times faster on deep graphs with
skip connections.

Flow runs backwards, from the sink to the source. When the preflow can advance no further, the nodes
that can reach the target are final, so the smallest source side is known without turning the
preflow into a flow.
"""

from collections.abc import Iterable

# residual[v][u] is the residual capacity of the arc u -> v: v can push this amount back to u.
_Residual = list[dict[int, int]]


def find_cut(
    nodes: int, arcs: Iterable[tuple[int, int, int]], source: int, sink: int
) -> tuple[int, frozenset[int]]:
    """Return the capacity of a minimum cut and its smallest source side.

    Nodes are `0 .. nodes - 1`. An arc is `(tail, head, capacity)`, where the capacity is an int of
    any size and not negative. A capacity that exceeds the sum of all others makes the arc
    uncuttable. Parallel arcs add up. The source side holds the nodes that the source reaches in the
    residual graph. The source side of every minimum cut includes these nodes, so the result is
    unique and does not depend on the order of the arcs. ValueError: source and sink are the same
    node, or a capacity is negative.
    """
    if source == sink:
        raise ValueError(f"source and sink must be different nodes, got {source} for both")
    residual = _make_residual_graph(nodes, arcs)
    excess = [0] * nodes
    for node, capacity in residual[sink].items():
        excess[node] = capacity
        residual[sink][node] = 0
    while True:
        heights, reached = _compute_distances(residual, source)
        # The farthest node comes first, so that its excess joins the excess of nearer nodes.
        active = [node for node in reached[:0:-1] if excess[node]]
        if not active:
            return excess[source], frozenset(reached)
        _push(residual, heights, excess, active)


def _make_residual_graph(nodes: int, arcs: Iterable[tuple[int, int, int]]) -> _Residual:
    residual: _Residual = [{} for _ in range(nodes)]
    for tail, head, capacity in arcs:
        if capacity < 0:
            raise ValueError(
                f"the capacity of arc {tail} -> {head} must be at least 0, got {capacity}"
            )
        if tail != head:
            residual[head][tail] = residual[head].get(tail, 0) + capacity
            residual[tail].setdefault(head, 0)
    return residual


def _compute_distances(residual: _Residual, source: int) -> tuple[list[int], list[int]]:
    """Return every node's distance from the source, and the reachable nodes, nearest first."""
    unreachable = len(residual)
    distances = [unreachable] * len(residual)
    distances[source] = 0
    reached = [source]
    for node in reached:
        for neighbour in residual[node]:
            if distances[neighbour] == unreachable and residual[neighbour][node]:
                distances[neighbour] = distances[node] + 1
                reached.append(neighbour)
    return distances, reached


def _push(residual: _Residual, heights: list[int], excess: list[int], active: list[int]) -> None:
    """Push excess to lower nodes, first in, first out, until none can move or heights are stale.

    If a path is cut off, relabelling raises nodes slowly, while a new search of distances raises
    them at once. So relabelling stops after a quarter of the arcs, about the cost of this search.
    """
    unreachable = len(residual)
    budget = sum(map(len, residual)) // 4
    for node in active:
        if budget < 0:
            return
        neighbours = residual[node]
        left = excess[node]
        below = heights[node] - 1
        lowest = unreachable
        for neighbour, capacity in neighbours.items():
            if not capacity:
                continue
            height = heights[neighbour]
            if height == below:
                amount = min(capacity, left)
                if below and not excess[neighbour]:  # Only the source has height 0.
                    active.append(neighbour)
                excess[neighbour] += amount
                neighbours[neighbour] -= amount
                residual[neighbour][node] += amount
                left -= amount
                if not left:
                    break
            elif height < lowest:
                lowest = height
        else:
            budget -= len(neighbours)
            heights[node] = lowest + 1
            if heights[node] < unreachable:
                active.append(node)
        excess[node] = left
