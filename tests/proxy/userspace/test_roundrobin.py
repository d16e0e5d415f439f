from __future__ import annotations

import random

import pytest

from transom.kit.clock import VirtualClock
from transom.proxy.tracker import PortName
from transom.proxy.userspace.roundrobin import NoEndpoint, RoundRobin

WEB = PortName("default", "web")
PLACES = [("10.244.1.5", 80), ("10.244.1.6", 80), ("10.244.1.7", 80)]


def balancer(affinity: str = "None", seconds: int = 0) -> tuple[RoundRobin, VirtualClock]:
    clock = VirtualClock()
    made = RoundRobin(clock, random.Random(1))
    made.put_service(WEB, affinity, seconds)
    made.put_endpoints(WEB, PLACES)
    return made, clock


def test_one_after_the_other() -> None:
    made, _ = balancer()
    turn = [made.next(WEB, "10.244.2.1") for _ in range(6)]
    assert sorted(turn[:3]) == PLACES and turn[3:] == turn[:3]


def test_a_client_stays_until_its_time_is_over_or_its_endpoint_goes() -> None:
    made, clock = balancer("ClientIP", 60)
    mine = made.next(WEB, "10.244.2.1")
    assert {made.next(WEB, "10.244.2.1") for _ in range(5)} == {mine}
    assert made.next(WEB, "10.244.2.2") != mine
    clock.advance(59)
    assert made.next(WEB, "10.244.2.1") == mine  # and the time starts anew
    clock.advance(60)
    assert made.next(WEB, "10.244.2.1") != mine
    mine = made.next(WEB, "10.244.2.1")
    made.put_endpoints(WEB, [place for place in PLACES if place != mine])
    assert made.next(WEB, "10.244.2.1") != mine


def test_an_endpoint_that_does_not_answer_is_left() -> None:
    made, _ = balancer("ClientIP")
    mine = made.next(WEB, "10.244.2.1")
    other = made.next(WEB, "10.244.2.1", reset=True)
    assert other != mine and made.next(WEB, "10.244.2.1") == other


def test_the_time_of_a_known_service_is_not_changed() -> None:
    made, clock = balancer("ClientIP", 60)
    made.put_service(WEB, "ClientIP", 10)
    mine = made.next(WEB, "10.244.2.1")
    clock.advance(30)
    assert made.next(WEB, "10.244.2.1") == mine


def test_no_endpoints() -> None:
    made, _ = balancer()
    made.remove_endpoints(WEB)
    with pytest.raises(NoEndpoint, match="missing endpoints"):
        made.next(WEB, "")
    made.remove_service(WEB)
    with pytest.raises(NoEndpoint, match="missing service entry"):
        made.next(WEB, "")


def test_stale_clients_are_forgotten() -> None:
    made, clock = balancer("ClientIP", 60)
    made.next(WEB, "10.244.2.1")
    clock.advance(60)
    made.forget_stale()
    assert not made._services[WEB].clients
