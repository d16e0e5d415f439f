"""What a test case does with a cluster: makes objects in a namespace of its own, waits for pods, and
lets pods test connections. Pods use the images of Kubernetes' own end-to-end tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from transom.client.http import HttpClient
from transom.client.resources import GroupVersionResource, builtin_resource
from transom.kit.clock import Clock
from transom.machinery.errors import ApiError

Object = dict[str, Any]
AGNHOST: Final = "registry.k8s.io/e2e-test-images/agnhost:2.47"
PORT: Final = 80
_LOOK_AGAIN: Final = 0.3
_PODS: Final = builtin_resource("/Pod")
_NAMESPACES: Final = builtin_resource("/Namespace")
TOLERATIONS: Final = [{"key": "os", "operator": "Exists"}]


class CaseFailed(Exception):
    """The cluster failed the test case; the message describes the failure."""


class ReadinessSession:
    def __init__(
        self, client: HttpClient, clock: Clock, namespace: str, windows: Object, seconds: float
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.windows = windows  # the Windows node that is tested
        self._clock = clock
        self._seconds = seconds

    @property
    def node(self) -> str:
        return str(self.windows["metadata"]["name"])

    async def create(self, kind: str, obj: Object, namespace: str = "") -> Object:
        resource = _resource(kind)
        where = (namespace or self.namespace) if resource.namespaced else ""
        return await self.client.create(
            resource,
            where,
            {"apiVersion": resource.api_version, "kind": resource.kind, **obj},
        )

    async def begin(self, name: str) -> None:
        await self.create("/Namespace", {"metadata": {"name": name, "labels": {"readiness": name}}})
        account = builtin_resource("/ServiceAccount")
        await self.until(lambda: self._exists(account, name, "default"), "no service account")

    async def _exists(self, resource: GroupVersionResource, namespace: str, name: str) -> bool:
        try:
            await self.client.get(resource, namespace, name)
        except ApiError as problem:
            if problem.code != 404:
                raise
            return False
        return True

    async def end(self, name: str) -> None:
        try:
            await self.client.delete(_NAMESPACES, "", name)
        except ApiError as problem:
            if problem.code != 404:
                raise

    async def until(self, seen: Any, problem: str) -> Any:
        """What `seen` returns, as soon as it is true. Raises CaseFailed."""
        end = self._clock.monotonic() + self._seconds
        while self._clock.monotonic() < end:
            found = await seen()
            if found:
                return found
            await asyncio.sleep(_LOOK_AGAIN)
        raise CaseFailed(f"{problem} within {self._seconds:.0f} s")

    # ---- pods ----

    async def pod(
        self,
        name: str,
        *args: str,
        os: str = "windows",
        labels: Object | None = None,
        spec: Object | None = None,
        namespace: str = "",
        **container: Any,
    ) -> Object:
        """A pod that runs agnhost with these arguments."""
        selector = {"kubernetes.io/os": os}
        return await self.create(
            "/Pod",
            {
                "metadata": {"name": name, "labels": labels or {"app": name}},
                "spec": {
                    "nodeSelector": selector,
                    "tolerations": TOLERATIONS,
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "c", "image": AGNHOST, "args": list(args), **container}
                    ],
                    **(spec or {}),
                },
            },
            namespace,
        )

    async def server(self, name: str = "server", os: str = "windows", **more: Any) -> str:
        """The address of a web server that is ready."""
        await self.pod(
            name,
            "netexec",
            f"--http-port={PORT}",
            os=os,
            ports=[{"containerPort": PORT}],
            **more,
        )
        return str((await self.ready(name))["status"]["podIP"])

    async def ready(self, name: str, namespace: str = "") -> Object:
        async def look() -> Object | None:
            found = await self.client.get(_PODS, namespace or self.namespace, name)
            ready = any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in (found.get("status") or {}).get("conditions") or ()
            )
            return found if ready else None

        return dict(await self.until(look, f"pod {name} is not ready"))

    async def finished(self, name: str, namespace: str = "") -> tuple[bool, str]:
        """Whether a pod succeeded, and what it printed."""

        async def look() -> str:
            found = await self.client.get(_PODS, namespace or self.namespace, name)
            phase = str((found.get("status") or {}).get("phase", ""))
            return phase if phase in ("Succeeded", "Failed") else ""

        phase = await self.until(look, f"pod {name} has not ended")
        where = f"/api/v1/namespaces/{namespace or self.namespace}/pods/{name}/log"
        return phase == "Succeeded", (await self.client.get_text(where)).strip()

    async def connect(
        self, target: str, name: str = "client", os: str = "windows", namespace: str = ""
    ) -> None:
        """A new pod connects to an address. Raises CaseFailed."""
        if not await self.connects(target, name, os, namespace):
            raise CaseFailed(f"a {os} pod does not reach {target}")

    async def connects(
        self, target: str, name: str = "client", os: str = "windows", namespace: str = ""
    ) -> bool:
        await self.pod(name, "connect", "--timeout=5s", target, os=os, namespace=namespace)
        return (await self.finished(name, namespace))[0]

    async def service(self, name: str = "server", **spec: Any) -> Object:
        made = {
            "metadata": {"name": name},
            "spec": {"selector": {"app": "server"}, "ports": [{"port": PORT}], **spec},
        }
        return await self.create("/Service", made)

    async def service_works(self, target: str, name: str, os: str = "windows") -> None:
        """Rules of a new Service reach the nodes with some delay: a few pods try."""
        for i in range(4):
            if await self.connects(target, f"{name}-{i}", os):
                return
        raise CaseFailed(f"a {os} pod does not reach {target}")


def node_addresses(node: Object) -> Sequence[str]:
    return [
        one["address"]
        for one in node["status"].get("addresses") or ()
        if one["type"] == "InternalIP"
    ]


def _resource(kind: str) -> GroupVersionResource:
    return builtin_resource(kind)
