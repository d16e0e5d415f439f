"""A cluster for tests without async: the methods of `AsyncCluster`, each waiting for its result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from transom.client.http import HttpClient
from transom.cluster.temporary import ClusterOptions
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.testing.async_cluster import AsyncCluster, AsyncNode, Manifest, Objects
from transom.testing.resource_names import UnknownResource
from transom.testing.waiting import Predicate, WaitTimeout

__tracebackhide__ = True  # pytest shows the line of the test instead of those of this module
_T = TypeVar("_T")


class _LoopThread:
    """An event loop in a thread, for calls from code that has none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="transom-testing", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        error = future.exception()
        if isinstance(error, (WaitTimeout, UnknownResource, ApiError)):
            raise error.with_traceback(None)  # its text says what the caller needs to know
        return future.result()

    def close(self) -> None:
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class TestNode:
    """A node of the cluster, as `transom node` shows it."""

    __test__ = False  # not a class of tests

    def __init__(self, loop: _LoopThread, node: AsyncNode) -> None:
        self._loop = loop
        self._node = node
        self.name = node.name

    def stop(self) -> None:
        """Simulates power loss."""
        self._loop.run(self._node.stop())

    def start(self) -> None:
        self._loop.run(self._node.start())

    def reboot(self) -> None:
        self._loop.run(self._node.reboot())

    def delete(self) -> None:
        self._loop.run(self._node.delete())


class TestClient:
    """Requests to any path of the API server, as the cluster's admin."""

    __test__ = False

    def __init__(self, loop: _LoopThread, client: HttpClient) -> None:
        self._loop = loop
        self._client = client

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON document of the response; raises ApiError for an error response."""
        return self._loop.run(self._client.request_json(method, path, body))

    def get(self, path: str) -> Any:
        return self.request("GET", path)


class Cluster:
    """A cluster, from `with` to its end:

    with Cluster(release="1.36", windows=1) as c:
        c.apply(manifest)
        c.wait("pod/web", "condition=Ready")
    """

    def __init__(self, options: ClusterOptions | None = None, **more: Any) -> None:
        self._cluster = AsyncCluster(options, **more)
        self._loop_thread: _LoopThread | None = None

    def start(self) -> None:
        self._loop_thread = _LoopThread()
        try:
            self._loop.run(self._cluster.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        loop, self._loop_thread = self._loop_thread, None
        if loop is not None:
            loop.run(self._cluster.stop())
            loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _loop(self) -> _LoopThread:
        if self._loop_thread is None:
            raise RuntimeError("the cluster is not running; use it inside `with`")
        return self._loop_thread

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the cluster's admin; it is removed with the cluster."""
        return self._cluster.kubeconfig

    def client(self) -> TestClient:
        return TestClient(self._loop, self._cluster.client())

    def node(self, name: str) -> TestNode:
        return TestNode(self._loop, self._cluster.node(name))

    def server_log(self) -> str:
        """The end of what the cluster itself logged."""
        return self._cluster.server_log()

    def apply(self, manifest: Manifest, namespace: str = "default") -> Objects:
        """See `AsyncCluster.apply`."""
        return self._loop.run(self._cluster.apply(manifest, namespace))

    def get(self, target: str, namespace: str = "default") -> Object:
        """See `AsyncCluster.get`."""
        return self._loop.run(self._cluster.get(target, namespace))

    def list(self, resource: str, namespace: str = "", *, label_selector: str = "") -> Objects:
        """See `AsyncCluster.list`."""
        return self._loop.run(
            self._cluster.list(resource, namespace, label_selector=label_selector)
        )

    def delete(self, target: str, namespace: str = "default") -> None:
        """See `AsyncCluster.delete`."""
        self._loop.run(self._cluster.delete(target, namespace))

    def wait(
        self,
        target: str,
        condition: str | Predicate,
        namespace: str = "default",
        *,
        timeout: float = 30.0,
    ) -> Object | None:
        """See `AsyncCluster.wait`."""
        return self._loop.run(self._cluster.wait(target, condition, namespace, timeout=timeout))

    def logs(
        self,
        pod: str,
        namespace: str = "default",
        *,
        container: str = "",
        previous: bool = False,
    ) -> str:
        """See `AsyncCluster.logs`."""
        return self._loop.run(
            self._cluster.logs(pod, namespace, container=container, previous=previous)
        )

    def events(self, namespace: str = "default") -> Objects:
        """See `AsyncCluster.events`."""
        return self._loop.run(self._cluster.events(namespace))

    def advance(
        self, *, seconds: float = 0.0, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> str:
        """See `AsyncCluster.advance`."""
        return self._loop.run(
            self._cluster.advance(seconds=seconds, minutes=minutes, hours=hours, days=days)
        )

    def snapshot(self) -> str:
        """See `AsyncCluster.snapshot`."""
        return self._loop.run(self._cluster.snapshot())

    def restore(self, snapshot: str) -> None:
        """See `AsyncCluster.restore`."""
        self._loop.run(self._cluster.restore(snapshot))

    def create_namespace(self, prefix: str = "test-") -> str:
        """See `AsyncCluster.create_namespace`."""
        return self._loop.run(self._cluster.create_namespace(prefix))

    def delete_namespace(self, name: str) -> None:
        """See `AsyncCluster.delete_namespace`."""
        self._loop.run(self._cluster.delete_namespace(name))

    def describe_namespace(self, name: str) -> str:
        """See `AsyncCluster.describe_namespace`."""
        return self._loop.run(self._cluster.describe_namespace(name))
