"""Serving certificates that a kubelet requests from the API."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest

from transom.client.resources import CERTIFICATE_SIGNING_REQUESTS as REQUESTS
from transom.kit import pki
from transom.kit.signing import sign_request
from transom.kubelet.kubelet import Kubelet
from transom.machinery.objects import Object
from transom.machinery.releases import Release

SETTINGS = {"flavour": "containerd", "release": Release(1, 36), "server_tls_bootstrap": True}


class Served:
    """The context of the kubelet's server, with a certificate that it must not use."""

    def __init__(self, folder: Path, now: float) -> None:
        self.ca = pki.make_ca("ca", now=now)
        pair = pki.issue_server(self.ca, "other", ["other"], [], now=now)
        pki.save_key_pair(pair, folder / "c.pem", folder / "k.pem")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "c.pem", folder / "k.pem")

    def certificate(self) -> bytes:
        """What a client gets. Raises SSLError."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        wanted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        wanted.check_hostname, wanted.verify_mode = False, ssl.CERT_NONE
        client = wanted.wrap_bio(incoming, outgoing)
        server = self.context.wrap_bio(outgoing, incoming, server_side=True)
        for side in (client, server, client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
        return client.getpeercert(binary_form=True) or b""


async def requests(node: Any) -> list[Object]:
    return list((await node.client.list(REQUESTS)).items)


async def issue(node: Any, ca: pki.KeyPair, request: Object, seconds: float = 1200.0) -> bytes:
    """Approves and signs it."""
    text = base64.b64decode(request["spec"]["request"])
    signed = sign_request(ca, text, request["spec"]["usages"], seconds, node.clock.time())
    condition = {"type": "Approved", "status": "True", "reason": "r", "message": "m"}
    current = {**request, "status": {"conditions": [condition]}}
    approved = await node.client.update(REQUESTS, current, subresource="approval")
    approved = {**approved, "status": dict(approved["status"])}
    approved["status"]["certificate"] = base64.b64encode(signed).decode()
    await node.client.update_status(REQUESTS, approved)
    await node.settle(5)
    return ssl.PEM_cert_to_DER_cert(signed.decode())


async def restart(node: Any, served: Served) -> None:
    """Starts the kubelet with a server."""
    await node.stop_kubelet()
    plain = Kubelet.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Kubelet, "__init__", lambda self, env: plain(self, env, tls=lambda: served.context)
        )
        await node.start_kubelet()
    node.kubelet.server._tls()
    await node.settle(15)


async def test_it_is_requested_served_and_rotated(node: Any, tmp_path: Path) -> None:
    async with node("linux", **SETTINGS) as node:
        served = Served(tmp_path, node.clock.time())
        await restart(node, served)
        (request,) = await requests(node)
        assert request["metadata"]["name"].startswith("csr-")
        assert request["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
        assert request["spec"]["usages"] == ["digital signature", "server auth"]
        assert request["spec"]["username"] == "system:node:node1"
        with pytest.raises(ssl.SSLError):  # not the certificate that the context has
            served.certificate()

        issued = await issue(node, served.ca, request)
        assert served.certificate() == issued
        files = node.host.files
        assert b"PRIVATE KEY" in files.read("/var/lib/kubelet/pki/kubelet-server-current.pem")

        begin, end = pki.validity_of(issued)
        await node.settle(begin + 0.69 * (end - begin) - node.clock.time())
        assert len(await requests(node)) == 1
        await node.settle(0.22 * (end - begin))
        second = next(r for r in await requests(node) if not r.get("status"))
        assert served.certificate() == issued
        rotated = await issue(node, served.ca, second)
        assert served.certificate() == rotated != issued


async def test_a_restarted_kubelet_keeps_it(node: Any, tmp_path: Path) -> None:
    async with node("linux", **SETTINGS) as node:
        served = Served(tmp_path, node.clock.time())
        await restart(node, served)
        issued = await issue(node, served.ca, (await requests(node))[0])
        await restart(node, served)
        assert served.certificate() == issued
        assert len(await requests(node)) == 1


async def test_a_denied_request_is_repeated(node: Any, tmp_path: Path) -> None:
    async with node("linux", **SETTINGS) as node:
        await restart(node, Served(tmp_path, node.clock.time()))
        (request,) = await requests(node)
        condition = {"type": "Denied", "status": "True", "reason": "r", "message": "m"}
        denied = {**request, "status": {"conditions": [condition]}}
        await node.client.update(REQUESTS, denied, subresource="approval")
        await node.settle(5)
        assert len(await requests(node)) == 2


async def test_no_request_without_the_gate(node: Any, tmp_path: Path) -> None:
    gates = {"RotateKubeletServerCertificate": False}
    async with node("linux", feature_gates=gates, **SETTINGS) as node:
        await restart(node, Served(tmp_path, node.clock.time()))
        assert not await requests(node)
