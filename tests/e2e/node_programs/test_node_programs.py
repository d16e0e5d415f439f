"""Pods with a hostPath attack the programs and sockets that their node trusts, on a cluster with
real containers.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster
from tests.e2e.nodes.conftest import Space

from transom.node.runtimes import missing_requirements
from transom.runtime.images.builtin import BUSYBOX

EXEC = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
NODES = """
apiVersion: transom.dev/v1
kind: Cluster
engine: oci
nodes:
- {name: linux-1, role: control-plane, taints: []}
"""
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


def state(folder: Path, cluster: Cluster) -> Path:
    return folder / "data/transom" / cluster.name


def pod(name: str, script: str, **spec: Any) -> Object:
    mounts = [
        {"name": volume["name"], "mountPath": f"/{volume['name']}"}
        for volume in spec.get("volumes", ())
    ]
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "volumeMounts": mounts,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **spec,
        },
    }


def host(name: str, path: str) -> Object:
    return {"name": name, "hostPath": {"path": path}}


def run(ns: Space, attack: Object) -> None:
    ns.apply(json.dumps(attack))
    ns.until(
        lambda found: found["status"]["phase"] == "Succeeded", "pod", attack["metadata"]["name"]
    )


def driver(mark: Path | str) -> str:
    return f"""#!/bin/sh
touch {mark}
case $1 in
init) echo '{{"status": "Success", "capabilities": {{"attach": false}}}}';;
mount) mkdir -p {mark}.disk && mount --bind {mark}.disk $2 && echo '{{"status": "Success"}}';;
unmount) umount $2 && echo '{{"status": "Success"}}';;
*) echo '{{"status": "Not supported"}}';;
esac
"""


def test_a_planted_driver_does_not_run_and_one_of_the_owner_does(
    ns: Space, folder: Path, real_cluster: Cluster
) -> None:
    mark = folder / "planted"
    plant = (
        "cd /plugins; mkdir -p evil~disk && printf '%s' \"$DRIVER\" > evil~disk/disk && chmod "
        "755 evil~disk/disk"
    )
    attack = pod("attack", plant, volumes=[host("plugins", EXEC)])
    attack["spec"]["containers"][0]["env"] = [
        {"name": "DRIVER", "value": driver(mark).replace("$", "$$")}
    ]
    run(ns, attack)
    machine = state(folder, real_cluster) / "machines/linux-1"
    assert (machine / EXEC[1:] / "evil~disk/disk").read_text() == driver(mark)
    flex = {"name": "v", "flexVolume": {"driver": "evil/disk"}}
    ns.apply(json.dumps(pod("victim", "true", volumes=[flex])))

    def refused(found: Any) -> bool:
        return any(
            "permission denied: the driver was not installed by the cluster's owner"
            in event["message"]
            for event in found["items"]
            if event["reason"] == "FailedMount"
        )

    ns.until(refused, "events")
    assert not mark.exists()

    owners = state(folder, real_cluster) / "volume-plugins/example~disk/disk"
    owners.parent.mkdir(parents=True)
    owners.write_text(driver(folder / "owners"))
    owners.chmod(0o755)
    flex = {"name": "v", "flexVolume": {"driver": "example/disk"}}
    run(ns, pod("user", "echo hello > /v/file", volumes=[flex]))
    assert (folder / "owners.disk/file").read_text() == "hello\n"
    assert not mark.exists()
    ns("delete", "pod", "user", "victim")
    end = time.monotonic() + 30
    while "owners.disk" in Path("/proc/self/mountinfo").read_text():
        assert time.monotonic() < end, "the volume is still mounted"
        time.sleep(0.05)


def test_sockets_that_lead_out_of_the_node_are_not_called(ns: Space, folder: Path) -> None:
    """The kubelet looks into plugins_registry every second: a link there leads no further than the
    node's folder.
    """
    outside = folder / "outside.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(outside))
        listener.listen()
        listener.settimeout(4)
        links = (
            f"ln -s {outside} /registry/evil-reg.sock; ln -s {folder} /registry/evil; touch "
            "/registry/plain.sock"
        )
        run(
            ns,
            pod("attack", links, volumes=[host("registry", "/var/lib/kubelet/plugins_registry")]),
        )
        with pytest.raises(TimeoutError):
            listener.accept()
    cleanup = "rm -r /registry/*"
    run(
        ns, pod("cleanup", cleanup, volumes=[host("registry", "/var/lib/kubelet/plugins_registry")])
    )


def test_planted_network_configuration_runs_no_program(ns: Space, folder: Path) -> None:
    """Plugins are functions of Transom's own; a name that is not one of them is an error of the
    pod.
    """
    mark = folder / "cni"
    config = json.dumps(
        {"cniVersion": "0.4.0", "name": "evil", "type": "evil", "ipam": {"type": "evil"}}
    )
    script = f"""
printf '%s' "$CONFIG" > /conf/00-evil.conf
printf '#!/bin/sh\\ntouch {mark}\\n' > /plugins/evil && chmod 755 /plugins/evil
"""
    attack = pod(
        "attack", script, volumes=[host("conf", "/etc/cni/net.d"), host("plugins", "/opt/cni/bin")]
    )
    attack["spec"]["containers"][0]["env"] = [{"name": "CONFIG", "value": config}]
    run(ns, attack)
    try:
        ns.apply(json.dumps(pod("victim", "true")))

        def refused(found: Any) -> bool:
            return any(
                'failed to find plugin "evil" in path' in event["message"]
                for event in found["items"]
            )

        ns.until(refused, "events", "--field-selector", "involvedObject.name=victim")
        assert not mark.exists()
    finally:
        plain = pod(
            "cleanup",
            "rm /conf/00-evil.conf",
            volumes=[host("conf", "/etc/cni/net.d")],
            hostNetwork=True,
        )
        run(ns, plain)


def test_files_without_end_and_deep_directories_do_not_stop_the_server(
    ns: Space, real_cluster: Cluster
) -> None:
    """An ordinary container can make both, without any hostPath."""
    deep = "cd /v; i=0; while [ $i -lt 1200 ]; do mkdir d && cd d || exit 3; i=$((i+1)); done"
    script = (
        f"{deep}; truncate -s 1024G /dev/termination-log && echo last >> /dev/termination-log; "
        "exit 7"
    )
    ns.apply(json.dumps(pod("attack", script, volumes=[{"name": "v", "emptyDir": {}}])))
    found = ns.until(lambda found: found["status"]["phase"] == "Failed", "pod", "attack")
    ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (
        ended["exitCode"] == 7
        and ended["message"].endswith("last\n")
        and len(ended["message"]) <= 4096
    )
    ns("delete", "pod", "attack", "--timeout=30s")
    assert real_cluster.transom("status", "--name", real_cluster.name).returncode == 0
