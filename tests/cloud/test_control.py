"""What `transom cloud` can do to the disks and shares of a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from transom.cloud.control import answer_cloud_request
from transom.cloud.provider import CloudProvider
from transom.kit.clock import VirtualClock
from transom.kit.user_errors import UserError


@pytest.fixture
def cloud() -> CloudProvider:
    return CloudProvider(VirtualClock())


def ask(cloud: CloudProvider, verb: str, **body: Any) -> Any:
    return asyncio.run(answer_cloud_request(cloud, {"n"}, verb, body))


def test_disks(cloud: CloudProvider) -> None:
    ask(cloud, "create", type="gce-pd", name="data", size="10Gi", zone="z")
    disk = cloud.disk("kubernetes.io/gce-pd/data")
    assert disk is not None and (disk.size, disk.zone) == (10 << 30, "z")
    ask(
        cloud,
        "set",
        name="data",
        values={"attach-error": "no", "missing": "on", "latency": "2.5", "detach-error": "stuck"},
    )
    assert (disk.attach_error, disk.missing, disk.latency, disk.detach_error) == (
        "no",
        True,
        2.5,
        "stuck",
    )
    [shown] = ask(cloud, "list")["disks"]
    assert shown["faults"] == {
        "attach-error": "no",
        "detach-error": "stuck",
        "missing": True,
        "latency": 2.5,
    }
    ask(
        cloud,
        "set",
        name="data",
        values={"attach-error": "", "missing": "", "latency": "", "detach-error": ""},
    )
    asyncio.run(cloud.attach(disk.name, "n"))
    with pytest.raises(UserError, match="could not be deleted"):
        ask(cloud, "delete", name="data")
    ask(cloud, "detach", name="data")
    ask(cloud, "delete", name="data")
    assert ask(cloud, "list") == {"disks": [], "shares": [], "latency": 0.0}


def test_shares_and_all_disks(cloud: CloudProvider) -> None:
    share = cloud.share("srv", "Data")
    ask(cloud, "set", name="//SRV/data", values={"offline": "on"})
    assert share.offline
    ask(cloud, "delete", name="\\\\srv\\data")
    assert not list(cloud.shares())
    ask(cloud, "set", name="all", values={"latency": "7"})
    assert cloud.latency == 7.0
    ask(cloud, "set", name="all", values={"latency": "1m30s"})
    assert cloud.latency == 90.0


def test_limits(cloud: CloudProvider) -> None:
    ask(cloud, "limit", node="n", type="azure-disk", count="3")
    assert cloud.limit("n", "kubernetes.io/azure-disk") == 3
    ask(cloud, "limit", node="n", type="azure-disk", count="default")
    assert cloud.limit("n", "kubernetes.io/azure-disk") == 16


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("create", {"type": "floppy", "name": "a"}),
        ("create", {"type": "gce-pd", "name": ""}),
        ("create", {"type": "gce-pd", "name": "a", "size": "much"}),
        ("create", {"type": "gce-pd", "name": "data"}),
        ("delete", {"name": "other"}),
        ("detach", {"name": "data"}),
        ("set", {"name": "data", "values": {}}),
        ("set", {"name": "data", "values": {"colour": "red"}}),
        ("set", {"name": "data", "values": {"missing": "maybe"}}),
        ("set", {"name": "data", "values": {"latency": "-1"}}),
        ("set", {"name": "data", "values": {"latency": "soon"}}),
        ("set", {"name": "all", "values": {"missing": "on"}}),
        ("limit", {"node": "m", "type": "gce-pd", "count": "1"}),
        ("limit", {"node": "n", "type": "gce-pd", "count": "many"}),
        ("limit", {"node": "n", "type": "x", "count": "1"}),
        ("paint", {}),
    ],
)
def test_what_cannot_be_done(cloud: CloudProvider, verb: str, body: Any) -> None:
    cloud.create_disk("kubernetes.io/gce-pd/data", 1 << 30)
    with pytest.raises(UserError):
        ask(cloud, verb, **body)
