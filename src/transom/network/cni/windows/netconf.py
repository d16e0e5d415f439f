"""Policies and DNS in the reference plugins' configuration, as their releases interpret them.

Up to 0.9.1 helpers (SNAT exceptions, port mappings) write only the list `policies`, which only
version 1 of the HNS API gets: with ApiVersion 2 their additions are lost, and only `HcnPolicyArgs`
is used. Since 1.0 there is a single list, rendered for either API, and win-overlay supports version
2 too (actually since 1.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal

from transom.kit.lazy_dataclass import dataclass
from transom.network.cni.windows.shim import config_value

Release = Literal["0.8.6", "0.9.1", "1.0"]
Policy = dict[str, Any]
# Since 1.0 port mappings have protocol numbers.
PROTOCOLS: Final[Mapping[str, int]] = {"icmpv4": 1, "igmp": 2, "tcp": 6, "udp": 17, "icmpv6": 58}


def protocol_number(text: str) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text)
    return PROTOCOLS.get(text.lower())


@dataclass(slots=True)
class NetConf:
    name: str
    api: int  # the HNS API version: 1 or 2
    release: Release
    # endpoint policies of `policies`, and additions of helpers
    policies: list[Policy] = field(default_factory=list)
    hcn_policies: list[Policy] = field(default_factory=list)  # HcnPolicyArgs
    loopback_dsr: bool = False
    dns: dict[str, Any] = field(default_factory=dict)
    port_mappings: list[dict[str, Any]] = field(default_factory=list)

    @property
    def one_list(self) -> bool:
        """Whether `policies` applies to both APIs."""
        return self.release == "1.0"

    @property
    def rendered(self) -> list[Policy]:
        """For an endpoint of the API in use."""
        return self.policies if self.api != 2 or self.one_list else self.hcn_policies

    # ---- helpers ----

    def snat_except(self, cidr: str) -> None:
        """SNAT for all destinations except a network."""
        if not cidr:
            return
        if self.one_list:
            settled = [
                p
                for p in self.policies
                if p.get("Type") == "OutBoundNAT" and cidr in self._list(p, "ExceptionList")
            ]
            if not settled:
                self.policies.append(self._nat("ExceptionList", [cidr]))
            return
        for i, policy in enumerate(self.policies):
            if str(policy.get("Type", "")).lower() == "outboundnat":
                kept = [
                    e
                    for e in policy.get("ExceptionList") or ()
                    if isinstance(e, str) and e and e != cidr
                ]
                self.policies[i] = {"Type": "OutBoundNAT", "ExceptionList": [*kept, cidr]}
                return
        self.policies.append({"Type": "OutBoundNAT", "ExceptionList": [cidr]})

    def reach_itself(self, address: str) -> None:
        """SNAT to the pod's own address, so that it can reach itself through a service."""
        if self.one_list:
            if not any(
                p.get("Type") == "OutBoundNAT" and address in self._list(p, "Destinations")
                for p in self.policies
            ):
                self.policies.append(self._nat("Destinations", [address]))
        elif self.api == 2:
            self.hcn_policies.append(
                {"Type": "OutBoundNAT", "Settings": {"Destinations": [address]}}
            )
        else:
            self.policies.append({"Type": "OutBoundNAT", "Destinations": [address]})

    def provider_address(self, address: str) -> None:
        """The node's own address for encapsulated packets, unless the configuration sets one."""
        if self.one_list:
            if address and not any(
                address in (p.get("PA"), _settings(p).get("ProviderAddress")) for p in self.policies
            ):
                two = {"Type": "ProviderAddress", "Settings": {"ProviderAddress": address}}
                self.policies.append(two if self.api == 2 else {"Type": "PA", "PA": address})
            return
        for i, policy in enumerate(self.policies):
            if "PA" in policy:
                if not policy["PA"]:
                    self.policies[i] = {"Type": "PA", "PA": address}
                return
        self.policies.append({"Type": "PA", "PA": address})

    def map_ports(self) -> None:
        for mapping in self.port_mappings:
            protocol = str(mapping.get("protocol", ""))
            ports = {
                "InternalPort": mapping.get("containerPort", 0),
                "ExternalPort": mapping.get("hostPort", 0),
            }
            if self.one_list:
                number = protocol_number(protocol)
                if number is None:
                    continue
                if self.api == 2:
                    settings = {**ports, "Protocol": number, "VIP": mapping.get("hostIP", "")}
                    self.policies.append({"Type": "PortMapping", "Settings": settings})
                    continue
            self.policies.append({"Type": "NAT", **ports, "Protocol": protocol})

    def _nat(self, what: Literal["ExceptionList", "Destinations"], values: list[str]) -> Policy:
        if self.api != 2:
            return {"Type": "OutBoundNAT", what: values}
        return {"Type": "OutBoundNAT", "Settings": {_V2_NAMES[what]: values}}

    def _list(self, policy: Policy, what: Literal["ExceptionList", "Destinations"]) -> list[str]:
        found = _settings(policy).get(_V2_NAMES[what]) if self.api == 2 else policy.get(what)
        return found if isinstance(found, list) else []


_V2_NAMES: Final = {"ExceptionList": "Exceptions", "Destinations": "Destinations"}


def _settings(policy: Policy) -> dict[str, Any]:
    found = policy.get("Settings")
    return found if isinstance(found, dict) else {}


def load_net_conf(config: Mapping[str, Any], release: Release) -> NetConf:
    runtime = config_value(config, "runtimeConfig", {})
    return NetConf(
        name=str(config_value(config, "name", "")),
        api=int(config_value(config, "ApiVersion", 1)),
        release=release,
        policies=[
            dict(config_value(entry, "value", {}))
            for entry in config_value(config, "policies", [])
            if str(config_value(entry, "name", "")).lower() == "endpointpolicy"
        ],
        hcn_policies=[dict(policy) for policy in config_value(config, "HcnPolicyArgs", [])],
        loopback_dsr=bool(config_value(config, "loopbackDSR", False)),
        dns=net_conf_dns(config, runtime),
        port_mappings=list(config_value(runtime, "portMappings", [])),
    )


def net_conf_dns(config: Mapping[str, Any], runtime: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration's name servers and search list, each overridden by the runtime's if
    given.
    """
    fixed, given = config_value(config, "dns", {}), config_value(runtime, "dns", {})
    return {
        "nameservers": list(
            config_value(given, "servers", []) or config_value(fixed, "nameservers", [])
        ),
        "search": list(config_value(given, "searches", []) or config_value(fixed, "search", [])),
        "domain": str(config_value(fixed, "domain", "")),
        "options": list(config_value(fixed, "options", [])),
    }
