"""Names of chains, sets and maps. A person reading `nft list ruleset` finds the service and the endpoint in them; the hash in
front keeps them unique when the rest has to be cut. Knows no rules."""

from __future__ import annotations

import base64
import hashlib

from transom.proxy.tracker import Endpoint, PortName

TABLE = "transom-proxy"

SERVICE_IPS = "service-ips"  # map: address, protocol, port -> chain of the service
SERVICE_NODE_PORTS = "service-nodeports"  # map: protocol, port -> chain of the service
NO_ENDPOINTS_CLUSTER = "no-endpoint-services"  # map: cluster addresses of services that nobody answers for
NO_ENDPOINTS_EXTERNAL = "no-endpoint-external-services"
NO_ENDPOINTS_NODE_PORTS = "no-endpoint-nodeports"
HEALTH_CHECK_PORTS = "health-check-nodeports"  # set: ports that the proxy itself answers on
NODE_PORT_IPS = "nodeport-ips"  # set: the node's addresses that have node ports, where not all have

SERVICES = "services"
MASQUERADING = "masquerading"
REJECT = "reject-chain"
CLUSTER_CHECK = "service-endpoints-check"
EXTERNAL_CHECK = "external-endpoints-check"

_LONGEST = 200


def base(name: PortName) -> str:
    """What the chains of one port of a service have in common."""
    text = f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port_name}"
    return f"{_hash(text)}/{text}"[:_LONGEST]


def endpoint(name: PortName, to: Endpoint) -> str:
    address = to.address.replace(":", ".")
    text = f"{name.namespace}/{name.name}/{name.protocol.lower()}/{name.port_name}__{address}/{to.port}"
    return f"{_hash(text)}-{text}"[:_LONGEST]


def _hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:5]).decode()
