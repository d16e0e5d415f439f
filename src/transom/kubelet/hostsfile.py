"""A pod's hostname, and the hosts file that resolves it."""

from __future__ import annotations

from collections.abc import Sequence

from transom.kit.goquote import go_quote
from transom.kubelet.failures import ContainerFailure
from transom.machinery.objects import Object
from transom.machinery.validation.names import is_dns1123_label

HEADER = "# Kubernetes-managed hosts file.\n"
HEADER_HOST_NETWORK = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)
_MAX_HOSTNAME = 63
_MAX_FQDN = 64


def hostname_and_domain(pod: Object, cluster_domain: str, reason: str) -> tuple[str, str]:
    """Raises ContainerFailure with `reason`."""
    meta, spec = pod["metadata"], pod["spec"]
    hostname = str(meta["name"])
    if requested := spec.get("hostname"):
        _check(requested, "Hostname", reason)
        hostname = requested
    if len(hostname) > _MAX_HOSTNAME:
        cut = hostname[:_MAX_HOSTNAME].rstrip("-.")
        if not cut:
            raise ContainerFailure(
                reason,
                f"hostname for pod {go_quote(meta['name'])} was invalid: {go_quote(hostname)}",
            )
        hostname = cut
    subdomain = spec.get("subdomain")
    if not subdomain:
        return hostname, ""
    _check(subdomain, "Subdomain", reason)
    return hostname, f"{subdomain}.{meta['namespace']}.svc.{cluster_domain}"


def _check(value: str, what: str, reason: str) -> None:
    problems = is_dns1123_label(value)
    if problems:
        raise ContainerFailure(
            reason, f"pod {what} {go_quote(value)} is not a valid DNS label: {';'.join(problems)}"
        )


def kernel_hostname(pod: Object, hostname: str, domain: str, reason: str) -> str:
    """What `hostname` prints in its containers: the fully qualified name when the pod requests
    that.
    """
    if not domain or not pod["spec"].get("setHostnameAsFQDN"):
        return hostname
    full = f"{hostname}.{domain}"
    if len(full) > _MAX_FQDN:
        raise ContainerFailure(
            reason,
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is "
            "too long "
            f"({_MAX_FQDN} characters is the max, {len(full)} characters requested)",
        )
    return full


def managed_hosts_file(
    addresses: Sequence[str], hostname: str, domain: str, aliases: Sequence[Object]
) -> bytes:
    """The hosts file of a pod with a network of its own."""
    names = f"{hostname}.{domain}\t{hostname}" if domain else hostname
    return (
        HEADER + _LOCAL + "".join(f"{a}\t{names}\n" for a in addresses) + _aliases(aliases)
    ).encode()


def node_hosts_file(content: bytes, aliases: Sequence[Object]) -> bytes:
    """The hosts file of a pod on its node's network: the node's own."""
    return HEADER_HOST_NETWORK.encode() + content + _aliases(aliases).encode()


def _aliases(aliases: Sequence[Object]) -> str:
    if not aliases:
        return ""
    lines = (
        f"{alias.get('ip', '')}\t" + "\t".join(alias.get("hostnames") or ()) + "\n"
        for alias in aliases
    )
    return "\n# Entries added by HostAliases.\n" + "".join(lines)
