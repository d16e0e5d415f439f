"""log, exec, attach, portforward and proxy: checks a request for a pod, service or node.

The result names the target; transports open the connection (`apiserver/kubelets`).
"""

from __future__ import annotations

from collections.abc import Callable

from transom.apiserver.core.attributes import AdmissionInterface, admit_subresource
from transom.apiserver.core.call import (
    ApiCall,
    ConnectResult,
    EmptyResult,
    PodCommand,
    PodLogs,
    PodPortForward,
    ProxyTarget,
)
from transom.apiserver.core.context import UserInfo
from transom.apiserver.core.options import Query, first_query_value, query_boolean, query_integer
from transom.apiserver.core.requestinfo import Authorized
from transom.apiserver.core.storage import Storage
from transom.kit.goquote import go_quote
from transom.machinery import errors, gotime, podutil
from transom.machinery.errors import GroupResource
from transom.machinery.integers import parse_int
from transom.machinery.objects import Object
from transom.machinery.validation.options import validate_pod_log_options

# Raises 403 unless the user may also create what a request names.
RequireCreate = Callable[[UserInfo, Authorized], None]


def choose_container(pod: Object, requested: str) -> str:
    spec = pod.get("spec") or {}
    regular = [c["name"] for c in spec.get("containers") or ()]
    every = [c.get("name", "") for c in podutil.visit_containers(spec)]
    name = pod["metadata"]["name"]
    if requested:
        if requested in every:
            return requested
        raise errors.bad_request(f"container {requested} is not valid for pod {name}")
    if len(regular) == 1:
        return regular[0]
    choice = f", choose one of: [{' '.join(every)}]" if regular else ""
    raise errors.bad_request(f"a container name must be specified for pod {name}{choice}")


def _log_options(query: Query) -> Object:
    options: Object = {
        k: query_integer(query, k)
        for k in ("sinceSeconds", "tailLines", "limitBytes")
        if first_query_value(query, k)
    }
    if first_query_value(query, "container"):
        options["container"] = first_query_value(query, "container")
    since = first_query_value(query, "sinceTime")
    if since and since != "null":
        try:
            options["sinceTime"] = gotime.canonical_time(since)
        except gotime.TimeError as problem:
            raise errors.bad_request(str(problem)) from problem
    for name in ("follow", "previous", "timestamps", "insecureSkipTLSVerifyBackend"):
        if query_boolean(query, name):
            options[name] = True
    return options


def _connect_options(call: ApiCall) -> Object:
    """The options of a connection (PodExecOptions and the like), for admission."""
    query = call.query
    out: Object = {"kind": call.res.subresources[call.info.subresource].kind, "apiVersion": "v1"}
    if call.info.subresource == "proxy":
        path = proxied_path(call.info.path, call.info.rest)
        return out | ({"path": path} if path else {})
    if call.info.subresource == "portforward":
        ports = [_port(part) for value in query.get("ports", ()) for part in value.split(",")]
        return out | ({"ports": ports} if ports else {})
    out |= {
        name: True for name in ("stdin", "stdout", "stderr", "tty") if query_boolean(query, name)
    }
    if first_query_value(query, "container"):
        out["container"] = first_query_value(query, "container")
    return out | ({"command": query.get("command")} if call.info.subresource == "exec" else {})


def _port(text: str) -> int:
    digits = text.isascii() and text.isdigit()
    if digits and parse_int(text) < 65536:
        return int(text)
    why = "value out of range" if digits else "invalid syntax"
    raise errors.bad_request(
        f"cannot convert to []int32: strconv.ParseUint: parsing {go_quote(text)}: {why}"
    )


def proxied_path(whole: str, rest: str) -> str:
    """The path after `.../proxy`, with its slashes; may be empty."""
    path = f"/{rest}" if rest and not rest.startswith("/") else rest
    return path + "/" if whole.endswith("/") and not path.endswith("/") else path


class ConnectSubresources:
    """The subresources that connect to a kubelet, a pod or a service."""

    def __init__(
        self, storage: Storage, admission: AdmissionInterface, require_create: RequireCreate
    ) -> None:
        self._storage = storage
        self._admission = admission
        self._require_create = require_create

    def _pod(self, call: ApiCall) -> Object:
        info, storage = call.info, self._storage
        return storage.decode(call.res, storage.get(call.res, info.namespace, info.name))

    def log(self, call: ApiCall) -> ConnectResult | EmptyResult:
        options = _log_options(call.query)
        problems = validate_pod_log_options(options)
        if problems:
            raise errors.invalid(GroupResource("", "PodLogOptions"), call.info.name, problems)
        pod = self._pod(call)
        container = choose_container(pod, options.get("container", ""))
        if not (pod.get("spec") or {}).get("nodeName"):
            return EmptyResult()
        return ConnectResult(PodLogs(pod, container, options))

    async def stream(self, call: ApiCall) -> ConnectResult:
        """exec, attach and portforward."""
        options = await self._admitted(call)
        self._check_create(call)
        pod = self._pod(call)
        forward = call.info.subresource == "portforward"
        container = "" if forward else choose_container(pod, options.get("container", ""))
        if not (pod.get("spec") or {}).get("nodeName"):
            name = pod["metadata"]["name"]
            raise errors.bad_request(f"pod {name} does not have a host assigned")
        if forward:
            return ConnectResult(PodPortForward(pod, options.get("ports") or []))
        return ConnectResult(PodCommand(call.info.subresource, pod, container, options))

    async def proxy(self, call: ApiCall) -> ConnectResult:
        """HTTP to a pod, a service or a node through the API server."""
        options = await self._admitted(call)
        info = call.info
        return ConnectResult(
            ProxyTarget(info.resource, info.namespace, info.name, options.get("path", ""))
        )

    def _check_create(self, call: ApiCall) -> None:
        """A connection needs the permission to create, also with GET, as for WebSockets."""
        gate = "AuthorizePodWebsocketUpgradeCreatePermission"
        if call.info.verb != "create" and self._storage.feature(gate):
            self._require_create(call.ctx.user, call.info)

    async def _admitted(self, call: ApiCall) -> Object:
        """The options of the connection, after admission."""
        if "dryRun" in call.query:
            raise errors.bad_request("dryRun is not supported")
        options = _connect_options(call)
        await admit_subresource(self._admission, call, options, "CONNECT")
        return options
