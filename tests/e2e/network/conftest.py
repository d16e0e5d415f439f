"""Clusters for network tests, and functions that report what a pod can reach and which source
address a server sees.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.conftest import Cluster, Kubectl, kubectl_binaries, running_cluster

T = TypeVar("T")
STANDING = Path(__file__).parent / "standing.yaml"
PATIENCE = 30.0
NODES = """
apiVersion: transom.dev/v1
kind: Cluster
release: "1.20"
nodes:
- {name: control-plane, role: control-plane}
- {name: linux-1}
- {name: windows-1, os: windows}
- {name: windows-2, os: windows, build: 20348, runtime: containerd}
"""
AGNHOST = "k8s.gcr.io/e2e-test-images/agnhost:2.21"
Object = dict[str, Any]


def pod(name: str, node: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """A server on this node, by default agnhost."""
    ports = [{"name": "http", "containerPort": 8080}]
    container = {
        "name": "c",
        "image": AGNHOST,
        "args": ["netexec"],
        "ports": ports,
        **spec.pop("container", {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **spec,
        },
    }


def crowd(name: str, node: str, replicas: int, labels: dict[str, str]) -> Object:
    """A Deployment of such servers."""
    one = pod(name, node, {"deployment": name, **labels})
    template = {"metadata": {"labels": one["metadata"]["labels"]}, "spec": one["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"deployment": name}},
            "template": template,
        },
    }


def service(name: str, selector: dict[str, str] | None = None, **spec: Any) -> Object:
    """On port 80, for servers on port 8080."""
    ports = [{"name": "http", "port": 80, "targetPort": 8080}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": ports, **({"selector": selector} if selector else {}), **spec},
    }


def eventually(look: Callable[[], T], wanted: Callable[[T], Any] = bool) -> T:
    """The first look that shows what is wanted."""
    end = time.monotonic() + PATIENCE
    while not wanted(found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.05)
    return found


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Side by side: most of their time they wait."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


@dataclass(frozen=True)
class Net:
    """A cluster as one namespace of it sees it."""

    kubectl: Kubectl
    namespace: str = "default"

    @property
    def cluster(self) -> Cluster:
        return self.kubectl.cluster

    def at(self, namespace: str) -> Net:
        return Net(self.kubectl, namespace)

    def __call__(self, *args: str, **more: Any) -> str:
        return self.kubectl("--namespace", self.namespace, *args, **more).stdout

    def apply(self, *objects: Object) -> None:
        """All of them in one go."""
        self(
            "apply",
            "--filename",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
        )

    def object(self, *what: str) -> Any:
        return json.loads(self("get", *what, "--output", "json"))

    def ready(self, *what: str) -> None:
        self(
            "wait",
            "--for=condition=Ready",
            f"--timeout={PATIENCE:.0f}s",
            *(what or ("pods", "--all")),
            timeout=PATIENCE + 30,
        )

    def rolled_out(self, *deployments: str) -> None:
        for name in deployments:
            self(
                "rollout",
                "status",
                f"deployment/{name}",
                f"--timeout={PATIENCE:.0f}s",
                timeout=PATIENCE + 30,
            )

    def ip(self, pod: str) -> str:
        return str(self.object("pod", pod)["status"]["podIP"])

    def exec(self, pod: str, *command: str) -> str:
        """What a command says, with the line ends of this side, however it ends."""
        done = self.kubectl("--namespace", self.namespace, "exec", pod, "--", *command, check=False)
        return done.stdout.replace("\r\n", "\n")

    def fetch(self, pod: str, *urls: str, patience: float = 1) -> list[str]:
        """What a pod gets from each address; "" where it gets nothing."""
        printed = self.exec(
            pod,
            "curl",
            "-s",
            "-m",
            f"{patience:g}",
            "-w",
            "|%{http_code}\\n",
            *(f"http://{url}" for url in urls),
        )
        if not printed:  # nothing could be run there
            return [""] * len(urls)
        answers = [line.rpartition("|") for line in printed.splitlines()]
        assert len(answers) == len(urls), printed
        return [text if code == "200" else "" for text, _, code in answers]

    def connect(self, pod: str, target: str) -> str:
        """REFUSED, TIMEOUT or the like, "" when the connection is accepted."""
        command = ("/agnhost", "connect", "--timeout=1s", target)
        done = self.kubectl("--namespace", self.namespace, "exec", pod, "--", *command, check=False)
        return done.stderr.split("\n")[0].strip() if done.returncode else ""

    def datagram(self, pod: str, target: str, printed: str = "hostname") -> str:
        """The answer to a datagram; "" when none comes back. `pod` serves as the sender itself."""
        host, _, port = target.rpartition(":")
        wish = f"localhost:8080/dial?host={host}&port={port}&protocol=udp&request={printed}"
        found: dict[str, list[str]] = json.loads(self.fetch(pod, wish, patience=10)[0])
        return found.get("responses", [""])[0]

    def clients(self, pod: str, *urls: str, patience: float = 1) -> list[str]:
        """Whom servers take the pod for."""
        found = self.fetch(pod, *(f"{url}/clientip" for url in urls), patience=patience)
        return [address.rpartition(":")[0] for address in found]

    def trace(self, origin: str, target: str, *options: str) -> Any:
        done = self.cluster.transom(
            "trace",
            origin,
            target,
            "--namespace",
            self.namespace,
            "--name",
            self.cluster.name,
            "--output",
            "json",
            *options,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    def hns(self, node: str, what: str) -> list[Any]:
        done = self.cluster.transom(
            "hns", node, what, "--name", self.cluster.name, "--output", "json"
        )
        return list(json.loads(done.stdout))


@contextmanager
def made(folder: Path, network: str = "", nodes: str = NODES) -> Iterator[Net]:
    """A cluster with these nodes; `network` goes into its file."""
    binaries = kubectl_binaries()
    if not binaries:
        pytest.skip("no kubectl on this machine")
    file = folder / "cluster.yaml"
    file.write_text(nodes + (f"network: {network}\n" if network else ""))
    with running_cluster(folder, "--config", str(file)) as running:
        yield Net(Kubectl(binaries[-1], running))


@pytest.fixture(scope="package")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    """The usual network, with everything of standing.yaml."""
    with made(tmp_path_factory.mktemp("net")) as found:
        found("apply", "--filename", str(STANDING))
        found.ready()
        yield found


@pytest.fixture
def space(net: Net, request: pytest.FixtureRequest) -> Iterator[Net]:
    """A namespace for one test."""
    name = f"{request.node.originalname.removeprefix('test_').replace('_', '-')[:50].strip('-')}-{secrets.token_hex(3)}"
    net("create", "namespace", name)
    yield net.at(name)
    net("delete", "namespace", name, "--wait=false")
