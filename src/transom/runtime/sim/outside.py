"""Whether a machine's runtime can reach registries, directly or through a proxy.

A machine behind a proxy reaches nothing directly: requests to a registry get no response. The
runtime must use the proxy, which it reads from the machine-wide environment variables. The proxy
itself is not simulated: a runtime that is configured with it gets through.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from transom.machines.windows.host import WindowsHost
from transom.machines.windows.variables import machine_variables

VARIABLE: Final = "HTTPS_PROXY"  # registries use HTTPS


def host_of(proxy: str) -> str:
    """The host of a proxy's address, which Go programs also accept without a scheme."""
    try:
        return urlsplit(proxy if "://" in proxy else f"http://{proxy}").hostname or ""
    except ValueError:
        return ""


def outside_problem(host: object, proxy: str) -> str | None:
    """Why a machine behind a proxy cannot reach registries, in a Go program's wording; "" when it
    gets no response, None when it can reach them.
    """
    if not proxy or not isinstance(host, WindowsHost):
        return None
    set_ = next(
        (
            value
            for name, value in machine_variables(host.registry).items()
            if name.upper() == VARIABLE
        ),
        "",
    )
    if not set_:
        return ""
    named = host_of(set_)
    return (
        None
        if named == host_of(proxy)
        else f"proxyconnect tcp: dial tcp: lookup {named}: no such host"
    )
