"""Sets of CPUs, and which ones are taken first."""

from __future__ import annotations

import pytest

from transom.machines.cpus import CpuTopology, NotEnoughCpus, format_cpuset, parse_cpuset

THREADS = CpuTopology(8, threads_per_core=2)  # the cores are 0,4 1,5 2,6 3,7
NODES = CpuTopology(8, numa_nodes=2)  # 0-3 and 4-7


@pytest.mark.parametrize("text", ["", "0", "0-3", "0,2-3,7"])
def test_sets_are_written_like_linux_does(text: str) -> None:
    assert format_cpuset(parse_cpuset(text)) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", 'strconv.Atoi: parsing "a": invalid syntax'),
        ("3-1", 'invalid range "3-1" (3 > 1)'),
        ("1,,2", 'strconv.Atoi: parsing "": invalid syntax'),
    ],
)
def test_other_texts_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError) as failure:
        parse_cpuset(text)
    assert str(failure.value) == problem


@pytest.mark.parametrize(
    ("topology", "available", "count", "taken"),
    [
        (THREADS, "0-7", 2, "0,4"),
        (THREADS, "0-7", 3, "0-1,4"),
        (THREADS, "1-7", 1, "4"),  # the core that is in use
        (THREADS, "1-7", 2, "1,5"),
        (NODES, "0-7", 4, "0-3"),
        (NODES, "1-7", 4, "4-7"),  # a whole NUMA node
        (NODES, "1-7", 2, "1-2"),
        (NODES, "1-7", 6, "1-2,4-7"),
    ],
)
def test_whole_nodes_and_cores_are_taken_first(
    topology: CpuTopology, available: str, count: int, taken: str
) -> None:
    assert format_cpuset(topology.take_packed(parse_cpuset(available), count)) == taken


def test_threads_of_different_cores_are_taken_where_cores_are_spread() -> None:
    assert format_cpuset(THREADS.take_packed(THREADS.all, 3, spread=True)) == "0-2"


@pytest.mark.parametrize(("count", "taken"), [(4, "0-3"), (6, "0-2,4-6"), (5, "0-4")])
def test_cpus_are_distributed_evenly_over_numa_nodes(count: int, taken: str) -> None:
    assert format_cpuset(NODES.take_distributed(NODES.all, count, 1)) == taken


def test_one_numa_node_is_used_where_it_has_enough() -> None:
    available = parse_cpuset("2-3,5-7")
    assert format_cpuset(NODES.take_packed(available, 3)) == "2-3,5"
    assert format_cpuset(NODES.take_packed(available, 3, one_cache=True)) == "5-7"


def test_there_may_not_be_enough() -> None:
    with pytest.raises(NotEnoughCpus) as failure:
        THREADS.take_packed(parse_cpuset("1-2"), 3)
    assert str(failure.value) == (
        "not enough cpus available to satisfy request: requested=3, available=2"
    )
