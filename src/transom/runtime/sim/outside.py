"""Whether a machine's runtime gets out to registries, or somebody stands in the way.

A machine behind a proxy reaches nothing by itself: what it sends to a registry is not answered. The runtime has to know the
proxy, which it does from the variables that are set for the whole machine. The proxy itself is not there: who names it gets
through.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from transom.hosts.windows.host import WindowsHost
from transom.hosts.windows.variables import of_machine

VARIABLE: Final = "HTTPS_PROXY"  # registries are asked by HTTPS


def host_of(proxy: str) -> str:
    """Of a proxy's address, which Go's programs also take without a scheme."""
    try:
        return urlsplit(proxy if "://" in proxy else f"http://{proxy}").hostname or ""
    except ValueError:
        return ""


def problem(host: object, proxy: str) -> str | None:
    """Why a machine with a proxy in front does not get out, as a Go program says it; "" when it hears nothing at all, None
    when it does get out."""
    if not proxy or not isinstance(host, WindowsHost):
        return None
    set_ = next((value for name, value in of_machine(host.registry).items() if name.upper() == VARIABLE), "")
    if not set_:
        return ""
    named = host_of(set_)
    return None if named == host_of(proxy) else f"proxyconnect tcp: dial tcp: lookup {named}: no such host"
