"""Large objects that controllers, the scheduler, kubelets and kube-proxy process: none of them may
hold the event loop.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.hostile.client import Client
from tests.hostile.conftest import MIB, Attack, Victim
from tests.hostile.test_nodes import DEFAULT, is_running, remove, run_pod, sleeper, wait_until

POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
ENDPOINTS = f"{DEFAULT}/endpoints"
_SEEN = 0.8  # seconds in which watchers of an object have processed it

PEERS: dict[str, list[Any]] = {
    "expressions": [
        {
            "podSelector": {
                "matchExpressions": [{"key": f"k{i}", "operator": "Exists"} for i in range(30_000)]
            }
        }
    ],
    "values": [
        {
            "podSelector": {
                "matchExpressions": [
                    {"key": "k", "operator": "In", "values": [f"v{i}" for i in range(120_000)]}
                ]
            }
        }
    ],
    "peers": [
        {"podSelector": {"matchLabels": {f"k{j}": f"v{i}" for j in range(30)}}}
        for i in range(1_900)
    ],
}


@pytest.mark.parametrize("peers", PEERS.values(), ids=PEERS)
def test_a_large_network_policy(node_victim: Victim, node_attack: Attack, peers: list[Any]) -> None:
    client = node_victim.client()
    body = {
        "metadata": {"name": "large"},
        "spec": {"podSelector": {}, "ingress": [{"from": peers}]},
    }
    with node_attack(rss=250 * MIB):
        client.ok("POST", POLICIES, body)
        time.sleep(_SEEN)
        client.ok("DELETE", f"{POLICIES}/large")
        time.sleep(_SEEN)
    client.close()


def test_services_with_many_ports_and_mirrored_endpoints(
    node_victim: Victim, node_attack: Attack
) -> None:
    client = node_victim.client()
    ports = [{"name": f"p{i}", "port": i + 1} for i in range(25_000)]
    subsets = [
        {
            "addresses": [{"ip": f"10.8.{i // 250}.{i % 250 + 1}"}],
            "ports": [{"name": "p1", "port": 80 + i % 50}],
        }
        for i in range(12_000)
    ]
    with node_attack(rss=300 * MIB):
        client.ok(
            "POST", f"{DEFAULT}/services", {"metadata": {"name": "s"}, "spec": {"ports": ports}}
        )
        client.ok("POST", ENDPOINTS, {"metadata": {"name": "s"}, "subsets": subsets})
        time.sleep(3 * _SEEN)
        client.ok("DELETE", f"{DEFAULT}/services/s")
        time.sleep(_SEEN)
    client("DELETE", f"{ENDPOINTS}/s")
    client.close()


def _selector_terms(count: int) -> list[Any]:
    return [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {f"k{i}": "v"}}}
        for i in range(count)
    ]


SPECS: dict[str, dict[str, Any]] = {
    "volumes": {
        "volumes": [{"name": f"v{i}", "emptyDir": {}} for i in range(8_000)],
        "containers": [
            sleeper(volumeMounts=[{"name": f"v{i}", "mountPath": f"/m/{i}"} for i in range(8_000)])
        ],
    },
    "host ports": {
        "containers": [
            sleeper(ports=[{"containerPort": 1 + i, "hostPort": 1 + i} for i in range(20_000)])
        ]
    },
    "anti-affinity": {
        "containers": [sleeper()],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": _selector_terms(8_000)
            }
        },
    },
    "resources": {
        "containers": [
            sleeper(resources={"limits": {f"example.com/r{i}": "1" for i in range(15_000)}})
        ]
    },
    "arguments": {"containers": [sleeper(args=["x"] * 200_000)]},
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_pod_with_a_large_specification(
    node_victim: Victim, node_attack: Attack, spec: dict[str, Any]
) -> None:
    client = node_victim.client()
    with node_attack(rss=300 * MIB):
        run_pod(client, "large", **spec)
        time.sleep(2 * _SEEN)
        remove(client, "large")
        wait_until(lambda: client("GET", f"{DEFAULT}/pods/large").status == 404)
    client.close()


def test_variables_from_a_large_config_map(node_victim: Victim, node_attack: Attack) -> None:
    client = node_victim.client()
    data = {f"k{i}": "v" for i in range(60_000)}
    client.ok("POST", f"{DEFAULT}/configmaps", {"metadata": {"name": "env"}, "data": data})
    with node_attack(rss=300 * MIB):
        source = [{"configMapRef": {"name": "env"}}]
        run_pod(client, "variables", containers=[sleeper(envFrom=source)])
        wait_until(lambda: is_running(client, "variables"))
    remove(client, "variables")
    client.ok("DELETE", f"{DEFAULT}/configmaps/env")
    client.close()


def _small_pod(client: Client, **spec: Any) -> None:
    body = {
        "metadata": {"name": "small"},
        "spec": {
            "automountServiceAccountToken": False,
            "schedulerName": "none",
            "containers": [sleeper()],
            **spec,
        },
    }
    client("POST", f"{DEFAULT}/pods", body)
    time.sleep(_SEEN)
    client("DELETE", f"{DEFAULT}/pods/small?gracePeriodSeconds=0")


def test_small_pods_that_admission_makes_large(node_victim: Victim, node_attack: Attack) -> None:
    client = node_victim.client()
    default = {f"example.com/r{i}": "1" for i in range(9_000)}
    limits = [{"type": "Container", "default": default}]
    secrets = [{"name": f"s{i}"} for i in range(60_000)]
    with node_attack(rss=300 * MIB):
        client.ok(
            "POST",
            f"{DEFAULT}/limitranges",
            {"metadata": {"name": "large"}, "spec": {"limits": limits}},
        )
        _small_pod(client)
        client.ok("DELETE", f"{DEFAULT}/limitranges/large")
        client.ok(
            "POST",
            f"{DEFAULT}/serviceaccounts",
            {"metadata": {"name": "large"}, "imagePullSecrets": secrets},
        )
        _small_pod(client, serviceAccountName="large", nodeName="linux-1")
        client.ok("DELETE", f"{DEFAULT}/serviceaccounts/large")
        time.sleep(_SEEN)
    client.close()


def test_watch_events_that_take_long_to_decode(node_victim: Victim, node_attack: Attack) -> None:
    """Informers in the process of the server get the objects as dicts."""
    client = node_victim.client()
    backend = {"service": {"name": "x", "port": {"number": 80}}}
    rules = [
        {
            "host": f"a{i}.example",
            "http": {"paths": [{"path": "/p", "pathType": "Prefix", "backend": backend}]},
        }
        for i in range(6_000)
    ]
    with node_attack(rss=300 * MIB):
        client.ok("POST", INGRESSES, {"metadata": {"name": "large"}, "spec": {"rules": rules}})
        time.sleep(_SEEN)
        client.ok("DELETE", f"{INGRESSES}/large")
        time.sleep(_SEEN)
    client.close()
