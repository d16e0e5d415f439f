"""The host networking service (HNS) of an emulated Windows node: networks, endpoints, namespaces, load balancers, routes."""

from __future__ import annotations

from transom.hosts.windows.hns.adapters import Adapter
from transom.hosts.windows.hns.errors import HnsError, name_not_found
from transom.hosts.windows.hns.faults import Faults
from transom.hosts.windows.hns.service import Hns

__all__ = ["Adapter", "Faults", "Hns", "HnsError", "name_not_found"]
