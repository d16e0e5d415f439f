"""How other API servers learn whom to believe: the authorities of clients and of front proxies, in a config map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transom.apiserver.bootstrap import ensure
from transom.machinery.objects import Object

if TYPE_CHECKING:
    from transom.apiserver.server import ApiServer

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
FRONT_PROXY_USER = "front-proxy-client"


def contents(client_ca: bytes, front_proxy_ca: bytes) -> dict[str, str]:
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
    return out


async def publish(server: ApiServer) -> None:
    data = contents(server.options.ca, server.options.front_proxy_ca)
    if not data:
        return
    await ensure(server, "", "v1", "configmaps", NAMESPACE, {"metadata": {"name": NAME}, "data": data})
    found = server.find_core("configmaps", NAMESPACE, NAME)
    if found is not None and any((found.get("data") or {}).get(k) != v for k, v in data.items()):
        def transform(old: Object | None) -> Object:
            old = old or {}
            return {**old, "data": {**(old.get("data") or {}), **data}}

        res = server.resource("", "v1", "configmaps")
        await server.storage.update(server.context(), res, NAMESPACE, NAME, transform, reread=True)
