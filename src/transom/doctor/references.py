"""Checks of objects that name other objects which do not exist, or cannot be used: roles and
ServiceAccounts of bindings, pull secrets, names of ExternalName services, Endpoints that a user
wrote.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterator
from typing import Final

from transom.doctor.findings import DoctorFinding
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    key_of_object,
    name_of_object,
    place_of_object,
)
from transom.kit.ip_addresses import is_ip_address
from transom.machinery.podutil import current_pod_ips

_DOMAIN: Final = "svc.cluster.local"
_PULL_TYPES: Final = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
_BOOTSTRAPPING: Final = "kubernetes.io/bootstrapping"


# ---- role bindings ----


def check_role_bindings(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for plural in ("rolebindings", "clusterrolebindings"):
        for binding in s.of(plural):
            yield from _missing_role(s, plural.removesuffix("s"), binding)
            # The control plane's own bindings also name ServiceAccounts of components that a cluster
            # may not have.
            own = _BOOTSTRAPPING in (binding["metadata"].get("labels") or {})
            if not own and not name_of_object(binding).startswith("system:"):
                yield from _missing_accounts(s, plural.removesuffix("s"), binding)


def _missing_role(s: ClusterSnapshot, kind: str, binding: Object) -> Iterator[DoctorFinding]:
    ref, namespace = binding.get("roleRef") or {}, key_of_object(binding)[0]
    called, role = str(ref.get("name", "")), str(ref.get("kind", ""))
    if role == "Role":
        plural, wanted, scope = "roles", (namespace, called), f" --namespace {namespace}"
    else:
        plural, wanted, scope = "clusterroles", ("", called), ""
    if plural in s.unread or any(key_of_object(one) == wanted for one in s.of(plural)):
        return
    yield DoctorFinding(
        "warning",
        f"its {role} {called} does not exist",
        (place_of_object(kind, binding),),
        "It grants nothing: requests of its subjects are forbidden.",
        "Create the role, with the verbs and resources that its subjects need; or delete the binding and "
        "create it with another roleRef, which cannot be changed.",
        commands=(
            f"kubectl create {role.lower()} {shlex.quote(called)}{scope} --verb=get,list,watch --resource=pods",
        ),
    )


def _missing_accounts(s: ClusterSnapshot, kind: str, binding: Object) -> Iterator[DoctorFinding]:
    if "serviceaccounts" in s.unread:
        return
    accounts = {key_of_object(one) for one in s.of("serviceaccounts")}
    for subject in binding.get("subjects") or ():
        if subject.get("kind") != "ServiceAccount":
            continue
        namespace = str(subject.get("namespace") or key_of_object(binding)[0])
        called = str(subject.get("name", ""))
        if (namespace, called) in accounts:
            continue
        others = sorted(found for found, name in accounts if name == called and called != "default")
        yield DoctorFinding(
            "info",
            f"its ServiceAccount {called} does not exist in namespace {namespace}"
            + (f"; namespace {others[0]} has one" if others else ""),
            (place_of_object(kind, binding),),
            "It grants this subject nothing.",
            "Create it, or correct the subject.",
            commands=(
                f"kubectl create serviceaccount {shlex.quote(called)} --namespace {shlex.quote(namespace)}",
            ),
        )


# ---- pull secrets ----


def pull_secret_problems(s: ClusterSnapshot, pod: Object) -> list[str]:
    """The pod's pull secrets that cannot be used, and why."""
    namespace, found = key_of_object(pod)[0], []
    for named in (pod.get("spec") or {}).get("imagePullSecrets") or ():
        called = str(named.get("name") or "")
        kind = s.secrets.get((namespace, called))
        if kind == "":
            found.append(f"the imagePullSecret {called} does not exist")
        elif kind is not None and kind not in _PULL_TYPES:
            found.append(f"the imagePullSecret {called} is of type {kind}")
    return found


def pull_secret_remedy(s: ClusterSnapshot, pod: Object) -> str:
    namespace = key_of_object(pod)[0]
    named = [
        str(one.get("name") or "") for one in (pod.get("spec") or {}).get("imagePullSecrets") or ()
    ]
    missing = next((one for one in named if s.secrets.get((namespace, one)) == ""), "NAME")
    servers = [
        first
        for container in (pod.get("spec") or {}).get("containers") or ()
        if "." in (first := str(container.get("image", "")).partition("/")[0])
        and "/" in container["image"]
    ]
    server = servers[0] if servers else "https://index.docker.io/v1/"
    return (
        f"Create it: kubectl create secret docker-registry {missing} --namespace {namespace} "
        f"--docker-server={server} --docker-username=USER --docker-password=PASSWORD; or correct "
        "imagePullSecrets of the pod or of its ServiceAccount."
    )


def check_pull_secrets(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """A pod whose image is public starts without its pull secret: until the image is private."""
    for pod in s.pods:
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        for problem in pull_secret_problems(s, pod):
            yield DoctorFinding(
                "warning",
                problem,
                (place_of_object("pod", pod),),
                "Its kubelet pulls images without these credentials: images of private repositories "
                "cannot be pulled.",
                pull_secret_remedy(s, pod),
            )


# ---- services ----


def check_external_names(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    for service in s.of("services"):
        spec = service.get("spec") or {}
        if spec.get("type") != "ExternalName":
            continue
        target = str(spec.get("externalName") or "").rstrip(".").lower()
        where = (place_of_object("service", service),)
        why = "Its name cannot be resolved: connections to it fail."
        if is_ip_address(target):
            yield DoctorFinding(
                "error",
                f"its externalName {target} is an address, not a name",
                where,
                "Cluster DNS answers with a name made of digits, which no server resolves.",
                f"Remove the type and externalName, and create Endpoints of its name with the address {target}.",
            )
        elif target.endswith(f".{_DOMAIN}") and "services" not in s.unread:
            yield from _missing_target(s, target, where, why)
        elif target in s.unresolved and not s.dns.get("problem"):
            yield DoctorFinding(
                "warning",
                f"cluster DNS does not resolve its externalName {target}: {s.unresolved[target]}",
                where,
                why,
                "Correct spec.externalName; if it is right, check the name servers of the control-plane "
                "machine.",
            )


def _missing_target(
    s: ClusterSnapshot, target: str, where: tuple[str, ...], why: str
) -> Iterator[DoctorFinding]:
    """The last two labels before the domain are a service and its namespace."""
    labels = target.removesuffix(f".{_DOMAIN}").split(".")
    if len(labels) < 2 or (labels[-1], labels[-2]) in s.service:
        return
    yield DoctorFinding(
        "error",
        f"its externalName {target} is a Service that does not exist: {labels[-2]} in namespace {labels[-1]}",
        where,
        why,
        "Create that Service, or correct spec.externalName.",
    )


def check_written_endpoints(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Endpoints of Services without a selector, which a user wrote: their port names must be those of
    the Service, and an address of the pods' range must be a pod's.
    """
    if {"endpoints", "pods", "nodes"} & s.unread.keys():
        return
    ranges = [
        ipaddress.ip_network(cidr)
        for node in s.nodes
        for cidr in (node["spec"].get("podCIDRs") or filter(None, [node["spec"].get("podCIDR")]))
    ]
    used = {address for pod in s.pods for address in current_pod_ips(pod)}
    for where, service in s.service.items():
        spec = service["spec"]
        if spec.get("selector") or spec.get("type") == "ExternalName" or where not in s.endpoints:
            continue
        yield from _port_names(s, where, service)
        for address in s.ready_addresses(where):
            number = str(address.get("ip"))
            if is_ip_address(number) and number not in used and _within(number, ranges):
                yield DoctorFinding(
                    "warning",
                    f"its Endpoints have the address {number}, which no pod has",
                    (place_of_object("service", service),),
                    "Connections to it time out: addresses of pods change when they are created again.",
                    "Give the Service a selector, so that its endpoints follow the pods; or correct the "
                    "address.",
                )


def _within(address: str, ranges: list[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    number = ipaddress.ip_address(address)
    return any(number.version == one.version and number in one for one in ranges)


def _port_names(
    s: ClusterSnapshot, where: tuple[str, str], service: Object
) -> Iterator[DoctorFinding]:
    subsets = s.endpoints[where].get("subsets") or ()
    has = {str(port.get("name") or "") for one in subsets for port in one.get("ports") or ()}
    for port in service["spec"].get("ports") or ():
        called = str(port.get("name") or "")
        if has and called not in has:
            yield DoctorFinding(
                "error",
                f"its port {called or port.get('port')} is not in its Endpoints, whose ports are named "
                f"{', '.join(sorted(one or '(none)' for one in has))}",
                (place_of_object("service", service),),
                "Nothing answers at this port: ports of Endpoints are found by their names.",
                f"Name the port {called or '(no name)'} in Endpoints {name_of_object(service)}, or rename the "
                "Service's port.",
            )
