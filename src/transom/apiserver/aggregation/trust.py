"""Publishes the CAs of clients and front proxies for aggregated API servers, in a ConfigMap."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from transom.apiserver.core.loopback import Loopback
from transom.machinery.objects import Object

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
FRONT_PROXY_USER = "front-proxy-client"


def trust_contents(
    client_ca: bytes, front_proxy_ca: bytes, uid_headers: Sequence[str] = ()
) -> dict[str, str]:
    """`uid_headers`: those of --requestheader-uid-headers (RemoteRequestHeaderUID)."""
    out: dict[str, str] = {}
    if client_ca:
        out["client-ca-file"] = client_ca.decode()
    if front_proxy_ca:
        out |= {
            "requestheader-allowed-names": f'["{FRONT_PROXY_USER}"]',
            "requestheader-client-ca-file": front_proxy_ca.decode(),
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }
        if uid_headers:
            out["requestheader-uid-headers"] = orjson.dumps(list(uid_headers)).decode()
    return out


async def publish_trust(
    loopback: Loopback, client_ca: bytes, front_proxy_ca: bytes, uid_headers: Sequence[str] = ()
) -> None:
    data = trust_contents(client_ca, front_proxy_ca, uid_headers)
    if not data:
        return
    await loopback.ensure(
        "", "v1", "configmaps", NAMESPACE, {"metadata": {"name": NAME}, "data": data}
    )
    res = loopback.resources.require("", "v1", "configmaps")
    found = loopback.storage.find(res, NAMESPACE, NAME)
    if found is not None and any((found.get("data") or {}).get(k) != v for k, v in data.items()):

        def transform(old: Object | None) -> Object:
            old = old or {}
            return {**old, "data": {**(old.get("data") or {}), **data}}

        await loopback.storage.update(
            loopback.context(), res, NAMESPACE, NAME, transform, reread=True
        )
