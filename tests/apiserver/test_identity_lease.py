"""API servers show their identity in Leases."""

from __future__ import annotations

from tests.controllers.conftest import running_control_plane

from transom.apiserver.identity_lease import IdentityLease, identity_label, server_identity
from transom.client.resources import LEASES
from transom.machinery.releases import Release

R36 = Release(1, 36)


def test_the_name_follows_from_the_host() -> None:
    assert server_identity(Release(1, 26), "a").startswith("kube-apiserver-")
    name = server_identity(R36, "kind-control-plane")
    assert name == "apiserver-" + name.removeprefix("apiserver-")
    assert len(name) == len("apiserver-") + 26
    assert server_identity(R36, "b") != name
    assert identity_label(Release(1, 26)) == "k8s.io/component"


async def test_the_lease_is_renewed_and_others_expire() -> None:
    async with running_control_plane((), release="1.36") as plane:
        lease = IdentityLease(plane.client, plane.clock, R36, "host")
        other = IdentityLease(plane.client, plane.clock, R36, "dead")
        other.start()
        lease.start()
        await plane.settle(1)
        mine, theirs = (server_identity(R36, name) for name in ("host", "dead"))
        first = await plane.get(LEASES, "kube-system", mine)
        assert first["metadata"]["labels"] == {
            "apiserver.kubernetes.io/identity": "kube-apiserver",
            "kubernetes.io/hostname": "host",
        }
        assert first["spec"]["leaseDurationSeconds"] == 3600
        assert first["spec"]["holderIdentity"].startswith(mine + "_")
        await plane.settle(11)
        second = await plane.get(LEASES, "kube-system", mine)
        assert second["spec"]["renewTime"] > first["spec"]["renewTime"]
        await other._task.stop()
        await plane.settle(2 * 3600 + 30)
        assert await plane.missing(LEASES, "kube-system", theirs)
        await lease.stop()
        assert await plane.missing(LEASES, "kube-system", mine)
