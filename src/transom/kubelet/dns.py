"""Computes the name servers, search domains and options of a pod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from transom.client.events import WARNING
from transom.kit.caching import text_cache
from transom.kit.goquote import go_quote
from transom.kubelet.base import KubeletContext
from transom.kubelet.failures import ContainerFailure
from transom.kubelet.refs import node_ref
from transom.kubelet.security import describe_pod
from transom.machinery.objects import Object
from transom.machines.smallfiles import read_small_file
from transom.network.api import DnsConfig

MAX_SERVERS: Final = 3
MAX_SEARCHES: Final = 6
MAX_SEARCH_CHARACTERS: Final = 256
_CLUSTER_OPTIONS: Final = ("ndots:5",)
_MISSING: Final = (
    "kubelet does not have ClusterDNS IP configured and cannot create Pod using "
    '"ClusterFirst" policy. Falling back to '
    '"Default" policy.'
)


@text_cache(64, longest=4096)  # the same file for every pod, and on most nodes
def parse_resolv_conf(text: str) -> DnsConfig:
    """Raises ValueError. Name servers accumulate; of several search or options lines, the last one
    counts.
    """
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    problems = 0
    for line in text.split("\n"):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        match fields[0]:
            case "nameserver":
                if len(fields) > 1:
                    servers.append(fields[1])
                else:
                    problems += 1
            case "search":
                searches = tuple(s.removesuffix(".") for s in fields[1:])
            case "options":
                options = tuple(fields[1:])
    if problems:
        raise ValueError("nameserver list is empty ")
    return DnsConfig(tuple(servers), searches, options)


def pod_dns(env: KubeletContext, pod: Object, reason: str) -> DnsConfig:
    """Raises ContainerFailure with `reason` when the node's own settings cannot be read."""
    spec = pod["spec"]
    dns = _of_host(env, reason)
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    if policy == "ClusterFirst" and spec.get("hostNetwork"):
        policy = "Default"
    if policy == "None":
        dns = DnsConfig()
    elif policy != "Default" and env.config.cluster_dns:
        dns = _of_cluster(
            pod["metadata"]["namespace"], env.config.cluster_domain, env.config.cluster_dns, dns
        )
    else:
        if policy != "Default":
            _record_missing_dns(env, pod)
        if not env.config.resolv_conf:
            # With no settings at all the runtime would copy the node's; this disables lookups
            # instead.
            local = "::1" if ":" in env.config.node_ip else "127.0.0.1"
            dns = dns._replace(servers=(local,), searches=(".",))
    if requested := spec.get("dnsConfig"):
        dns = DnsConfig(
            _unique((*dns.servers, *(requested.get("nameservers") or ()))),
            _unique((*dns.searches, *(requested.get("searches") or ()))),
            _merged_options(dns.options, requested.get("options") or ()),
        )
    return _within_limits(env, pod, dns)


def _of_host(env: KubeletContext, reason: str) -> DnsConfig:
    path = env.config.resolv_conf
    if not path:
        return DnsConfig()
    try:
        return parse_resolv_conf(read_small_file(env.host.files, path).decode("utf-8", "replace"))
    except OSError as problem:
        raise ContainerFailure(reason, env.os.file_error("open", path, problem)) from problem
    except ValueError as problem:
        raise ContainerFailure(reason, str(problem)) from problem


@lru_cache(maxsize=1024)  # all pods of a namespace share it
def _of_cluster(
    namespace: str, domain: str, servers: tuple[str, ...], host: DnsConfig
) -> DnsConfig:
    searches = host.searches
    if domain:
        searches = _unique((f"{namespace}.svc.{domain}", f"svc.{domain}", domain, *searches))
    return DnsConfig(servers, searches, _CLUSTER_OPTIONS)


def _record_missing_dns(env: KubeletContext, pod: Object) -> None:
    env.events.event(node_ref(env.config.node_name), WARNING, "MissingClusterDNS", _MISSING)
    env.events.event(
        pod, WARNING, "MissingClusterDNS", f"pod: {go_quote(describe_pod(pod))}. {_MISSING}"
    )


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _merged_options(existing: Sequence[str], requested: Sequence[Object]) -> tuple[str, ...]:
    options = {}
    for text in existing:
        name, _, value = text.partition(":")
        options[name] = value
    for option in requested:
        options[option.get("name") or ""] = option.get("value") or ""
    return tuple(f"{name}:{value}" if value else name for name, value in options.items())


def _within_limits(env: KubeletContext, pod: Object, dns: DnsConfig) -> DnsConfig:
    servers, searches = dns.servers, dns.searches
    if len(servers) > MAX_SERVERS:
        servers = servers[:MAX_SERVERS]
        env.events.event(
            pod,
            WARNING,
            "DNSConfigForming",
            (
                "Nameserver limits were exceeded, some nameservers have been omitted, the "
                "applied nameserver line is: "
            )
            + " ".join(servers),
        )
    fitting = searches[:MAX_SEARCHES]
    while fitting and len(" ".join(fitting)) > MAX_SEARCH_CHARACTERS:
        fitting = fitting[:-1]
    if len(fitting) < len(searches):
        env.events.event(
            pod,
            WARNING,
            "DNSConfigForming",
            (
                "Search Line limits were exceeded, some search paths have been omitted, the "
                "applied search line is: "
            )
            + " ".join(fitting),
        )
    return (
        dns
        if (servers, fitting) == (dns.servers, searches)
        else dns._replace(servers=servers, searches=fitting)
    )


def check_node_limits(env: KubeletContext) -> None:
    """Reports, when the kubelet starts, that the node's own search line is too long for pods."""
    path = env.config.resolv_conf
    if not path:
        return
    try:
        searches = _of_host(env, "").searches
    except ContainerFailure as problem:
        _record_limits_exceeded(env, str(problem))
        return
    allowed = MAX_SEARCHES - (3 if env.config.cluster_domain else 0)
    if len(searches) > allowed:
        _record_limits_exceeded(
            env,
            (
                f"Resolv.conf file '{path}' contains search line consisting of more than "
                f"{allowed} domains!"
            ),
        )
    elif len(" ".join(searches)) > MAX_SEARCH_CHARACTERS:
        _record_limits_exceeded(
            env,
            f"Resolv.conf file '{path}' contains search line which length is more than allowed "
            f"{MAX_SEARCH_CHARACTERS} chars!",
        )


def _record_limits_exceeded(env: KubeletContext, message: str) -> None:
    env.events.event(node_ref(env.config.node_name), WARNING, "CheckLimitsForResolvConf", message)
