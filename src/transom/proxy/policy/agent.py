"""Enforces network policies for the pods of one node: with nftables on Linux, with HNS ACLs on
Windows.

Lazy like the proxiers: `dirty` checks the shared index for changes that affect this node, `sync`
writes them. It changes only the node's state, which data planes read.
"""

from __future__ import annotations

import logging

from transom.machines.windows.hns import HnsError, HostNetworkService
from transom.network.stacks import NetworkStack
from transom.proxy.policy import nft
from transom.proxy.policy.hns import Acl, policy_acls
from transom.proxy.policy.index import PolicyIndex
from transom.proxy.policy.rules import OPEN, PodIsolation, PolicyPod

log = logging.getLogger("transom.policy")
_REMOTE_ENDPOINT = 1
_FAMILIES: tuple[nft.Family, ...] = ("ip", "ip6")


class PolicyAgent:
    def __init__(self, index: PolicyIndex, node_name: str, stack: NetworkStack) -> None:
        self.index = index
        self.node_name = node_name
        self.stack = stack
        self._seen = 0
        self._retry = False
        # HNS endpoint -> the policies that this agent added
        self._written: dict[str, list[Acl]] = {}
        if stack.hns is not None:
            stack.hns.listeners.append(self._hns_changed)

    @property
    def dirty(self) -> bool:
        return self._retry or self._seen != self.index.version(self.node_name)

    def sync(self) -> bool:
        """Returns whether anything was written."""
        if not self.dirty:
            return False
        self._seen, self._retry = self.index.version(self.node_name), False
        pods = [(pod, self.index.isolation(pod.key)) for pod in self.index.pods_on(self.node_name)]
        isolated = [(pod, isolation) for pod, isolation in pods if isolation is not OPEN]
        if self.stack.hns is not None:
            return self._write_acls(self.stack.hns, isolated)
        return self._write_tables(isolated)

    # ---- Linux ----

    def _write_tables(self, isolated: list[tuple[PolicyPod, PodIsolation]]) -> bool:
        changed = False
        for family in _FAMILIES:
            key = f"{family} {nft.TABLE}"
            table = nft.policy_table(family, isolated)
            if table == self.stack.tables.get(key):
                continue
            changed = True
            if table is None:
                self.stack.delete_table(key)
            else:
                self.stack.set_table(table)
        return changed

    # ---- Windows ----

    def _write_acls(
        self, hns: HostNetworkService, isolated: list[tuple[PolicyPod, PodIsolation]]
    ) -> bool:
        own = self.stack.addresses()
        places = _endpoints_by_address(hns)
        wanted: dict[str, list[Acl]] = {}
        for pod, isolation in isolated:
            for endpoint in dict.fromkeys(places[a] for a in pod.addresses if a in places):
                wanted[endpoint] = policy_acls(pod, isolation, own)
        changed = False
        for endpoint in [e for e in self._written if e not in wanted]:
            changed |= self._replace(hns, endpoint, [])
        for endpoint, acls in wanted.items():
            changed |= self._replace(hns, endpoint, acls)
        return changed

    def _replace(self, hns: HostNetworkService, endpoint: str, acls: list[Acl]) -> bool:
        before = self._written.get(endpoint, [])
        present = hns.endpoints.get(endpoint)
        if present is None:
            self._written.pop(endpoint, None)
            return False
        policies = present.get("Policies", [])
        # Policies of other owners stay, in front.
        new = [policy for policy in policies if policy not in before] + acls
        if new == policies:
            return False
        request = {"ResourceType": "Policy", "RequestType": "Update", "Settings": {"Policies": new}}
        try:
            hns.modify("endpoint", endpoint, request)
        except HnsError as error:
            log.warning("network policy of endpoint %s on %s: %s", endpoint, self.node_name, error)
            self._retry = True
            return False
        if acls:
            self._written[endpoint] = acls
        else:
            self._written.pop(endpoint, None)
        return True

    def _hns_changed(self, kind: str, _: str, change: str) -> None:
        """A new endpoint with a known address has no ACLs yet."""
        if kind == "endpoint" and change == "created" and self.index.version(self.node_name):
            self._retry = True


def _endpoints_by_address(hns: HostNetworkService) -> dict[str, str]:
    return {
        address["IpAddress"]: key
        for key, endpoint in hns.endpoints.items()
        if not endpoint.get("Flags", 0) & _REMOTE_ENDPOINT
        for address in endpoint.get("IpConfigurations", ())
    }
