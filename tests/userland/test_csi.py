"""Command lines of CSI drivers and their sidecars, as in manifests."""

from __future__ import annotations

from typing import Any

import pytest

from transom.userland.csi import provisioner
from transom.userland.csi.api import ApiFailure
from transom.userland.csi.flags import parse_csi_flags, socket_path


def test_flags_as_go_takes_them() -> None:
    argv = (
        "/csi",
        "--drivername=d.example",
        "-v",
        "5",
        "--leader-election",
        "--csi-address=/csi/csi.sock",
    )
    assert parse_csi_flags(argv) == {
        "drivername": "d.example",
        "v": "5",
        "leader-election": "true",
        "csi-address": "/csi/csi.sock",
    }


@pytest.mark.parametrize(
    ("text", "windows", "path"),
    [
        ("unix:///csi/csi.sock", False, "/csi/csi.sock"),
        ("unix:/csi/csi.sock", False, "/csi/csi.sock"),
        ("/csi/csi.sock", False, "/csi/csi.sock"),
        ("unix://C:\\csi\\csi.sock", True, "C:\\csi\\csi.sock"),
        ("unix://C:/csi/csi.sock", True, "C:\\csi\\csi.sock"),
        ("C:\\csi\\csi.sock", True, "C:\\csi\\csi.sock"),
    ],
)
def test_addresses_of_sockets(text: str, windows: bool, path: str) -> None:
    assert socket_path(text, windows) == path


class DeletingSidecar:
    """What csi-provisioner uses of its sidecar to delete a volume."""

    def __init__(self, *capabilities: int) -> None:
        self.capabilities = capabilities
        self.deleted: list[str] = []
        self.api = self

    async def call(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        if method == "ControllerGetCapabilities":
            return {"capabilities": [{"rpc": {"type": kind}} for kind in self.capabilities]}
        self.deleted.append(request["volume_id"])
        return {}

    async def record_event(self, *text: Any) -> None:
        return

    async def list(self, path: str) -> list[dict[str, Any]]:
        raise ApiFailure(403, "volumeattachments is forbidden")

    async def delete(self, path: str) -> None:
        self.deleted.append(path)


async def test_only_drivers_that_attach_need_to_read_attachments() -> None:
    """The published manifests of csi-driver-smb give its provisioner no right to read them."""
    volume = {"metadata": {"name": "pv"}, "spec": {"csi": {"volumeHandle": "share"}}}
    mounts, attaches = DeletingSidecar(1, 9), DeletingSidecar(1, 2)
    await provisioner._delete(volume, mounts)  # type: ignore[arg-type]
    assert mounts.deleted == ["share", "/api/v1/persistentvolumes/pv"]
    with pytest.raises(ApiFailure, match="forbidden"):
        await provisioner._delete(volume, attaches)  # type: ignore[arg-type]
    assert attaches.deleted == []
