"""Kernel parameters that a pod may set: the safe ones, and those that the node's settings also
allow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from transom.machinery.objects import Object
from transom.machinery.releases import Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.kubelet import kubelet_has
from transom.windows.sysctls import safe_sysctls

_NAMESPACES = {"kernel.sem": "ipc"}
_PREFIXES = {"kernel.shm": "ipc", "kernel.msg": "ipc", "fs.mqueue.": "ipc", "net.": "net"}

_SWAPPED = str.maketrans("./", "/.")


class Sysctls:
    """Raises ValueError for a pattern that can never be allowed; such a kubelet does not start."""

    __slots__ = ("_names", "_prefixes", "_refusal", "_slashes")

    def __init__(self, allowed: Iterable[str], release: tuple[int, int]) -> None:
        self._slashes = has_behaviour(Release(*release), "SysctlSlashes")
        self._names: dict[str, str] = {}
        self._prefixes: dict[str, str] = {}
        self._refusal = (
            "not allowlisted" if kubelet_has(release, "AllowlistedSysctls") else "not whitelisted"
        )
        for pattern in (*safe_sysctls(release), *allowed):
            wild = pattern.endswith("*")
            name = pattern[:-1] if wild else pattern
            namespace = namespaced_by(name)
            if not namespace:
                word = "sysctls" if wild else "sysctl"
                raise ValueError(f'the {word} "{pattern}" are not known to be namespaced')
            (self._prefixes if wild else self._names)[name] = namespace

    def problem(self, spec: Object) -> str:
        """Why a pod with this spec is rejected; empty when it is admitted."""
        for sysctl in (spec.get("securityContext") or {}).get("sysctls") or ():
            name = sysctl["name"]
            wrong = self._check_sysctl(dotted_name(name) if self._slashes else name, spec)
            if wrong:
                return f"forbidden sysctl: {wrong}"
        return ""

    def _check_sysctl(self, name: str, spec: Mapping[str, object]) -> str:
        namespace = self._names.get(name)
        if namespace is None:
            namespace = next(
                (ns for prefix, ns in self._prefixes.items() if name.startswith(prefix)), None
            )
        if namespace is None:
            return f'"{name}" {self._refusal}'
        if spec.get("hostIPC" if namespace == "ipc" else "hostNetwork"):
            return f'"{name}" not allowed with host {namespace} enabled'
        return ""


def dotted_name(name: str) -> str:
    """A name whose parts are divided by slashes (and which may have dots in them), with dots."""
    first = re.search(r"[./]", name)
    if first is None or first[0] == ".":
        return name
    return name.translate(_SWAPPED)


def namespaced_by(name: str) -> str:
    """The kernel namespace that isolates the sysctl; empty when there is none."""
    return _NAMESPACES.get(name) or next(
        (ns for prefix, ns in _PREFIXES.items() if name.startswith(prefix)), ""
    )
