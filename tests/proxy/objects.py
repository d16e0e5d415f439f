"""Services and what is behind them, as an API server would deliver them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Pod = tuple[str, str]
"""Address and node."""


def service(
    name: str = "web",
    *,
    ip: str = "10.96.0.10",
    ports: Iterable[Mapping[str, Any]] | None = None,
    kind: str = "ClusterIP",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    ingress: Iterable[str] = (),
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"namespace": "default", "name": name}
    if annotations:
        metadata["annotations"] = dict(annotations)
    if labels:
        metadata["labels"] = dict(labels)
    wanted = list(ports) if ports is not None else [port()]
    made = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": kind, "clusterIP": ip, "ports": wanted, "sessionAffinity": "None", **spec},
    }
    if ingress:
        made["status"] = {"loadBalancer": {"ingress": [{"ip": each} for each in ingress]}}
    return made


def port(
    number: int = 80, target: int | str = 8080, name: str = "", protocol: str = "TCP", node: int = 0
) -> dict[str, Any]:
    made = {"port": number, "targetPort": target, "protocol": protocol}
    if name:
        made["name"] = name
    if node:
        made["nodePort"] = node
    return made


def endpoint_slice(
    service_name: str = "web",
    pods: Iterable[Pod] = (),
    *,
    number: int = 8080,
    name: str = "",
    suffix: str = "1",
    protocol: str = "TCP",
    kind: str = "IPv4",
    unready: Iterable[Pod] = (),
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1beta1",
        "kind": "EndpointSlice",
        "addressType": kind,
        "metadata": {
            "namespace": "default",
            "name": f"{service_name}-{suffix}",
            "labels": {"kubernetes.io/service-name": service_name, **(labels or {})},
        },
        "ports": [{"name": name, "port": number, "protocol": protocol}],
        "endpoints": [
            {
                "addresses": [address],
                "conditions": {"ready": ready},
                "topology": {"kubernetes.io/hostname": node},
            }
            for ready, chosen in ((True, pods), (False, unready))
            for address, node in chosen
        ],
    }


def endpoints(
    service_name: str = "web",
    pods: Iterable[Pod] = (),
    *,
    number: int = 8080,
    name: str = "",
    protocol: str = "TCP",
    unready: Iterable[Pod] = (),
) -> dict[str, Any]:
    made_port: dict[str, Any] = {"port": number, "protocol": protocol}
    if name:
        made_port["name"] = name
    subset: dict[str, Any] = {"ports": [made_port]}
    for field, chosen in (("addresses", pods), ("notReadyAddresses", unready)):
        listed = [
            {"ip": address, **({"nodeName": node} if node else {})} for address, node in chosen
        ]
        if listed:
            subset[field] = listed
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"namespace": "default", "name": service_name},
        "subsets": [subset],
    }
