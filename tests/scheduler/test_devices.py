"""Devices are allocated to claims: selectors, counts, alternatives, constraints, shared devices."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from transom.machinery import quantity
from transom.machinery.device_taints import apply_taint_rules
from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.scheduler.device_allocator import AllocatedDevices, DeviceAllocator, SearchDeadline
from transom.scheduler.device_capacity import consumed_capacity
from transom.scheduler.device_pools import NodeMatches
from transom.scheduler.errors import SchedulingError
from transom.scheduler.framework import Status
from transom.scheduler.plugins.device_search import is_long_search, search_nodes
from transom.scheduler.snapshot import NodeInfo, Snapshot

DRIVER = "d.example.com"


def make_slice(*devices: Object, **spec: Any) -> Object:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": "s"},
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": "n1", "devices": [*devices], **spec},
    }


def make_device(name: str, model: str = "x", **fields: Any) -> Object:
    return {"name": name, "attributes": {"model": {"string": model}}, **fields}


def make_claim(*requests: Object, **devices: Any) -> Object:
    return {
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"devices": {"requests": [*requests], **devices}},
    }


def exactly(name: str = "a", **fields: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **fields}}


def cel(expression: str) -> list[Object]:
    return [{"cel": {"expression": expression}}]


def allocate(
    claim: Object,
    *slices: Object,
    used: tuple[str, ...] = (),
    node: str = "n1",
    capacity: dict[str, str] | None = None,
) -> list[str] | None:
    taken = {(DRIVER, "p", name) for name in used}
    amounts = {n: quantity.parse_quantity(text) for n, text in (capacity or {}).items()}
    shared = {(DRIVER, "p", "s0"): amounts} if amounts else {}
    allocator = DeviceAllocator(
        Release(1, 36),
        AllocatedDevices(taken, shared),
        lambda name: {"metadata": {"name": name}, "spec": {}} if name == "gpu" else None,
        slices,
    )
    found = allocator.allocate([claim], node, lambda selector: False)
    if found is None:
        return None
    return [f"{r['request']}={r['device']}" for r in found[0]["devices"]["results"]]


def test_a_free_device_is_found() -> None:
    both = make_slice(make_device("d0"), make_device("d1"))
    assert allocate(make_claim(exactly()), both) == ["a=d0"]
    assert allocate(make_claim(exactly()), both, used=("d0",)) == ["a=d1"]
    assert allocate(make_claim(exactly(count=2)), both) == ["a=d0", "a=d1"]
    assert allocate(make_claim(exactly(count=2)), both, used=("d1",)) is None
    assert allocate(make_claim(exactly()), both, node="n2") is None
    assert allocate(make_claim(exactly(allocationMode="All")), both) == ["a=d0", "a=d1"]


def test_selectors_choose_and_report_errors() -> None:
    both = make_slice(make_device("d0"), make_device("d1", "y"))
    chosen = cel(f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == "y"')
    assert allocate(make_claim(exactly(selectors=chosen)), both) == ["a=d1"]
    wrong = cel(f'device.attributes["{DRIVER}"].speed > 3')
    with pytest.raises(SchedulingError) as error:
        allocate(make_claim(exactly(selectors=wrong)), both)
    assert str(error.value) == ("claim ns/c: selector #0: CEL runtime error: no such key: speed")


def test_the_first_available_alternative_is_used() -> None:
    options = [
        {"name": "big", "deviceClassName": "gpu", "count": 3},
        {"name": "small", "deviceClassName": "gpu", "count": 1},
    ]
    claim = make_claim({"name": "a", "firstAvailable": options})
    assert allocate(claim, make_slice(make_device("d0"))) == ["a/small=d0"]


def test_devices_of_a_claim_match() -> None:
    three = make_slice(make_device("d0"), make_device("d1", "y"), make_device("d2"))
    same = make_claim(exactly(count=2), constraints=[{"matchAttribute": f"{DRIVER}/model"}])
    assert allocate(same, three) == ["a=d0", "a=d2"]
    distinct = make_claim(exactly(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/model"}])
    assert allocate(distinct, three) == ["a=d0", "a=d1"]


def test_tainted_devices_need_a_toleration() -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    only = make_slice(make_device("d0", taints=[taint]))
    assert allocate(make_claim(exactly()), only) is None
    tolerant = exactly(tolerations=[{"key": "broken", "operator": "Exists"}])
    assert allocate(make_claim(tolerant), only) == ["a=d0"]


def test_rules_taint_devices() -> None:
    both = make_slice(make_device("d0"), make_device("d1"))

    def rule(effect: str, **selector: str) -> Object:
        return {"spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": effect}}}

    def with_rules(*rules: Object, **fields: Any) -> list[str] | None:
        return allocate(make_claim(exactly(**fields)), apply_taint_rules(both, rules))

    assert with_rules(rule("NoSchedule", driver=DRIVER, device="d0")) == ["a=d1"]
    assert with_rules(rule("None", device="d0")) == ["a=d0"]
    assert with_rules(rule("NoExecute", driver="other.example.com")) == ["a=d0"]
    assert with_rules(rule("NoExecute", pool="p")) is None
    tolerations = [{"key": "k", "operator": "Exists"}]
    assert with_rules(rule("NoExecute", pool="p"), tolerations=tolerations) == ["a=d0"]


def test_counters_limit_partitions() -> None:
    def part(name: str, amount: str) -> Object:
        uses = [{"counterSet": "mem", "counters": {"gb": {"value": amount}}}]
        return make_device(name, consumesCounters=uses)

    counters = make_slice(sharedCounters=[{"name": "mem", "counters": {"gb": {"value": "8"}}}])
    counters["metadata"]["name"] = "counters"
    devices = make_slice(part("d0", "6"), part("d1", "4"), part("d2", "4"))
    for entry in (counters, devices):
        entry["spec"]["pool"] = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    assert allocate(make_claim(exactly(count=2)), counters, devices) == ["a=d1", "a=d2"]
    assert allocate(make_claim(exactly()), counters, devices, used=("d0",)) is None


def test_a_pool_that_is_being_updated_is_not_used() -> None:
    half = make_slice(make_device("d0"))
    half["spec"]["pool"]["resourceSliceCount"] = 2
    assert allocate(make_claim(exactly()), half) is None


def test_claims_share_a_device_up_to_its_capacity() -> None:
    shared = make_slice(
        make_device("s0", allowMultipleAllocations=True, capacity={"mem": {"value": "8Gi"}})
    )
    claim = make_claim(exactly(capacity={"requests": {"mem": "3Gi"}}))
    assert allocate(claim, shared, capacity={"mem": "5Gi"}) == ["a=s0"]
    assert allocate(claim, shared, capacity={"mem": "6Gi"}) is None


@pytest.mark.parametrize(
    ("policy", "wanted", "consumed"),
    [
        ({}, None, "8"),
        ({"default": "2"}, None, "2"),
        ({"default": "2", "validValues": ["2", "4"]}, "3", "4"),
        ({"default": "2", "validRange": {"min": "2", "step": "3", "max": "8"}}, "3", "5"),
        ({"default": "2", "validRange": {"min": "2", "max": "4"}}, "5", None),
    ],
)
def test_requests_are_rounded_to_the_policy(
    policy: Object, wanted: str | None, consumed: str | None
) -> None:
    device = {"capacity": {"n": {"value": "8", "requestPolicy": policy}}}
    found = consumed_capacity(device, {"requests": {"n": wanted}} if wanted else None)
    assert (str(found["n"]) if found else None) == consumed


# ---- long searches ----


CLASSES: dict[str, Object] = {"gpu": {"metadata": {"name": "gpu"}, "spec": {}}}
COSTLY = "device.attributes.all(a, device.attributes.all(b, a != b || a == b))"


def is_long(claim: Object, devices: int, nodes: int = 1, **spec: Any) -> bool:
    one = make_slice(*(make_device(f"d{i}") for i in range(devices)), **spec)
    return is_long_search([claim], [one], nodes, CLASSES.get, Release(1, 36))


def test_only_searches_that_may_take_long_leave_the_event_loop() -> None:
    assert not is_long(make_claim(exactly(count=2)), 8)
    assert not is_long(make_claim(exactly()), 128, 4)
    assert not is_long(make_claim(exactly(selectors=cel("device.driver == 'x'"))), 8)
    assert is_long(make_claim(exactly(count=32)), 128)
    assert is_long(make_claim(exactly(), exactly("b"), constraints=[{"matchAttribute": "x"}]), 2)
    assert is_long(make_claim(exactly(selectors=cel(COSTLY) * 32)), 8)
    alternatives = {"name": "a", "firstAvailable": [{"deviceClassName": "gpu", "count": 32}] * 8}
    assert is_long(make_claim(alternatives), 8)
    assert not is_long(make_claim(exactly(selectors=cel("not CEL"))), 8)  # the search reports it


def test_hopeless_searches_of_few_devices_leave_the_event_loop() -> None:
    """They try the devices in every order: 10 devices for 11 took 600 ms."""
    assert is_long(make_claim(exactly(count=11)), 10)
    assert is_long(make_claim(*(exactly(f"r{i}") for i in range(7))), 6)
    assert is_long(make_claim(exactly(allocationMode="All"), exactly("b")), 8)
    assert not is_long(make_claim(exactly(allocationMode="All")), 3)


def test_devices_for_all_nodes_count_for_each_of_them() -> None:
    one = make_claim(exactly(selectors=cel("device.driver == 'x'") * 10))
    assert not is_long(one, 8, 90)
    assert is_long(one, 8, 90, nodeName=None, allNodes=True)
    assert is_long(one, 0, 2000)


def nodes(*names: str) -> Snapshot:
    snapshot = Snapshot()
    for name in names:
        snapshot.set_node({"metadata": {"name": name, "labels": {"zone": name}}, "status": {}})
    return snapshot


async def test_a_long_search_runs_in_a_thread_and_knows_the_nodes_of_devices() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["n2"]}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    one = make_slice(make_device("d0"), nodeName=None, nodeSelector=selector)
    threads: set[int] = set()

    def find(
        node: NodeInfo, matches: NodeMatches, deadline: SearchDeadline
    ) -> bool | Status | None:
        threads.add(threading.get_ident())
        if node.name == "n3":
            raise SchedulingError("broken")
        return matches(one["spec"]["nodeSelector"])

    found = await search_nodes(find, nodes("n1", "n2", "n3"), [one])
    assert threads and threading.get_ident() not in threads
    assert (found["n1"], found["n2"], str(found["n3"])) == (False, True, "broken")


def test_a_search_ends_at_its_deadline() -> None:
    one = make_slice(*(make_device(f"d{i}", f"m{i}") for i in range(30)))
    hopeless = make_claim(
        *(exactly(f"r{i}") for i in range(8)), constraints=[{"distinctAttribute": f"{DRIVER}/no"}]
    )
    allocator = DeviceAllocator(Release(1, 36), AllocatedDevices((), {}), CLASSES.get, [one])
    over = SearchDeadline(60)
    over.cancel()
    with pytest.raises(SchedulingError, match="node n1: timed out trying to allocate devices"):
        allocator.allocate([hopeless], "n1", lambda selector: False, over)
    assert allocator.allocate([hopeless], "n1", lambda selector: False, SearchDeadline(60)) is None
