"""Which rank is which, and where it sits: properties, held to independent brute force."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from areal_conf.planning.mesh import RankOrder
from areal_conf.planning.packing import MAX_STEPS, _Search, pack
from areal_conf.planning.placement import Demand, Placement, _cost, place
from areal_conf.spec.backends import Sizes

# -- the order of ranks -------------------------------------------------------------------------

SMALL = st.integers(1, 3)


@st.composite
def layouts(draw: st.DrawFn) -> Sizes:
    """Layouts whose expert sizes divide the ranks of a pipeline stage."""
    d, t, p, c = (draw(SMALL) for _ in range(4))
    ranks = d * t * c
    etp = draw(st.sampled_from([n for n in range(1, ranks + 1) if ranks % n == 0]))
    e = draw(st.sampled_from([n for n in range(1, ranks // etp + 1) if ranks // etp % n == 0]))
    return Sizes(d, t, p, c, e, etp)


def orthogonal_groups(axes: list[tuple[str, int]], wanted: str) -> list[list[int]]:
    """Groups as Megatron-LM's RankGenerator makes them, by counting.

    Ranks are numbered with the first axis fastest; those that agree on every axis but `wanted` form
    a group (megatron/core/parallel_state.py, generate_masked_orthogonal_rank_groups). Groups come
    in the order of their first ranks.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    numbered = product(*(range(size) for _, size in reversed(axes)))
    for rank, slowest_first in enumerate(numbered):
        place = dict(zip([name for name, _ in reversed(axes)], slowest_first, strict=True))
        key = tuple(place[name] for name, _ in axes if name != wanted)
        groups.setdefault(key, []).append(rank)
    return sorted(groups.values())


@given(layouts())
def test_groups_of_trainers_are_those_of_megatron(sizes: Sizes) -> None:
    order = RankOrder(sizes, "training")
    d, t, p, c, e, etp = sizes
    dense = [("t", t), ("c", c), ("d", d), ("p", p)]
    for axis in "tcdp":
        assert order.dense.groups(axis) == orthogonal_groups(dense, axis)
    expert = [("etp", etp), ("e", e), ("edp", d * t * c // (etp * e)), ("p", p)]
    for axis in ("etp", "e", "edp", "p"):
        assert order.expert.groups(axis) == orthogonal_groups(expert, axis)
    assert order.expert.groups("p") == order.dense.groups("p")


@given(layouts())
def test_groups_of_servers_keep_an_instance_together(sizes: Sizes) -> None:
    sizes = Sizes(sizes.d, sizes.t, sizes.p)
    order = RankOrder(sizes, "inference")
    instance = sizes.t * sizes.p
    for rank in range(order.world):
        at = order.coordinates(rank)
        assert at.d == rank // instance
        assert rank == at.d * instance + at.p * sizes.t + at.t


@given(layouts(), st.sampled_from(["training", "inference"]))
def test_rank_and_coordinates_are_inverse(sizes: Sizes, role: str) -> None:
    if role == "inference":
        sizes = Sizes(sizes.d, sizes.t, sizes.p)
    order = RankOrder(sizes, role)  # type: ignore[arg-type]
    seen = set()
    for rank in range(sizes.world):
        at = order.coordinates(rank)
        assert order.rank(at.d, at.p, at.c, at.t) == rank
        assert at.e < sizes.e
        assert at.etp < sizes.etp
        seen.add(at)
    assert len(seen) == sizes.world


@given(layouts())
def test_groups_have_the_sizes_they_should_and_hold_every_rank_once(sizes: Sizes) -> None:
    order = RankOrder(sizes, "training")
    edp = sizes.world // (sizes.p * sizes.e * sizes.etp)
    for mesh, axis, size in (
        (order.dense, "t", sizes.t),
        (order.dense, "d", sizes.d),
        (order.dense, "p", sizes.p),
        (order.dense, "c", sizes.c),
        (order.expert, "e", sizes.e),
        (order.expert, "etp", sizes.etp),
        (order.expert, "edp", edp),
    ):
        groups = mesh.groups(axis)
        assert {len(group) for group in groups} == {size}
        assert sorted(rank for group in groups for rank in group) == list(range(sizes.world))


def test_the_formula_of_the_documentation() -> None:
    order = RankOrder(Sizes(d=2, t=2, p=2, c=2, e=4), "training")
    assert order.rank(d=1, p=0, c=1, t=0) == 0 + 2 * (1 + 2 * (1 + 2 * 0))
    assert order.rank() == 0
    at = order.coordinates(13)
    assert (at.t, at.c, at.d, at.p) == (1, 0, 1, 1)
    assert (at.etp, at.e, at.edp) == (0, 1, 1)


@pytest.mark.parametrize("rank", [-1, 8])
def test_a_rank_that_is_not_there(rank: int) -> None:
    with pytest.raises(IndexError, match=rf"rank {rank} is not in 0\.\.7"):
        RankOrder(Sizes(d=8), "training").coordinates(rank)


def test_a_coordinate_that_is_not_there() -> None:
    with pytest.raises(IndexError, match=r"t 2 is not in 0\.\.1"):
        RankOrder(Sizes(d=4, t=2), "training").rank(t=2)


# -- placement ------------------------------------------------------------------------------------


def gpus(placed: Placement, engine: str) -> list[list[int]]:
    """The GPUs of each unit of `engine`, counted through all nodes."""
    flat = [
        None if device is None else device[0] * placed.gpus_per_node + device[1]
        for device in placed.devices(engine)
    ]
    size = placed.sizes[engine]
    units = [flat[i : i + size] for i in range(0, len(flat), size)]
    assert all(gpu is not None for unit in units for gpu in unit)
    return units  # type: ignore[return-value]


def fits_without_straddling(demands: list[Demand], per_node: int, n_nodes: int) -> bool:
    """Whether the units of `demands` can be packed into nodes: every way is tried."""
    sizes = sorted((d.size for d in demands for _ in range(d.count)), reverse=True)

    @cache
    def fits(left: tuple[int, ...], rooms: tuple[int, ...]) -> bool:
        if not left:
            return True
        return any(
            fits(left[1:], tuple(sorted((*rooms[:i], room - left[0], *rooms[i + 1 :]))))
            for i, room in enumerate(rooms)
            if room >= left[0] and room not in rooms[:i]
        )

    return fits(tuple(sizes), (per_node,) * n_nodes)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Demand], int, int]:
    """Engines that a small cluster has GPUs for: demands, GPUs of a node, nodes."""
    per_node, n_nodes = draw(st.integers(2, 8)), draw(st.integers(1, 4))
    free = per_node * n_nodes
    demands = []
    for i in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, per_node))
        if size > free:
            break
        count = draw(st.integers(1, free // size))
        free -= size * count
        demands.append(Demand(f"e{i}", count, size, serves=draw(st.booleans())))
    assume(demands)
    return demands, per_node, n_nodes


@given(clusters())
def test_every_rank_has_a_gpu_of_its_own(case: tuple[list[Demand], int, int]) -> None:
    demands, per_node, n_nodes = case
    placed = place(demands, per_node, n_nodes)
    used = [gpu for d in demands for unit in gpus(placed, d.engine) for gpu in unit]
    assert len(used) == len(set(used)) == sum(d.count * d.size for d in demands)
    assert all(0 <= gpu < per_node * n_nodes for gpu in used)


@given(clusters())
def test_no_unit_straddles_a_node_where_that_can_be_avoided(
    case: tuple[list[Demand], int, int],
) -> None:
    demands, per_node, n_nodes = case
    placed = place(demands, per_node, n_nodes)
    straddling = {d.engine: placed.straddling(d.engine) for d in demands}
    if fits_without_straddling(demands, per_node, n_nodes):
        assert not any(straddling.values())
    servers = [d for d in demands if d.serves]
    if fits_without_straddling(servers, per_node, n_nodes):
        assert not any(straddling[d.engine] for d in servers)


@given(clusters())
def test_units_over_a_node_or_without_a_bound_of_nodes(
    case: tuple[list[Demand], int, int],
) -> None:
    demands, per_node, _ = case
    placed = place(demands, per_node, None)
    assert not any(placed.straddling(d.engine) for d in demands)
    used = [gpu for d in demands for unit in gpus(placed, d.engine) for gpu in unit]
    assert len(used) == len(set(used))


def test_the_order_of_the_engines_is_kept_where_nothing_straddles() -> None:
    placed = place([Demand("actor", 4, 2), Demand("rollout", 2, 4, serves=True)], 8, 2)
    assert placed.devices("actor") == [(0, gpu) for gpu in range(8)]
    assert placed.devices("rollout") == [(1, gpu) for gpu in range(8)]


def test_a_unit_over_a_node_begins_on_one() -> None:
    placed = place(
        [Demand("judge", 1, 2, serves=True), Demand("rollout", 1, 16, serves=True)], 8, 3
    )
    assert placed.devices("rollout")[0] == (1, 0)
    assert placed.devices("judge") == [(0, 0), (0, 1)]


def test_engines_that_begin_on_nodes_of_their_own() -> None:
    placed = place(
        [Demand("actor", 4, 1, fresh=True), Demand("rollout", 4, 1, fresh=True)], 8, None
    )
    assert placed.devices("rollout")[0] == (1, 0)
    assert placed.nodes() == 2


def test_nothing_moves_to_the_node_that_a_trainer_begins() -> None:
    placed = place([Demand("rollout", 1, 4, serves=True), Demand("actor", 1, 4, fresh=True)], 8, 1)
    assert placed.devices("rollout") == [(0, gpu) for gpu in range(4)]
    assert placed.devices("actor") == [None] * 4


def test_gaps_are_filled_and_what_is_left_of_them_too() -> None:
    demands = [Demand("a", 1, 5), Demand("b", 1, 8), Demand("c", 1, 1), Demand("d", 1, 2)]
    placed = place(demands, 8, None)
    assert placed.devices("c") == [(0, 5)]
    assert placed.devices("d") == [(0, 6), (0, 7)]


def test_a_unit_is_scattered_where_no_node_has_room_for_it() -> None:
    demands = [Demand("a", 2, 3), Demand("b", 1, 2), Demand("c", 1, 1)]
    placed = place(demands, 4, 2)
    assert placed.devices("b") == [(0, 3), (1, 3)]
    assert placed.devices("c") == [None]
    demands = [Demand("a", 2, 3), Demand("b", 1, 5), Demand("c", 1, 3), Demand("d", 1, 1)]
    placed = place(demands, 5, 3)
    assert placed.devices("c") == [(0, 3), (0, 4), (1, 3)]
    assert placed.devices("d") == [(1, 4)]


def test_the_cost_of_a_placement() -> None:
    """Units without room, servers and tensor groups that straddle; larger than a node: not one."""
    demands = [
        Demand("whole", 2, 8, serves=True),
        Demand("rollout", 2, 3, serves=True),
        Demand("wide", 1, 16),
        Demand("actor", 3, 2),
        Demand("late", 2, 1),
    ]
    units = {
        "whole": [0, 12],
        "rollout": [8, (22, 23, 24)],
        "wide": [25],
        "actor": [(7, 8), (47, 48), 50],
        "late": [None, None],
    }
    placed = Placement(units, {demand.engine: demand.size for demand in demands}, 8)  # type: ignore[arg-type]
    assert _cost(placed, demands) == (2, 2, 2)


def test_ranks_without_room() -> None:
    placed = place([Demand("actor", 8, 1), Demand("rollout", 1, 4, serves=True)], 8, 1)
    assert placed.devices("rollout") == [None] * 4


def test_ranks_of_a_node() -> None:
    placed = place([Demand("actor", 12, 1)], 8, 2)
    assert placed.ranks_by_node("actor") == {0: 8, 1: 4}


@pytest.mark.parametrize(
    ("units", "per_node", "n_nodes"),
    [
        ([(2, 4), (4, 3)], 10, 2),  # 4 3 3 twice; the largest first would be 4 4
        ([(8, 5), (8, 3)], 11, 6),
        ([(22, 3), (2, 4), (1, 3)], 16, 5),
        ([(4, 4), (8, 6), (2, 8), (2, 2)], 14, 6),
        ([(1, 20), (2, 4), (4, 3)], 10, 4),
    ],
)
def test_where_first_fit_is_not_enough(
    units: list[tuple[int, int]], per_node: int, n_nodes: int
) -> None:
    demands = [Demand(f"e{i}", n, size, serves=True) for i, (n, size) in enumerate(units)]
    placed = place(demands, per_node, n_nodes)
    small = [d.engine for d in demands if d.size <= per_node]
    assert not any(placed.straddling(engine) for engine in small)
    used = [gpu for d in demands for unit in gpus(placed, d.engine) for gpu in unit]
    assert len(used) == len(set(used))


def test_units_are_packed_wherever_they_can_be() -> None:
    for sizes, room in product(((1, 3, 4), (2, 3, 5), (3, 4, 7), (2, 5, 6)), (7, 8, 10)):
        for *numbers, nodes in product(range(4), range(4), range(4), (1, 2, 3)):
            counts = dict(zip(sizes, numbers, strict=True))
            found = pack(counts, room, nodes)
            demands = [Demand(str(size), n, size) for size, n in counts.items()]
            assert (found is not None) == fits_without_straddling(demands, room, nodes)
            if found is not None:
                assert len(found) <= nodes
                assert all(sum(size * n for size, n in node.items()) <= room for node in found)
                assert all(
                    sum(node.get(size, 0) for node in found) == counts[size] for size in sizes
                )


def test_a_search_that_takes_too_long_is_given_up() -> None:
    sizes = list(range(20, 51))
    search = _Search(sizes[::-1], 100)
    assert search.fill((3,) * len(sizes), 33) is None
    assert MAX_STEPS < search.steps < MAX_STEPS + 100


def test_a_server_is_kept_whole_at_the_cost_of_tensor_groups() -> None:
    placed = place([Demand("actor", 3, 3), Demand("rollout", 1, 6, serves=True)], 8, 2)
    assert placed.straddling("rollout") == 0
    assert placed.straddling("actor") == 1


def test_sixteen_thousand_gpus_of_awkward_sizes() -> None:
    demands = [
        Demand("rollout", 2000, 3, serves=True),
        Demand("actor", 2000, 5),
        Demand("judge", 192, 2, serves=True),
    ]
    placed = place(demands, 8, 2048)
    assert [placed.straddling(d.engine) for d in demands] == [0, 0, 0]
