"""Objects whose processing could cost far more than their size."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.conftest import MIB, Attack, Victim

DEFAULT = "/api/v1/namespaces/default"
_LONGEST_TOOL = 250  # seconds, on a busy machine
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def wait_until(victim: Victim, done: Callable[[], bool], cpu: float = 20) -> None:
    """Fails when the server has used that much CPU time; the time limit of the test is for a server
    that does nothing.
    """
    began = victim.cpu()
    while not done():
        assert victim.cpu() - began < cpu
        time.sleep(0.1)


def definition(number: int, properties: int = 1) -> dict[str, Any]:
    group, name = f"h{number}.example", f"thing{number}"
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {f"p{i}": {"type": "string"} for i in range(properties)},
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": f"{name}s",
                "singular": name,
                "kind": f"Thing{number}",
                "listKind": f"Thing{number}List",
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def test_many_definitions(victim: Victim, attack: Attack, rounds: int) -> None:
    client = victim.client()
    count = min(1000, 60 * rounds)
    with attack(rss=100 * MIB + count * 300_000):
        for number in range(count):
            client.ok("POST", DEFINITIONS, definition(number))
        client.ok("GET", "/apis")
        for number in range(count):
            client("GET", f"/apis/h{number}.example/v1")
            client("GET", f"/apis/none{number}.example/v1")
        client.ok("GET", "/openapi/v2")
        time.sleep(1)  # the garbage collector follows discovery
    for number in range(count):
        client.ok("DELETE", f"{DEFINITIONS}/thing{number}s.h{number}.example")
    client.close()


def test_a_definition_of_many_versions_and_columns(victim: Victim, attack: Attack) -> None:
    client = victim.client()
    many = definition(900)
    (first,) = many["spec"]["versions"]
    columns = [
        {"name": f"c{i}", "type": "string", "jsonPath": f".spec.a.c{i}"} for i in range(3000)
    ]
    many["spec"]["versions"] = [
        {**first, "additionalPrinterColumns": columns},
        *({**first, "name": f"v{number}", "storage": False} for number in range(2, 800)),
    ]
    with attack():
        assert client("POST", DEFINITIONS, many).status == 201
        wait_until(victim, lambda: client("GET", "/apis/h900.example").status == 200)
        time.sleep(0.5)
        client.ok("DELETE", f"{DEFINITIONS}/{many['metadata']['name']}")
        time.sleep(0.5)
    client.close()


def test_a_definition_of_thousands_of_versions(victim: Victim, attack: Attack) -> None:
    """Each version is compiled, and its warning computed, when it is first requested."""
    client = victim.client()
    many = definition(901)
    (first,) = many["spec"]["versions"]
    many["spec"]["versions"] = [
        first,
        *(
            {**first, "name": f"v{number}", "storage": False, "deprecated": number % 2 == 0}
            for number in range(2, 3001)
        ),
    ]
    objects = "namespaces/default/thing901s"
    with attack():
        assert client("POST", DEFINITIONS, many).status == 201
        wait_until(victim, lambda: client("GET", f"/apis/h901.example/v7/{objects}").status == 200)
        thing = {"apiVersion": "h901.example/v8", "kind": "Thing901", "metadata": {"name": "a"}}
        created = client("POST", f"/apis/h901.example/v8/{objects}", thing)
        assert created.status == 201, created
        assert created.headers["warning"] == (
            '299 - "h901.example/v8 Thing901 is deprecated; use h901.example/v2999 Thing901"'
        )
        assert len(client.ok("GET", "/apis/h901.example")["versions"]) == 3000
        client.ok("GET", "/apis")
        time.sleep(1)  # the garbage collector follows discovery
        client.ok("DELETE", f"{DEFINITIONS}/{many['metadata']['name']}")
        time.sleep(0.5)
    client.close()


def test_a_large_definition(victim: Victim, attack: Attack) -> None:
    client = victim.client()
    with attack(rss=150 * MIB):
        client.ok("POST", DEFINITIONS, definition(5000, 25_000))
        client.ok("GET", "/openapi/v2")
        time.sleep(1)
        spec = {f"p{i}": "x" for i in range(25_000)}
        client(
            "POST",
            "/apis/h5000.example/v1/namespaces/default/thing5000s",
            {
                "apiVersion": "h5000.example/v1",
                "kind": "Thing5000",
                "metadata": {"name": "a"},
                "spec": spec,
            },
        )
    client.ok("DELETE", f"{DEFINITIONS}/thing5000s.h5000.example")
    client.close()


@pytest.mark.parametrize(
    "accept",
    [
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;g=meta.k8s.io;v=v1",
    ],
)
def test_watch_events_that_take_long_to_encode(victim: Victim, attack: Attack, accept: str) -> None:
    client, watcher, late = victim.client(), victim.client(), victim.client()
    path = "/api/v1/namespaces/default/configmaps"
    watcher.send("GET", f"{path}?watch=1", None, {"Accept": accept})
    large = {"metadata": {"name": "large"}, "data": {f"key-{i}": "v" for i in range(50_000)}}
    with attack(rss=150 * MIB):
        client.ok("POST", path, large)
        late.send(
            "GET",
            f"{path}?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Dlarge"
            "&timeoutSeconds=5",
            None,
            {"Accept": accept},
        )
        client.ok("PUT", f"{path}/large", {**large, "data": {**large["data"], "more": "v"}})
        time.sleep(1)
        client.ok("DELETE", f"{path}/large")
        body = late.receive().body
    events = body.count(b"ADDED") + body.count(b"MODIFIED") + body.count(b"DELETED")
    assert events in (2, 3), events  # the list may have the object before or after the update
    assert b"DELETED" in body
    for each in (client, watcher, late):
        each.close()


@pytest.mark.timeout(600)
def test_thousands_of_owners(victim: Victim, attack: Attack, rounds: int) -> None:
    client = victim.client()
    owners = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": f"x{i}",
            "uid": f"{i:08}-0000-0000-0000-000000000000",
        }
        for i in range(25_000)
    ]
    # the history of the store keeps each of them for a while
    with attack(rss=100 * MIB + rounds * 20 * MIB):
        for number in range(rounds):
            client.ok(
                "POST",
                f"{DEFAULT}/configmaps",
                {"metadata": {"name": f"owned-{number}", "ownerReferences": owners}},
            )
        # the garbage collector removes what has no owner left
        last = f"{DEFAULT}/configmaps/owned-{rounds - 1}"
        wait_until(victim, lambda: client("GET", last).status == 404, cpu=20 + 5 * rounds)
    client.close()


def test_thousands_of_finalizers_managers_and_references(victim: Victim, attack: Attack) -> None:
    client = victim.client()
    with attack():
        client.ok(
            "POST",
            f"{DEFAULT}/configmaps",
            {"metadata": {"name": "held", "finalizers": [f"a.b/x{i}" for i in range(8000)]}},
        )
        for number in range(300):
            apply = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "shared"},
                "data": {f"k{number}": "x"},
            }
            client.ok(
                "PATCH",
                f"{DEFAULT}/configmaps/shared?fieldManager=m{number}&force=true",
                apply,
                {"Content-Type": "application/apply-patch+yaml"},
            )
        client.ok(
            "PATCH",
            f"{DEFAULT}/configmaps/held",
            {"metadata": {"finalizers": None}},
            {"Content-Type": "application/merge-patch+json"},
        )
    client.ok("DELETE", f"{DEFAULT}/configmaps/held")
    client.close()


def test_taints_and_tolerations_by_the_thousand(
    victim: Victim, attack: Attack, rounds: int
) -> None:
    client = victim.client()
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    node = {
        "metadata": {"name": "tainted", "labels": {f"k{i}": "v" for i in range(5000)}},
        "spec": {"taints": [{"key": f"k{i}", "effect": "NoSchedule"} for i in range(3000)]},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    term = [
        {
            "matchExpressions": [
                {"key": f"k{i}", "operator": "In", "values": [f"v{j}" for j in range(20)]}
            ]
        }
        for i in range(500)
    ]
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "a", "image": "b"}],
        "tolerations": [{"key": f"k{i}", "operator": "Exists"} for i in range(1, 3000)],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": term}
            }
        },
    }
    with attack(rss=100 * MIB + rounds * 10 * MIB):
        client.ok("POST", "/api/v1/nodes", node)
        for number in range(5 * rounds):
            client.ok(
                "POST",
                f"{DEFAULT}/pods",
                {"metadata": {"name": f"tolerant-{number}"}, "spec": spec},
            )
        time.sleep(2)
    client.ok("DELETE", "/api/v1/nodes/tainted")
    for number in range(5 * rounds):
        client.ok("DELETE", f"{DEFAULT}/pods/tolerant-{number}?gracePeriodSeconds=0")
    client.close()


def test_everything_of_a_crowd_at_once(victim: Victim, attack: Attack, rounds: int) -> None:
    """Lists of all pods in every form."""
    client = victim.client()
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    with attack(rss=600 * MIB):
        for _ in range(min(rounds, 3)):
            for accept in (
                "application/json",
                table,
                "application/vnd.kubernetes.protobuf",
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            ):
                assert (
                    client("GET", "/api/v1/namespaces/crowd/pods", None, {"Accept": accept}).status
                    == 200
                )
    client.close()


def test_requests_for_certificates_that_are_mostly_marks(victim: Victim, attack: Attack) -> None:
    """The search for the end of each block must not begin anew for each beginning."""
    client = victim.client()
    begin, end = b"-----BEGIN CERTIFICATE REQUEST-----\n", b"-----END CERTIFICATE REQUEST-----\n"
    with attack(rss=150 * MIB):
        for text in (
            begin * 30_000,
            begin * 20_000 + end,
            (begin + end) * 15_000,
            end * 30_000,
            b"\n" * MIB,
            b"-" * MIB,
            begin + b"A" * MIB + b"\n" + end,
            b"-----BEGIN X-----\nAAAA\n-----END Y-----\n" * 20_000,
        ):
            body = {
                "metadata": {"name": "bomb"},
                "spec": {
                    "signerName": "example.com/x",
                    "usages": ["client auth"],
                    "request": base64.b64encode(text).decode(),
                },
            }
            answer = client("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", body)
            assert answer.status == 422, answer
    client.close()


@pytest.mark.timeout(600)
def test_tools_that_look_at_everything(victim: Victim, attack: Attack, tmp_path: Path) -> None:
    with attack(rss=200 * MIB):
        name = victim.cluster.name
        victim.cluster.transom("doctor", "--name", name, check=False, timeout=_LONGEST_TOOL)
        file = str(tmp_path / "report.tar.gz")
        done = victim.cluster.transom(
            "report", "--name", name, "--output", file, check=False, timeout=_LONGEST_TOOL
        )
        assert done.returncode == 0, done.stderr


def test_selectors_of_objects_with_thousands_of_requirements(
    victim: Victim, attack: Attack
) -> None:
    labels = {f"k{i}": "v" for i in range(12_000)}
    exist = [{"key": key, "operator": "Exists"} for key in labels]
    container = {"name": "a", "image": "registry.example/a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    sets = "/apis/apps/v1/namespaces/default/replicasets"
    policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
    client = victim.client()
    with attack(rss=250 * MIB):
        for name, selector in (
            ("labels", {"matchLabels": labels}),
            ("expressions", {"matchExpressions": exist}),
        ):
            spec = {"replicas": 2, "selector": selector, "template": template}
            client.ok("POST", sets, {"metadata": {"name": name}, "spec": spec})
            peers = [{"from": [{"podSelector": selector}]}]
            policy = {"podSelector": selector, "ingress": peers}
            client.ok("POST", policies, {"metadata": {"name": name}, "spec": policy})
            time.sleep(1)  # the controller creates pods, and the scheduler looks at them
        for name in ("labels", "expressions"):
            client.ok("DELETE", f"{sets}/{name}")
            client.ok("DELETE", f"{policies}/{name}")
        time.sleep(0.5)
    client.close()
