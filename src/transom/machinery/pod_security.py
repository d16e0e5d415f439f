"""The Pod Security Standards: which rules of the levels baseline and restricted a pod violates.

Pure functions on pod metadata and spec. Each check returns a reason and a detail, in Kubernetes'
words; checks of a level run in the order of their ids, those of baseline first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from transom.machinery.podutil import visit_containers

Spec = Mapping[str, Any]

PRIVILEGED, BASELINE, RESTRICTED = LEVELS = ("privileged", "baseline", "restricted")
LATEST: Final = (1, 1 << 30)
Version = tuple[int, int]


class Violation(NamedTuple):
    reason: str
    detail: str


class Check(NamedTuple):
    level: str
    find: Callable[[Spec, Spec, Version], Violation | None]  # metadata, spec, version
    since: int = 0  # the minor version of the standards that adds it
    replaced: bool = False  # by a check of the level restricted


def evaluate_pod(level: str, version: Version, metadata: Spec, spec: Spec) -> list[Violation]:
    if level == PRIVILEGED:
        return []
    out = []
    for check in CHECKS:
        if version[1] < check.since:
            continue
        if level == BASELINE and check.level == RESTRICTED:
            continue
        if level == RESTRICTED and check.replaced:
            continue
        found = check.find(metadata, spec, version)
        if found is not None:
            out.append(found)
    return out


def violations_text(found: Iterable[Violation]) -> str:
    return ", ".join(f"{v.reason} ({v.detail})" if v.detail else v.reason for v in found)


# ---- parts of texts ----


def _security(holder: Spec) -> Spec:
    return holder.get("securityContext") or {}


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _names(noun: str, names: list[str]) -> str:
    return f"{noun if len(names) == 1 else noun + 's'} {_quoted(names)}"


def _users(
    holders: Iterable[Spec], used_by: Callable[[Spec], Iterable[Any]]
) -> tuple[list[str], list[Any]]:
    """The names of the containers or volumes that use something, and all that they use."""
    used = [(holder.get("name", ""), set(used_by(holder))) for holder in holders]
    return [name for name, values in used if values], sorted(
        {value for _, values in used for value in values}
    )


def _use(noun: str, names: list[str], used_noun: str, used: list[Any]) -> str:
    verb = "uses" if len(names) == 1 else "use"
    return f"{_names(noun, names)} {verb} {used_noun if len(used) == 1 else used_noun + 's'}"


def _bad(spec: Spec, is_bad: Callable[[Spec], bool]) -> list[str]:
    return [c.get("name", "") for c in visit_containers(spec) if is_bad(c)]


def _is_windows(spec: Spec, version: Version) -> bool:
    return (spec.get("os") or {}).get("name") == "windows" and version[1] >= 25


def _own_users(spec: Spec) -> bool:
    return spec.get("hostUsers") is False


# ---- baseline ----


def _apparmor(metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    allowed = ("RuntimeDefault", "Localhost")
    setters, types = [], []
    kind = (_security(spec).get("appArmorProfile") or {}).get("type")
    if kind is not None and kind not in allowed:
        setters.append("pod")
        types.append(kind)
    names = []
    for container in visit_containers(spec):
        kind = (_security(container).get("appArmorProfile") or {}).get("type")
        if kind is not None and kind not in allowed:
            names.append(container.get("name", ""))
            types.append(kind)
    if names:
        setters.append(_names("container", names))
    details = []
    if setters:
        what = f"type to {_quoted(dict.fromkeys(types))}"
        details.append(f"{' and '.join(setters)} must not set AppArmor profile {what}")
    prefix = "container.apparmor.security.beta.kubernetes.io/"
    annotations = [
        f'{key}="{value}"'
        for key, value in sorted((metadata.get("annotations") or {}).items())
        if key.startswith(prefix)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    ]
    if annotations:
        noun = "annotation" if len(annotations) == 1 else "annotations"
        details.append(f"{noun} {', '.join(annotations)}")
    if not details:
        return None
    count = len(types) + len(annotations)
    reason = "forbidden AppArmor profile" if count == 1 else "forbidden AppArmor profiles"
    return Violation(reason, "; ".join(details))


_DEFAULT_CAPABILITIES: Final = frozenset(
    (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
)


def _added(spec: Spec, allowed: frozenset[str]) -> tuple[list[str], list[str]]:
    names, capabilities = [], set()
    for container in visit_containers(spec):
        add = (_security(container).get("capabilities") or {}).get("add") or ()
        wrong = [c for c in add if c not in allowed]
        if wrong:
            names.append(container.get("name", ""))
            capabilities.update(wrong)
    return names, sorted(capabilities)


def _capabilities(_metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    names, found = _added(spec, _DEFAULT_CAPABILITIES)
    if not names:
        return None
    return Violation(
        "non-default capabilities",
        f"{_names('container', names)} must not include {_quoted(found)} in "
        "securityContext.capabilities.add",
    )


def _host_namespaces(_metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    used = [f"{f}=true" for f in ("hostNetwork", "hostPID", "hostIPC") if spec.get(f)]
    return Violation("host namespaces", ", ".join(used)) if used else None


def _host_paths(_metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    names = [v.get("name", "") for v in spec.get("volumes") or () if v.get("hostPath") is not None]
    return Violation("hostPath volumes", _names("volume", names)) if names else None


def _host_ports(_metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    names, ports = _users(
        visit_containers(spec),
        lambda c: (p["hostPort"] for p in c.get("ports") or () if p.get("hostPort")),
    )
    if not names:
        return None
    listed = ", ".join(map(str, ports))
    return Violation("hostPort", f"{_use('container', names, 'hostPort', ports)} {listed}")


def _hosts_of(container: Spec) -> Iterator[str]:
    lifecycle = container.get("lifecycle") or {}
    handlers = [container.get(f) for f in ("livenessProbe", "readinessProbe", "startupProbe")]
    handlers += [lifecycle.get(f) for f in ("postStart", "preStop")]
    for handler in handlers:
        for action in ("httpGet", "tcpSocket"):
            host = ((handler or {}).get(action) or {}).get("host")
            if host:
                yield host


def _probe_hosts(_metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    kind = "probe or lifecycle host"
    names, hosts = _users(visit_containers(spec), _hosts_of)
    if not names:
        return None
    return Violation(kind, f"{_use('container', names, kind, hosts)} {_quoted(hosts)}")


def _privileged(_metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    names = _bad(spec, lambda c: bool(_security(c).get("privileged")))
    if not names:
        return None
    return Violation(
        "privileged", f"{_names('container', names)} must not set securityContext.privileged=true"
    )


def _proc_mount(_metadata: Spec, spec: Spec, version: Version) -> Violation | None:
    if _own_users(spec) and version[1] >= 35:
        return None
    found: dict[str, None] = {}
    names = []
    for container in visit_containers(spec):
        mount = _security(container).get("procMount")
        if mount not in (None, "Default"):
            names.append(container.get("name", ""))
            found[str(mount)] = None
    if not names:
        return None
    return Violation(
        "procMount",
        f"{_names('container', names)} must not set securityContext.procMount to {_quoted(found)}",
    )


_SELINUX_TYPES: Final = {
    "": 0,
    "container_t": 0,
    "container_init_t": 0,
    "container_kvm_t": 0,
    "container_engine_t": 31,
}


def _selinux(_metadata: Spec, spec: Spec, version: Version) -> Violation | None:
    types: set[str] = set()
    fields: set[str] = set()

    def is_bad(holder: Spec) -> bool:
        options = _security(holder).get("seLinuxOptions") or {}
        kind = options.get("type", "")
        wrong = _SELINUX_TYPES.get(kind, LATEST[1] + 1) > version[1]
        if wrong:
            types.add(kind)
        named = [f for f in ("user", "role") if options.get(f)]
        fields.update(named)
        return wrong or bool(named)

    setters = ["pod"] if is_bad(spec) else []
    names = _bad(spec, is_bad)
    if names:
        setters.append(_names("container", names))
    if not setters:
        return None
    what = []
    if types:
        what.append(f"{'type' if len(types) == 1 else 'types'} {_quoted(sorted(types))}")
    what += [f"{f} may not be set" for f in ("user", "role") if f in fields]
    return Violation(
        "seLinuxOptions",
        f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions: {'; '.join(what)}",
    )


def _seccomp_type(holder: Spec) -> Any:
    return (_security(holder).get("seccompProfile") or {}).get("type")


def _seccomp(_metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    def is_bad(holder: Spec) -> bool:
        return _seccomp_type(holder) not in (None, "RuntimeDefault", "Localhost")

    setters = ["pod"] if is_bad(spec) else []
    names = _bad(spec, is_bad)
    if names:
        setters.append(_names("container", names))
    if not setters:
        return None
    types = [_seccomp_type(h) for h in (spec, *visit_containers(spec)) if is_bad(h)]
    return Violation(
        "seccompProfile",
        f"{' and '.join(setters)} must not set securityContext.seccompProfile.type to "
        f"{_quoted(dict.fromkeys(types))}",
    )


_SYSCTLS: Final = {
    "kernel.shm_rmid_forced": 0,
    "net.ipv4.ip_local_port_range": 0,
    "net.ipv4.tcp_syncookies": 0,
    "net.ipv4.ping_group_range": 0,
    "net.ipv4.ip_unprivileged_port_start": 0,
    "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_keepalive_time": 29,
    "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29,
    "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_rmem": 32,
    "net.ipv4.tcp_wmem": 32,
}


def _sysctls(_metadata: Spec, spec: Spec, version: Version) -> Violation | None:
    wrong = [
        s.get("name", "")
        for s in _security(spec).get("sysctls") or ()
        if _SYSCTLS.get(s.get("name", ""), LATEST[1] + 1) > version[1]
    ]
    return Violation("forbidden sysctls", ", ".join(wrong)) if wrong else None


def _host_process(_metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    def is_bad(holder: Spec) -> bool:
        return bool((_security(holder).get("windowsOptions") or {}).get("hostProcess"))

    setters = ["pod"] if is_bad(spec) else []
    names = _bad(spec, is_bad)
    if names:
        setters.append(_names("container", names))
    if not setters:
        return None
    return Violation(
        "hostProcess",
        f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true",
    )


# ---- restricted ----


def _escalation(_metadata: Spec, spec: Spec, version: Version) -> Violation | None:
    if _is_windows(spec, version):
        return None
    names = _bad(spec, lambda c: _security(c).get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    return Violation(
        "allowPrivilegeEscalation != false",
        f"{_names('container', names)} must set securityContext.allowPrivilegeEscalation=false",
    )


def _dropped(_metadata: Spec, spec: Spec, version: Version) -> Violation | None:
    if _is_windows(spec, version):
        return None
    details = []
    keeping = _bad(
        spec,
        lambda c: "ALL" not in ((_security(c).get("capabilities") or {}).get("drop") or ()),
    )
    if keeping:
        details.append(
            f'{_names("container", keeping)} must set securityContext.capabilities.drop=["ALL"]'
        )
    names, found = _added(spec, frozenset(("NET_BIND_SERVICE",)))
    if names:
        details.append(
            f"{_names('container', names)} must not include {_quoted(found)} in "
            "securityContext.capabilities.add"
        )
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


_VOLUMES: Final = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)


def _volumes(_metadata: Spec, spec: Spec, _version: Version) -> Violation | None:
    names, types = _users(
        spec.get("volumes") or (),
        lambda volume: (key for key in volume if key != "name" and key not in _VOLUMES),
    )
    if not names:
        return None
    used = _use("volume", names, "restricted volume type", types)
    return Violation("restricted volume types", f"{used} {_quoted(types)}")


def _non_root(_metadata: Spec, spec: Spec, version: Version) -> Violation | None:
    if _own_users(spec) and version[1] >= 35:
        return None
    of_pod = _security(spec).get("runAsNonRoot")
    explicit = _bad(spec, lambda c: _security(c).get("runAsNonRoot") is False)
    implicit = _bad(spec, lambda c: _security(c).get("runAsNonRoot") is None)
    setters = ["pod"] if of_pod is False and (implicit or explicit) else []
    if explicit:
        setters.append(_names("container", explicit))
    reason = "runAsNonRoot != true"
    if setters:
        return Violation(
            reason, f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false"
        )
    if of_pod or not implicit:
        return None
    return Violation(
        reason, f"pod or {_names('container', implicit)} must set securityContext.runAsNonRoot=true"
    )


def _user(_metadata: Spec, spec: Spec, version: Version) -> Violation | None:
    if _own_users(spec) and version[1] >= 35:
        return None
    setters = ["pod"] if _security(spec).get("runAsUser") == 0 else []
    names = _bad(spec, lambda c: _security(c).get("runAsUser") == 0)
    if names:
        setters.append(_names("container", names))
    if not setters:
        return None
    return Violation("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0")


def _seccomp_required(metadata: Spec, spec: Spec, version: Version) -> Violation | None:
    if _is_windows(spec, version):
        return None
    explicit = _seccomp(metadata, spec, version)
    if explicit is not None:
        return explicit
    if _seccomp_type(spec) is not None:
        return None
    names = _bad(spec, lambda c: _seccomp_type(c) is None)
    if not names:
        return None
    return Violation(
        "seccompProfile",
        f"pod or {_names('container', names)} must set securityContext.seccompProfile.type to "
        '"RuntimeDefault" or "Localhost"',
    )


CHECKS: Final = (
    Check(BASELINE, _apparmor),
    Check(BASELINE, _capabilities, replaced=True),
    Check(BASELINE, _host_namespaces),
    Check(BASELINE, _host_paths, replaced=True),
    Check(BASELINE, _host_ports),
    Check(BASELINE, _probe_hosts, since=34),
    Check(BASELINE, _privileged),
    Check(BASELINE, _proc_mount),
    Check(BASELINE, _selinux),
    Check(BASELINE, _seccomp, since=19, replaced=True),
    Check(BASELINE, _sysctls),
    Check(BASELINE, _host_process),
    Check(RESTRICTED, _escalation, since=8),
    Check(RESTRICTED, _dropped, since=22),
    Check(RESTRICTED, _volumes),
    Check(RESTRICTED, _non_root),
    Check(RESTRICTED, _user, since=23),
    Check(RESTRICTED, _seccomp_required, since=19),
)
