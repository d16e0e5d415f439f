"""The source VIP that the scripts of an overlay node save."""

from __future__ import annotations

import pytest

from transom.kit.clock import VirtualClock
from transom.machines.windows.host import WindowsHost
from transom.network.cni.sourcevip import FILE, saved_source_vip

ANSWER = '{"cniVersion": "0.2.0", "ip4": {"ip": "10.244.2.2/24"}}\r\n'


@pytest.mark.parametrize("encoding", ["ascii", "utf-8-sig", "utf-16"])
def test_the_file_is_read_in_each_encoding_that_powershell_writes(encoding: str) -> None:
    files = WindowsHost("w", VirtualClock()).files
    files.mkdir(r"C:\k")
    files.write(FILE, ANSWER.encode(encoding))
    assert saved_source_vip(files) == "10.244.2.2"


def test_a_file_without_an_address_is_an_error() -> None:
    files = WindowsHost("w", VirtualClock()).files
    files.mkdir(r"C:\k")
    files.write(FILE, b"{}")
    with pytest.raises(KeyError):
        saved_source_vip(files)
