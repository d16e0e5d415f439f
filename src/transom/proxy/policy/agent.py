"""Enforces network policies for the pods of one node: as nftables on Linux, as access lists of HNS on Windows.

Lazy like the proxiers: `dirty` asks the shared index whether something changed for this node, `sync` writes it. It changes the
node's state only; data planes read that.
"""

from __future__ import annotations

import logging

from transom.hosts.windows.hns import Hns, HnsError
from transom.network.stacks import Stack
from transom.proxy.policy import nft
from transom.proxy.policy.hns import Acl, acls_of
from transom.proxy.policy.index import PolicyIndex
from transom.proxy.policy.rules import OPEN, Isolation, Pod

log = logging.getLogger("transom.policy")
_REMOTE_ENDPOINT = 1
_FAMILIES: tuple[nft.Family, ...] = ("ip", "ip6")


class PolicyAgent:
    def __init__(self, index: PolicyIndex, node_name: str, stack: Stack) -> None:
        self.index = index
        self.node_name = node_name
        self.stack = stack
        self._seen = 0
        self._retry = False
        self._written: dict[str, list[Acl]] = {}  # HNS endpoint -> what this agent put there
        if stack.hns is not None:
            stack.hns.listeners.append(self._hns_changed)

    @property
    def dirty(self) -> bool:
        return self._retry or self._seen != self.index.version(self.node_name)

    def sync(self) -> bool:
        """Whether anything was written."""
        if not self.dirty:
            return False
        self._seen, self._retry = self.index.version(self.node_name), False
        pods = [(pod, self.index.isolation(pod.key)) for pod in self.index.pods_on(self.node_name)]
        isolated = [(pod, isolation) for pod, isolation in pods if isolation is not OPEN]
        if self.stack.hns is not None:
            return self._write_acls(self.stack.hns, isolated)
        return self._write_tables(isolated)

    # ---- Linux ---------------------------------------------------------------------------------------------------

    def _write_tables(self, isolated: list[tuple[Pod, Isolation]]) -> bool:
        changed = False
        for family in _FAMILIES:
            key = f"{family} {nft.TABLE}"
            table = nft.table_of(family, isolated)
            if table == self.stack.tables.get(key):
                continue
            changed = True
            if table is None:
                self.stack.delete_table(key)
            else:
                self.stack.set_table(table)
        return changed

    # ---- Windows -------------------------------------------------------------------------------------------------

    def _write_acls(self, hns: Hns, isolated: list[tuple[Pod, Isolation]]) -> bool:
        own = self.stack.addresses()
        places = _endpoints_by_address(hns)
        wanted: dict[str, list[Acl]] = {}
        for pod, isolation in isolated:
            for endpoint in dict.fromkeys(places[a] for a in pod.addresses if a in places):
                wanted[endpoint] = acls_of(pod, isolation, own)
        changed = False
        for endpoint in [e for e in self._written if e not in wanted]:
            changed |= self._replace(hns, endpoint, [])
        for endpoint, acls in wanted.items():
            changed |= self._replace(hns, endpoint, acls)
        return changed

    def _replace(self, hns: Hns, endpoint: str, acls: list[Acl]) -> bool:
        before = self._written.get(endpoint, [])
        present = hns.endpoints.get(endpoint)
        if present is None:
            self._written.pop(endpoint, None)
            return False
        policies = present.get("Policies", [])
        # What others put on the endpoint stays, in front.
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
        """An endpoint that is made anew for a known address has no lists yet."""
        if kind == "endpoint" and change == "created" and self.index.version(self.node_name):
            self._retry = True


def _endpoints_by_address(hns: Hns) -> dict[str, str]:
    return {
        address["IpAddress"]: key
        for key, endpoint in hns.endpoints.items()
        if not endpoint.get("Flags", 0) & _REMOTE_ENDPOINT
        for address in endpoint.get("IpConfigurations", ())
    }
