from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transom.client.resources import PODS
from transom.kit.clock import VirtualClock
from transom.kubelet.interfaces import PodUpdates
from transom.kubelet.static_pods import (
    ApiMirrors,
    BadManifest,
    HostFolder,
    RealFolder,
    StaticPods,
    read_static_pod,
)
from transom.machinery.errors import ApiError, already_exists
from transom.machinery.objects import Object
from transom.machines.realfiles import RealFiles

MANIFEST = b"""
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: c, image: nginx}]
"""


def test_a_manifest_becomes_a_pod_of_the_node() -> None:
    pod = read_static_pod(MANIFEST, "/etc/kubernetes/manifests/web.yaml", "node-1")
    meta, spec = pod["metadata"], pod["spec"]
    assert (meta["name"], meta["namespace"], spec["nodeName"]) == (
        "web-node-1",
        "default",
        "node-1",
    )
    assert meta["annotations"] == {"kubernetes.io/config.hash": meta["uid"]}
    assert len(meta["uid"]) == 32
    assert spec["tolerations"] == [{"operator": "Exists", "effect": "NoExecute"}]
    assert (spec["restartPolicy"], spec["dnsPolicy"]) == ("Always", "ClusterFirst")
    assert pod["status"] == {"phase": "Pending"}
    assert read_static_pod(MANIFEST, "/etc/kubernetes/manifests/web.yaml", "node-1") == pod
    others = [
        read_static_pod(MANIFEST, "/other.yaml", "node-1"),
        read_static_pod(MANIFEST, "/etc/kubernetes/manifests/web.yaml", "n2"),
        read_static_pod(
            MANIFEST + b"  hostNetwork: true\n", "/etc/kubernetes/manifests/web.yaml", "node-1"
        ),
    ]
    assert meta["uid"] not in {other["metadata"]["uid"] for other in others}


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (b"apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", "couldn't parse as pod"),
        (b"{", "couldn't parse as pod"),
        (MANIFEST.replace(b"name: web,", b"name: web, uid: a/../../b,"), "metadata.uid: Invalid"),
        (
            b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n",
            "spec.containers: Required value",
        ),
    ],
)
def test_files_that_are_not_pods(manifest: bytes, text: str) -> None:
    with pytest.raises(BadManifest, match=text):
        read_static_pod(manifest, "/a.yaml", "n1")


class Events:
    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []

    def event(self, about: Object, kind: str, reason: str, message: str) -> None:
        self.recorded.append((reason, message))


class Client:
    def __init__(self) -> None:
        self.pods: dict[str, Object] = {}

    async def create(self, resource: Any, namespace: str, obj: Object) -> Object:
        name = obj["metadata"]["name"]
        if name in self.pods:
            raise already_exists(resource.group_resource, name)
        self.pods[name] = obj
        return obj

    async def get(self, resource: Any, namespace: str, name: str) -> Object:
        return self.pods[name]


def surroundings(client: Client | None = None) -> Any:
    return SimpleNamespace(
        config=SimpleNamespace(node_name="n1"),
        clock=VirtualClock(),
        events=Events(),
        client=client,
        node=lambda: {"metadata": {"uid": "node-uid"}},
    )


async def test_a_folder_is_followed(tmp_path: Path) -> None:
    env = surroundings()
    recorded: list[dict[str, str]] = []
    updates = PodUpdates(
        lambda pods: recorded.append({p["metadata"]["name"]: p["metadata"]["uid"] for p in pods})
    )
    folder = tmp_path / "manifests"
    task = asyncio.create_task(StaticPods(env, RealFolder(str(folder))).run(updates))
    await env.clock.run_for(2)
    assert recorded == [{}]
    folder.mkdir()
    (folder / "web.yaml").write_bytes(MANIFEST)
    (folder / ".hidden").write_bytes(MANIFEST.replace(b"name: web,", b"name: hidden,"))
    (folder / "bad.yaml").write_bytes(b"nothing")
    await env.clock.run_for(2)
    assert [*recorded[1]] == ["web-n1"]
    (folder / "web.yaml").write_bytes(MANIFEST + b"  hostNetwork: true\n")
    await env.clock.run_for(2)
    assert [*recorded[2]] == ["web-n1"] and recorded[2] != recorded[1]
    (folder / "web2.yaml").write_bytes(MANIFEST)
    await env.clock.run_for(2)
    assert recorded[3] == recorded[2]
    assert env.events.recorded[0][0] == "FailedValidation"
    assert env.events.recorded[0][1].endswith(
        'from file due to duplicate pod name "web-n1", ignoring'
    )
    (folder / "web.yaml").unlink()
    (folder / "web2.yaml").unlink()
    await env.clock.run_for(2)
    assert recorded[4:] == [{}]
    task.cancel()


async def test_mirrors_belong_to_the_node(tmp_path: Path) -> None:
    client = Client()
    mirrors = ApiMirrors(surroundings(client))
    pod = read_static_pod(MANIFEST, "/web.yaml", "n1")
    await mirrors.create(pod)
    mirror = client.pods["web-n1"]
    meta = mirror["metadata"]
    assert meta["annotations"]["kubernetes.io/config.mirror"] == pod["metadata"]["uid"]
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "n1",
            "uid": "node-uid",
            "controller": True,
        }
    ]
    assert "uid" not in meta
    assert mirrors.is_mirror_of(mirror, pod)
    await mirrors.create(pod)  # there already, and the same
    changed = read_static_pod(MANIFEST + b"  hostNetwork: true\n", "/web.yaml", "n1")
    assert not mirrors.is_mirror_of(mirror, changed)
    with pytest.raises(ApiError):
        await mirrors.create(changed)


def test_a_folder_of_a_node_that_a_pod_fills(tmp_path: Path) -> None:
    """A manifest is read up to its limit, and a folder, too."""
    files = RealFiles(tmp_path)
    files.mkdir("/manifests")
    for number in range(8):
        with (tmp_path / f"manifests/{number}.yaml").open("wb") as file:
            file.truncate(1 << 40)
    found = HostFolder(files, "/manifests", lambda *parts: "/".join(parts)).read()
    assert list(found) == ["/manifests/0.yaml", "/manifests/1.yaml", "/manifests/2.yaml"]
    with pytest.raises(BadManifest, match="too long"):
        read_static_pod(found["/manifests/0.yaml"], "/manifests/0.yaml", "n")


async def test_a_long_manifest_does_not_hold_the_loop(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_bytes(MANIFEST + b"# comment\n" * 3000)
    held: list[bool] = []

    clock = VirtualClock()
    env: Any = SimpleNamespace(clock=clock, config=SimpleNamespace(node_name="n1"))
    task = asyncio.ensure_future(
        StaticPods(env, RealFolder(str(tmp_path)))._take(RealFolder(str(tmp_path)).read())
    )
    await asyncio.sleep(0)
    held.append(task.done())
    assert [pod["metadata"]["name"] for pod in await task] == ["web-n1"]
    assert held == [False]


class Folder:
    """A source whose pods a test sets."""

    def __init__(self) -> None:
        self.updates: Any = None

    async def run(self, updates: Any) -> None:
        self.updates = updates
        updates.set([])
        await asyncio.get_running_loop().create_future()


def static(uid: str) -> Any:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "s-node1",
            "namespace": "default",
            "uid": uid,
            "annotations": {
                "kubernetes.io/config.source": "file",
                "kubernetes.io/config.hash": uid,
            },
        },
        "spec": {
            "nodeName": "node1",
            "restartPolicy": "Always",
            "containers": [{"name": "c", "image": "image"}],
        },
        "status": {"phase": "Pending"},
    }


async def test_static_pods_run_and_are_shown_by_mirrors(core: Any) -> None:
    async with core() as node:
        await node.stop_kubelet()
        folder = node.sources["file"] = Folder()
        await node.start_kubelet()
        folder.updates.set([static("one")])
        await node.settle()
        assert node.parts.mirrors[0] == ("create", "s-node1")
        assert [s.config.uid for s in node.runtime.sandboxes()] == ["one"]
        mirror = {
            "metadata": {"name": "s-node1", "annotations": {"kubernetes.io/config.mirror": "one"}},
            "spec": {
                "nodeName": "node1",
                "containers": [{"name": "c", "image": "image"}],
                "automountServiceAccountToken": False,
            },
        }
        created = await node.client.create(PODS, "default", mirror)
        await node.settle()
        shown = await node.pod("s-node1")
        assert shown["status"]["phase"] == "Running"
        assert node.core.pods.pod_by_uid(created["metadata"]["uid"])["metadata"]["uid"] == "one"  # type: ignore[index]
        folder.updates.set([static("two")])
        await node.settle()
        assert [s.config.uid for s in node.runtime.sandboxes()] == ["two"]
        assert ("delete", "s-node1") not in node.parts.mirrors
        folder.updates.set([])
        await node.settle()
        assert not node.runtime.sandboxes() and node.parts.mirrors[-1] == ("delete", "s-node1")
