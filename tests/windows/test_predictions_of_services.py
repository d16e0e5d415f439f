"""Limits that Services and flannel's settings meet: what lint predicts, and what the Windows side
of the network makes of it.

The API server gives a Service its addresses and its author the warning. A proxier on a node of the
target's build and release gets the Service as the API server has it; what it makes of it is seen in
the host networking service.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from tests.apiserver.harness import start
from tests.proxy.objects import endpoint_slice
from tests.proxy.winkernel.nodes import NODE, OTHER, Node
from tests.windows.predicting import USUAL, WINDOWS, linted

from transom.network.cni import flannelconf
from transom.network.modes import NetworkPlan, NodePlan, check_network_plan
from transom.windows.builds import BUILDS
from transom.windows.limits import LIMITS
from transom.windows.podchecks import seen_in_objects
from transom.windows.policy import WarningPolicy
from transom.windows.releases import parse_release_version

LABELS = {"app": "web"}
HERE, THERE = ("10.244.1.5", NODE), ("10.244.2.5", OTHER)
BOTH, OWN = [HERE[0], THERE[0]], [HERE[0]]
INGRESS = "203.0.113.50"
DSR, PRESERVE_DIP = 1, 8
GATES = {"IPv6DualStack": True, "ServiceTopology": True}
_BACKENDS = {"l2bridge": "host-gw", "overlay": "vxlan"}
# "cluster", "node port", "ingress" -> what leads where, and how
Balancers = Mapping[str, Mapping[str, Any]]


class Case(NamedTuple):
    id: str
    spec: Mapping[str, Any] = {}  # what meets the limit
    plain: Mapping[str, Any] = {}  # what does not
    see: Callable[[Balancers, Balancers], bool] = lambda met, plain: met == plain
    nodes: Mapping[str, Any] = {}
    annotations: Mapping[str, str] = {}
    recorded: str = ""  # by kube-proxy; the record's message, if it has one
    kept: bool = True  # whether an API server of 1.20 keeps the field


def manifest(
    spec: Mapping[str, Any], annotations: Mapping[str, str], name: str = "web"
) -> dict[str, Any]:
    ports = [{"port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": dict(annotations)},
        "spec": {"selector": LABELS, "ports": ports, **spec},
    }


def pod(
    name: str = "web",
    port: int = 8080,
    image: str = "mcr.microsoft.com/windows/servercore:{tag}",
    **nodes: Any,
) -> Any:
    tag = BUILDS[nodes.get("build", 17763)].tags[0]
    container = {
        "name": "c",
        "image": image.format(tag=tag),
        "resources": {"limits": {"memory": "16Mi"}},
        "ports": [{"name": "http", "containerPort": port}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": LABELS},
        "spec": {
            "nodeSelector": WINDOWS,
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


BALANCED = {"type": "LoadBalancer"}
LOCAL = {**BALANCED, "externalTrafficPolicy": "Local"}
PRESERVE = {"preserve-destination": "true"}
STICKY = {"sessionAffinity": "ClientIP"}
DUAL = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}


def _spread(met: Balancers, plain: Balancers) -> bool:
    return met == plain and met["cluster"]["distribution"] == 0


def _dsr_outside_alone(met: Balancers, plain: Balancers) -> bool:
    outside = all(
        met[where]["flags"] & DSR and met[where]["to"] == OWN for where in ("node port", "ingress")
    )
    return outside and met["cluster"] == plain["cluster"] and not met["cluster"]["flags"] & DSR


def _dsr_of_ingress_alone(met: Balancers, plain: Balancers) -> bool:
    kept = met["ingress"]["mapping"] & PRESERVE_DIP and met["ingress"]["flags"] & DSR
    port = met["node port"]["to"] == OWN and not met["node port"]["flags"] & DSR
    return (
        bool(kept and port)
        and met["cluster"] == plain["cluster"]
        and not met["cluster"]["flags"] & DSR
    )


def _translated_on_the_node(met: Balancers, plain: Balancers) -> bool:
    return (
        met["ingress"]["to"] == met["node port"]["to"] == OWN
        and not met["ingress"]["mapping"] & PRESERVE_DIP
    )


CASES = [
    Case("WIN-SVC-002", STICKY, see=_spread),
    Case("WIN-SVC-003", STICKY, see=_spread, nodes={"release": "1.18", "build": 20348}),
    Case(
        "WIN-SVC-003",
        STICKY,
        see=_spread,
        nodes={"release": "1.19"},
        recorded="Session Affinity is not supported on this version of Windows.",
    ),
    Case(
        "WIN-SVC-004",
        {**STICKY, "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}},
        STICKY,
        nodes={"build": 20348},
    ),
    Case("WIN-SVC-005", LOCAL, BALANCED, _dsr_outside_alone),
    Case("WIN-SVC-006", LOCAL, BALANCED, nodes={"release": "1.19"}),
    Case("WIN-SVC-009", BALANCED, BALANCED, _dsr_of_ingress_alone, {"build": 18363}, PRESERVE),
    Case(
        "WIN-SVC-010", BALANCED, BALANCED, _translated_on_the_node, {"features": ("dsr",)}, PRESERVE
    ),
    Case("WIN-SVC-011", BALANCED, BALANCED, nodes={"release": "1.14"}, annotations=PRESERVE),
    Case("WIN-SVC-013", {**BALANCED, "loadBalancerSourceRanges": ["192.0.2.0/24"]}, BALANCED),
    Case("WIN-SVC-014", {"topologyKeys": ["kubernetes.io/hostname"]}, kept=False),
]


@pytest.mark.windows(
    "WIN-SVC-002",
    "WIN-SVC-003",
    "WIN-SVC-004",
    "WIN-SVC-005",
    "WIN-SVC-006",
    "WIN-SVC-009",
    "WIN-SVC-010",
    "WIN-SVC-011",
    "WIN-SVC-013",
    "WIN-SVC-014",
    "LB-09",
    "LB-15",
    "LNET-11",
    "LNET-20",
)
@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.id}-{case.nodes.get('release', '1.20')}" for case in CASES]
)
def test_a_proxier_does_what_lint_predicts(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    nodes = {**USUAL, **case.nodes}
    met, plain = manifest(case.spec, case.annotations), manifest(case.plain, {})
    behind = pod(**case.nodes)
    assert (linted(nodes, met, behind), linted(nodes, plain, behind)) == ([case.id], [])
    made, warned = _created(nodes, met, behind)
    usual, unwarned = _created(nodes, plain, behind)
    limit = LIMITS[case.id]
    worth = limit.severity == "warning" or limit.effect in ("ignored", "rejected")
    if not nodes["features"]:  # of which an API server does not know
        assert (warned, unwarned) == (
            [case.id] if seen_in_objects(limit) and worth and case.kept else [],
            [],
        )
    if not case.kept:
        assert not made["spec"].keys() & case.spec.keys()
        made = {**made, "spec": {**made["spec"], **case.spec}}  # as one keeps it that has the gate
    with caplog.at_level(logging.WARNING, "transom.proxy"):
        found = _balanced(nodes, made)
    words = case.recorded or limit.message
    assert not words or words in caplog.messages
    assert case.see(found, _balanced(nodes, usual)), found


def _created(nodes: Mapping[str, Any], service: Any, *others: Any) -> tuple[Any, list[str]]:
    """The Service as an API server stores it, and the ids that its author is warned of."""

    async def main() -> tuple[Any, list[str]]:
        api = await start(
            windows=WarningPolicy(), feature_gates=GATES, service_cidr="10.96.0.0/16,fd00:96::/112"
        )
        info = {
            "operatingSystem": "windows",
            "kubeletVersion": f"v{nodes['release']}.15",
            "containerRuntimeVersion": "docker://19.3",
            "kernelVersion": f"10.0.{nodes['build']}.{nodes['revision'] or 9999}",
        }
        annotations = {"flannel.alpha.coreos.com/backend-type": _BACKENDS[nodes["network"]]}
        meta = {"name": NODE, "labels": WINDOWS, "annotations": annotations}
        await api.ok("POST", "/api/v1/nodes", {"metadata": meta})
        status = {"status": {"nodeInfo": info}}
        await api.ok(
            "PATCH", f"/api/v1/nodes/{NODE}/status", status, media="application/merge-patch+json"
        )
        await api.ok(
            "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
        )
        for one in others:
            await api.ok("POST", "/api/v1/namespaces/default/pods", one)
        answer = await api.send("POST", "/api/v1/namespaces/default/services", service)
        body = json.loads(answer.body if isinstance(answer.body, bytes) else b"".join(answer.body))
        await api.server.stop()
        assert answer.status == 201, body
        return body, [value.decode()[7:18] for name, value in answer.headers if name == b"Warning"]

    return asyncio.run(main())


def _proxier(nodes: Mapping[str, Any]) -> Node:
    dsr = {"enable_dsr": True, "gates": {"WinDSR": True}} if "dsr" in nodes["features"] else {}
    return Node(build=nodes["build"], release=parse_release_version(nodes["release"]), **dsr)


def _balanced(nodes: Mapping[str, Any], service: Any) -> Balancers:
    node = _proxier(nodes)
    node.pod(HERE[0])
    if service["spec"]["type"] == "LoadBalancer":
        service = {**service, "status": {"loadBalancer": {"ingress": [{"ip": INGRESS}]}}}
    node.put(service, HERE, THERE)
    node.sync()
    names = {service["spec"]["clusterIP"]: "cluster", "": "node port", INGRESS: "ingress"}
    return {names[vip]: found for (vip, _), found in node.balancers().items()}


# ---- what takes more than one Service ----


@pytest.mark.windows("WIN-SVC-001", "LNET-08")
@pytest.mark.parametrize(("pods", "found"), [(64, []), (65, ["WIN-SVC-001"])])
def test_backends(pods: int, found: list[str], caplog: pytest.LogCaptureFixture) -> None:
    template = {"metadata": {"labels": LABELS}, "spec": pod()["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": pods, "selector": {"matchLabels": LABELS}, "template": template},
    }
    service = manifest({}, {})
    assert linted(USUAL, service, deployment) == found
    made, _ = _created(USUAL, service)
    node = _proxier(USUAL)
    node.put(made, *((f"10.244.2.{n + 1}", OTHER) for n in range(pods)))
    with caplog.at_level(logging.ERROR, "transom.proxy"):
        node.sync()
    assert len(node.balancers()) == (0 if found else 1)
    assert (LIMITS["WIN-SVC-001"].message in caplog.text) is bool(found)


@pytest.mark.windows("WIN-SVC-015")
@pytest.mark.parametrize(("other", "found"), [(8080, []), (9090, ["WIN-SVC-015"])])
def test_named_target_ports(other: int, found: list[str]) -> None:
    service = manifest({"ports": [{"port": 80, "targetPort": "http"}]}, {})
    pods = [pod(), pod("old", other)]
    assert linted(USUAL, service, *pods) == found
    made, _ = _created(USUAL, service, *pods)
    node = _proxier(USUAL)
    node.put(made)
    for n, port in enumerate((8080, other)):
        node.tracker.put_slice(
            endpoint_slice("web", [(f"10.244.2.{n + 5}", OTHER)], number=port, suffix=str(n))
        )
    node.sync()
    [balancer] = node.balancers().values()
    assert (balancer["port"], len(balancer["to"])) == (
        8080,
        2,
    )  # for both pods, whatever the second one says


# ---- both families ----


@pytest.mark.windows("WIN-SVC-016", "IP6-02")
def test_a_service_of_both_families_is_two() -> None:
    nodes = {**USUAL, "build": 19041}
    service, behind = manifest(DUAL, {}), pod(build=19041)
    assert (linted(nodes, service, behind), linted(nodes, manifest({}, {}), behind)) == (
        ["WIN-SVC-016"],
        [],
    )
    made, warned = _created(nodes, service, behind)
    assert warned == ["WIN-SVC-016"]
    seen = []
    for ipv6, mine in ((False, THERE[0]), (True, "fd00:2::5")):
        node = Node(build=20348, ipv6=ipv6)
        node.put(made, THERE)
        node.put_pods("web", ("fd00:2::5", OTHER), suffix="6", kind="IPv6")
        node.sync()
        seen += [(vip, balancer["to"] == [mine]) for (vip, _), balancer in node.balancers().items()]
    assert seen == [(address, True) for address in made["spec"]["clusterIPs"]]


@pytest.mark.windows("WIN-NET-013", "WIN-NET-014", "WIN-NET-015", "DS-02", "DS-03", "LNET-12")
@pytest.mark.parametrize(
    ("id", "nodes", "spec", "severity"),
    [
        ("WIN-NET-013", {"network": "overlay", "build": 19041}, DUAL, "error"),
        ("WIN-NET-014", {"release": "1.18"}, {"ipFamily": "IPv6"}, "warning"),
        ("WIN-NET-015", {}, DUAL, "warning"),
        ("WIN-NET-015", {"build": 19041, "revision": 609}, DUAL, "warning"),
    ],
)
def test_families_that_a_network_cannot_have(id: str, nodes: Any, spec: Any, severity: str) -> None:
    nodes = {**USUAL, **nodes}
    behind = pod(build=nodes["build"])
    foreseen = linted(nodes, manifest(spec, {}), behind)
    assert (
        id in foreseen
        and set(foreseen) <= {id, "WIN-SVC-016"}
        and linted(nodes, manifest({}, {}), behind) == []
    )
    made, warned = _created(nodes, manifest(spec, {}), behind)
    assert id in warned if spec is DUAL else "ipFamily" not in made["spec"]
    windows = NodePlan("win", "windows", nodes["build"], nodes["revision"])
    plan = NetworkPlan(
        nodes["network"],
        nodes=(NodePlan("lin", "linux"), windows),
        release=parse_release_version(nodes["release"]),
        dual_stack=True,
        gates=frozenset(GATES),
    )
    assert [
        (problem.id, problem.severity)
        for problem in check_network_plan(plan)
        if problem.severity != "info"
    ] == [(id, severity)]


# ---- flannel ----


@pytest.mark.windows("WIN-NET-008", "WIN-NET-009", "CNI-05", "CNI-06")
@pytest.mark.parametrize(
    ("backend", "found"),
    [
        ({"VNI": 4096, "Port": 4789}, []),
        ({"VNI": 1, "Port": 4789}, ["WIN-NET-008"]),
        ({"VNI": 4096, "Port": 8472}, ["WIN-NET-009"]),
    ],
)
def test_vxlan_that_flannel_refuses_on_windows(backend: dict[str, int], found: list[str]) -> None:
    text = json.dumps({"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", **backend}})
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-flannel-cfg", "namespace": "kube-system"},
        "data": {"net-conf.json": text},
    }
    assert linted({**USUAL, "network": "overlay"}, config) == found
    conf = flannelconf.parse_flannel_conf(text)
    if not found:
        assert flannelconf.vxlan_settings(conf, "windows").vni == 4096
        return
    with pytest.raises(flannelconf.FlannelError) as refused:
        flannelconf.vxlan_settings(conf, "windows")
    parts = re.split(r"\{\w+\}", LIMITS[found[0]].message)
    assert all(part in str(refused.value) for part in parts)
