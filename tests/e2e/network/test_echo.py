"""ping, which the Windows data plane cannot translate."""

from __future__ import annotations

import pytest

from .conftest import Net, at_once

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

OUTSIDE = "203.0.113.10"


def ping(net: Net, pod: str, target: str) -> bool:
    """Whether one is answered."""
    options = ["-n", "1", "-w", "500"] if pod.startswith("win") else ["-c", "1", "-W", "1"]
    printed = net.exec(pod, "ping", *options, target)
    assert "0% " in printed or "100% " in printed, printed
    return "(0% loss)" in printed or " 0% packet loss" in printed


@pytest.mark.windows("WIN-NET-001", "LNET-14", "LNET-17")
def test_inside_and_outside(net: Net) -> None:
    inside = {name: net.ip(name) for name in ("lin-0", "lin-1", "win-1", "win-2")} | {
        "a node": "172.20.0.3"
    }
    for client in ("lin-c", "win-c"):
        answers = at_once(
            *(lambda to=to, client=client: ping(net, client, to) for to in inside.values())
        )
        assert dict(zip(inside, answers, strict=True)) == dict.fromkeys(inside, True)
    service = net.object("service", "linux")["spec"]["clusterIP"]
    linux, windows, by_linux, by_windows, traced = at_once(
        lambda: ping(net, "lin-c", OUTSIDE),
        lambda: ping(net, "win-c", OUTSIDE),
        lambda: ping(net, "lin-c", service),
        lambda: ping(net, "win-c", service),
        lambda: net.trace("win-c", OUTSIDE, "--protocol", "icmp"),
    )
    assert (linux, windows, by_linux, by_windows) == (True, False, False, False)
    assert (traced["verdict"], traced["limit"]) == ("dropped", "WIN-NET-001")


@pytest.mark.windows("WIN-NET-001", "LNET-16")
def test_tcp_and_udp_go_outside(net: Net) -> None:
    """The host outside serves ports 80 and 443 and refuses others."""
    for client in ("lin-c", "win-c"):
        assert net.connect(client, f"{OUTSIDE}:80") == ""
        assert net.connect(client, f"{OUTSIDE}:81") == "REFUSED"
        assert net.trace(client, f"{OUTSIDE}:53", "--protocol", "udp")["verdict"] == "refused"
