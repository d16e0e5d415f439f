"""Causes that the end of a container's log shows."""

from __future__ import annotations

import pytest

from transom.doctor.pod_logs import explained_log
from transom.doctor.snapshot import ClusterSnapshot, Object


def service(namespace: str, name: str) -> Object:
    return {"metadata": {"namespace": namespace, "name": name}}


def cluster(log: str, **spec: object) -> tuple[ClusterSnapshot, Object]:
    pod: Object = {
        "metadata": {"namespace": "shop", "name": "a", "labels": {"app": "a"}},
        "spec": spec,
    }
    policy: Object = {
        "metadata": {"namespace": "closed", "name": "no-egress"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"]},
    }
    services = [service("shop", "backend"), service("other", "db"), service("closed", "web")]
    objects: dict[str, list[Object]] = {
        "pods": [pod],
        "services": services,
        "networkpolicies": [policy],
    }
    return ClusterSnapshot(objects=objects, logs={("shop", "a"): log}), pod


@pytest.mark.parametrize(
    ("log", "cause", "remedy"),
    [
        ("wget: bad address 'backned'", "backned is not found", "there is a Service backend"),
        ("curl: (6) Could not resolve host: db", "db is in namespace other", "db.other"),
        ("dial tcp: lookup nosuch on 10.96.0.10:53: no such host", "nosuch is not", "get services"),
        (
            'pods is forbidden: User "system:serviceaccount:shop:default" cannot list resource "pods" in API group "" ',
            "ServiceAccount default may not list pods",
            "--verb=list --resource=pods && kubectl create clusterrolebinding shop-default-pods",
        ),
        (
            'User "system:serviceaccount:shop:ci" cannot get resource "deployments" in API group "apps" in',
            "ci may not get deployments",
            "--resource=deployments.apps && ",
        ),
        ("sh: can't create /cfg/x: Read-only file system", "read-only", "emptyDir"),
        ('[emerg] 1#1: unknown directive "evnts" in /etc/nginx/nginx.conf:2', "evnts", "conf:2"),
        ("java.lang.OutOfMemoryError: Java heap space", "no memory left", "memory limit"),
        ("Error: DATABASE_URL is not set", "variable DATABASE_URL", "DATABASE_URL in"),
        ("connect ECONNREFUSED 10.0.0.1:5432", "a connection was refused", "Start the server"),
        ("cat: can't open '/etc/app.yml': No such file or directory", "/etc/app.yml", "Mount"),
        ("sh: 1: serve: not found", "no command serve", "image that has serve"),
    ],
)
def test_what_a_log_shows(log: str, cause: str, remedy: str) -> None:
    found = explained_log(*cluster(f"starting\n{log}\n"))
    assert found is not None
    assert cause in found.cause
    assert remedy in found.remedy


def test_an_ordinary_log_shows_nothing() -> None:
    assert explained_log(*cluster("starting\nlistening on 8080\n")) is None


def test_names_of_services_are_not_known_to_the_name_servers_of_nodes() -> None:
    found = explained_log(*cluster("wget: bad address 'backend'", dnsPolicy="Default"))
    assert found is not None
    assert "dnsPolicy Default" in found.cause


def test_a_policy_keeps_a_pod_from_asking_for_names() -> None:
    seen, pod = cluster("wget: bad address 'web'")
    closed = {**pod, "metadata": {**pod["metadata"], "namespace": "closed"}}
    seen.logs = {("closed", "a"): "wget: bad address 'web'"}
    found = explained_log(seen, closed)
    assert found is not None
    assert "no-egress restricts its egress" in found.cause
    assert "kubectl edit networkpolicy no-egress --namespace closed" in found.remedy
