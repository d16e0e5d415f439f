"""Results of network plugins in the formats of the specification's versions.

Up to 0.2.0 there is one address for each family (`ip4`, `ip6`) with its routes inside; since 0.3.0
there are lists; 1.0.0 omits the family of an address. This package uses the format of 0.4.0
internally, called current here.
"""

from __future__ import annotations

from typing import Any

from transom.network.cni.plugin import DECODING_FAILURE, INTERNAL, CniError, Result

CURRENT = "0.4.0"
_SINGLE = ("", "0.1.0", "0.2.0")
_LISTS = ("0.3.0", "0.3.1", "0.4.0")
_ORDER = ("cniVersion", "interfaces", "ips", "routes", "dns")


def result_family(address: str) -> str:
    return "6" if ":" in address else "4"


def to_current(result: Result, version: str = "") -> Result:
    """Converts from the format of a version, by default the result's own. Shares its parts with the
    original.
    """
    version = version or result.get("cniVersion") or "0.1.0"
    if version in _LISTS or version == "1.0.0":
        newer = result if result.get("cniVersion") == CURRENT else _lists(result, CURRENT)
        ips = result.get("ips") or ()
        # 1.0.0, and programs that always write its format
        if any("version" not in ip for ip in ips):
            newer = {
                **newer,
                "ips": [{"version": result_family(ip["address"]), **ip} for ip in ips],
            }
        return newer
    if version not in _SINGLE:
        raise CniError(DECODING_FAILURE, f'unsupported CNI result version "{version}"')
    found: list[dict[str, Any]] = []
    routes: list[dict[str, Any]] = []
    for key, number in (("ip4", "4"), ("ip6", "6")):
        single = result.get(key)
        if single is None:
            continue
        found.append({"version": number, "address": single["ip"]})
        if single.get("gateway"):
            found[-1]["gateway"] = single["gateway"]
        routes += single.get("routes") or ()
    newer = {"cniVersion": CURRENT}
    if found:
        newer["ips"] = found
    if routes:
        newer["routes"] = routes
    newer["dns"] = result.get("dns") or {}
    return newer


def as_version(result: Result, version: str) -> Result:
    """Converts from the current format to that of a version. Drops what 0.2.0 cannot express."""
    if version in _LISTS:
        return result if result.get("cniVersion") == version else _lists(result, version)
    if version == "1.0.0":
        newer = _lists(result, version)
        if newer.get("ips"):
            newer["ips"] = [{k: v for k, v in ip.items() if k != "version"} for ip in newer["ips"]]
        return newer
    if version not in _SINGLE:
        raise CniError(INTERNAL, f'cannot convert version 0.3.x to "{version}"')
    older: Result = {"cniVersion": version or "0.1.0"}
    for ip in result.get("ips") or ():
        key = f"ip{ip['version']}"
        if key in older:
            continue  # the first of each family only
        older[key] = {"ip": ip["address"]}
        if ip.get("gateway"):
            older[key]["gateway"] = ip["gateway"]
    if len(older) == 1:
        raise CniError(INTERNAL, "cannot convert: no valid IP addresses")
    for route in result.get("routes") or ():
        single = older.get(f"ip{result_family(route['dst'])}")
        if single is not None:
            single.setdefault("routes", []).append(route)
    older["dns"] = result.get("dns") or {}
    return older


def _lists(result: Result, version: str) -> Result:
    newer: Result = {"cniVersion": version}
    for key in _ORDER[1:-1]:
        value = result.get(key)
        if value:
            newer[key] = value
    newer["dns"] = result.get("dns") or {}
    return newer
