"""Real containers of both systems in a whole cluster: python benchmarks/mixed.py [PODS]

As root, with runc, Wine, nftables and busybox-static. A cluster with two Linux and four Windows
nodes on the kernel's network, in a folder of its own: pods from their creation until the API says
that they run, PODS (default: 50) of each system at once, twice as many Windows pods, a command in
one of them, and what an idle one has of memory. Wine's template is made before the clock starts, if
there is none.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transom.cluster.config import load_config
from transom.cluster.probe import ClusterProbe
from transom.node.real_runtimes import template_missing
from transom.node.runtimes import missing_requirements

NAME = "bench-containers"
COMMANDS = {
    "linux": ("busybox", ["sleep", "86400"]),
    "windows": ("mcr.microsoft.com/windows/nanoserver:1809", ["ping", "-n", "86400", "127.0.0.1"]),
}
GOALS = {"linux": 0.25, "windows": 0.6}
_SINGLE = 12
_IDLE = 2.0  # seconds
_PODS = "/api/v1/namespaces/default/pods"


def transom(*args: str) -> str:
    command = [sys.executable, "-m", "transom.cli.main", *args]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class Api:
    def __init__(self, probe: ClusterProbe) -> None:
        self._probe = probe

    def create(self, name: str, system: str) -> None:
        image, command = COMMANDS[system]
        spec = {
            "nodeSelector": {"kubernetes.io/os": system},
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "c", "image": image, "imagePullPolicy": "IfNotPresent", "command": command}
            ],
        }
        pod = {"metadata": {"name": name, "labels": {"system": system}}, "spec": spec}
        status, body = self._probe.request("POST", _PODS, pod)
        assert status == 201, body

    def phase(self, name: str) -> str:
        found: dict[str, Any] = json.loads(self._probe.get(f"{_PODS}/{name}")[1])
        return str(found["status"]["phase"])

    def running(self, system: str) -> int:
        found = json.loads(self._probe.get(f"{_PODS}?labelSelector=system%3D{system}")[1])
        return sum(item["status"]["phase"] == "Running" for item in found["items"])

    def clear(self) -> float:
        """Seconds until nothing is left of all pods, on the nodes either."""
        began = time.perf_counter()
        self._probe.request("DELETE", _PODS)
        while json.loads(transom("ps", "--name", NAME, "--output", "json")):
            time.sleep(0.1)
        return time.perf_counter() - began


def single(api: Api, system: str) -> tuple[list[float], list[float]]:
    """From creation to running, and commands by kubectl."""
    starts, commands = [], []
    for number in range(_SINGLE):
        name = f"{system}-{number}"
        began = time.perf_counter()
        api.create(name, system)
        while api.phase(name) != "Running":
            time.sleep(0.005)
        starts.append(time.perf_counter() - began)
    if shutil.which("kubectl"):
        say = ("echo", "hi") if system == "linux" else ("cmd", "/c", "echo hi")
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run(
                ["kubectl", "exec", f"{system}-0", "--", *say],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            commands.append(time.perf_counter() - began)
    return starts, commands


def many(api: Api, wanted: Sequence[tuple[str, int]]) -> dict[str, float]:
    """All at once; by system, when the last one runs."""
    began, took = time.perf_counter(), dict[str, float]()
    for number in range(max(count for _, count in wanted)):
        for system, count in wanted:
            if number < count:
                api.create(f"many-{system}-{number}", system)
    while len(took) < len(wanted):
        for system, count in wanted:
            if system not in took and api.running(system) == count:
                took[system] = time.perf_counter() - began
        time.sleep(0.05)
    return took


def memory(system: str) -> float:
    """MiB of the container in the middle, as its control group counts them (see wine.py)."""
    found = json.loads(transom("ps", "--name", NAME, "--output", "json"))
    sizes = [
        row["memoryBytes"] for row in found if row["pod"].startswith(system) and row["memoryBytes"]
    ]
    return statistics.median(sizes) / (1 << 20) if sizes else 0.0


def measure(api: Api, count: int) -> None:
    for system in COMMANDS:
        single(api, system)  # images are made, folders are in the cache
        api.clear()
        starts, commands = single(api, system)
        print(
            f"a {system} pod, from creation to running: {statistics.median(starts):.3f} s, "
            f"worst {max(starts):.3f} s (goal {GOALS[system]:g} s)"
        )
        if commands:
            print(
                "kubectl exec in it, kubectl's own start included: "
                f"{statistics.median(commands):.3f} s"
            )
        time.sleep(_IDLE)
        print(f"memory of an idle {system} container: {memory(system):.1f} MiB")
        api.clear()
    took = many(api, [("linux", count), ("windows", count)])
    print(
        f"{count} of each at once: Linux after {took['linux']:.1f} s, Windows after "
        f"{took['windows']:.1f} s"
    )
    print(f"all of them removed: {api.clear():.1f} s")
    took = many(api, [("windows", 2 * count)])
    print(
        f"{2 * count} Windows pods at once: {took['windows']:.1f} s (goal {0.15 * 2 * count:g} s)"
    )
    print(f"all of them removed: {api.clear():.1f} s")


def main() -> int:
    missing = missing_requirements()
    if missing["windows"]:
        print(missing["windows"])
        return 0
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transom" / "wine"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="transom-mixed-") as folder:
        os.environ |= {"XDG_DATA_HOME": folder, "KUBECONFIG": f"{folder}/kubeconfig"}
        Path(folder, "transom").mkdir()
        Path(folder, "transom", "wine").symlink_to(cache)
        began = time.perf_counter()
        transom("up", "--name", NAME, "--runtime", "oci", "--linux", "2", "--windows", "4")
        print(f"transom up, to six nodes that are ready: {time.perf_counter() - began:.2f} s")
        try:
            config = load_config(NAME)
            assert config is not None
            api = Api(ClusterProbe(config, timeout=30))
            while template_missing():
                time.sleep(0.2)
            measure(api, int(sys.argv[1]) if len(sys.argv) > 1 else 50)
        finally:
            transom("delete", "--name", NAME)
    return 0


if __name__ == "__main__":
    sys.exit(main())
