"""IP families of services with the gate IPv6DualStack: validation and defaults. Knows the families
that the cluster has ranges for; allocates no addresses.
"""

from __future__ import annotations

from collections.abc import Collection

from transom.machinery import errors, field
from transom.machinery.errors import GroupResource
from transom.machinery.field import FieldError, GoText
from transom.machinery.objects import Object
from transom.machinery.validation.godump import go_dump

IPV4, IPV6 = "IPv4", "IPv6"
GATE = "IPv6DualStack"
_OTHER = {IPV4: IPV6, IPV6: IPV4}
_KIND = GroupResource("", "Service")
_SINGLE, _PREFER, _REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"


def family_of(address: str) -> str:
    return IPV6 if ":" in address else IPV4


def init_ip_families(
    svc: Object, known: Collection[str], *, newer: bool = False, as_json: bool = False
) -> None:
    """Sets the default families and policy; `known` are the cluster's families, the default one
    first. `newer` are the rules since 1.23; errors show values `as_json` since 1.34. Raises
    ApiError.
    """
    spec = svc["spec"]
    if spec.get("type") == "ExternalName":
        return
    _refuse(svc, _too_many_for_one(spec, newer))
    families = list(spec.get("ipFamilies") or ())
    ips = spec.get("clusterIPs") or []
    headless = ips[:1] == ["None"]
    for index, ip in enumerate(() if headless else ips):
        family = family_of(ip)
        if index >= len(families):
            if family not in known:
                shown = go_dump("[]string", ips)
                _refuse(
                    svc,
                    [
                        field.invalid(
                            f"spec.clusterIPs[{index}]",
                            GoText(shown.json) if as_json else shown,
                            f"{family} is not configured on this cluster"
                            if newer
                            else f"may not use {family} on a cluster which is not configured for it",
                        )
                    ],
                )
            families.append(family)
    usual = next(iter(known))
    if headless and not spec.get("selector"):
        # Its endpoints are not known yet.
        policy = spec.setdefault("ipFamilyPolicy", _REQUIRE)
        families = families or [usual]
        both = newer or len(known) == 2
        if len(families) < 2 and (policy == _REQUIRE or (policy == _PREFER and both)):
            families.append(_OTHER[families[0]])
        spec["ipFamilies"] = families
        return
    _refuse(svc, _not_configured(spec, families, known, newer))
    policy = spec.setdefault("ipFamilyPolicy", _SINGLE)
    families = families or [usual]
    if policy != _SINGLE and len(families) == 1 and len(known) == 2:
        families.append(_OTHER[families[0]])
    spec["ipFamilies"] = families


def _refuse(svc: Object, problems: list[FieldError]) -> None:
    if problems:
        raise errors.invalid(_KIND, svc["metadata"].get("name", ""), problems)


_SHOWN = {"clusterIPs": "cluster IPs", "ipFamilies": "IP families"}


def _too_many_for_one(spec: Object, newer: bool) -> list[FieldError]:
    if spec.get("ipFamilyPolicy") != _SINGLE:
        return []
    if newer:
        return [
            field.invalid(
                "spec.ipFamilyPolicy",
                _SINGLE,
                f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {shown} are "
                "specified",
            )
            for name, shown in _SHOWN.items()
            if len(spec.get(name) or ()) == 2
        ]
    return [
        field.invalid(
            "spec.ipFamilyPolicy",
            _SINGLE,
            f"must be RequireDualStack or PreferDualStack when multiple '{name}' are specified",
        )
        for name in ("clusterIPs", "ipFamilies")
        if len(spec.get(name) or ()) == 2
    ]


def _not_configured(
    spec: Object, families: list[str], known: Collection[str], newer: bool
) -> list[FieldError]:
    found = []
    if spec.get("ipFamilyPolicy") == _REQUIRE and len(known) < 2:
        text = "Cluster is not configured for dual stack services"
        if newer:
            text = "this cluster is not configured for dual-stack services"
        found.append(field.invalid("spec.ipFamilyPolicy", _REQUIRE, text))
    if newer:
        return found + [
            field.invalid(f"spec.ipFamilies[{i}]", family, "not configured on this cluster")
            for i, family in enumerate(families)
            if family not in known
        ]
    found += [
        field.invalid(
            f"spec.ipFamilies[{index}]",
            go_dump("[]string", spec.get("clusterIPs")),
            f"ipfamily {family} is not configured on cluster",
        )
        for index, family in enumerate(families)
        if family not in known
    ]
    return found


def trim_for_dual_stack_downgrade(new: Object, old: Object) -> None:
    """A downgrade to single stack only needs a change of the policy."""
    spec = new["spec"]
    if (
        old["spec"].get("ipFamilyPolicy") in (_PREFER, _REQUIRE)
        and spec.get("ipFamilyPolicy") == _SINGLE
    ):
        for name in ("clusterIPs", "ipFamilies"):
            if len(spec.get(name) or ()) > 1:
                spec[name] = spec[name][:1]


def default_families_on_read(svc: Object, known: Collection[str]) -> Object | None:
    """A service from before the gate was enabled, with the new fields; None if nothing is
    missing.
    """
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
    return {
        **svc,
        "spec": {**spec, "clusterIPs": ips, "ipFamilies": families, "ipFamilyPolicy": policy},
    }
