"""Doctor reports the right cause of every failure, about the right object, with a remedy that ends
it when it is followed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.doctor.failures import Failure
from tests.doctor.failures_cloud import CLOUD_FAILURES
from tests.doctor.failures_containers import CONTAINER_FAILURES
from tests.doctor.failures_events import EVENT_FAILURES
from tests.doctor.failures_lasting import LASTING_FAILURES
from tests.doctor.failures_machines import MACHINE_FAILURES
from tests.doctor.failures_newer import NEWER_FAILURES
from tests.doctor.failures_nodes import NODE_FAILURES
from tests.doctor.failures_objects import OBJECT_FAILURES
from tests.doctor.failures_references import REFERENCE_FAILURES
from tests.doctor.failures_scheduling import SCHEDULING_FAILURES
from tests.doctor.failures_workloads import WORKLOAD_FAILURES
from tests.doctor.virtual_cluster import VirtualCluster, about, virtual_cluster

Play = Callable[[Callable[[VirtualCluster], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """One cluster for all rows: each leaves it as it was, which the next one sees."""
    with virtual_cluster(tmp_path_factory.mktemp("doctor")) as (cluster, run):
        yield lambda scenario: run(scenario(cluster))


@pytest.fixture(scope="module")
def play_newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """A cluster of the newest release, whose Windows nodes have containerd."""
    folder = tmp_path_factory.mktemp("newest")
    with virtual_cluster(folder, release="1.36") as (cluster, run):
        yield lambda scenario: run(scenario(cluster))


ROWS = (
    *SCHEDULING_FAILURES,
    *CONTAINER_FAILURES,
    *OBJECT_FAILURES,
    *MACHINE_FAILURES,
    *CLOUD_FAILURES,
    *EVENT_FAILURES,
    *REFERENCE_FAILURES,
    *WORKLOAD_FAILURES,
    *NODE_FAILURES,
    *NEWER_FAILURES,
    *LASTING_FAILURES,
)
OLD = tuple(row for row in ROWS if row.runtime != "containerd" and not row.since)
# Later releases have other texts on Windows nodes; the rest is the same.
NEWEST = tuple(
    row
    for row in ROWS
    if row.runtime != "docker"
    and (row.since or "windows" in f"{row.name} {row.where} {row.first} {row.objects}".lower())
)


def _ids(rows: tuple[Failure, ...]) -> list[str]:
    return [row.name.replace(" ", "-") for row in rows]


@pytest.mark.parametrize("row", OLD, ids=_ids(OLD))
def test_a_failure_is_reported_and_its_remedy_ends_it(row: Failure, play: Play) -> None:
    _check_failure(row, play)


@pytest.mark.parametrize("row", NEWEST, ids=_ids(NEWEST))
def test_a_failure_of_the_newest_release_is_reported(row: Failure, play_newest: Play) -> None:
    _check_failure(row, play_newest)


def _check_failure(row: Failure, play: Play) -> None:
    async def scenario(cluster: VirtualCluster) -> None:
        made: list[Any] = [*row.first, *row.objects, *(row.fixed or ())]
        undone = row.harmless
        try:
            await cluster.apply(*row.first)
            if row.first:
                await cluster.settled()
            if row.do is not None:
                await row.do(cluster)
            await cluster.apply(*row.objects)
            if row.harmless:
                await cluster.clock.sleep(60)
                assert await cluster.doctor() == []
                return
            await cluster.clock.sleep(row.after)
            finding = await cluster.finding(row.where, row.what, row.seconds)
            assert any(row.remedy in text for text in (finding.remedy, *finding.commands)), finding
            assert finding.why and finding.record == row.record, finding
            others = [
                one
                for one in await cluster.doctor()
                if about(one, row.where)
                and row.what not in one.what
                and not any(text in one.what for text in row.also)
            ]
            assert not others, (finding, others)
            # The remedy.
            undone = True
            if row.undo is not None:
                await row.undo(cluster)
            await cluster.delete(
                *(one for one in row.objects if one["kind"] in ("Pod", "Job") or row.fixed is None)
            )
            await cluster.apply(*(row.fixed or ()))
            await cluster.silence()
        finally:
            if row.undo is not None and not undone:
                await row.undo(cluster)
            await cluster.delete(*made)
            await cluster.silence()

    play(scenario)
