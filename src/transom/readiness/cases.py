"""The test cases, in the order of the specification, by category. The cases and their criteria are
those of the Windows Operational Readiness project; the Windows pods of each case run on Windows
nodes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from transom.client.resources import builtin_resource
from transom.readiness.session import (
    AGNHOST,
    PORT,
    TOLERATIONS,
    CaseFailed,
    ReadinessSession,
    node_addresses,
)

Run = Callable[[ReadinessSession], Awaitable[None]]
_PODS: Final = builtin_resource("/Pod")
_SERVICES: Final = builtin_resource("/Service")


class ReadinessCase(NamedTuple):
    category: str
    description: str
    run: Run
    skip: str = ""  # why it is not run
    since: tuple[int, int] = (1, 14)  # the first release of a kubelet that passes it


async def _pod_address(s: ReadinessSession) -> None:
    await s.connect(f"{await s.server()}:{PORT}")
    await s.connect(f"{await s.server('other', os='linux')}:{PORT}", "to-linux")
    address = (await s.client.get(_PODS, s.namespace, "server"))["status"]["podIP"]
    await s.connect(f"{address}:{PORT}", "from-linux", os="linux")


async def _cluster_ip(s: ReadinessSession) -> None:
    await s.server()
    made = await s.service()
    await s.service_works(f"{made['spec']['clusterIP']}:{PORT}", "client")


async def _node_port(s: ReadinessSession) -> None:
    await s.server()
    made = await s.service(type="NodePort")
    nodes = (await s.client.list(builtin_resource("/Node"), "")).items
    others = [node for node in nodes if node["metadata"]["labels"]["kubernetes.io/os"] == "linux"]
    address = node_addresses(others[0])[0]
    await s.service_works(f"{address}:{made['spec']['ports'][0]['nodePort']}", "client")


async def _many_addresses(s: ReadinessSession) -> None:
    spec = {"nodeName": s.node}
    for i in range(10):
        await s.pod(f"pod-{i}", "pause", spec=spec)
    found = {(await s.ready(f"pod-{i}"))["status"]["podIP"] for i in range(10)}
    if len(found) != 10:
        raise CaseFailed(f"10 pods have {len(found)} addresses")
    summary = await s.client.get_json(f"/api/v1/nodes/{s.node}/proxy/stats/summary")
    if len(summary["pods"]) < 10:
        raise CaseFailed(f"the kubelet has statistics of {len(summary['pods'])} pods")


async def _service_again(s: ReadinessSession) -> None:
    await s.server()
    first = await s.service()
    await s.service_works(f"{first['spec']['clusterIP']}:{PORT}", "first")
    await s.client.delete(_SERVICES, s.namespace, "server")
    second = await s.service()
    await s.service_works(f"{second['spec']['clusterIP']}:{PORT}", "second")


async def _stateful_set(s: ReadinessSession) -> None:
    made = await s.service()
    template = {
        "metadata": {"labels": {"app": "server"}},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "tolerations": TOLERATIONS,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "c",
                    "image": AGNHOST,
                    "args": ["netexec", f"--http-port={PORT}"],
                    "ports": [{"containerPort": PORT}],
                }
            ],
        },
    }
    spec = {
        "serviceName": "server",
        "replicas": 1,
        "selector": {"matchLabels": {"app": "server"}},
        "template": template,
    }
    await s.create("apps/StatefulSet", {"metadata": {"name": "server"}, "spec": spec})
    first = await s.until(lambda: _found(s, "server-0"), "no pod server-0")
    await s.ready("server-0")
    await s.client.delete(_PODS, s.namespace, "server-0")

    async def replaced() -> bool:
        pod = await _found(s, "server-0")
        return pod is not None and pod["metadata"]["uid"] != first["metadata"]["uid"]

    await s.until(replaced, "server-0 was not replaced")
    await s.ready("server-0")
    await s.service_works(f"{made['spec']['clusterIP']}:{PORT}", "client")


async def _found(s: ReadinessSession, name: str) -> Any:
    pods = (await s.client.list(_PODS, s.namespace)).items
    return next((pod for pod in pods if pod["metadata"]["name"] == name), None)


async def _cluster_dns(s: ReadinessSession) -> None:
    await s.service_works("kubernetes.default.svc.cluster.local:443", "client")


async def _external_name(s: ReadinessSession) -> None:
    target = "kubernetes.default.svc.cluster.local"
    await s.create(
        "/Service",
        {"metadata": {"name": "outside"}, "spec": {"type": "ExternalName", "externalName": target}},
    )
    await s.service_works(f"outside.{s.namespace}.svc.cluster.local:443", "client")


async def _service_dns(s: ReadinessSession) -> None:
    await s.server(spec={"hostname": "web", "subdomain": "server"})
    await s.service(clusterIP="None")
    domain = f"server.{s.namespace}.svc.cluster.local"
    await s.service_works(f"{domain}:{PORT}", "by-service")
    await s.service_works(f"web.{domain}:{PORT}", "by-host")


async def _slices(s: ReadinessSession) -> None:
    address = await s.server()
    await s.service()
    resource = builtin_resource("discovery.k8s.io/EndpointSlice")

    async def listed() -> bool:
        slices = (await s.client.list(resource, s.namespace)).items
        return any(
            address in endpoint["addresses"]
            for one in slices
            for endpoint in one.get("endpoints") or ()
        )

    await s.until(listed, f"no EndpointSlice has {address}")


def _shell(script: str) -> dict[str, Any]:
    return {"command": ["cmd", "/c", script]}


async def _host_path(s: ReadinessSession) -> None:
    volume = {"name": "v", "hostPath": {"path": f"C:\\readiness\\{s.namespace}"}}
    volume["hostPath"]["type"] = "DirectoryOrCreate"  # type: ignore[index]
    mounts = [{"name": "v", "mountPath": "C:\\data"}]
    spec = {"volumes": [volume], "nodeName": s.node}
    for name, script in (
        ("writer", "echo written> C:\\data\\a.txt"),
        ("reader", "type C:\\data\\a.txt"),
    ):
        await s.pod(name, spec=spec, volumeMounts=mounts, **_shell(script))
        done, text = await s.finished(name)
        if not done or (name == "reader" and "written" not in text):
            raise CaseFailed(f"pod {name} printed {text!r}")


async def _projections(s: ReadinessSession) -> None:
    await s.create("/ConfigMap", {"metadata": {"name": "c"}, "data": {"a.txt": "map"}})
    await s.create("/Secret", {"metadata": {"name": "s"}, "stringData": {"a.txt": "secret"}})
    sources = [{"configMap": {"name": "c"}}]
    volumes = [
        {"name": "c", "configMap": {"name": "c"}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "p", "projected": {"sources": sources}},
    ]
    mounts = [{"name": name, "mountPath": f"C:\\{name}"} for name in "csp"]
    script = "type C:\\c\\a.txt & type C:\\s\\a.txt & type C:\\p\\a.txt"
    await s.pod("reader", spec={"volumes": volumes}, volumeMounts=mounts, **_shell(script))
    done, text = await s.finished("reader")
    if not done or "map" not in text or "secret" not in text:
        raise CaseFailed(f"the volumes contain {text!r}")


async def _shared_files(s: ReadinessSession) -> None:
    mounts = [{"name": "v", "mountPath": "C:\\data"}]
    containers = [
        {
            "name": f"c{i}",
            "image": AGNHOST,
            "volumeMounts": mounts,
            **_shell(
                f"echo {i}> C:\\data\\{i}.txt & ping -n 15 127.0.0.1 > nul & "
                "type C:\\data\\0.txt C:\\data\\1.txt C:\\data\\2.txt"
            ),
        }
        for i in range(3)
    ]
    spec = {"volumes": [{"name": "v", "emptyDir": {}}], "containers": containers}
    await s.pod("shared", spec=spec)

    async def ended() -> str:
        pod = await s.client.get(_PODS, s.namespace, "shared")
        phase = pod["status"].get("phase", "")
        return phase if phase in ("Succeeded", "Failed") else ""

    if await s.until(ended, "the containers have not ended") != "Succeeded":
        raise CaseFailed("a container does not see the files of the others")


async def _memory(s: ReadinessSession) -> None:
    limit = {"limits": {"memory": s.windows["status"]["capacity"]["memory"]}}
    await s.pod("small", "pause", resources={"limits": {"memory": "256Mi"}})
    await s.ready("small")
    await s.pod("large", "pause", resources=limit, spec={"nodeSelector": _hostname(s)})

    async def refused() -> bool:
        pod = await s.client.get(_PODS, s.namespace, "large")
        return any(
            "Insufficient memory" in one.get("message", "")
            for one in pod["status"].get("conditions") or ()
        )

    await s.until(refused, "a pod that needs all memory was not refused")


def _hostname(s: ReadinessSession) -> dict[str, str]:
    return {"kubernetes.io/hostname": s.windows["metadata"]["labels"]["kubernetes.io/hostname"]}


async def _cpu(s: ReadinessSession) -> None:
    await s.pod(
        "busy",
        resources={"limits": {"cpu": "500m"}},
        command=["powershell", "-Command", "while ($true) { }"],
        spec={"nodeSelector": _hostname(s)},
    )
    await s.ready("busy")

    async def measured() -> int:
        summary = await s.client.get_json(f"/api/v1/nodes/{s.node}/proxy/stats/summary")
        pods = [one for one in summary["pods"] if one["podRef"]["namespace"] == s.namespace]
        return int(((pods[0].get("cpu") or {}).get("usageNanoCores") or 0) if pods else 0)

    used = await s.until(measured, "the kubelet reports no CPU usage")
    if used > 600_000_000:
        raise CaseFailed(f"a container with a limit of 500m uses {used / 1e9:.2f} CPUs")


async def _density(s: ReadinessSession) -> None:
    for i in range(10):
        await s.pod(f"pod-{i}", "pause", spec={"nodeSelector": _hostname(s)})
    for i in range(10):
        await s.ready(f"pod-{i}")


def _host_process() -> dict[str, Any]:
    user = "NT AUTHORITY\\SYSTEM"
    return {
        "hostNetwork": True,
        "securityContext": {"windowsOptions": {"hostProcess": True, "runAsUserName": user}},
    }


async def _host_process_address(s: ReadinessSession) -> None:
    spec = {**_host_process(), "nodeSelector": _hostname(s)}
    await s.pod("host", spec=spec, **_shell("hostname"))
    done, text = await s.finished("host")
    pod = await s.client.get(_PODS, s.namespace, "host")
    if not done or pod["status"].get("podIP") not in node_addresses(s.windows):
        raise CaseFailed(f"the pod has the address {pod['status'].get('podIP')}: {text}")


async def _host_process_account(s: ReadinessSession) -> None:
    path = "%CONTAINER_SANDBOX_MOUNT_POINT%\\var\\run\\secrets\\kubernetes.io\\serviceaccount"
    spec = {**_host_process(), "nodeSelector": _hostname(s)}
    await s.pod("host", spec=spec, **_shell(f"type {path}\\token"))
    done, text = await s.finished("host")
    if not done or text.count(".") < 2:
        raise CaseFailed("the token of the service account cannot be read")


async def _policy_allows(s: ReadinessSession) -> None:
    address = await s.server()
    await s.create(
        "networking.k8s.io/NetworkPolicy",
        {
            "metadata": {"name": "allow"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "server"}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}],
            },
        },
    )

    async def closed() -> bool:
        name = f"stranger-{len((await s.client.list(_PODS, s.namespace)).items)}"
        return not await s.connects(f"{address}:{PORT}", name)

    await s.until(closed, "a pod that the policy does not allow reaches the server")
    await s.connect(f"{address}:{PORT}", "friend")


async def _policy_denies_namespaces(s: ReadinessSession) -> None:
    address = await s.server()
    other = f"{s.namespace}-b"
    await s.begin(other)
    try:
        await s.create(
            "networking.k8s.io/NetworkPolicy",
            {
                "metadata": {"name": "same"},
                "spec": {
                    "podSelector": {},
                    "policyTypes": ["Ingress"],
                    "ingress": [{"from": [{"podSelector": {}}]}],
                },
            },
        )

        async def closed() -> bool:
            name = f"stranger-{len((await s.client.list(_PODS, other)).items)}"
            return not await s.connects(f"{address}:{PORT}", name, namespace=other)

        await s.until(closed, "a pod of another namespace reaches the server")
        await s.connect(f"{address}:{PORT}", "neighbour")
    finally:
        await s.end(other)


async def _linux_service(s: ReadinessSession) -> None:
    await s.server(os="linux")
    made = await s.service()
    await s.service_works(f"{made['spec']['clusterIP']}:{PORT}", "client")


async def _linux_node_port(s: ReadinessSession) -> None:
    await s.server(os="linux")
    made = await s.service(type="NodePort")
    pod = await s.client.get(_PODS, s.namespace, "server")
    await s.service_works(f"{pod['status']['hostIP']}:{made['spec']['ports'][0]['nodePort']}", "c")


async def _not_run(s: ReadinessSession) -> None:
    raise CaseFailed("it needs a domain")


_DOMAIN: Final = "it needs an Active Directory domain"
_HOST_PROCESS: Final = (1, 23)  # beta, and on

READINESS_CASES: Final = (
    ReadinessCase("Core.Network", "Windows pods are reached by their address", _pod_address),
    ReadinessCase("Core.Network", "Windows pods are exposed by a ClusterIP Service", _cluster_ip),
    ReadinessCase("Core.Network", "Windows pods are exposed by a NodePort Service", _node_port),
    ReadinessCase("Core.Network", "Pods of one node have distinct addresses", _many_addresses),
    ReadinessCase("Core.Network", "A Service that is deleted and made again works", _service_again),
    ReadinessCase("Core.Network", "Replaced pods of a StatefulSet serve again", _stateful_set),
    ReadinessCase("Core.Network", "Cluster DNS resolves Services for Windows pods", _cluster_dns),
    ReadinessCase("Core.Network", "Cluster DNS resolves ExternalName Services", _external_name),
    ReadinessCase("Core.Network", "Cluster DNS resolves hosts of headless Services", _service_dns),
    ReadinessCase("Core.Network", "EndpointSlices have the addresses of Windows pods", _slices),
    ReadinessCase("Core.Storage", "hostPath volumes are written and read", _host_path),
    ReadinessCase("Core.Storage", "ConfigMaps, Secrets and projections are read", _projections),
    ReadinessCase("Core.Storage", "Three containers share the files of a volume", _shared_files),
    ReadinessCase("Core.Scheduling", "Pods do not exceed the memory of a node", _memory),
    ReadinessCase("Core.Scheduling", "Containers do not exceed their CPU limit", _cpu),
    ReadinessCase("Core.Concurrent", "Ten pods start at the same time", _density),
    ReadinessCase(
        "Extend.HostProcess",
        "They have the address of the node",
        _host_process_address,
        since=_HOST_PROCESS,
    ),
    ReadinessCase(
        "Extend.HostProcess",
        "They read their account's token",
        _host_process_account,
        since=_HOST_PROCESS,
    ),
    ReadinessCase("Extend.ActiveDirectory", "A GMSA account opens shares", _not_run, _DOMAIN),
    ReadinessCase("Extend.ActiveDirectory", "A GMSA account joins its domain", _not_run, _DOMAIN),
    ReadinessCase("Extend.NetworkPolicy", "Policies allow pods by label", _policy_allows),
    ReadinessCase(
        "Extend.NetworkPolicy", "Policies keep namespaces out", _policy_denies_namespaces
    ),
    ReadinessCase("Extend.Network", "Windows pods reach Linux pods by ClusterIP", _linux_service),
    ReadinessCase("Extend.Network", "Windows pods reach Linux pods by NodePort", _linux_node_port),
)
