"""Families of services' addresses, where the gate IPv6DualStack is open: what a service may ask for, and what it gets when it
does not say. Knows the families that the cluster has ranges for; gives out no address.
"""

from __future__ import annotations

from collections.abc import Collection

from transom.machinery import errors, field
from transom.machinery.errors import GroupResource
from transom.machinery.field import FieldError
from transom.machinery.objects import Object
from transom.machinery.validation.godump import dump

IPV4, IPV6 = "IPv4", "IPv6"
GATE, OPENED = "IPv6DualStack", (1, 21)
_OTHER = {IPV4: IPV6, IPV6: IPV4}
_KIND = GroupResource("", "Service")
_SINGLE, _PREFER, _REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"


def family_of(address: str) -> str:
    return IPV6 if ":" in address else IPV4


def settle(svc: Object, known: Collection[str]) -> None:
    """Fill in families and policy; `known` are the cluster's families, its usual one first. Raises ApiError."""
    spec = svc["spec"]
    if spec.get("type") == "ExternalName":
        return
    _refuse(svc, _too_many_for_one(spec))
    families = list(spec.get("ipFamilies") or ())
    ips = spec.get("clusterIPs") or []
    headless = ips[:1] == ["None"]
    for index, ip in enumerate(() if headless else ips):
        family = family_of(ip)
        if index >= len(families):
            if family not in known:
                _refuse(svc, [field.invalid(f"spec.clusterIPs[{index}]", dump("[]string", ips),
                                            f"may not use {family} on a cluster which is not configured for it")])
            families.append(family)
    usual = next(iter(known))
    if headless and not spec.get("selector"):
        # Nobody knows yet which endpoints it will be given.
        policy = spec.setdefault("ipFamilyPolicy", _REQUIRE)
        families = families or [usual]
        if len(families) < 2 and (policy == _REQUIRE or (policy == _PREFER and len(known) == 2)):
            families.append(_OTHER[families[0]])
        spec["ipFamilies"] = families
        return
    _refuse(svc, _not_configured(spec, families, known))
    policy = spec.setdefault("ipFamilyPolicy", _SINGLE)
    families = families or [usual]
    if policy != _SINGLE and len(families) == 1 and len(known) == 2:
        families.append(_OTHER[families[0]])
    spec["ipFamilies"] = families


def _refuse(svc: Object, problems: list[FieldError]) -> None:
    if problems:
        raise errors.invalid(_KIND, svc["metadata"].get("name", ""), problems)


def _too_many_for_one(spec: Object) -> list[FieldError]:
    if spec.get("ipFamilyPolicy") != _SINGLE:
        return []
    return [
        field.invalid("spec.ipFamilyPolicy", _SINGLE,
                      f"must be RequireDualStack or PreferDualStack when multiple '{name}' are specified")
        for name in ("clusterIPs", "ipFamilies") if len(spec.get(name) or ()) == 2
    ]  # fmt: skip


def _not_configured(spec: Object, families: list[str], known: Collection[str]) -> list[FieldError]:
    found = []
    if spec.get("ipFamilyPolicy") == _REQUIRE and len(known) < 2:
        found.append(field.invalid("spec.ipFamilyPolicy", _REQUIRE, "Cluster is not configured for dual stack services"))
    found += [
        field.invalid(f"spec.ipFamilies[{index}]", dump("[]string", spec.get("clusterIPs")),
                      f"ipfamily {family} is not configured on cluster")
        for index, family in enumerate(families) if family not in known
    ]  # fmt: skip
    return found


def trim(new: Object, old: Object) -> None:
    """Who goes back to one family need only say so."""
    spec = new["spec"]
    if old["spec"].get("ipFamilyPolicy") in (_PREFER, _REQUIRE) and spec.get("ipFamilyPolicy") == _SINGLE:
        for name in ("clusterIPs", "ipFamilies"):
            if len(spec.get(name) or ()) > 1:
                spec[name] = spec[name][:1]


def show(svc: Object, known: Collection[str]) -> Object | None:
    """A service that was written while the gate was closed, as it is to be seen now; None for one that needs nothing."""
    spec = svc["spec"]
    if spec.get("ipFamilies") or spec.get("type") == "ExternalName":
        return None
    ips = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    usual = next(iter(known))
    if ips == ["None"]:
        both = not spec.get("selector") or len(known) == 2
        families, policy = [usual, *([_OTHER[usual]] if both else ())], _PREFER if both else _SINGLE
    elif ips:
        families, policy = [family_of(ip) for ip in ips], _SINGLE if len(ips) == 1 else _REQUIRE
    else:
        return None
    return {**svc, "spec": {**spec, "clusterIPs": ips, "ipFamilies": families, "ipFamilyPolicy": policy}}
