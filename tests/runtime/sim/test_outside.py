"""Pulls of a machine behind a proxy: they fail until the machine's variables name the proxy."""

from __future__ import annotations

import pytest
from tests.runtime.sim import harness

from transom.machines.windows.host import WindowsHost
from transom.machines.windows.variables import MACHINE
from transom.runtime.api import RuntimeFailure
from transom.runtime.sim.engine import Flavour
from transom.runtime.sim.outside import host_of

IMAGE = "mcr.microsoft.com/windows/nanoserver:1809"
PROXY = "http://proxy.example.com:80/"
MANIFEST = "https://mcr.microsoft.com/v2/windows/nanoserver/manifests/1809"
DOCKER = "Error response from daemon: Get https://mcr.microsoft.com/v2/: "
SILENT = (
    "net/http: request canceled while waiting for connection (Client.Timeout exceeded while "
    "awaiting headers)"
)
CONTAINERD = (
    f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
    "failed to do request: "
    f'Head "{MANIFEST}": '
)
LATE = (
    "connectex: A connection attempt failed because the connected party did not properly "
    "respond after a period of time, or "
    "established connection failed because connected host has failed to respond."
)


@pytest.mark.windows("TRB-116", "TRB-117", "TRB-118")
@pytest.mark.parametrize(
    ("flavour", "variables", "failure"),
    [
        ("docker", {}, DOCKER + SILENT),
        ("docker", {"HTTP_PROXY": PROXY}, DOCKER + SILENT),
        (
            "docker",
            {"HTTPS_PROXY": "http://other:80/"},
            DOCKER + "proxyconnect tcp: dial tcp: lookup other: no such host",
        ),
        ("docker", {"HTTP_PROXY": PROXY, "HTTPS_PROXY": "http://proxy.example.com:443/"}, ""),
        ("containerd", {}, f"{CONTAINERD}dial tcp 192.0.2.1:443: {LATE}"),
        ("containerd", {"https_proxy": "proxy.example.com:443"}, ""),
    ],
)
async def test_a_machine_behind_a_proxy_needs_its_settings(
    flavour: Flavour, variables: dict[str, str], failure: str
) -> None:
    async def test() -> None:
        r = harness.make("windows", flavour)
        assert isinstance(r.host, WindowsHost)
        r.runtime.proxy = PROXY
        for name, value in variables.items():
            r.host.registry.set(MACHINE, name, value)
        if not failure:
            assert await r.do(r.runtime.pull_image(IMAGE))
            return
        with pytest.raises(RuntimeFailure) as raised:
            await r.do(r.runtime.pull_image(IMAGE))
        assert raised.value.description == failure
        r.runtime.proxy = ""  # the machine is moved to where there is none
        assert await r.do(r.runtime.pull_image(IMAGE))

    await test()


@pytest.mark.parametrize(
    ("text", "host"),
    [
        (PROXY, "proxy.example.com"),
        ("proxy:3128", "proxy"),
        ("http://me:word@proxy/", "proxy"),
        ("", ""),
        ("http://[", ""),
    ],
)
def test_hosts_of_proxies(text: str, host: str) -> None:
    assert host_of(text) == host
