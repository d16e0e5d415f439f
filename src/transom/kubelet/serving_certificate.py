"""The serving certificate of a kubelet that requests it from the API (serverTLSBootstrap).

The kubelet creates a CertificateSigningRequest for kubernetes.io/kubelet-serving, waits for its
approval, serves with the certificate and replaces it before it expires. Until the first one is
there, connections fail with a TLS internal error, as Kubernetes' do.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from transom.client.resources import CERTIFICATE_SIGNING_REQUESTS
from transom.kit import pki
from transom.kit.named_tuple import NamedTuple
from transom.kit.tls_pairs import load_certificate_files
from transom.kubelet.base import KubeletContext
from transom.machinery.certificates import KUBELET_SERVING_SIGNER
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object
from transom.machinery.releases.kubelet import kubelet_has
from transom.machines.smallfiles import read_small_file

log = logging.getLogger("transom.kubelet")

_CURRENT: Final = "kubelet-server-current.pem"
_HOSTNAMES: Final = frozenset(("Hostname", "InternalDNS", "ExternalDNS"))
_IPS: Final = frozenset(("InternalIP", "ExternalIP"))
_USAGES: Final = ("digital signature", "server auth")
_APPROVAL_SECONDS: Final = 15 * 60.0
_FIRST_RETRY, _LONGEST_RETRY = 2.0, 32.0
_NODE_SECONDS: Final = 1.0  # between two looks for the node
_ADDRESS_SECONDS: Final = 10.0  # between two looks at the addresses of the node
_EARLIEST, _SPREAD = 0.7, 0.2  # of its lifetime, a certificate is replaced in this range


class _Subject(NamedTuple):
    names: tuple[str, ...]
    addresses: tuple[str, ...]


class CertificateDenied(Exception):
    """The request was denied, has failed, or is gone."""


class ServingCertificateManager:
    """`node` is the Node as last seen: the certificate is for its addresses."""

    __slots__ = ("_context", "_env", "_node", "_served", "_subject", "_validity")

    def __init__(self, env: KubeletContext, node: Callable[[], Object | None]) -> None:
        self._env = env
        self._node = node
        self._context: ssl.SSLContext | None = None
        self._served: bytes = b""  # certificate and key, PEM
        self._subject: _Subject | None = None
        self._validity = (0.0, 0.0)

    def attach(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Serves with the approved certificate instead of the one that the context has."""
        self._context = context
        context.sni_callback = self._check
        if self._served:
            _load(context, self._served)
        return context

    def _check(self, _: ssl.SSLObject, name: str, context: ssl.SSLContext) -> int | None:
        return None if self._served else ssl.ALERT_DESCRIPTION_INTERNAL_ERROR

    async def run(self) -> None:
        """Runs until cancelled."""
        self._load_current()
        retry = _FIRST_RETRY
        while True:
            subject = await self._wait_until_due()
            try:
                await self._request(subject)
                retry = _FIRST_RETRY
            except (ApiError, OSError, TimeoutError, CertificateDenied) as problem:
                log.warning("the serving certificate could not be obtained: %s", problem)
                await self._env.clock.sleep(retry)
                retry = min(retry * 2, _LONGEST_RETRY)

    async def _wait_until_due(self) -> _Subject:
        """Until a certificate is needed: none yet, its lifetime ends, other addresses."""
        begin, end = self._validity
        due = begin + (end - begin) * (_EARLIEST + _SPREAD * self._env.rng.random())
        while True:
            subject = node_subject(self._node())
            wanted = not self._served or subject != self._subject or self._env.clock.time() >= due
            if subject is not None and wanted:
                return subject
            left = due - self._env.clock.time() if self._served else _NODE_SECONDS
            await self._env.clock.sleep(min(max(left, _NODE_SECONDS), _ADDRESS_SECONDS))

    async def _request(self, subject: _Subject) -> None:
        cn = f"system:node:{self._env.config.node_name}"
        text, key = pki.make_certificate_request(
            cn, ("system:nodes",), subject.names, subject.addresses
        )
        request = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "csr-"},
            "spec": {
                "request": base64.b64encode(text).decode(),
                "signerName": KUBELET_SERVING_SIGNER,
                "usages": self._usages(),
            },
        }
        created = await self._env.client.create(CERTIFICATE_SIGNING_REQUESTS, "", request)
        certificate = await self._approved(created["metadata"]["name"])
        self._use(certificate + key)
        self._save(certificate + key)
        self._subject = subject

    def _usages(self) -> list[str]:
        digital, server = _USAGES
        without = kubelet_has(self._env.config.release, "ServingWithoutEncipherment")
        return [digital, server] if without else [digital, "key encipherment", server]

    async def _approved(self, name: str) -> bytes:
        """The issued certificate. Raises CertificateDenied, TimeoutError, ApiError and OSError."""
        waiting = asyncio.ensure_future(self._watch(name))
        timer = self._env.clock.call_later(_APPROVAL_SECONDS, waiting.cancel)
        try:
            await asyncio.wait((waiting,))
        finally:
            timer.cancel()
            waiting.cancel()
        if waiting.cancelled():
            raise TimeoutError("timed out waiting for the condition")
        return waiting.result()

    async def _watch(self, name: str) -> bytes:
        while True:
            watch = await self._env.client.watch(
                CERTIFICATE_SIGNING_REQUESTS, field_selector=f"metadata.name={name}"
            )
            with contextlib.closing(watch):
                while events := await watch.next():
                    for event in events:
                        if event.type == "DELETED":
                            raise CertificateDenied(f"certificate signing request {name} is gone")
                        if issued := issued_certificate(event.object):
                            return issued

    def _use(self, both: bytes) -> None:
        self._validity = pki.validity_of(ssl.PEM_cert_to_DER_cert(_first_certificate(both)))
        self._served = both
        if self._context is not None:
            _load(self._context, both)

    # The files of the node

    def _folder(self) -> str:
        return self._env.os.join(self._env.config.root_dir, "pki")

    def _save(self, both: bytes) -> None:
        files, join = self._env.host.files, self._env.os.join
        stamp = datetime.fromtimestamp(self._env.clock.time(), UTC)
        path = join(self._folder(), f"kubelet-server-{stamp:%Y-%m-%d-%H-%M-%S}.pem")
        try:
            files.mkdir(self._folder(), 0o755)
            files.write(path, both, 0o600)
            self._env.os.replace_link(files, path, join(self._folder(), _CURRENT))
        except OSError as problem:
            log.warning("the serving certificate could not be stored: %s", problem)

    def _load_current(self) -> None:
        path = self._env.os.join(self._folder(), _CURRENT)
        try:
            both = read_small_file(self._env.host.files, path)
            begin, end = pki.validity_of(ssl.PEM_cert_to_DER_cert(_first_certificate(both)))
        except (OSError, ValueError):
            return
        if begin <= self._env.clock.time() < end:
            self._use(both)
            self._subject = node_subject(self._node())


def node_subject(node: Object | None) -> _Subject | None:
    """The names and addresses of a Node, as they are in the certificate; None if it has none."""
    found: Sequence[Object] = ((node or {}).get("status") or {}).get("addresses") or ()
    names = tuple(sorted({one["address"] for one in found if one["type"] in _HOSTNAMES}))
    addresses = tuple(sorted({one["address"] for one in found if one["type"] in _IPS}))
    return _Subject(names, addresses) if names or addresses else None


def issued_certificate(request: Object) -> bytes:
    """The certificate of an approved request; empty while there is none. Raises
    CertificateDenied.
    """
    status = request.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] in ("Denied", "Failed"):
            reason, message = condition.get("reason", ""), condition.get("message", "")
            raise CertificateDenied(
                f"certificate signing request is {condition['type'].lower()}, reason: {reason}, "
                f"message: {message}"
            )
    return base64.b64decode(status.get("certificate") or "")


def _first_certificate(text: bytes) -> str:
    end = b"-----END CERTIFICATE-----"
    return (text.partition(end)[0] + end).decode()


def _load(context: ssl.SSLContext, both: bytes) -> None:
    """Later connections get the certificate. The ssl module reads files only."""
    handle, path = tempfile.mkstemp()
    try:
        os.write(handle, both)
        os.close(handle)
        load_certificate_files(context, path)
    finally:
        os.unlink(path)
