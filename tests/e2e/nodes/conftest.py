"""Namespaces on a cluster with nodes, for every available kubectl: `home` with permanent pods, `ns`
for a single test.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Cluster, Kubectl

STANDING = Path(__file__).parent / "standing.yaml"
PATIENCE = 30.0


def _brief(found: Any) -> str:
    items = found["items"] if found["kind"] == "List" else [found]
    return "; ".join(
        f"{item['metadata']['name']}: {json.dumps(item.get('status') or item)[-600:]}"
        for item in items
    )


@cache
def _minor(binary: str) -> int:
    recorded = subprocess.run(
        (binary, "version", "--client", "--output=json"), capture_output=True, text=True, check=True
    )
    return int(json.loads(recorded.stdout)["clientVersion"]["minor"].rstrip("+"))


@dataclass(frozen=True)
class Space:
    """A namespace as one kubectl sees it."""

    kubectl: Kubectl
    name: str

    @property
    def is_old(self) -> bool:
        return _minor(self.kubectl.binary) <= 20

    def command(self, *args: str) -> list[str]:
        return [self.kubectl.binary, "--namespace", self.name, *args]

    def done(self, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.kubectl("--namespace", self.name, *args, check=False, **more)

    def __call__(self, *args: str, **more: Any) -> str:
        return self.kubectl("--namespace", self.name, *args, **more).stdout

    def apply(self, manifest: str) -> None:
        self("apply", "--filename", "-", stdin=manifest)

    def object(self, *what: str) -> Any:
        return json.loads(self("get", *what, "--output", "json"))

    def ready(self, *what: str) -> None:
        self("wait", "--for=condition=Ready", f"--timeout={PATIENCE:.0f}s", *what)

    def until(self, seen: Callable[[Any], Any], *what: str) -> Any:
        """The first look at something that shows what is waited for."""
        end = time.monotonic() + PATIENCE
        while True:
            done = self.done("get", *what, "--output", "json")
            found = json.loads(done.stdout) if done.returncode == 0 else None
            if found is not None and seen(found):
                return found
            assert time.monotonic() < end, done.stderr if found is None else _brief(found)
            time.sleep(0.05)

    @contextmanager
    def running(self, *args: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
        """A kubectl that goes on until the end of the context."""
        command = self.command(*args)
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **more}
        with subprocess.Popen(
            command, env=self.kubectl.cluster.env, text=True, bufsize=1, **pipes
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="session")
def kubectl(request: pytest.FixtureRequest, mixed_cluster: Cluster) -> Kubectl:
    return Kubectl(request.param, mixed_cluster)


@pytest.fixture(scope="session")
def standing(mixed_kubectl: Kubectl) -> Iterator[str]:
    """The namespace of pods that talk, listen and serve."""
    name = f"home-{secrets.token_hex(3)}"
    mixed_kubectl("create", "namespace", name)
    space = Space(mixed_kubectl, name)
    space("apply", "--filename", str(STANDING))
    space.ready("pods", "--all")
    space("rollout", "status", "deployment/web")
    yield name
    mixed_kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def home(kubectl: Kubectl, standing: str) -> Space:
    return Space(kubectl, standing)


@pytest.fixture
def ns(mixed_kubectl: Kubectl) -> Iterator[Space]:
    name = f"t-{secrets.token_hex(3)}"
    mixed_kubectl("create", "namespace", name)
    yield Space(mixed_kubectl, name)
    mixed_kubectl("delete", "namespace", name, "--wait=false")
