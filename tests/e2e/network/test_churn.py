"""Endpoints that change under load: no request is lost, and no client is sent to a pod that left
its EndpointSlice.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from .conftest import Net, at_once, crowd, eventually, pod, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

APP = {"app": "s"}
LOAD = 500  # connections of each client


def members(space: Net) -> set[str]:
    subsets = space.object("endpoints", "s").get("subsets") or ()
    return {
        address["targetRef"]["name"]
        for subset in subsets
        for address in subset.get("addresses") or ()
    }


def test_pods_leave_under_load(space: Net) -> None:
    space.apply(
        crowd("lin", "linux-1", 3, APP),
        crowd("win", "windows-1", 3, APP),
        service("s", APP),
        pod("lin-client", "control-plane"),
        pod("win-client", "windows-2"),
    )
    space.rolled_out("lin", "win")
    space.ready("pod/lin-client", "pod/win-client")
    first = eventually(lambda: members(space), lambda names: len(names) == 6)
    clients = ("lin-client", "win-client")
    eventually(lambda: all(all(space.fetch(client, *["s/hostname"] * 3)) for client in clients))
    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(space.fetch, client, *["s/hostname"] * LOAD) for client in clients]
        for gone in sorted(first):
            # It keeps serving, but is no longer a member: a client that got an answer from it was sent
            # astray.
            space("label", "pod", gone, "app=former", "deployment=former", "--overwrite")
            eventually(lambda: members(space), lambda names, gone=gone: gone not in names)
            rows = at_once(
                *(
                    lambda client=client: space.fetch(client, *["s/hostname"] * 12)
                    for client in clients
                )
            )
            assert not any(gone in row for row in rows)
            assert all(all(row) for row in rows), rows
        for load in loads:
            assert "" not in load.result()
    now = eventually(lambda: members(space), lambda names: len(names) == 6)
    assert not now & first


def test_a_service_without_pods(space: Net) -> None:
    """On Linux it is refused; Windows has no rule for it at all, so it goes nowhere."""
    space.apply(
        pod("only", "linux-1", APP),
        service("s", APP),
        pod("lin-client", "linux-1"),
        pod("win-client", "windows-1"),
    )
    space.ready()
    clients = ("lin-client", "win-client")
    eventually(lambda: all(all(space.fetch(client, "s/hostname")) for client in clients))
    address = space.object("service", "s")["spec"]["clusterIP"]
    space("delete", "pod", "only")
    eventually(lambda: members(space), lambda names: not names)
    eventually(
        lambda: [space.connect(client, f"{address}:80") for client in clients],
        lambda found: found[0] == "REFUSED" and found[1] not in ("", "REFUSED"),
    )
    space.apply(pod("next", "windows-1", APP))
    eventually(
        lambda: [space.fetch(client, "s/hostname") for client in clients],
        lambda found: found == [["next"], ["next"]],
    )
