"""Log, exec, attach, port-forward and proxy: where a request for a pod, service or node has to go.

What can be refused is refused here, with Kubernetes' texts; the way to the kubelet itself is a dialler handed in.
"""

from __future__ import annotations

from transom.apiserver.options import boolean, first, integer
from transom.apiserver.subresources.call import Call
from transom.http.messages import Answer, Response
from transom.machinery import errors, podutil
from transom.machinery.errors import ApiError, GroupResource
from transom.machinery.objects import Object
from transom.machinery.validation.options import validate_pod_log_options


def _pod(call: Call) -> Object:
    storage = call.server.storage
    return storage.decode(call.res, storage.get(call.res, call.info.namespace, call.info.name))


def choose_container(pod: Object, asked: str) -> str:
    spec = pod.get("spec") or {}
    regular = [c["name"] for c in spec.get("containers") or ()]
    init = [c["name"] for c in spec.get("initContainers") or ()]
    name = pod["metadata"]["name"]
    if asked:
        if any(c.get("name") == asked for c in podutil.containers(spec)):
            return asked
        raise errors.bad_request(f"container {asked} is not valid for pod {name}")
    if len(regular) == 1:
        return regular[0]
    if not regular:
        raise errors.bad_request(f"a container name must be specified for pod {name}")
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(regular)}]"
    if init:
        text += f" or one of the init containers: [{' '.join(init)}]"
    raise errors.bad_request(text)


def _node(call: Call, name: str) -> Object:
    nodes = call.server.resource("", "v1", "nodes")
    node = call.server.storage.find(nodes, "", name)
    if node is None:
        raise errors.not_found(GroupResource("", "nodes"), name)
    return node


def log(call: Call) -> Answer:
    query = call.request.query
    options: Object = {k: integer(query, k) for k in ("sinceSeconds", "tailLines", "limitBytes") if first(query, k)}
    for name in ("container", "sinceTime"):
        if first(query, name):
            options[name] = first(query, name)
    for name in ("follow", "previous", "timestamps"):
        if boolean(query, name):
            options[name] = True
    problems = validate_pod_log_options(options)
    if problems:
        raise errors.invalid(GroupResource("", "PodLogOptions"), call.info.name, problems)
    pod = _pod(call)
    container = choose_container(pod, options.get("container", ""))
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        return Response(204, [])
    return call.server.kubelet.log(call, _node(call, node), pod, container)


def _options(call: Call) -> Object:
    """What a connection is asked for by its query, as an object: admission judges that."""
    query = call.request.query
    out: Object = {"kind": call.res.subresources[call.info.subresource].kind, "apiVersion": "v1"}
    if call.info.subresource == "proxy":
        return out | {"path": "/" + call.info.rest}
    if call.info.subresource == "portforward":
        ports = [int(p) for p in query.get("ports", ()) if p.isdigit()]
        return out | ({"ports": ports} if ports else {})
    out |= {name: True for name in ("stdin", "stdout", "stderr", "tty") if boolean(query, name)}
    if first(query, "container"):
        out["container"] = first(query, "container")
    return out | ({"command": query.get("command")} if call.info.subresource == "exec" else {})


async def stream(call: Call) -> Answer:
    """exec, attach and portforward."""
    await call.server.admission.connect(call, _options(call), "CONNECT")
    pod = _pod(call)
    container = ""
    if call.info.subresource != "portforward":
        container = choose_container(pod, first(call.request.query, "container"))
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        raise errors.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")
    return call.server.kubelet.stream(call, _node(call, node), pod, container)


async def proxy(call: Call) -> Answer:
    """HTTP to a pod, a service or a node through the API server."""
    await call.server.admission.connect(call, _options(call), "CONNECT")
    return call.server.kubelet.proxy(call)


class NoKubelet:
    """A control plane alone: there is nobody to ask."""

    def _refuse(self, node: Object) -> Answer:
        addresses = [a.get("address", "") for a in (node.get("status") or {}).get("addresses") or ()]
        raise ApiError(500, "InternalError", f"no preferred addresses found; known addresses: [{' '.join(addresses)}]", {})

    def log(self, _call: Call, node: Object, _pod: Object, _container: str) -> Answer:
        return self._refuse(node)

    def stream(self, _call: Call, node: Object, _pod: Object, _container: str) -> Answer:
        return self._refuse(node)

    def proxy(self, call: Call) -> Answer:
        raise errors.service_unavailable(f'no endpoints available for {call.info.resource} "{call.info.name}"')
