"""What a scenario is, and what it needs of a cluster. Faults are injected into the state of the
cluster: through its API, the host networking service of a node, or the settings of a machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from transom.machinery.releases import Release
from transom.machinery.releases.release import parse_release

Object = dict[str, Any]
NAMESPACE = "scenario"
NAME_LABEL = "scenario.transom.dev/name"  # of the namespace: which scenario runs,
NODE_LABEL = "scenario.transom.dev/node"  # and on which node
_POLL_SECONDS = 2.0


class ScenarioNode(NamedTuple):
    """The Windows node that a scenario uses."""

    name: str
    build: int
    image: str  # a Windows image of the node's build
    other_image: str  # one of another build


class ScenarioCluster(Protocol):
    async def apply(self, obj: Object) -> None: ...
    async def delete(self, obj: Object) -> None: ...
    async def control(self, method: str, path: str, body: Any = None) -> Any: ...
    async def sleep(self, seconds: float) -> None: ...


Step = Callable[[ScenarioCluster, ScenarioNode], Awaitable[None]]
MakeObjects = Callable[[ScenarioNode], list[Object]]


class Scenario(NamedTuple):
    name: str
    title: str
    issue: str  # where it was reported: "kubernetes/kubernetes#135144"; "" if it is documented only
    symptom: str
    evidence: str  # the command that shows it
    remedy: str
    finding: str  # part of what doctor reports about it
    steps: tuple[Step, ...]
    undo: tuple[Step, ...] = ()
    since: str = ""  # the first release in which it happens
    until: str = ""  # and the last one
    within: float = 60  # seconds until doctor reports it


def scenario_releases(one: Scenario) -> str:
    """Where it happens: "1.21 to 1.30", "until 1.31"; "" for every release."""
    if one.since and one.until:
        return f"{one.since} to {one.until}"
    return f"until {one.until}" if one.until else f"from {one.since}" if one.since else ""


def happens_in(one: Scenario, release: Release) -> bool:
    after = not one.since or release >= parse_release(one.since)
    return after and (not one.until or release <= parse_release(one.until))


def apply(make: MakeObjects) -> Step:
    async def step(cluster: ScenarioCluster, node: ScenarioNode) -> None:
        for obj in make(node):
            await cluster.apply(obj)

    return step


def delete(make: MakeObjects) -> Step:
    async def step(cluster: ScenarioCluster, node: ScenarioNode) -> None:
        for obj in make(node):
            await cluster.delete(obj)

    return step


def wait(seconds: float) -> Step:
    async def step(cluster: ScenarioCluster, node: ScenarioNode) -> None:
        await cluster.sleep(seconds)

    return step


def hns_fault(name: str, on: bool = True) -> Step:
    async def step(cluster: ScenarioCluster, node: ScenarioNode) -> None:
        state = "on" if on else "off"
        await cluster.control("POST", f"/transom/nodes/{node.name}/hns/faults/{name}/{state}")

    return step


def hns_restart() -> Step:
    async def step(cluster: ScenarioCluster, node: ScenarioNode) -> None:
        await cluster.control("POST", f"/transom/nodes/{node.name}/hns/restart")

    return step


def machine(verb: str) -> Step:
    async def step(cluster: ScenarioCluster, node: ScenarioNode) -> None:
        await cluster.control("POST", f"/transom/nodes/{node.name}/{verb}")

    return step


def setting(name: str, value: object) -> Step:
    async def step(cluster: ScenarioCluster, node: ScenarioNode) -> None:
        await cluster.control("POST", f"/transom/nodes/{node.name}/set", {name: value})

    return step


async def run_scenario(scenario: Scenario, cluster: ScenarioCluster, node: ScenarioNode) -> None:
    """Returns as soon as the fault is there; what follows from it takes up to `within` seconds."""
    labels = {NAME_LABEL: scenario.name, NODE_LABEL: node.name}
    await cluster.apply(scenario_namespace(labels))
    for step in scenario.steps:
        await step(cluster, node)


async def wait_for_finding(
    scenario: Scenario, cluster: ScenarioCluster, reported: Callable[[], Awaitable[bool]]
) -> bool:
    """Whether doctor reports the scenario; `reported` asks it."""
    waited = 0.0
    while not await reported():
        if waited >= scenario.within:
            return False
        await cluster.sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS
    return True


async def end_scenario(scenario: Scenario, cluster: ScenarioCluster, node: ScenarioNode) -> None:
    for step in scenario.undo:
        await step(cluster, node)
    await cluster.delete(scenario_namespace())


def scenario_namespace(labels: Object | None = None) -> Object:
    """The namespace of scenarios. Its labels name the running one, for every client of the cluster."""
    meta: Object = {"name": NAMESPACE, **({"labels": labels} if labels else {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
