"""A cluster for async tests: `async with AsyncCluster(windows=1) as c: await c.apply(manifest)`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import yaml

from transom.client.api import APPLY_PATCH, ApiUnreachable, is_expired, is_not_found
from transom.client.http import HttpClient
from transom.client.kubeconfig import load_kubeconfig
from transom.client.resources import EVENTS, NAMESPACES, PODS, GroupVersionResource
from transom.cluster.temporary import ClusterOptions
from transom.kit.clock import RealClock
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.testing.process import RunningCluster, start_cluster_process
from transom.testing.resource_names import ResourceNames
from transom.testing.thread import start_cluster_thread
from transom.testing.waiting import Predicate, WaitTimeout, parse_wait_condition

FIELD_MANAGER = "transom-testing"
_ADVANCE_STEP = 300.0  # seconds
_SHOWN_LINES = 20  # of each log in a description of a failure

Manifest = str | Path | Object | Iterable[Object]
"""YAML or JSON with any number of documents, a file or folder, or objects."""

Objects = list[Object]
_Last = list[Object | None]  # one element: the state of an object that was read last
_Lines = list[str]


class ClusterRequestFailed(Exception):
    """The cluster refused to do what a test asked for; the message has the reason."""


class AsyncNode:
    """A node of the cluster, as `transom node` shows it."""

    def __init__(self, client: HttpClient, name: str) -> None:
        self._client = client
        self.name = name

    async def stop(self) -> None:
        """Simulates power loss."""
        await self._post("stop")

    async def start(self) -> None:
        await self._post("start")

    async def reboot(self) -> None:
        await self._post("reboot")

    async def delete(self) -> None:
        await self._client.request_json("DELETE", f"/transom/nodes/{self.name}")

    async def _post(self, verb: str) -> None:
        await self._client.request_json("POST", f"/transom/nodes/{self.name}/{verb}")


class AsyncCluster:
    """A cluster, from `async with` to its end. The options are those of
    `ClusterOptions`.
    """

    def __init__(self, options: ClusterOptions | None = None, **more: Any) -> None:
        self._options = options if options is not None else ClusterOptions(**more)
        self._process: RunningCluster | None = None
        self._client: HttpClient | None = None
        self._names: ResourceNames | None = None

    async def start(self) -> None:
        start = start_cluster_thread if self._options.in_process else start_cluster_process
        running: RunningCluster = await asyncio.to_thread(start, self._options)
        self._process = running
        target = load_kubeconfig(running.kubeconfig)
        self._client = HttpClient(target, RealClock(), user_agent=FIELD_MANAGER)
        self._names = ResourceNames(self._client)

    async def stop(self) -> None:
        client, process = self._client, self._process
        self._client = self._process = self._names = None
        if client is not None:
            await client.close()
        if process is not None:
            await asyncio.to_thread(process.stop)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the cluster's admin; it is removed with the cluster."""
        return self._running().kubeconfig

    def client(self) -> HttpClient:
        """The client of the cluster's admin, for what this class has no method for."""
        if self._client is None:
            raise RuntimeError("the cluster is not running; use it inside `with`")
        return self._client

    def node(self, name: str) -> AsyncNode:
        return AsyncNode(self.client(), name)

    def server_log(self) -> str:
        """The end of what the cluster itself logged."""
        return self._running().log_tail()

    def _running(self) -> RunningCluster:
        if self._process is None:
            raise RuntimeError("the cluster is not running; use it inside `with`")
        return self._process

    def _resource_names(self) -> ResourceNames:
        if self._names is None:
            raise RuntimeError("the cluster is not running; use it inside `with`")
        return self._names

    # ---- objects ----

    async def apply(self, manifest: Manifest, namespace: str = "default") -> Objects:
        """Server-side apply of each object, in order. `namespace` is for namespaced objects that do
        not name one.
        """
        return [await self._apply_object(obj, namespace) for obj in read_manifest(manifest)]

    async def _apply_object(self, obj: Object, namespace: str) -> Object:
        resource = await self._resource_names().by_kind(obj["apiVersion"], obj["kind"])
        meta = obj["metadata"]
        place = meta.get("namespace", namespace) if resource.namespaced else ""
        return await self.client().patch(
            resource,
            place,
            meta["name"],
            obj,
            APPLY_PATCH,
            field_manager=FIELD_MANAGER,
            force=True,
        )

    async def get(self, target: str, namespace: str = "default") -> Object:
        """`get("pod/web")`; raises ApiError if it does not exist."""
        resource, name = await self._target(target)
        return await self.client().get(resource, namespace if resource.namespaced else "", name)

    async def list(
        self, resource: str, namespace: str = "", *, label_selector: str = ""
    ) -> Objects:
        """`list("pods", "default")`; without a namespace, those of all namespaces."""
        found = await self._resource_names().by_name(resource)
        place = namespace if found.namespaced else ""
        return (await self.client().list(found, place, label_selector=label_selector)).items

    async def delete(self, target: str, namespace: str = "default") -> None:
        """Deletes an object; it may exist until its finalizers and grace period are over."""
        resource, name = await self._target(target)
        await self.client().delete(resource, namespace if resource.namespaced else "", name)

    async def _target(self, target: str) -> tuple[GroupVersionResource, str]:
        kind, slash, name = target.partition("/")
        if not slash:
            raise ValueError(f'{target!r} is not an object; use a form like "pod/web"')
        return await self._resource_names().by_name(kind), name

    # ---- waiting ----

    async def wait(
        self,
        target: str,
        condition: str | Predicate,
        namespace: str = "default",
        *,
        timeout: float = 30.0,  # noqa: ASYNC109
    ) -> Object | None:
        """Waits as `kubectl wait --for CONDITION` does, also for objects that do not exist yet, and
        returns the object. `condition` is one of kubectl's (`condition=Ready`, `delete`, `create`,
        `jsonpath={.status.phase}=Running`) or a function of the object.
        """
        resource, name = await self._target(target)
        predicate = parse_wait_condition(condition) if isinstance(condition, str) else condition
        place = namespace if resource.namespaced else ""
        seen: _Last = [None]
        try:
            async with asyncio.timeout(timeout):
                return await self._watch_until(resource, place, name, predicate, seen)
        except TimeoutError:
            wanted = condition if isinstance(condition, str) else "the condition"
            raise WaitTimeout(
                f"{target} did not reach {wanted} in {timeout:g} s; its last state:\n"
                f"{_describe(seen[0])}"
            ) from None

    async def _watch_until(
        self,
        resource: GroupVersionResource,
        namespace: str,
        name: str,
        predicate: Predicate,
        seen: _Last,
    ) -> Object | None:
        selector = f"metadata.name={name}"
        while True:
            found = await self.client().list(resource, namespace, field_selector=selector)
            seen[0] = found.items[0] if found.items else None
            if predicate(seen[0]):
                return seen[0]
            watch = await self.client().watch(
                resource,
                namespace,
                resource_version=found.resource_version,
                field_selector=selector,
            )
            try:
                async for event in watch:
                    seen[0] = None if event.type == "DELETED" else event.object
                    if predicate(seen[0]):
                        return seen[0]
            except (ApiError, ApiUnreachable) as problem:
                if isinstance(problem, ApiError) and not is_expired(problem):
                    raise
            finally:
                watch.close()

    # ---- pods ----

    async def logs(
        self,
        pod: str,
        namespace: str = "default",
        *,
        container: str = "",
        previous: bool = False,
    ) -> str:
        query = {"container": container} if container else {}
        if previous:
            query["previous"] = "true"
        path = PODS.path(namespace, pod.removeprefix("pod/"), "log")
        return await self.client().get_text(path + ("?" + urlencode(query) if query else ""))

    async def events(self, namespace: str = "default") -> Objects:
        """The events of a namespace, oldest first."""
        found = (await self.client().list(EVENTS, namespace)).items
        return sorted(found, key=_event_time)

    async def _control(self, method: str, path: str, body: Any = None) -> Any:
        """A request to the cluster itself, not to Kubernetes."""
        try:
            return await self.client().request_json(method, path, body)
        except ApiError as problem:
            raise ClusterRequestFailed(_control_message(problem.message)) from problem

    # ---- time ----

    async def advance(
        self, *, seconds: float = 0.0, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> str:
        """Advances the time of a cluster with `virtual_time=True` and returns the new one. Controllers,
        kubelets and leases do everything that is due in between, in order.
        """
        left = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days).total_seconds()
        while True:  # in steps, because a request must end in time
            step = min(left, _ADVANCE_STEP)
            answer = await self._control("POST", "/transom/clock", {"advanceSeconds": step})
            left -= step
            if left <= 0:
                moment: str = answer["time"]
                return moment

    # ---- state ----

    async def snapshot(self) -> str:
        """Saves all objects of the cluster, for `restore`. It is gone when the cluster stops."""
        answer = await self._control("POST", "/transom/states")
        saved: str = answer["id"]
        return saved

    async def restore(self, snapshot: str) -> None:
        """Brings the objects back to the state of a snapshot, as ordinary changes that every watcher
        sees. Nodes keep running; pods that they no longer run start again.
        """
        await self._control("POST", f"/transom/states/{snapshot}/restore")

    # ---- namespaces ----

    async def create_namespace(self, prefix: str = "test-") -> str:
        """A namespace with a generated name, whose default service account exists."""
        created = await self.client().create(NAMESPACES, "", {"metadata": {"generateName": prefix}})
        name: str = created["metadata"]["name"]
        await self.wait("serviceaccount/default", "create", name)
        return name

    async def delete_namespace(self, name: str) -> None:
        """Does not wait until its content is gone."""
        try:
            await self.client().delete(NAMESPACES, "", name)
        except ApiError as problem:
            if not is_not_found(problem):
                raise

    async def describe_namespace(self, name: str) -> str:
        """Pods, events and the ends of logs of a namespace: what explains a failed test."""
        lines = [f"Namespace {name}"]
        pods = (await self.client().list(PODS, name)).items
        for pod in pods:
            status = pod.get("status") or {}
            node = pod["spec"].get("nodeName", "no node")
            lines.append(f"pod/{pod['metadata']['name']}: {status.get('phase')} on {node}")
        for event in await self.events(name):
            about = event["involvedObject"]
            lines.append(
                f"event {event['type']} {event['reason']} {about['kind'].lower()}/{about['name']}: "
                f"{event['message']}"
            )
        for pod in pods:
            lines += await self._log_ends(pod, name)
        return "\n".join(lines)

    async def _log_ends(self, pod: Object, namespace: str) -> _Lines:
        lines: _Lines = []
        name = pod["metadata"]["name"]
        for container in pod["spec"]["containers"]:
            try:
                text = await self.logs(name, namespace, container=container["name"])
            except ApiError as problem:
                text = f"({problem.message})"
            if text:
                lines.append(f"log of pod/{name}, container {container['name']}:")
                lines += ["  " + line for line in text.splitlines()[-_SHOWN_LINES:]]
        return lines


def read_manifest(manifest: Manifest) -> list[Object]:
    """The objects of a manifest; the items of a List one by one."""
    if isinstance(manifest, dict):
        documents: Iterable[Any] = [manifest]
    elif isinstance(manifest, Path):
        files = sorted(manifest.rglob("*.y*ml")) if manifest.is_dir() else [manifest]
        documents = [doc for file in files for doc in yaml.safe_load_all(file.read_text())]
    elif isinstance(manifest, str):
        documents = yaml.safe_load_all(manifest)
    else:
        documents = manifest
    objects: list[Object] = []
    for document in documents:
        if document is None:
            continue
        if document.get("kind") == "List":
            objects += document.get("items") or ()
        else:
            objects.append(document)
    return objects


def _control_message(body: str) -> str:
    """The message and the hint of an answer that is not a Status."""
    try:
        answer = json.loads(body)
    except ValueError:
        return body
    return "; ".join(part for part in (answer.get("message"), answer.get("hint")) if part)


def _event_time(event: Object) -> str:
    return str(
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )


def _describe(obj: Object | None) -> str:
    if obj is None:
        return "(it does not exist)"
    return yaml.safe_dump({"status": obj.get("status", {})}, sort_keys=False).strip()
