"""What `transom up` and a cluster do not import before the nodes are ready, so that it starts
quickly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What `cluster/run.py` imports on the way to ready nodes.
STARTED = (
    "transom.cluster.run",
    "transom.cluster.endpoints.node_control",
    "transom.controllers.early",
    "transom.node.pool",
    "transom.node.cluster_network",
    "transom.network.model.dataplane",
)
# Expensive, and first used by a pod, a command, a damaged store or a custom resource.
DEFERRED = (
    "html",
    "numpy",
    "tomllib",
    "transom.apiserver.crd.definition",
    "transom.controllers.deployment",
    "transom.controllers.manager",
    "transom.ingress.controller",
    "transom.kit.streaming",
    "transom.kubelet.prober.handlers",
    "transom.machinery.apply",
    "transom.machinery.protobuf",
    "transom.machinery.structural",
    "transom.machinery.tables",
    "transom.network.model.walk",
    "transom.node.login",
    "transom.proxy.userspace.proxier",
    "transom.runtime.sim.context",
    "transom.scheduler",
    "transom.store.recover",
    "transom.store.snapshot_file",
    "transom.userland.start",
    "xml.etree",
)
# What `transom up` imports before it forks the server, other than cli, cluster, http and kit. What the
# server needs too is shared with it; everything else only delays the command.
OF_THE_COMMAND = {
    "apiserver": {"apiserver.core", "apiserver.core.access_options", "apiserver.core.config_file"},
    "kubelet": {"kubelet.allocatable", "kubelet.configuration_fields"},
    "machines": {"machines.cpus"},
    "node": {
        "node.network_settings",
        "node.runtimes",
        "node.settings",
        "node.spec",
        "node.spec_checks",
        "node.support_warnings",
    },
    "windows": {"windows.builds", "windows.policy", "windows.records", "windows.releases"},
}
# The layers below, of which most modules are light.
LIGHT = {"cli", "cluster", "http", "kit", "machinery"}
_RUN_UP = """
import atexit, sys
atexit.register(lambda: print(*sys.modules))
from transom.cli.entry import main
sys.argv = ["transom", "up", "--dry-run"]
sys.exit(main())
"""


# Modules that contain the standard decorator or base class.
_FIND_STANDARD_CLASSES = f"""
import dataclasses, sys, typing, {", ".join(STARTED)}
for name, module in list(sys.modules.items()):
    for value in vars(module).values() if name.startswith("transom.") else ():
        if value is dataclasses.dataclass or value is typing.NamedTuple:
            print(name, value.__name__)
"""


@pytest.fixture(scope="module")
def loaded_by_up(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder: Path = tmp_path_factory.mktemp("up")
    environment = os.environ | {
        "XDG_DATA_HOME": str(folder),
        "KUBECONFIG": str(folder / "kubeconfig"),
    }
    done = subprocess.run(
        [sys.executable, "-c", _RUN_UP],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_up_imports_few_modules(loaded_by_up: set[str]) -> None:
    ours = {name.removeprefix("transom.") for name in loaded_by_up if name.startswith("transom.")}
    known = LIGHT | set(OF_THE_COMMAND) | set().union(*OF_THE_COMMAND.values())
    unknown = {name for name in ours - known if name.partition(".")[0] not in LIGHT}
    assert unknown == set(), "import them late (kit.lazy): the command does not need them"


@pytest.mark.parametrize(
    "module",
    [
        "decimal",
        "numpy",
        "transom.cluster.run",
        "transom.machinery.releases.served",
        "transom.machinery.schema",
    ],
)
def test_up_does_not_import(module: str, loaded_by_up: set[str]) -> None:
    assert module not in loaded_by_up


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    script = f"import sys, {', '.join(STARTED)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", DEFERRED)
def test_not_imported_before_the_nodes_are_ready(module: str, loaded: set[str]) -> None:
    assert module not in loaded


def test_classes_are_cheap_to_declare() -> None:
    """`dataclass` and `NamedTuple` of the standard library compile code when they are used."""
    done = subprocess.run(
        [sys.executable, "-c", _FIND_STANDARD_CLASSES], check=True, capture_output=True, text=True
    )
    assert done.stdout == "", "use kit.lazy_dataclass and kit.named_tuple"
