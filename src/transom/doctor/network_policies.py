"""Checks of NetworkPolicies: what they keep from reaching a Service, and pods that they keep from
cluster DNS.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from transom.doctor import repairs
from transom.doctor.findings import DoctorFinding
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    key_of_object,
    name_of_object,
    place_of_object,
    pod_is_ready,
    time_of,
)
from transom.machinery.selectors import LabelSelector, from_object

_DNS: Final = ("kube-system", "kube-dns")
_DNS_LABELS: Final = {"k8s-app": "kube-dns"}
_SLOW: Final = 60.0
_ABSENT: Final = "do not exist"


def check_network_policies(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Services whose pods no NetworkPolicy allows ingress to; and policies that select no pods."""
    policies = [
        (policy, from_object((policy.get("spec") or {}).get("podSelector") or {}))
        for policy in s.of("networkpolicies")
    ]
    if not policies or "pods" in s.unread:
        return
    for policy, selector in policies:
        if not any(_selects(selector, pod) for pod in s.pods_in(key_of_object(policy)[0])) and _old(
            s, policy
        ):
            yield DoctorFinding(
                "info",
                "selects no pods",
                (place_of_object("networkpolicy", policy),),
                "It restricts nothing.",
                "Correct spec.podSelector.",
            )
    for where, service in s.service.items():
        wanted = service["spec"].get("selector")
        ready = [pod for pod in s.selected(where[0], wanted) if pod_is_ready(pod)] if wanted else []
        closed: dict[str, None] = {}
        reasons: dict[str, None] = {}
        for pod in ready:
            applied = [
                policy
                for policy, selector in policies
                if key_of_object(policy)[0] == where[0]
                and _restricts_ingress(policy)
                and _selects(selector, pod)
            ]
            if not applied or any(_lets_in(s, one, service, pod) for one in applied):
                closed.clear()
                break
            closed.update(dict.fromkeys(name_of_object(one) for one in applied))
            reasons.update(dict.fromkeys(_why_closed(s, one, service, pod) for one in applied))
        if closed:
            # Clients that do not run now may run later.
            absent = bool(reasons) and all(one.endswith(_ABSENT) for one in reasons)
            yield DoctorFinding(
                "info" if absent else "warning",
                f"no NetworkPolicy allows traffic to its pods; {', '.join(closed)} denies it"
                + "".join(f"; {reason}" for reason in reasons if reason),
                (
                    place_of_object("service", service),
                    *(f"networkpolicy/{where[0]}/{one}" for one in closed),
                ),
                "Connections to it time out.",
                "Add an ingress rule for its clients to a NetworkPolicy that selects its pods. The command "
                "allows all clients.",
                commands=_open_ports(s, where[0], next(iter(closed)), service),
            )


def egress_to_dns(s: ClusterSnapshot) -> Iterator[DoctorFinding]:
    """Pods with restricted egress that no policy allows to query the DNS server."""
    restricted = any(
        "Egress" in ((policy.get("spec") or {}).get("policyTypes") or ())
        for policy in s.of("networkpolicies")
    )
    if not restricted or "pods" in s.unread:
        return
    closed: dict[str, list[str]] = {}
    for pod in s.pods:
        if (pod.get("status") or {}).get("phase") != "Running":
            continue
        for policy in forbids_dns(s, pod):
            where = f"networkpolicy/{key_of_object(pod)[0]}/{policy}"
            closed.setdefault(where, []).append(name_of_object(pod))
    for where, names in closed.items():
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield DoctorFinding(
            "warning",
            f"allows no DNS queries of the pods that it selects ({listed})",
            (where,),
            "They cannot resolve any name: connections by name fail.",
            "Add an egress rule for port 53, UDP and TCP, to the pods' policies, unless these pods "
            "use addresses only.",
            commands=_add_rule(
                s,
                where.split("/")[1],
                where.split("/")[2],
                "egress",
                {"ports": [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]},
            ),
        )


def _open_ports(
    s: ClusterSnapshot, namespace: str, policy: str, service: Object
) -> tuple[str, ...]:
    ports = [
        {
            "port": port.get("targetPort", port.get("port")),
            "protocol": port.get("protocol", "TCP"),
        }
        for port in service["spec"].get("ports") or ()
    ]
    return _add_rule(s, namespace, policy, "ingress", {"ports": ports})


def _add_rule(
    s: ClusterSnapshot, namespace: str, policy: str, field: str, rule: Object
) -> tuple[str, ...]:
    for one in s.of("networkpolicies"):
        if key_of_object(one) == (namespace, policy):
            has = (one.get("spec") or {}).get(field)
            path, value = (f"/spec/{field}/-", rule) if has else (f"/spec/{field}", [rule])
            patch = [{"op": "add", "path": path, "value": value}]
            return (repairs.patch_command("networkpolicy", one, patch, "json"),)
    return ()


def forbids_dns(s: ClusterSnapshot, pod: Object) -> list[str]:
    """The policies that restrict the pod's egress, if none of them allows it to query the DNS server."""
    namespace = key_of_object(pod)[0]
    applied = [
        policy
        for policy in s.of("networkpolicies")
        if key_of_object(policy)[0] == namespace
        and "Egress" in ((policy.get("spec") or {}).get("policyTypes") or ())
        and _selects(from_object((policy.get("spec") or {}).get("podSelector") or {}), pod)
    ]
    if any(_allows_dns(s, policy) for policy in applied):
        return []
    return [name_of_object(policy) for policy in applied]


def _allows_dns(s: ClusterSnapshot, policy: Object) -> bool:
    """Whether a rule allows port 53 of the DNS server."""
    return any(
        _has_port(rule.get("ports"), 53) and _reaches_dns(s, policy, rule.get("to"))
        for rule in (policy.get("spec") or {}).get("egress") or ()
    )


def _has_port(ports: Sequence[Object] | None, wanted: int) -> bool:
    """Whether a rule's ports include a number; a named port may be any."""
    for port in ports or ({},):
        number, end = port.get("port"), port.get("endPort")
        if number is None or not isinstance(number, int) or number <= wanted <= (end or number):
            return True
    return False


def _reaches_dns(s: ClusterSnapshot, policy: Object, peers: Sequence[Object] | None) -> bool:
    addresses = [str(one.get("ip")) for one in s.ready_addresses(_DNS)]
    for peer in peers or ():
        if peer.get("ipBlock"):
            if not addresses or any(_in_block(peer["ipBlock"], one) for one in addresses):
                return True
        elif _peer_namespace(s, policy, peer, _DNS[0]) and _matches(
            peer.get("podSelector"), _DNS_LABELS
        ):
            return True
    return not peers


def _in_block(block: Object, address: str) -> bool:
    try:
        number = ipaddress.ip_address(address)
        return number in ipaddress.ip_network(str(block.get("cidr")), strict=False) and not any(
            number in ipaddress.ip_network(str(one), strict=False)
            for one in block.get("except") or ()
        )
    except ValueError:
        return False


def _peer_namespace(s: ClusterSnapshot, policy: Object, peer: Object, namespace: str) -> bool:
    if peer.get("namespaceSelector") is None:
        return key_of_object(policy)[0] == namespace
    labels = next(
        (
            one["metadata"].get("labels") or {}
            for one in s.of("namespaces")
            if name_of_object(one) == namespace
        ),
        {},
    )
    return _matches(peer["namespaceSelector"], labels)


def _matches(selector: Object | None, labels: Mapping[str, str]) -> bool:
    return from_object(selector or {}).matches(labels)


# ---- ingress ----


def _lets_in(s: ClusterSnapshot, policy: Object, service: Object, pod: Object) -> bool:
    """Whether a rule allows some traffic to a port of the Service: from an address block, or from a
    pod that exists.
    """
    return any(
        _has_target(rule, service, pod) and _has_clients(s, policy, rule)
        for rule in (policy.get("spec") or {}).get("ingress") or ()
    )


def _why_closed(s: ClusterSnapshot, policy: Object, service: Object, pod: Object) -> str:
    rules = (policy.get("spec") or {}).get("ingress") or ()
    open_ports = [rule for rule in rules if _has_target(rule, service, pod)]
    if not rules:
        return ""
    if open_ports:
        return f"the pods that {name_of_object(policy)} allows {_ABSENT}"
    ports = sorted(
        {str(port.get("port", "")) for rule in rules for port in rule.get("ports") or ()}
    )
    return f"{name_of_object(policy)} allows only port {', '.join(ports)}"


def _has_target(rule: Object, service: Object, pod: Object) -> bool:
    for port in service["spec"].get("ports") or ():
        target = port.get("targetPort", port.get("port"))
        numbers = {
            p.get("containerPort")
            for c in (pod.get("spec") or {}).get("containers") or ()
            for p in c.get("ports") or ()
            if target == p.get("name")
        } or {target}
        protocol = port.get("protocol", "TCP")
        same = [p for p in rule.get("ports") or () if (p.get("protocol") or "TCP") == protocol]
        if not rule.get("ports") or any(
            not isinstance(number, int) or _has_port(same, number) for number in numbers if same
        ):
            return True
    return False


def _has_clients(s: ClusterSnapshot, policy: Object, rule: Object) -> bool:
    peers = rule.get("from") or ()
    return not peers or any(
        peer.get("ipBlock")
        or any(
            _peer_namespace(s, policy, peer, key_of_object(pod)[0])
            and _matches(peer.get("podSelector"), pod["metadata"].get("labels") or {})
            for pod in s.pods
        )
        for peer in peers
    )


def _old(s: ClusterSnapshot, obj: Object) -> bool:
    return s.now - time_of(obj["metadata"].get("creationTimestamp", "")) > _SLOW


def _restricts_ingress(policy: Object) -> bool:
    types = (policy.get("spec") or {}).get("policyTypes")
    return not types or "Ingress" in types


def _selects(selector: LabelSelector, pod: Object) -> bool:
    return selector.matches(pod["metadata"].get("labels") or {})
