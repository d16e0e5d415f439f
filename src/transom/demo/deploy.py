"""The demo: a Linux and a Windows web server behind Services. Each page includes the other server's
response.

The nodes determine which workloads to deploy. Objects are created through the API like those of any
client; the relays report which addresses to open. The demo is ready when a browser on this machine
can open the pages.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from transom.demo.sites import NAMESPACE, DemoSite, choose_sites, site_objects
from transom.kit.user_errors import UserError
from transom.node.settings import name_option

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

ReportProgress = Callable[[str], None]
Call = Callable[..., Any]
"""Calls the cluster as its admin. Takes method, path, body and media type; returns the decoded
response.
"""
Object = dict[str, Any]


class DemoPage(NamedTuple):
    os: str
    url: str
    program: str


def deploy_demo(
    cluster: str, call: Call, report_progress: ReportProgress, *, fetch: bool, seconds: float
) -> list[DemoPage]:
    """Returns when the pages can be opened. Raises UserError. `fetch`: allow downloads from the
    network.
    """
    api = _Api(call)
    nodes = [node for node in api.get("/transom/nodes")["items"] if node["ready"]]
    if not nodes:
        hint = f"see transom node list{name_option(cluster)}"
        raise UserError(f"cluster {cluster!r} has no node that is ready", hint)
    end = time.monotonic() + seconds
    api.wait_until_gone(end, report_progress)
    sites = choose_sites(nodes, report_progress, fetch=fetch)
    if not sites:
        raise UserError(
            "the nodes have containers that are not on the cluster's network",
            "add one: transom node add NAME",
        )
    for thing in site_objects(sites):
        api.put(thing)
    for state in _progress(api, sites):
        if state:
            report_progress(state)
        if time.monotonic() > end or any(f": {reason}" in state for reason in _HOPELESS):
            raise UserError(
                "the demo does not get ready: " + "; ".join(_states(api).values()),
                f"see kubectl --namespace {NAMESPACE} describe pods",
            )
        time.sleep(_LOOK_AGAIN)
    return demo_pages(api, sites)


def remove_demo(call: Call, report_progress: ReportProgress, *, seconds: float) -> bool:
    """Returns whether a demo existed."""
    api = _Api(call)
    if not api.exists():
        return False
    end = time.monotonic() + seconds
    api.delete(_PATHS["Deployment"])
    report_progress("waiting until the servers have ended")
    while api.get(_PODS)["items"]:
        if time.monotonic() > end:
            raise UserError(
                "the demo's servers do not end",
                f"see kubectl --namespace {NAMESPACE} describe pods",
            )
        time.sleep(_LOOK_AGAIN)
    api.delete(_HOME)  # this takes some seconds as usual, but the namespace is already empty
    return True


class _Api:
    """What the demo needs from a running cluster."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def put(self, thing: Object) -> None:
        """Creates or replaces the object."""
        path, name = _PATHS[thing["kind"]], thing["metadata"]["name"]
        try:
            self._call("PATCH", f"{path}/{name}", thing, _MERGE)
        except UserError as problem:
            if "not found" not in problem.message:
                raise
            self._call("POST", path, thing)

    def exists(self) -> bool:
        return self._namespace() is not None

    def _namespace(self) -> Object | None:
        try:
            found: Object = self.get(_HOME)
        except UserError as problem:
            if "not found" not in problem.message:
                raise
            return None
        return found

    def delete(self, path: str) -> None:
        self._call("DELETE", path)

    def wait_until_gone(self, end: float, report_progress: ReportProgress) -> None:
        """Waits if the namespace is being deleted."""
        reported = False
        while (found := self._namespace()) is not None and found["metadata"].get(
            "deletionTimestamp"
        ):
            if not reported:
                report_progress(f"waiting until namespace {NAMESPACE} is gone")
                reported = True
            if time.monotonic() > end:
                raise UserError(
                    f"namespace {NAMESPACE} is still being removed", "try again in a moment"
                )
            time.sleep(_LOOK_AGAIN)


def demo_pages(api: _Api, sites: Sequence[DemoSite]) -> list[DemoPage]:
    """The sites that are reachable from this machine by now."""
    ways = {way["service"]: way["outside"] for way in api.get("/transom/relays")["items"]}
    found = [(site, ways.get(f"{NAMESPACE}/{site.os}")) for site in sites]
    return [
        DemoPage(site.os, f"http://{way}{site.page}", site.program) for site, way in found if way
    ]


def _progress(api: _Api, sites: Sequence[DemoSite]) -> Iterator[str]:
    """The progress since the last call, or "", until every page can be opened."""
    before: dict[str, str] = {}
    waiting = {site.os: site for site in sites}
    while waiting:
        states = _states(api)
        yield "; ".join(state for pod, state in states.items() if before.get(pod) != state)
        before = states
        if not _rolled_out(api):
            continue
        for page in demo_pages(api, sites):
            site = waiting.get(page.os)
            if site is not None and _opens(page.url, site):
                del waiting[page.os]


def _rolled_out(api: _Api) -> bool:
    """Whether the running servers are those of the latest rollout."""
    found = [
        (d["metadata"]["generation"], d["spec"]["replicas"], d["status"])
        for d in api.get(_PATHS["Deployment"])["items"]
    ]
    return all(
        status.get("observedGeneration", 0) >= generation
        and status.get("replicas", 0)
        == status.get("updatedReplicas", 0)
        == status.get("availableReplicas", 0)
        == wanted
        for generation, wanted, status in found
    )


def _states(api: _Api) -> dict[str, str]:
    """A summary of the pods' state."""
    found = api.get(_PODS)["items"]
    return {
        pod["metadata"]["name"]: _state(pod)
        for pod in found
        if not pod["metadata"].get("deletionTimestamp")
    }


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


def _opens(url: str, site: DemoSite) -> bool:
    """Whether the page loads and includes the other server's response."""
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
