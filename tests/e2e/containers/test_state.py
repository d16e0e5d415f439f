"""What containers see of the node's files, which resources they may use, and their users."""

from __future__ import annotations

import pytest
from tests.e2e.nodes.conftest import Space

from transom.runtime.native import cgroups

from .conftest import apply, ended, pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
LINUX, WINDOWS = ("linux", "--container=web", "--"), ("windows", "--container=web", "--")


def _seen(home: Space) -> tuple[str, str]:
    """What each container has now."""
    windows = home("exec", *WINDOWS, "cmd", "/c", r"type C:\settings\colour& type C:\keys\password")
    return home("exec", *LINUX, "cat", "/settings/colour", "/keys/password"), windows


def test_configuration_changes_while_it_is_mounted(home: Space) -> None:
    assert _seen(home) == ("redhush", "redhush")
    home("patch", "configmap", "settings", "--patch", '{"data": {"colour": "blue"}}')
    home("patch", "secret", "keys", "--patch", '{"stringData": {"password": "quiet"}}')

    # else kubelets look after their pods once a minute
    home("annotate", "pods", "linux", "windows", "look=again")
    home.until(lambda _: _seen(home) == ("bluequiet", "bluequiet"), "pod", "linux")


def test_volumes_that_may_not_be_written(home: Space) -> None:
    assert "Read-only file system" in home.done("exec", *LINUX, "touch", "/keys/mine").stderr
    home.done("exec", *WINDOWS, "cmd", "/c", r"echo mine> C:\keys\mine")
    listed = home("exec", *WINDOWS, "cmd", "/c", r"dir C:\keys")
    assert "password" in listed and "mine" not in listed


def test_containers_of_a_pod_share_a_volume(home: Space) -> None:
    home("exec", *LINUX, "sh", "-c", "echo from web > /srv/note")
    assert home("exec", "linux", "--container=beside", "--", "cat", "/shared/note") == "from web\n"
    home("exec", *WINDOWS, "cmd", "/c", r"echo from web>C:\shared\note")
    assert (
        home("exec", "windows", "--container=beside", "--", "cmd", "/c", r"type C:\shared\note")
        == "from web\n"
    )


def test_folders_of_the_node(home: Space, ns: Space) -> None:
    """As a drive of its own on Windows; the next pod on the node finds what the last one wrote."""
    home("exec", *LINUX, "sh", "-c", "echo kept > /machine/note")
    home("exec", *WINDOWS, "cmd", "/c", r"echo kept>D:\note")
    where = home.object("pod", "windows")["spec"]["nodeName"]
    folders = {"linux": "/data", "windows": "C:\\data"}
    volumes = {
        name: [{"name": "machine", "hostPath": {"path": path}}] for name, path in folders.items()
    }
    mount = {
        name: {"volumeMounts": [{"name": "machine", "mountPath": path}]}
        for name, path in folders.items()
    }
    apply(
        ns,
        pod(
            "linux",
            "linux",
            "cat",
            "/data/note",
            container=mount["linux"],
            volumes=volumes["linux"],
            restartPolicy="Never",
        ),
        pod(
            "windows",
            "windows",
            "cmd",
            "/c",
            r"type C:\data\note",
            container=mount["windows"],
            volumes=volumes["windows"],
            nodeName=where,
            restartPolicy="Never",
        ),
    )
    for name in folders:
        ns.until(ended, "pod", name)
        assert ns("logs", name) == "kept\n"


def test_memory_that_is_not_there(ns: Space) -> None:
    """Linux kills; on Windows the allocation fails."""
    limits = {"resources": {"limits": {"memory": "48Mi"}}}
    apply(
        ns,
        pod(
            "linux",
            "linux",
            "tail",
            "-c",
            "400m",
            "/dev/zero",
            container=limits,
            restartPolicy="Never",
        ),
        pod("windows", "windows", "probe", "commit", container=limits, restartPolicy="Never"),
    )
    killed, recorded = (
        ended(ns.until(ended, "pod", "linux")),
        ended(ns.until(ended, "pod", "windows")),
    )
    assert (killed["exitCode"], killed["reason"]) == (137, "OOMKilled")
    assert recorded["reason"] == "Error" and 32 <= recorded["exitCode"] <= 48  # MiB that it got


def test_processor_time_is_limited(ns: Space) -> None:
    stat = f"/sys/fs/cgroup/{'' if cgroups.cgroup_hierarchies().version == 2 else 'cpu/'}cpu.stat"
    wait = f"while [ $(date +%s) -lt $end ] && ! grep -q 'nr_throttled [1-9]' {stat}; do :; done"
    script = f"end=$(($(date +%s) + 20)); {wait}; cat {stat}"
    limits = {"resources": {"limits": {"cpu": "100m"}}}
    apply(ns, pod("busy", "linux", "sh", "-c", script, container=limits, restartPolicy="Never"))
    assert ended(ns.until(ended, "pod", "busy"))["exitCode"] == 0
    found = dict(line.split() for line in ns("logs", "busy").splitlines())
    assert int(found["nr_throttled"]) > 0


def test_users_rights_and_a_root_that_is_read_only(ns: Space) -> None:
    shown = (
        "id; touch /mine; touch /scratch/mine; ls -ln /scratch; grep CapBnd /proc/self/status; "
        "ip link add x type veth"
    )
    security = {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    }
    mounted = {
        "securityContext": security,
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    apply(
        ns,
        pod(
            "nobody",
            "linux",
            "sh",
            "-c",
            shown,
            container=mounted,
            restartPolicy="Never",
            securityContext={"runAsUser": 1234, "runAsGroup": 2345, "fsGroup": 3456},
            volumes=[{"name": "scratch", "emptyDir": {}}],
        ),
        pod(
            "user",
            "windows",
            "cmd",
            "/c",
            "set USERNAME",
            restartPolicy="Never",
            securityContext={"windowsOptions": {"runAsUserName": "ContainerUser"}},
        ),
        pod("root", "linux", "true", container={"securityContext": {"runAsNonRoot": True}}),
    )
    ns.until(ended, "pod", "nobody")
    printed = ns("logs", "nobody")
    assert "uid=1234 gid=2345 groups=3456" in printed
    assert "touch: /mine: Read-only file system" in printed
    assert "1 1234     3456 " in printed
    assert "CapBnd:\t0000000000000400" in printed
    assert "Operation not permitted" in printed
    ns.until(ended, "pod", "user")
    assert ns("logs", "user") == "USERNAME=ContainerUser\n"
    ns.until(
        lambda found: (
            "container has runAsNonRoot and image will run as root" in str(found["status"])
        ),
        "pod",
        "root",
    )
