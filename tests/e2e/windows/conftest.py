"""A cluster with Linux and Windows nodes, and a namespace in it for each test."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Kubectl

MANIFESTS = Path(__file__).parent / "manifests"
PATIENCE = "90s"


@dataclass(frozen=True)
class Place:
    """A namespace, and short ways to put things there and to look at them."""

    kubectl: Kubectl
    namespace: str

    def __call__(self, *args: str, **more: Any) -> str:
        return self.kubectl("--namespace", self.namespace, *args, **more).stdout

    def refused(self, *args: str) -> str:
        done = self.kubectl("--namespace", self.namespace, *args, check=False)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def apply(self, *names: str) -> str:
        return self(
            "apply",
            *(arg for name in names for arg in ("--filename", str(MANIFESTS / f"{name}.yaml"))),
        )

    def ready(self, *what: str) -> None:
        """Wait for pods to be ready, and for whatever keeps pods to have them all."""
        for name in what:
            if name.startswith("pod/"):
                self("wait", "--for=condition=Ready", name, f"--timeout={PATIENCE}", timeout=120)
            else:
                self("rollout", "status", name, f"--timeout={PATIENCE}", timeout=120)

    def object(self, *what: str) -> Any:
        return json.loads(self("get", *what, "--output", "json"))

    def pods(self, selector: str) -> list[Any]:
        return list(self.object("pods", "--selector", selector)["items"])

    def event(self, pod: str, reason: str) -> str:
        """The message of the first event of this reason about a pod, as soon as there is one."""
        wanted = f"involvedObject.name={pod},reason={reason}"
        return next(self._seen("{.message}", "events", f"--field-selector={wanted}"))

    def until(self, what: str, path: str, value: str) -> None:
        """As soon as a field of an object has this value."""
        for found in self._seen(path, what):
            if found == value:
                return
        raise AssertionError(f"{path} of {what} is {found}")

    def _seen(self, path: str, *what: str) -> Iterator[str]:
        command = [
            self.kubectl.binary,
            "--namespace",
            self.namespace,
            f"--request-timeout={PATIENCE}",
            "get",
            *what,
            "--watch",
            f"--output=jsonpath={path}{{'\\n'}}",
        ]
        with subprocess.Popen(
            command, env=self.kubectl.cluster.env, stdout=subprocess.PIPE, text=True
        ) as watching:
            assert watching.stdout is not None
            try:
                for line in watching.stdout:
                    yield line.rstrip("\n")
            finally:
                watching.kill()

    def exec(self, pod: str, *command: str, stdin: str | None = None) -> str:
        """What a command says in a pod, with the line ends of this side."""
        options = ("--stdin",) if stdin is not None else ()
        return self("exec", *options, pod, "--", *command, stdin=stdin).replace("\r\n", "\n")


@pytest.fixture
def place(mixed_kubectl: Kubectl) -> Iterator[Place]:
    name = f"test-{secrets.token_hex(4)}"
    mixed_kubectl("create", "namespace", name)
    yield Place(mixed_kubectl, name)
    mixed_kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def default_place(mixed_kubectl: Kubectl) -> Place:
    """For manifests that name the default namespace themselves."""
    return Place(mixed_kubectl, "default")
