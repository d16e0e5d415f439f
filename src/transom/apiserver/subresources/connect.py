"""Log, exec, attach, port-forward and proxy: where a request for a pod, service or node has to go.

What can be refused is refused here, with Kubernetes' texts; the way there is for `kubelets`.
"""

from __future__ import annotations

from transom.apiserver.kubelets.addresses import proxied_path
from transom.apiserver.options import Query, boolean, first, integer
from transom.apiserver.subresources.call import Call
from transom.http.messages import Answer, Response
from transom.machinery import errors, gotime, podutil
from transom.machinery.errors import GroupResource
from transom.machinery.field import go_quote
from transom.machinery.objects import Object
from transom.machinery.validation.options import validate_pod_log_options


def _pod(call: Call) -> Object:
    storage = call.server.storage
    return storage.decode(call.res, storage.get(call.res, call.info.namespace, call.info.name))


def choose_container(pod: Object, asked: str) -> str:
    spec = pod.get("spec") or {}
    regular = [c["name"] for c in spec.get("containers") or ()]
    every = [c.get("name", "") for c in podutil.containers(spec)]
    name = pod["metadata"]["name"]
    if asked:
        if asked in every:
            return asked
        raise errors.bad_request(f"container {asked} is not valid for pod {name}")
    if len(regular) == 1:
        return regular[0]
    choice = f", choose one of: [{' '.join(every)}]" if regular else ""
    raise errors.bad_request(f"a container name must be specified for pod {name}{choice}")


async def log(call: Call) -> Answer:
    options = _log_options(call.request.query)
    problems = validate_pod_log_options(options)
    if problems:
        raise errors.invalid(GroupResource("", "PodLogOptions"), call.info.name, problems)
    pod = _pod(call)
    container = choose_container(pod, options.get("container", ""))
    if not (pod.get("spec") or {}).get("nodeName"):
        return Response(204, [])
    return await call.server.kubelets.log(call.request, pod, container, options)


def _log_options(query: Query) -> Object:
    options: Object = {k: integer(query, k) for k in ("sinceSeconds", "tailLines", "limitBytes") if first(query, k)}
    if first(query, "container"):
        options["container"] = first(query, "container")
    since = first(query, "sinceTime")
    if since and since != "null":
        try:
            options["sinceTime"] = gotime.canonical(since)
        except gotime.TimeError as problem:
            raise errors.bad_request(str(problem)) from problem
    for name in ("follow", "previous", "timestamps", "insecureSkipTLSVerifyBackend"):
        if boolean(query, name):
            options[name] = True
    return options


def _options(call: Call) -> Object:
    """What a connection is asked for by its query, as an object: admission judges that."""
    query = call.request.query
    out: Object = {"kind": call.res.subresources[call.info.subresource].kind, "apiVersion": "v1"}
    if call.info.subresource == "proxy":
        path = proxied_path(call.request.path, call.info.rest)
        return out | ({"path": path} if path else {})
    if call.info.subresource == "portforward":
        ports = [_port(part) for value in query.get("ports", ()) for part in value.split(",")]
        return out | ({"ports": ports} if ports else {})
    out |= {name: True for name in ("stdin", "stdout", "stderr", "tty") if boolean(query, name)}
    if first(query, "container"):
        out["container"] = first(query, "container")
    return out | ({"command": query.get("command")} if call.info.subresource == "exec" else {})


def _port(text: str) -> int:
    digits = text.isascii() and text.isdigit()
    if digits and int(text) < 65536:
        return int(text)
    why = "value out of range" if digits else "invalid syntax"
    raise errors.bad_request(f"cannot convert to []int32: strconv.ParseUint: parsing {go_quote(text)}: {why}")


async def stream(call: Call) -> Answer:
    """exec, attach and portforward."""
    options = await _connect(call)
    pod = _pod(call)
    forward = call.info.subresource == "portforward"
    container = "" if forward else choose_container(pod, options.get("container", ""))
    if not (pod.get("spec") or {}).get("nodeName"):
        raise errors.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    kubelets = call.server.kubelets
    if forward:
        return await kubelets.port_forward(call.request, pod, options.get("ports") or [])
    return await kubelets.command(call.request, call.info.subresource, pod, container, options)


async def proxy(call: Call) -> Answer:
    """HTTP to a pod, a service or a node through the API server."""
    options = await _connect(call)
    info = call.info
    return await call.server.kubelets.proxy(
        call.request, info.resource, info.namespace, info.name, options.get("path", "")
    )


async def _connect(call: Call) -> Object:
    """What is asked for, once admission has agreed."""
    if "dryRun" in call.request.query:
        raise errors.bad_request("dryRun is not supported")
    options = _options(call)
    await call.server.admission.connect(call, options, "CONNECT")
    return options
