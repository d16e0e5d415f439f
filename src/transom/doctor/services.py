"""Checks of the connections between pods: Services, cluster DNS, Ingresses."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any, Final

from transom.doctor import repairs
from transom.doctor.findings import DoctorFinding, known_finding
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    event_time,
    is_windows_node,
    key_of_object,
    name_of_object,
    place_of_object,
    time_of,
)

_DNS: Final = ("kube-system", "kube-dns")
_RECENT: Final = 300.0
_SLOW: Final = 60.0
_MOST_BACKENDS: Final = 64
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_OWN_CLASS: Final = "; clusters of transom serve the class transom"
_NO_RESPONSE: Final = "Nothing answers at its address."
_WORKLOADS: Final = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "ReplicationController": "replicationcontrollers",
}


def check_cluster_dns(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    if s.unreachable or {"services", "endpoints"} & s.unread.keys() or not s.nodes:
        return
    where, why = ("service/" + "/".join(_DNS),), "Pods cannot resolve names of services."
    if _DNS not in s.service:
        yield DoctorFinding(
            "error",
            "there is no Service kube-dns in kube-system",
            where,
            why,
            (
                "Install the cluster's DNS server; for a cluster of transom: transom down, then "
                "transom up"
            ),
        )
    elif not s.ready_addresses(_DNS):
        yield DoctorFinding(
            "error",
            "the cluster's DNS has no ready endpoints",
            where,
            why,
            "Start the DNS pods: kubectl get pods --namespace kube-system --selector "
            "k8s-app=kube-dns; for a cluster of "
            "transom: transom down, then transom up",
        )
    elif s.dns.get("problem"):
        yield DoctorFinding(
            "error",
            f"the cluster's DNS does not answer: {s.dns['problem']}",
            where,
            why,
            str(s.dns.get("remedy") or "Start the cluster's DNS server."),
        )


def check_services(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    if {"endpoints", "pods"} & s.unread.keys():
        return
    for where, service in s.service.items():
        spec = service["spec"]
        if where == _DNS or spec.get("type") == "ExternalName":
            continue
        selector = spec.get("selector")
        if not selector:
            # A headless service without selector may be only a domain, with no addresses of its own.
            headless = spec.get("clusterIP") == "None"
            if not headless and not _has_endpoints(s, where) and _old(s, service):
                yield DoctorFinding(
                    "warning",
                    "has no selector and no Endpoints",
                    (place_of_object("service", service),),
                    _NO_RESPONSE,
                    "Give it a selector, or create EndpointSlices or Endpoints for it.",
                )
            continue
        chosen = s.selected(where[0], selector)
        if not s.ready_addresses(where):
            yield from _without_endpoints(s, service, chosen, selector)
        if chosen:
            yield from _ports(s, service, chosen)


def _has_endpoints(s: ClusterSnapshot, service: tuple[str, str]) -> bool:
    """Whether it has ready addresses. Its author may have written EndpointSlices alone."""
    return bool(s.ready_addresses(service)) or any(
        endpoint.get("addresses") and (endpoint.get("conditions") or {}).get("ready") is not False
        for one in s.of("endpointslices")
        if key_of_object(one)[0] == service[0]
        and (one["metadata"].get("labels") or {}).get(_SERVICE_LABEL) == service[1]
        for endpoint in one.get("endpoints") or ()
    )


def _without_endpoints(
    s: ClusterSnapshot, service: Object, chosen: list[Object], selector: Object
) -> Iterator[DoctorFinding]:
    where, text = (
        place_of_object("service", service),
        ",".join(f"{label}={value}" for label, value in selector.items()),
    )
    namespace = key_of_object(service)[0]
    running = [
        pod
        for pod in chosen
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]
    makers = _makers(s, namespace, selector) if not chosen else []
    if makers:
        kind, maker = makers[0]
        called = f"{kind} {key_of_object(maker)[1]}"
        scaled = (maker.get("spec") or {}).get("replicas") == 0
        yield DoctorFinding(
            "info" if scaled else "warning",
            f"{called}, whose pods it selects, " + ("has 0 replicas" if scaled else "has no pods"),
            (where,),
            _NO_RESPONSE,
            f"kubectl scale {kind.lower()} {key_of_object(maker)[1]} --namespace {namespace} --replicas 1"
            if scaled
            else f"Find out why {called} has no pods: "
            f"kubectl describe {kind.lower()} {key_of_object(maker)[1]} --namespace {namespace}",
        )
    elif not chosen:
        near = _near(s, namespace, selector)
        yield DoctorFinding(
            "warning",
            f"no pod has the labels that it selects ({text}){near}",
            (where,),
            _NO_RESPONSE,
            "Correct its selector, or the labels of the pods.",
            commands=_corrected_selector(s, service, selector),
        )
    elif not running:
        yield DoctorFinding(
            "warning",
            f"all of its {len(chosen)} pods have ended",
            (where,),
            _NO_RESPONSE,
            "Start its pods again.",
        )
    elif not _old(s, service) and not any(_ready(pod) for pod in chosen):
        return
    elif not any(_ready(pod) for pod in chosen):
        yield DoctorFinding(
            "warning",
            f"none of its {len(chosen)} pods is ready",
            (where,),
            _NO_RESPONSE,
            f"See the pods: kubectl get pods --namespace {namespace} --selector {text}",
        )


def _makers(s: ClusterSnapshot, namespace: str, selector: Object) -> list[tuple[str, Object]]:
    """Workloads whose pods would have these labels."""
    found = []
    for kind, plural in _WORKLOADS.items():
        for one in s.of(plural):
            template = (one.get("spec") or {}).get("template") or {}
            labels = (template.get("metadata") or {}).get("labels") or {}
            if key_of_object(one)[0] == namespace and selector.items() <= labels.items():
                found.append((kind, one))
    return found


def _near(s: ClusterSnapshot, namespace: str, selector: Object) -> str:
    """Labels with the same keys that pods have, to help spot a typo."""
    for label, value in selector.items():
        values = sorted(
            {
                str((pod["metadata"].get("labels") or {})[label])
                for pod in s.pods_in(namespace)
                if label in (pod["metadata"].get("labels") or {})
            }
        )
        if values and value not in values:
            return f"; pods have {label}={', '.join(values[:5])}"
    elsewhere = sorted(
        {key_of_object(pod)[0] for pod in s.pods if _has_labels(pod, selector)} - {namespace}
    )
    if elsewhere:
        return f"; pods with them are in namespace {', '.join(elsewhere[:3])}"
    for label, value in selector.items():
        other = next(
            (
                key
                for pod in s.pods_in(namespace)
                for key, has in (pod["metadata"].get("labels") or {}).items()
                if has == value and key != label
            ),
            "",
        )
        if other:
            return f"; pods have {other}={value}"
    return ""


def _corrected_selector(s: ClusterSnapshot, service: Object, selector: Object) -> tuple[str, ...]:
    """Selects the pods of the namespace that differ in one label, if they all have the same value,
    which looks like a spelling of the one in the selector.
    """
    namespace, called = key_of_object(service)
    for label, wanted in selector.items():
        rest = {key: value for key, value in selector.items() if key != label}
        values = {
            str((pod["metadata"].get("labels") or {}).get(label, ""))
            for pod in s.pods_in(namespace)
            if label in (pod["metadata"].get("labels") or {}) and _has_labels(pod, rest)
        }
        if len(values) == 1 and get_close_matches(wanted, values, 1):
            corrected = ",".join(f"{k}={v}" for k, v in {**rest, label: values.pop()}.items())
            return (f"kubectl set selector service {called} {corrected} --namespace {namespace}",)
    return ()


def _has_labels(pod: Object, selector: Object) -> bool:
    return bool(selector.items() <= (pod["metadata"].get("labels") or {}).items())


def _ports(s: ClusterSnapshot, service: Object, chosen: list[Object]) -> Iterator[DoctorFinding]:
    """Service ports that no pod provides: a name that no container has, a port of another protocol,
    or a number on which nothing listens.
    """
    declared = {
        (str(p.get("name", "")), p.get("containerPort"), p.get("protocol", "TCP"))
        for pod in chosen
        for c in (pod.get("spec") or {}).get("containers") or ()
        for p in c.get("ports") or ()
    }
    headless = service["spec"].get("clusterIP") == "None"
    for port in service["spec"].get("ports") or ():
        target, protocol = port.get("targetPort", port.get("port")), port.get("protocol", "TCP")
        named = isinstance(target, str) and not target.isdigit()
        others = sorted({of for name, number, of in declared if target in (name, number)})
        if others and protocol not in others:
            yield _other_protocol(service, port, others[0])
        elif named and not others:
            yield DoctorFinding(
                "error",
                (
                    f"no pod has a port named {target}, which is the targetPort of its port "
                    f"{port.get('port')}"
                ),
                (place_of_object("service", service),),
                _NO_RESPONSE,
                "Correct targetPort, or name the container's port.",
                commands=_declared_target(service, port, declared),
            )
        elif not named and not headless:
            yield from _numbered_port(s, service, port, int(target), chosen, declared)


def _declared_target(
    service: Object,
    port: Object,
    declared: set[tuple[str, Any, str]],
    closed: Collection[int] = (),
) -> tuple[str, ...]:
    """Sends to the only port that the pods declare for the protocol, unless nothing listens there."""
    protocol = port.get("protocol", "TCP")
    numbers = {number for _, number, of in declared if of == protocol and number} - set(closed)
    if len(numbers) != 1:
        return ()
    at = list(service["spec"]["ports"]).index(port)
    patch = [{"op": "add", "path": f"/spec/ports/{at}/targetPort", "value": numbers.pop()}]
    return (repairs.patch_command("service", service, patch, "json"),)


def _other_protocol(service: Object, port: Object, actual: str) -> DoctorFinding:
    target, protocol = port.get("targetPort", port.get("port")), port.get("protocol", "TCP")
    return DoctorFinding(
        "error",
        f"its port {port.get('port')} is {protocol}, but port {target} of its pods is {actual}",
        (place_of_object("service", service),),
        _NO_RESPONSE,
        f"Set protocol: {actual} in the Service's port {port.get('port')}, or correct the protocol of "
        "the container's port.",
    )


def _numbered_port(
    s: ClusterSnapshot,
    service: Object,
    port: Object,
    target: int,
    chosen: list[Object],
    declared: set[tuple[str, Any, str]],
) -> Iterator[DoctorFinding]:
    where, protocol = place_of_object("service", service), port.get("protocol", "TCP")
    ready = [pod for pod in chosen if _ready(pod)]
    if protocol != "TCP" or not s.inside:
        numbers = {number for _, number, of in declared if of == protocol}
        tcp_only = [pod for pod in ready if target in _tcp_only_ports(s, pod)]
        if protocol == "UDP" and tcp_only and len(tcp_only) == len(ready):
            yield _other_protocol(service, port, "TCP")
        elif numbers and target not in numbers and all(_declares(pod) for pod in chosen):
            listed = ", ".join(map(str, sorted(filter(None, numbers))))
            yield DoctorFinding(
                "warning",
                f"sends to port {target} of its pods, which declare only {listed}",
                (where,),
                "Connections may be refused.",
                f"Correct targetPort: {listed}",
            )
        return
    silent = [pod for pod in ready if target in _closed_ports(s, pod)]
    if silent and len(silent) == len(ready):
        yield DoctorFinding(
            "error",
            f"sends to port {target} of its pods, where nothing listens",
            (where,),
            "Connections are refused.",
            "Correct targetPort, or let the container listen on this port.",
            commands=_declared_target(
                service, port, declared, {one for pod in silent for one in _closed_ports(s, pod)}
            ),
        )


def _closed_ports(s: ClusterSnapshot, pod: Object) -> tuple[int, ...]:
    node = s.inside.get(str((pod.get("spec") or {}).get("nodeName", "")))
    return tuple(node.unheard.get("/".join(key_of_object(pod)), ())) if node is not None else ()


def _tcp_only_ports(s: ClusterSnapshot, pod: Object) -> tuple[int, ...]:
    node = s.inside.get(str((pod.get("spec") or {}).get("nodeName", "")))
    return tuple(node.tcp_only.get("/".join(key_of_object(pod)), ())) if node is not None else ()


def _declares(pod: Object) -> bool:
    return any(c.get("ports") for c in (pod.get("spec") or {}).get("containers") or ())


def check_load_balancers(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for service in s.of("services"):
        balancer = (service.get("status") or {}).get("loadBalancer") or {}
        if (
            service["spec"].get("type") != "LoadBalancer"
            or balancer.get("ingress")
            or not _old(s, service)
        ):
            continue
        if any(
            s.now - event_time(e) < _RECENT
            for e in s.warnings_of("Service", service, "SyncLoadBalancerFailed")
        ):
            continue  # reported with its event
        yield DoctorFinding(
            "warning",
            "has no external address: no controller has assigned one",
            (place_of_object("service", service),),
            "It cannot be reached from outside.",
            "Install a load balancer controller, or use type NodePort.",
        )


def check_backends(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """HNS rejects a load balancer with more destinations. OVN has its own load balancers."""
    windows = [name_of_object(node) for node in s.nodes if is_windows_node(node)]
    if all(node in s.inside and s.inside[node].plugin == "ovn" for node in windows):
        return
    for where, service in s.service.items():
        count = len(s.ready_addresses(where))
        if count > _MOST_BACKENDS and service["spec"].get("clusterIP") != "None":
            yield known_finding(
                "WIN-SVC-001",
                f"has {count} endpoints: Windows nodes have no load balancer for it",
                place_of_object("service", service),
            )


def check_ingresses(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    classes = {name_of_object(one): one for one in s.of("ingressclasses")}
    default = any(
        (one["metadata"].get("annotations") or {}).get(
            "ingressclass.kubernetes.io/is-default-class"
        )
        == "true"
        for one in classes.values()
    )
    for ingress in s.of("ingresses"):
        where, spec = (place_of_object("ingress", ingress),), ingress.get("spec") or {}
        annotation = (ingress["metadata"].get("annotations") or {}).get(
            "kubernetes.io/ingress.class", ""
        )
        wanted = spec.get("ingressClassName") or ""
        served = ((ingress.get("status") or {}).get("loadBalancer") or {}).get("ingress")
        if wanted and wanted not in classes and "ingressclasses" not in s.unread:
            yield DoctorFinding(
                "error",
                f"its IngressClass {wanted} does not exist",
                where,
                "No controller serves it.",
                "Install the ingress controller with this class, or correct spec.ingressClassName"
                f"{_OWN_CLASS}.",
                commands=_set_class(ingress, [*classes]),
            )
        elif not served and _old(s, ingress):
            named = wanted or annotation
            cause = (
                f"no ingress controller serves its class {named}"
                if named
                else (
                    "no ingress controller serves it"
                    if default
                    else "it names no class, and no IngressClass is the default"
                )
            )
            yield DoctorFinding(
                "warning",
                cause,
                where,
                "Nothing answers at its hosts.",
                "Install an ingress controller"
                + ("" if named or default else ", and set spec.ingressClassName")
                + f"{_OWN_CLASS}.",
                commands=() if named else _set_class(ingress, [*classes]),
            )
        for entry in spec.get("tls") or ():
            yield from _tls_secret(s, ingress, str(entry.get("secretName") or ""))
        for path, backend in _backends(spec):
            problem = _backend_problem(s, key_of_object(ingress)[0], backend)
            if problem:
                yield DoctorFinding(
                    "error",
                    f"a backend is wrong: {problem}",
                    where,
                    "Its requests are answered with an error.",
                    "Create the Service, or correct the backend.",
                    commands=_corrected_backend(s, ingress, path, backend),
                )


def _tls_secret(s: ClusterSnapshot, ingress: Object, called: str) -> Iterator[DoctorFinding]:
    namespace = key_of_object(ingress)[0]
    kind = s.secrets.get((namespace, called))
    if not called or kind in (None, "kubernetes.io/tls"):
        return
    yield DoctorFinding(
        "warning",
        f"its TLS Secret {called} "
        + (f"is of type {kind}, not kubernetes.io/tls" if kind else "does not exist"),
        (place_of_object("ingress", ingress),),
        "Its hosts are served without its certificate, or not at all.",
        f"Create it: kubectl create secret tls {called} --namespace {namespace} --cert=FILE "
        "--key=FILE; or correct spec.tls.",
    )


def _set_class(ingress: Object, classes: list[str]) -> tuple[str, ...]:
    """Names the only IngressClass that there is."""
    if len(classes) != 1:
        return ()
    return (repairs.patch_command("ingress", ingress, {"spec": {"ingressClassName": classes[0]}}),)


def _corrected_backend(
    s: ClusterSnapshot, ingress: Object, path: str, backend: Object
) -> tuple[str, ...]:
    """Sends to the only port that the Service has."""
    target = backend.get("service") or {}
    service = s.service.get((key_of_object(ingress)[0], str(target.get("name", ""))))
    ports = list(service["spec"].get("ports") or ()) if service is not None else []
    if len(ports) != 1:
        return ()
    new = {"number": ports[0]["port"]}
    patch = [{"op": "replace", "path": f"{path}/service/port", "value": new}]
    return (repairs.patch_command("ingress", ingress, patch, "json"),)


def _backends(spec: Object) -> Iterator[tuple[str, Object]]:
    """JSON pointer and backend."""
    for field in ("defaultBackend", "backend"):
        if spec.get(field):
            yield f"/spec/{field}", spec[field]
    for at, rule in enumerate(spec.get("rules") or ()):
        for number, path in enumerate((rule.get("http") or {}).get("paths") or ()):
            if path.get("backend"):
                yield f"/spec/rules/{at}/http/paths/{number}/backend", path["backend"]


def _backend_problem(s: ClusterSnapshot, namespace: str, backend: Object) -> str:
    target: Any = backend.get("service") or {}
    called = target.get("name") or backend.get("serviceName")
    port = (
        (target.get("port") or {}).get("number")
        or (target.get("port") or {}).get("name")
        or backend.get("servicePort")
    )
    if not called or "services" in s.unread:
        return ""
    service = s.service.get((namespace, str(called)))
    if service is None:
        return f"there is no Service {called} in namespace {namespace}"
    ports = service["spec"].get("ports") or ()
    if (
        port
        and port not in [p.get("port") for p in ports]
        and port not in [p.get("name") for p in ports]
    ):
        return f"Service {called} has no port {port}"
    return ""


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _old(s: ClusterSnapshot, obj: Object) -> bool:
    return s.now - time_of(obj["metadata"].get("creationTimestamp", "")) > _SLOW


def local_cluster_addresses(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Services with internalTrafficPolicy Local: nodes without a ready pod drop traffic to the
    cluster address. Only pods on these nodes notice.
    """
    if {"endpoints", "pods"} & s.unread.keys():
        return
    for where, service in s.service.items():
        if service["spec"].get("internalTrafficPolicy") != "Local":
            continue
        addresses = s.ready_addresses(where)
        having = {address.get("nodeName") for address in addresses}
        clients = {str((pod.get("spec") or {}).get("nodeName") or "") for pod in s.pods}
        without = sorted(clients - having - {""})
        if addresses and without:
            listed = ", ".join(without[:3]) + (" ..." if len(without) > 3 else "")
            yield DoctorFinding(
                "info",
                f"it does not answer pods on {listed}, which have none of its ready pods",
                (place_of_object("service", service),),
                "internalTrafficPolicy is Local: a node sends to its own pods only.",
                "Run its pods on all nodes with clients, or set internalTrafficPolicy to Cluster.",
            )


def local_node_ports(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Services of type NodePort with externalTrafficPolicy Local: nodes without a ready pod drop
    traffic to the port. A load balancer excludes such nodes with its health check.
    """
    if {"endpoints", "pods"} & s.unread.keys():
        return
    for where, service in s.service.items():
        spec = service["spec"]
        if spec.get("type") != "NodePort" or spec.get("externalTrafficPolicy") != "Local":
            continue
        addresses = s.ready_addresses(where)
        having = {address.get("nodeName") for address in addresses}
        without = [name_of_object(node) for node in s.nodes if name_of_object(node) not in having]
        if addresses and without:
            listed = ", ".join(without[:3]) + (" ..." if len(without) > 3 else "")
            yield DoctorFinding(
                "info",
                f"its node ports do not answer on {listed}, which have none of its ready pods",
                (place_of_object("service", service),),
                "externalTrafficPolicy is Local: a node sends to its own pods only.",
                "Use the address of a node with a ready pod, run its pods on all nodes, or set "
                "externalTrafficPolicy to Cluster.",
            )
