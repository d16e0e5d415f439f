"""A cluster with real containers: processes under runc on Linux nodes, Win32 programs under Wine on
Windows nodes.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster
from tests.e2e.nodes.conftest import Space
from tests.runtime.wine import probe

from transom.node.runtimes import missing_requirements
from transom.runtime.images.builtin import BUSYBOX
from transom.runtime.wine import helpers

STANDING = Path(__file__).parent / "standing.yaml"
WINDOWS_IMAGE = "test/programs:1"  # has probe.exe and winweb.exe in C:\app
NODES = """
apiVersion: transom.dev/v1
kind: Cluster
engine: oci
nodes:
- {name: linux-1, role: control-plane, taints: []}
- {name: windows-1, os: windows, runtime: docker}
- {name: windows-2, os: windows, runtime: containerd}
"""
Object = dict[str, Any]


def unavailable() -> str:
    missing = missing_requirements()
    why = missing["linux"] or missing["windows"]
    if not why and not BUSYBOX.exists():
        why = "the package busybox-static is not installed"
    return why or ("" if kubectl_binaries() else "no kubectl on this machine")


def share_template(data: Path, shared: Path) -> None:
    """Wine's template takes ten seconds to make: one for all test runs, as users have one for all
    clusters.
    """
    shared.mkdir(exist_ok=True)
    (data / "transom").mkdir(parents=True, exist_ok=True)
    (data / "transom" / "wine").symlink_to(shared)


def import_programs(cluster: Cluster, folder: Path) -> None:
    app = probe.layer(folder / "programs") / "app"
    shutil.copy(helpers.BUILT / "winweb.exe", app)
    cluster.transom(
        "image",
        "import",
        str(folder / "programs"),
        WINDOWS_IMAGE,
        "--os",
        "windows",
        "--build",
        "17763",
        "--env",
        r"PATH=C:\app;C:\Windows\system32;C:\Windows",
    )


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    why = unavailable()
    if why:
        pytest.skip(why)
    made = tmp_path_factory.mktemp("real")
    share_template(made / "data", tmp_path_factory.getbasetemp().parent / "transom-wine")
    (made / "cluster.yaml").write_text(NODES)
    return made


@pytest.fixture(scope="package")
def real_cluster(folder: Path) -> Iterator[Cluster]:
    with running_cluster(folder, "--config", str(folder / "cluster.yaml")) as running:
        import_programs(running, folder)
        yield running


@pytest.fixture(scope="package")
def home(real_cluster: Cluster) -> Space:
    """The namespace of what is in standing.yaml."""
    kubectl = Kubectl(kubectl_binaries()[0], real_cluster)
    kubectl("create", "namespace", "home")
    space = Space(kubectl, "home")
    space("apply", "--filename", str(STANDING))
    space.ready("pods", "--all")
    return space


@pytest.fixture
def ns(real_cluster: Cluster) -> Iterator[Space]:
    kubectl = Kubectl(kubectl_binaries()[0], real_cluster)
    name = f"t-{secrets.token_hex(3)}"
    kubectl("create", "namespace", name)
    yield Space(kubectl, name)
    kubectl("delete", "namespace", name, "--wait=false")


def pod(
    name: str, os_name: str, *command: str, container: Object | None = None, **spec: Any
) -> Object:
    """Of busybox, or of our Windows programs; ends at once when it is deleted."""
    image = WINDOWS_IMAGE if os_name == "windows" else "busybox"
    given = {
        "name": "c",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        **(container or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": os_name},
            "terminationGracePeriodSeconds": 0,
            "containers": [given],
            **spec,
        },
    }


def deployment(
    name: str,
    os_name: str,
    replicas: int,
    *command: str,
    container: Object | None = None,
    **spec: Any,
) -> Object:
    template = pod(name, os_name, *command, container=container, **spec)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }


def apply(space: Space, *things: Object) -> None:
    space.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": things}))


def ended(found: Any) -> Any:
    """How the container of a pod has ended; None while it runs."""
    statuses = found["status"].get("containerStatuses") or [{}]
    return statuses[0].get("state", {}).get("terminated")


def processes(cluster: Cluster) -> list[tuple[int, str]]:
    """On this machine, of a cluster: those in its control groups, and those that have its folder in
    their command line.
    """
    found = []
    folder = f"{cluster.env['XDG_DATA_HOME']}/transom/{cluster.name}"
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                groups = Path(f"/proc/{entry}/cgroup").read_text()
                line = (
                    Path(f"/proc/{entry}/cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
            except OSError:  # it has ended meanwhile
                continue
            if f"/transom/{cluster.name}/" in groups or folder in line:
                found.append((int(entry), line))
    return found
