"""The host networking service (HNS) of an emulated Windows node: networks, endpoints, namespaces,
load balancers, routes.
"""

from __future__ import annotations

from transom.machines.windows.hns.adapters import Adapter
from transom.machines.windows.hns.errors import HnsError, name_not_found
from transom.machines.windows.hns.faults import HnsFaults
from transom.machines.windows.hns.service import HostNetworkService

__all__ = ["Adapter", "HnsError", "HnsFaults", "HostNetworkService", "name_not_found"]
