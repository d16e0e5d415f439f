"""Reading clusters: of our own, of others, those that let little be read, and those that do not
answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import pytest
from tests.doctor.patients import NOW, event, healthy, node, pod, windows_node

from transom.client.api import ApiUnreachable, ObjectList
from transom.client.resources import GroupVersionResource
from transom.doctor.control_plane import check_clocks
from transom.doctor.examine import UnknownName, examine
from transom.doctor.gather import INSIDE, STORE, gather_snapshot
from transom.doctor.nodelogs import collect_node_logs
from transom.doctor.snapshot import ClusterSnapshot
from transom.kit.clock import rfc3339_micro
from transom.machinery.errors import ApiError

LOG = "/api/v1/namespaces/default/pods/a/log?tailLines=50&container=c"
LOGS = "/api/v1/nodes/windows-1/proxy/logs/"


class Fake:
    """A cluster with documents at paths, and objects; what is a number is an error of that code."""

    def __init__(self, documents: dict[str, Any], **objects: Any) -> None:
        self.documents = {"/version": {"gitVersion": "v1.20.15"}, "/readyz": "ok", **documents}
        self.objects = objects

    async def list(self, resource: GroupVersionResource, namespace: str = "") -> ObjectList:
        found = self.objects.get(resource.plural, [])
        if isinstance(found, int):
            raise ApiError(found, "Forbidden", f"{resource.plural} is forbidden")
        return ObjectList(found, "1")

    async def get(
        self, resource: GroupVersionResource, namespace: str, name: str
    ) -> dict[str, Any]:
        for one in self.objects.get(resource.plural, []):
            if (one["metadata"]["namespace"], one["metadata"]["name"]) == (namespace, name):
                return dict(one)
        raise ApiError(404, "NotFound", f"{name} not found")

    async def get_json(self, path: str) -> Any:
        found = self.documents.get(path, 404)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, int):
            raise ApiError(found, "NotFound", f"answer {found}")
        return found

    async def get_text(self, path: str) -> str:
        return str(await self.get_json(path))


def read(api: Fake, *names: str) -> ClusterSnapshot:
    return asyncio.run(gather_snapshot(api, "here", NOW, names))


def test_another_cluster_has_no_inside() -> None:
    found = read(Fake({}, nodes=[node("windows-1")], pods=[pod("a", ready=True)]))
    assert (found.version["gitVersion"], len(found.nodes), found.inside, found.logs) == (
        "v1.20.15",
        1,
        {},
        {},
    )


def test_times_are_compared_with_the_time_of_a_cluster_that_was_advanced() -> None:
    lease = {
        "metadata": {"namespace": "kube-node-lease", "name": "windows-1"},
        "spec": {"renewTime": rfc3339_micro(NOW + 3600)},
    }
    for clock, skewed in (
        ({"time": rfc3339_micro(NOW + 3600), "virtual": True}, False),
        ({"time": rfc3339_micro(NOW), "virtual": False}, True),
    ):
        found = read(Fake({"/transom/clock": clock}, nodes=[node("windows-1")], leases=[lease]))
        found.server_time = NOW
        assert bool(list(check_clocks(found))) is skewed


def test_our_own_clusters_report_more_and_may_report_unknown_fields() -> None:
    recorded = {
        **asdict(windows_node(mac_spoofing=False)["windows-1"]),
        "adapters": ["Ethernet"],
        "new": 1,
    }
    found = read(Fake({INSIDE: {"items": [recorded]}}, nodes=[node("windows-1")]))
    assert not found.inside["windows-1"].mac_spoofing and found.inside["windows-1"].adapters == (
        "Ethernet",
    )


def test_logs_of_pods_that_fail_and_of_those_that_are_named() -> None:
    api = Fake(
        {LOG: "now", f"{LOG}&previous=true": "before"},
        nodes=[node("windows-1")],
        pods=[pod("a", ready=True)],
    )
    assert read(api).logs == {}
    assert read(api, "a").logs == {("default", "a"): "now\nbefore"}
    with pytest.raises(UnknownName):
        read(api, "nobody")


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ({"/version": ApiUnreachable("connection refused")}, "connection refused"),
        ({"/version": 401}, "answer 401"),
    ],
)
def test_a_cluster_that_does_not_answer(documents: dict[str, Any], words: str) -> None:
    found = read(Fake(documents), "unnamed")
    [one] = examine(found)
    assert found.unreachable == words and one.severity == "error"


def test_unreadable_resources_are_reported() -> None:
    found = read(
        Fake(
            {
                "/readyz": ApiError(
                    500, "", "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed"
                )
            },
            nodes=[node("linux-1", "linux")],
            events=403,
            services=403,
        )
    )
    assert found.unhealthy == ("etcd failed: reason withheld",)
    assert set(found.unread) == {"events", "services"}
    [failed, unread] = examine(found)
    assert (failed.severity, unread.severity) == ("error", "info")
    assert unread.what.startswith("events, services cannot be read: ")


@pytest.mark.windows("TRB-02", "REP-07")
def test_logs_of_windows_nodes() -> None:
    own = {
        "logs": {"kubelet": "I1116 up", "kube-proxy": "I1116 synced", "flanneld": "I1116 leased"},
        "hns": {"networks": []},
    }
    listing = (
        '<pre>\n<a href="kubelet.log">kubelet.log</a>\n<a href="pods/">pods/</a>\n<a '
        'href="kube-proxy/">x</a>\n</pre>'
    )
    inner = '<pre><a href="a%20b.INFO">a b.INFO</a><a href="../x.log">x</a></pre>'
    documents = {
        "/transom/nodes/windows-1/logs": own,
        LOGS: listing,
        f"{LOGS}kubelet.log": "from the disk",
        f"{LOGS}kube-proxy/": inner,
        f"{LOGS}kube-proxy/a%20b.INFO": "more",
    }
    recorded: list[str] = []
    logs, hns = asyncio.run(
        collect_node_logs(Fake(documents), healthy(inside=windows_node()), recorded.append)
    )
    assert logs == {
        "windows-1": {
            "kubelet.log": "from the disk",
            "kube-proxy.log": "I1116 synced",
            "flanneld.log": "I1116 leased",
            "kube-proxy/a b.INFO": "more",
        }
    }
    assert hns == {"windows-1": {"networks": []}} and recorded == [
        "reading the logs of windows-1 ..."
    ]
    assert asyncio.run(collect_node_logs(Fake({}), healthy(), recorded.append)) == (
        {"windows-1": {}},
        {},
    )


def test_only_the_types_of_secrets_that_objects_name_are_read() -> None:
    secret = {
        "metadata": {"name": "reg", "namespace": "default"},
        "type": "Opaque",
        "data": {"password": "aHVudGVyMg=="},
    }
    wanted = [{"name": "reg"}, {"name": "gone"}]
    api = Fake(
        {},
        nodes=[node("windows-1")],
        pods=[pod("a", ready=True, phase="Running", imagePullSecrets=wanted)],
        secrets=[secret],
    )
    found = read(api)
    assert found.secrets == {("default", "reg"): "Opaque", ("default", "gone"): ""}
    assert "hunter2" not in repr(found) and "aHVudGVyMg" not in repr(found)
    assert {one.what for one in examine(found)} >= {
        "the imagePullSecret reg is of type Opaque",
        "the imagePullSecret gone does not exist",
    }


def test_a_pull_that_fails_without_its_secret_names_the_secret() -> None:
    text = 'Failed to pull image "app:1": unauthorized: authentication required'
    api = Fake(
        {},
        nodes=[node("linux-1", "linux")],
        pods=[
            pod(
                "a",
                "linux-1",
                waiting={"reason": "ImagePullBackOff", "message": "Back-off"},
                imagePullSecrets=[{"name": "reg"}],
            )
        ],
        events=[event("a", "Failed", text)],
    )
    [one] = [one for one in examine(read(api)) if "cannot be pulled" in one.what]
    assert "the imagePullSecret reg does not exist" in one.what
    assert "kubectl create secret docker-registry" in one.remedy


def test_a_cluster_of_ours_without_machines_gets_a_remedy_that_runs() -> None:
    store = {STORE: {"nameOption": " --name blue", "problem": ""}}
    assert "there are no nodes" not in {one.what for one in examine(read(Fake(store)))}
    found = read(Fake(store, pods=[pod("waiting")]))
    [one] = [one for one in examine(found) if one.what == "there are no nodes"]
    assert one.remedy.endswith("transom down --name blue, then transom up --nodes --name blue")


def test_kubelets_of_ready_nodes_that_do_not_answer() -> None:
    path = "/api/v1/nodes/{}/proxy/healthz"
    refused = ApiError(
        503,
        "ServiceUnavailable",
        "error trying to reach service: dial tcp 172.20.0.4:10250: connect: connection refused",
    )
    names = ("windows-1", "windows-2", "windows-3", "windows-4")
    nodes = [node(name, ready="False" if name == "windows-4" else "True") for name in names]
    documents = {
        path.format("windows-1"): refused,
        path.format("windows-2"): "ok",
        path.format("windows-3"): 403,
        path.format("windows-4"): refused,
    }
    failing = pod("a", "windows-1", waiting={"reason": "CrashLoopBackOff"})
    found = read(Fake({**documents, LOG: "never read"}, nodes=nodes, pods=[failing]))
    assert found.silent_kubelets == {"windows-1": "connect: connection refused"}
    assert found.logs == {}  # each would end with a time-out
