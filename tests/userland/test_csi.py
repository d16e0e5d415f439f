"""Command lines of CSI drivers and their sidecars, as in manifests."""

from __future__ import annotations

import pytest

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
