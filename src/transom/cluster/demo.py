"""The demo: a web server on Linux and one on Windows behind Services, each of which shows what the other one says.

What runs them is seen from the nodes. Objects go in through the API as anybody's would; what to open is asked of the relays.
It waits for the pages themselves: a demo is there when a person can open it.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from transom.cluster import lifecycle
from transom.cluster.config import ClusterConfig
from transom.cluster.demo_programs import NAMESPACE, Site, choose, objects
from transom.cluster.errors import ClusterError

_LOOK_AGAIN = 0.1
_PAGE_SECONDS = 6.0
_HOPELESS = ("ErrImagePull", "ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName")
_MERGE = "application/merge-patch+json"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ConfigMap": f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    "Service": f"/api/v1/namespaces/{NAMESPACE}/services",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
}
_HOME = f"{_PATHS['Namespace']}/{NAMESPACE}"
_PODS = f"{_PATHS['Namespace']}/{NAMESPACE}/pods"

Tell = Callable[[str], None]
Object = dict[str, Any]


class Page(NamedTuple):
    os: str
    url: str
    program: str


def deploy(config: ClusterConfig, tell: Tell, *, fetch: bool, seconds: float) -> list[Page]:
    """Returns when the pages can be opened. Raises ClusterError. `fetch`: programs may come from the network."""
    api = _Api(config)
    nodes = [node for node in api.get("/transom/nodes")["items"] if node["ready"]]
    if not nodes:
        raise ClusterError(f"cluster {config.name!r} has no node that is ready", "see `transom node list`")
    end = time.monotonic() + seconds
    api.wait_until_gone(end, tell)
    sites = choose(nodes, tell, fetch=fetch)
    if not sites:
        raise ClusterError("the nodes have containers that are not on the cluster's network", "add one: transom node add NAME")
    for thing in objects(sites):
        api.put(thing)
    for said in _progress(api, sites):
        if said:
            tell(said)
        if time.monotonic() > end or any(f": {reason}" in said for reason in _HOPELESS):
            raise ClusterError("the demo does not get ready: " + "; ".join(_states(api).values()),
                               f"see kubectl --namespace {NAMESPACE} describe pods")  # fmt: skip
        time.sleep(_LOOK_AGAIN)
    return pages(api, sites)


def remove(config: ClusterConfig, tell: Tell, *, seconds: float) -> bool:
    """Whether there was one."""
    api = _Api(config)
    if not api.exists():
        return False
    end = time.monotonic() + seconds
    api.delete(_PATHS["Deployment"])
    tell("waiting until the servers have ended")
    while api.get(_PODS)["items"]:
        if time.monotonic() > end:
            raise ClusterError("the demo's servers do not end", f"see kubectl --namespace {NAMESPACE} describe pods")
        time.sleep(_LOOK_AGAIN)
    api.delete(_HOME)  # which takes some seconds, as always, but there is nothing in it any more
    return True


class _Api:
    """What the demo asks of a running cluster."""

    def __init__(self, config: ClusterConfig) -> None:
        self._call = lifecycle.control(config)

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def put(self, thing: Object) -> None:
        """As it is to be, whether it was there before or not."""
        path, name = _PATHS[thing["kind"]], thing["metadata"]["name"]
        try:
            self._call("PATCH", f"{path}/{name}", thing, _MERGE)
        except ClusterError as problem:
            if "not found" not in problem.message:
                raise
            self._call("POST", path, thing)

    def exists(self) -> bool:
        return self._namespace() is not None

    def _namespace(self) -> Object | None:
        try:
            found: Object = self.get(_HOME)
        except ClusterError as problem:
            if "not found" not in problem.message:
                raise
            return None
        return found

    def delete(self, path: str) -> None:
        self._call("DELETE", path)

    def wait_until_gone(self, end: float, tell: Tell) -> None:
        """If it is being removed."""
        told = False
        while (found := self._namespace()) is not None and found["metadata"].get("deletionTimestamp"):
            if not told:
                tell(f"waiting until namespace {NAMESPACE} is gone")
                told = True
            if time.monotonic() > end:
                raise ClusterError(f"namespace {NAMESPACE} is still being removed", "try again in a moment")
            time.sleep(_LOOK_AGAIN)


def pages(api: _Api, sites: Sequence[Site]) -> list[Page]:
    """Of those that have a way in from this machine by now."""
    ways = {way["service"]: way["outside"] for way in api.get("/transom/relays")["items"]}
    found = [(site, ways.get(f"{NAMESPACE}/{site.os}")) for site in sites]
    return [Page(site.os, f"http://{way}{site.page}", site.program) for site, way in found if way]


def _progress(api: _Api, sites: Sequence[Site]) -> Iterator[str]:
    """What is new, or "", until every page can be opened."""
    before: dict[str, str] = {}
    waiting = {site.os: site for site in sites}
    while waiting:
        states = _states(api)
        yield "; ".join(state for pod, state in states.items() if before.get(pod) != state)
        before = states
        if not _rolled_out(api):
            continue
        for page in pages(api, sites):
            site = waiting.get(page.os)
            if site is not None and _opens(page.url, site):
                del waiting[page.os]


def _rolled_out(api: _Api) -> bool:
    """Whether the servers are those that were asked for last."""
    found = [(d["metadata"]["generation"], d["spec"]["replicas"], d["status"]) for d in api.get(_PATHS["Deployment"])["items"]]
    return all(
        status.get("observedGeneration", 0) >= generation
        and status.get("replicas", 0) == status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == wanted
        for generation, wanted, status in found
    )


def _states(api: _Api) -> dict[str, str]:
    """Of the pods, in words."""
    found = api.get(_PODS)["items"]
    return {pod["metadata"]["name"]: _state(pod) for pod in found if not pod["metadata"].get("deletionTimestamp")}


def _state(pod: Object) -> str:
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    if conditions.get("Ready", {}).get("status") == "True":
        return f"{name} is ready"
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{name} cannot be scheduled: {scheduled.get('message', '')}"
    for container in status.get("containerStatuses") or ():
        waiting = container["state"].get("waiting")
        if waiting:
            about = waiting.get("message", "")
            return f"{name}: {waiting['reason']}" + (f" ({about})" if about else "")
        if "running" in container["state"]:
            return f"{name} runs"
    return f"{name} is {status.get('phase', 'Pending').lower()}"


def _opens(url: str, site: Site) -> bool:
    """Whether the page is there with what the other one says."""
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=_PAGE_SECONDS)
    try:
        connection.request("GET", f"/{path}")
        answer = connection.getresponse()
        return answer.status == 200 and site.shows in answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


