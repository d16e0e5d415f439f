"""Where addresses of services lead, and what names mean."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from transom.network.api import DnsConfig
from transom.network.services import ServiceTable

DNS = DnsConfig()


def _service(name: str, **spec: Any) -> dict[str, Any]:
    base = {"clusterIP": "10.96.0.5", "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {**base, **spec}}


def _slice(name: str, *addresses: str, ready: bool = True, **endpoint: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": [a], "conditions": {"ready": ready}, **endpoint} for a in addresses],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }


def test_an_address_leads_to_one_that_is_ready() -> None:
    table = ServiceTable(random.Random(1))
    table.put_service(_service("web"))
    assert table.translate("10.96.0.5", 80, "") == ("", 0)
    table.put_slice(_slice("web", "10.244.1.2", "10.244.1.3"))
    assert {table.translate("10.96.0.5", 80, "") for _ in range(50)} == {("10.244.1.2", 8080), ("10.244.1.3", 8080)}
    table.put_slice(_slice("web", "10.244.1.2", ready=False))
    assert table.translate("10.96.0.5", 80, "") == ("", 0)
    assert table.translate("10.96.0.5", 81, "") is None
    table.remove_service(_service("web"))
    assert table.translate("10.96.0.5", 80, "") is None


def test_node_ports_and_load_balancers_lead_there_too() -> None:
    table = ServiceTable(random.Random(1))
    table.node_addresses.add("172.20.0.2")
    service = _service("web", ports=[{"name": "http", "port": 80, "nodePort": 30080}])
    table.put_service({**service, "status": {"loadBalancer": {"ingress": [{"ip": "127.100.0.1"}]}}})
    table.put_slice(_slice("web", "10.244.1.2"))
    assert table.translate("172.20.0.2", 30080, "") == ("10.244.1.2", 8080)
    assert table.translate("127.100.0.1", 80, "") == ("10.244.1.2", 8080)
    assert table.translate("172.20.0.9", 30080, "") is None


def test_names() -> None:
    async def main() -> None:
        table = ServiceTable(random.Random(1))
        table.put_service(_service("web"))
        table.put_service(_service("db", clusterIP="None"))
        table.put_service(_service("alias", clusterIP="", type="ExternalName", externalName="web.shop.svc.cluster.local"))
        table.put_slice(_slice("db", "10.244.1.7", hostname="db-0"))
        wanted = {
            "web.shop.svc.cluster.local": ["10.96.0.5"],
            "WEB.shop.svc.cluster.local.": ["10.96.0.5"],
            "db.shop.svc.cluster.local": ["10.244.1.7"],
            "db-0.db.shop.svc.cluster.local": ["10.244.1.7"],
            "db-1.db.shop.svc.cluster.local": [],
            "alias.shop.svc.cluster.local": ["10.96.0.5"],
            "10-244-1-7.shop.pod.cluster.local": ["10.244.1.7"],
            "web.shop": [],
            "web.other.svc.cluster.local": [],
        }
        assert {name: list(await table.lookup(name, DNS)) for name in wanted} == wanted

    asyncio.run(main())
