"""Names of chains, sets and maps. They contain the service and the endpoint, for readers of `nft
list ruleset`; the hash prefix keeps them unique when the rest is truncated. Contains no rules.
"""

from __future__ import annotations

import base64
import hashlib

from transom.proxy.tracker import PortName, ProxyEndpoint

TABLE = "transom-proxy"

SERVICE_IPS = "service-ips"  # map: address, protocol, port -> chain of the service
SERVICE_NODE_PORTS = "service-nodeports"  # map: protocol, port -> chain of the service
NO_ENDPOINTS_CLUSTER = "no-endpoint-services"  # map: cluster IPs of services without endpoints
NO_ENDPOINTS_EXTERNAL = "no-endpoint-external-services"
NO_ENDPOINTS_NODE_PORTS = "no-endpoint-nodeports"
HEALTH_CHECK_PORTS = "health-check-nodeports"  # set: ports that the proxy itself listens on
NODE_PORT_IPS = "nodeport-ips"  # set: the node addresses that serve node ports, if not all do

SERVICES = "services"
MASQUERADING = "masquerading"
REJECT = "reject-chain"
CLUSTER_CHECK = "service-endpoints-check"
EXTERNAL_CHECK = "external-endpoints-check"

_LONGEST = 200


def chain_base_name(name: PortName) -> str:
    """The common part of the chain names of one service port."""
    text = f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port_name}"
    return f"{_hash(text)}/{text}"[:_LONGEST]


def endpoint_chain_name(name: PortName, to: ProxyEndpoint) -> str:
    address = to.address.replace(":", ".")
    text = f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port_name}__{address}/{to.port}"
    return f"{_hash(text)}-{text}"[:_LONGEST]


def _hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:5]).decode()
