"""TLS of the ingress controller: the certificate of a Secret by the name that the client asks for."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterable

from transom.ingress.routes import host_candidates
from transom.kit import pki
from transom.kit.tls_pairs import load_certificate_pair
from transom.machinery.objects import Object

_DEFAULT_NAME = "transom.local"


def context_of_pair(certificate: bytes, key: bytes) -> ssl.SSLContext:
    """A server's context; raises ssl.SSLError for a certificate or key that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate_pair(context, certificate, key)
    return context


class IngressCertificates:
    """`secret` finds a Secret by namespace and name."""

    def __init__(self, secret: Callable[[str, str], Object | None]) -> None:
        self._secret = secret
        self._hosts: dict[str, tuple[str, str]] = {}  # host -> namespace and name of the Secret
        self._made: dict[tuple[str, str], tuple[str, ssl.SSLContext | None]] = {}
        authority = pki.make_ca("transom-ingress")
        pair = pki.issue_server(
            authority, _DEFAULT_NAME, [_DEFAULT_NAME, "localhost"], ["127.0.0.1"]
        )
        self.context = context_of_pair(pair.certificate, pair.key)  # where no Secret fits
        self.context.sni_callback = self._select

    def use_hosts(self, hosts: Iterable[tuple[str, str, str]]) -> None:
        """`hosts`: host, namespace and name of a Secret; the first one of a host counts."""
        found: dict[str, tuple[str, str]] = {}
        for host, namespace, name in hosts:
            found.setdefault(host.lower(), (namespace, name))
        self._hosts = found
        self._made = {key: made for key, made in self._made.items() if key in found.values()}

    def context_for(self, host: str) -> ssl.SSLContext | None:
        for name in host_candidates(host)[:2]:  # a wildcard stands for one label
            place = self._hosts.get(name)
            if place is not None:
                return self._context(place)
        return None

    def usable(self, namespace: str, name: str) -> bool:
        """Whether a Secret of `use_hosts` has a certificate and its key."""
        return self._context((namespace, name)) is not None

    def _select(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        found = self.context_for(name or "")
        if found is not None:
            connection.context = found

    def _context(self, place: tuple[str, str]) -> ssl.SSLContext | None:
        secret = self._secret(*place)
        if secret is None:
            return None
        version = secret["metadata"].get("resourceVersion", "")
        made = self._made.get(place)
        if made is None or made[0] != version:
            made = self._made[place] = version, secret_context(secret)
        return made[1]


def secret_context(secret: Object) -> ssl.SSLContext | None:
    """The context of a Secret of type kubernetes.io/tls; None if it cannot be used."""
    data = secret.get("data") or {}
    try:
        pair = [base64.b64decode(data.get(name) or "") for name in ("tls.crt", "tls.key")]
        return context_of_pair(*pair) if all(pair) else None
    except (ssl.SSLError, ValueError):
        return None


def tls_hosts(ingress: Object) -> list[tuple[str, str, str]]:
    """Hosts and Secrets of an Ingress; an entry without hosts is for the hosts of the rules."""
    spec, namespace = ingress.get("spec") or {}, ingress["metadata"].get("namespace", "")
    found = []
    for row in spec.get("tls") or ():
        hosts = row.get("hosts") or [rule.get("host", "") for rule in spec.get("rules") or ()]
        found += [(host, namespace, row["secretName"]) for host in hosts if row.get("secretName")]
    return found
