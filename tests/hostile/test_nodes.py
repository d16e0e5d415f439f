"""What users of the API and containers can ask of kubelets and of the agents on nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.hostile.client import Client
from tests.hostile.conftest import MIB, Attack, Victim

DEFAULT = "/api/v1/namespaces/default"
PROXY = "/api/v1/nodes/linux-1/proxy"


def run_pod(client: Client, name: str, **spec: Any) -> None:
    body = {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            **spec,
        },
    }
    client.ok("POST", f"{DEFAULT}/pods", body)


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_running(client: Client, name: str) -> bool:
    return client.ok("GET", f"{DEFAULT}/pods/{name}")["status"].get("phase") == "Running"


def remove(client: Client, *names: str) -> None:
    for name in names:
        client.ok("DELETE", f"{DEFAULT}/pods/{name}?gracePeriodSeconds=0")


def sleeper(name: str = "main", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": "busybox",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "1000000"],
        **more,
    }


def test_a_volume_of_many_small_files(node_victim: Victim, node_attack: Attack) -> None:
    client = node_victim.client()
    client.ok(
        "POST",
        f"{DEFAULT}/configmaps",
        {"metadata": {"name": "many"}, "data": {f"k{i}": "v" for i in range(30_000)}},
    )
    with node_attack(rss=100 * MIB):
        run_pod(
            client,
            "many-files",
            volumes=[{"name": "v", "configMap": {"name": "many"}}],
            containers=[sleeper(volumeMounts=[{"name": "v", "mountPath": "/v"}])],
        )
        wait_until(lambda: is_running(client, "many-files"))
    remove(client, "many-files")
    client.ok("DELETE", f"{DEFAULT}/configmaps/many")
    client.close()


def test_a_pod_of_many_containers_and_its_metrics(node_victim: Victim, node_attack: Attack) -> None:
    client = node_victim.client()
    with node_attack(rss=150 * MIB):
        run_pod(client, "many-containers", containers=[sleeper(f"c{i}") for i in range(300)])
        wait_until(lambda: is_running(client, "many-containers"))
        for path in (
            "stats/summary",
            "metrics/cadvisor",
            "metrics/resource",
            "metrics",
            "pods",
            "runningpods/",
        ):
            assert client("GET", f"{PROXY}/{path}").status == 200
    remove(client, "many-containers")
    client.close()


def test_long_logs(node_victim: Victim, node_attack: Attack) -> None:
    client = node_victim.client()
    run_pod(
        client,
        "noisy",
        restartPolicy="Never",
        containers=[
            {
                "name": "main",
                "image": "busybox",
                "command": ["sh", "-c", "seq 1000001 1060000; sleep 1000000"],
            }
        ],
    )
    log = f"{DEFAULT}/pods/noisy/log"
    wait_until(
        lambda: (
            is_running(client, "noisy")
            and len(client("GET", f"{log}?tailLines=70000").body) == 60_000 * 8
        )
    )
    with node_attack(rss=60 * MIB):
        for query in (
            "",
            "?tailLines=9223372036854775807",
            "?tailLines=59999",
            "?sinceTime=2100-01-01T00:00:00Z",
            "?sinceSeconds=9223372036",
            "?timestamps=1",
            "?limitBytes=1000000",
            "?sinceTime=2000-01-01T00:00:00Z",
        ):
            assert client("GET", log + query).status == 200
        follower = node_victim.client()
        follower.send("GET", f"{log}?follow=1")
        time.sleep(0.5)
        follower.close()
    remove(client, "noisy")
    client.close()


def test_floods_of_commands(node_victim: Victim, node_attack: Attack) -> None:
    client = node_victim.client()
    with node_attack(rss=60 * MIB):
        calls = [
            ("POST", f"{PROXY}/run/default/shell/main?cmd=echo+{'x' * 1000}", None)
            for _ in range(100)
        ]
        assert {answer.status for answer in client.pipelined(calls)} == {200}
    client.close()


def test_a_network_policy_of_many_rules(node_victim: Victim, node_attack: Attack) -> None:
    client = node_victim.client()
    policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
    absent = {
        "matchExpressions": [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(300)]
    }
    block = {"cidr": "10.0.0.0/8", "except": [f"10.{i}.0.0/16" for i in range(200)]}
    rule = {
        "from": [{"podSelector": absent, "namespaceSelector": {}}, {"ipBlock": block}],
        "ports": [{"port": port} for port in range(1, 200)],
    }
    for number in range(15):
        run_pod(client, f"peer-{number}", containers=[sleeper()])
    wait_until(lambda: all(is_running(client, f"peer-{number}") for number in range(15)))
    with node_attack(rss=150 * MIB):
        client.ok(
            "POST",
            policies,
            {"metadata": {"name": "many"}, "spec": {"podSelector": absent, "ingress": [rule] * 20}},
        )
        for number in range(3):
            run_pod(client, f"late-{number}", containers=[sleeper()])
        wait_until(lambda: all(is_running(client, f"late-{number}") for number in range(3)))
    client.ok("DELETE", f"{policies}/many")
    remove(
        client,
        *(f"peer-{number}" for number in range(15)),
        *(f"late-{number}" for number in range(3)),
    )
    client.close()
