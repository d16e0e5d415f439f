"""Security contexts of pods and containers, and the restrictions of a pod's operating system."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from transom.machinery.field import duplicate, forbidden, invalid, not_supported, required, too_long
from transom.machinery.podutil import containers_with_path
from transom.machinery.validation.common import all_invalid, check_descending_path
from transom.machinery.validation.godump import go_dump, pointer_text
from transom.machinery.validation.names import (
    byte_len,
    is_dns1123_subdomain,
    is_valid_group_id,
    is_valid_user_id,
)
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions
from transom.machinery.validation.rules import Errors
from transom.machinery.windows_fields import WINDOWS_CONTAINER_CONTEXT_FORBIDS, WINDOWS_POD_FORBIDS

SYSCTL_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = rf"({SYSCTL_SEGMENT}\.)*{SYSCTL_SEGMENT}"
SYSCTL_LIMIT = 253
_match_sysctl = re.compile(_SYSCTL).fullmatch
_SYSCTL_SLASHES = rf"({SYSCTL_SEGMENT}[\./])*{SYSCTL_SEGMENT}"
_match_sysctl_slashes = re.compile(_SYSCTL_SLASHES).fullmatch

_PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_CHANGE_POLICIES = ("Always", "OnRootMismatch")
_GROUPS_POLICIES = ("Merge", "Strict")
_SELINUX_POLICIES = ("MountOption", "Recursive")
PROC_MOUNTS = ("Default", "Unmasked")
_APPARMOR_LIMIT = 4095

_GMSA_LIMIT = 64 * 1024
_DOMAIN_LIMIT = 256
_USER_LIMIT = 104
_search_control = re.compile(r"[\x00-\x1f\x7f]").search
_match_netbios = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}').fullmatch
_DNS_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_match_dns = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*").fullmatch
_match_dots_and_spaces = re.compile(r"[. ]+").fullmatch
_search_bad_user = re.compile(r'["/\\:;|=,+*?<>@\[\]]').search


def check_security_context(
    context: dict[str, Any], path: str, errs: Errors, *, unmasked: bool = True
) -> None:
    """Checks the securityContext of a container. Privileged containers are allowed. `unmasked`: an unmasked
    /proc is allowed.
    """
    if not context:
        return
    for name, rule in (("runAsUser", is_valid_user_id), ("runAsGroup", is_valid_group_id)):
        if (number := context.get(name)) is not None:
            all_invalid(rule(number), number, f"{path}.{name}", errs)
    proc_mount = context.get("procMount")
    if proc_mount is not None and proc_mount not in PROC_MOUNTS:
        errs.append(not_supported(f"{path}.procMount", proc_mount, PROC_MOUNTS))
    if proc_mount == "Unmasked" and not unmasked:
        text = "`hostUsers` must be false to use `Unmasked`"
        errs.append(invalid(f"{path}.procMount", proc_mount, text))
    if (profile := context.get("seccompProfile")) is not None:
        _check_seccomp(profile, f"{path}.seccompProfile", errs)
    if context.get("allowPrivilegeEscalation") is False:
        _check_no_escalation(context, path, errs)
    if (options := context.get("windowsOptions")) is not None:
        check_windows_options(options, f"{path}.windowsOptions", errs)
    if (profile := context.get("appArmorProfile")) is not None:
        _check_apparmor(profile, f"{path}.appArmorProfile", errs)


def _check_no_escalation(context: dict[str, Any], path: str, errs: Errors) -> None:
    start = "cannot set `allowPrivilegeEscalation` to false and "
    if context.get("privileged"):
        errs.append(
            invalid(path, go_dump("core.SecurityContext", context), start + "`privileged` to true")
        )
    for capability in (context.get("capabilities") or {}).get("add") or ():
        if capability == "CAP_SYS_ADMIN":
            errs.append(
                invalid(
                    path,
                    go_dump("core.SecurityContext", context),
                    start + "`capabilities.Add` CAP_SYS_ADMIN",
                )
            )


def check_pod_security_context(
    context: dict[str, Any],
    spec: dict[str, Any],
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
) -> None:
    """`path` is the pod spec's; `context` may be empty, the host namespaces are in the spec."""
    where = f"{path}.securityContext"
    if spec.get("hostNetwork") and not options.checks_host_ports:
        _check_host_network_ports(spec.get("containers") or [], f"{path}.containers", errs)
    for name, rule in (
        ("fsGroup", is_valid_group_id),
        ("runAsUser", is_valid_user_id),
        ("runAsGroup", is_valid_group_id),
    ):
        if (number := context.get(name)) is not None:
            all_invalid(rule(number), number, f"{where}.{name}", errs)
    for i, group in enumerate(context.get("supplementalGroups") or ()):
        all_invalid(is_valid_group_id(group), group, f"{where}.supplementalGroups[{i}]", errs)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        errs.append(
            invalid(
                f"{where}.shareProcessNamespace",
                True,
                "ShareProcessNamespace and HostPID cannot both be enabled",
            )
        )
    if not context:
        return
    if sysctls := context.get("sysctls"):
        _check_sysctls(sysctls, spec, f"{where}.sysctls", errs, options)
    policies = (
        ("fsGroupChangePolicy", _CHANGE_POLICIES),
        ("supplementalGroupsPolicy", _GROUPS_POLICIES),
        ("seLinuxChangePolicy", _SELINUX_POLICIES),
    )
    _check_policies(context, policies[:1] if options.newer else policies, where, errs)
    if (profile := context.get("seccompProfile")) is not None:
        _check_seccomp(profile, f"{where}.seccompProfile", errs)
    if (windows := context.get("windowsOptions")) is not None:
        check_windows_options(windows, f"{where}.windowsOptions", errs)
    if (profile := context.get("appArmorProfile")) is not None:
        _check_apparmor(profile, f"{where}.appArmorProfile", errs)
    if options.newer:
        _check_policies(context, policies[1:], where, errs)


def _check_policies(
    context: dict[str, Any],
    policies: Sequence[tuple[str, tuple[str, ...]]],
    path: str,
    errs: Errors,
) -> None:
    for name, supported in policies:
        value = context.get(name)
        if value is not None and value not in supported:
            errs.append(not_supported(f"{path}.{name}", value, supported))


def check_host_port_equality(
    spec: dict[str, Any], path: str, errs: Errors, *, in_pod: bool
) -> None:
    """On the host's network a container's ports are the host's; a template may leave them out."""
    for i, container in enumerate(spec.get("containers") or ()):
        for j, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort", 0)
            if (in_pod or host) and host != port.get("containerPort", 0):
                text = "must match `containerPort` when `hostNetwork` is true"
                errs.append(invalid(f"{path}.containers[{i}].ports[{j}].hostPort", host, text))


def _check_host_network_ports(containers: list[dict[str, Any]], path: str, errs: Errors) -> None:
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports") or ()):
            number = port.get("containerPort", 0)
            if port.get("hostPort", 0) != number:
                errs.append(
                    invalid(
                        f"{path}[{i}].ports[{j}].containerPort",
                        number,
                        "must match `hostPort` when `hostNetwork` is true",
                    )
                )


def is_sysctl_name(name: str, *, slashes: bool = False) -> bool:
    match = _match_sysctl_slashes if slashes else _match_sysctl
    return byte_len(name) <= SYSCTL_LIMIT and match(name) is not None


_IPC_SYSCTLS = frozenset(
    f"kernel.{name}"
    for name in (
        [
            "sem",
            "shmall",
            "shmmax",
            "shmmni",
            "shm_rmid_forced",
            "shm",
            "msgmax",
            "msgmnb",
            "msgmni",
            "msg",
        ]
    )
)
_SWAPPED = str.maketrans("./", "/.")


def _sysctl_namespace(name: str) -> str:
    """The field that shares the namespace of a sysctl with the host, empty for an unknown one."""
    slash, dot = name.find("/"), name.find(".")
    if slash >= 0 and (dot < 0 or slash < dot):
        name = name.translate(_SWAPPED)
    name = name.partition("*")[0]
    if name in _IPC_SYSCTLS or name.startswith("fs.mqueue."):
        return "hostIPC"
    return "hostNetwork" if name.startswith("net.") else ""


def _check_host_sysctl(name: str, spec: dict[str, Any], path: str, errs: Errors) -> None:
    """A sysctl of a namespace that the pod shares with the host."""
    shared = _sysctl_namespace(name)
    if shared and spec.get(shared):
        errs.append(invalid(path, name, f"may not be specified when '{shared}' is true"))


def _check_sysctls(
    sysctls: list[dict[str, Any]],
    spec: dict[str, Any],
    path: str,
    errs: Errors,
    options: PodOptions,
) -> None:
    names: set[str] = set()
    for i, sysctl in enumerate(sysctls):
        name = sysctl.get("name", "")
        if not name:
            errs.append(required(f"{path}[{i}].name"))
        elif not is_sysctl_name(name, slashes=options.sysctl_slashes):
            pattern = f"^{_SYSCTL_SLASHES}$" if options.sysctl_slashes else _SYSCTL
            text = f"must have at most {SYSCTL_LIMIT} characters and match regex {pattern}"
            errs.append(invalid(f"{path}[{i}].name", name, text))
        elif name in names:
            errs.append(duplicate(f"{path}[{i}].name", name))
        if options.checks_host_sysctls:
            _check_host_sysctl(name, spec, f"{path}[{i}].name", errs)
        names.add(name)


def _check_seccomp(profile: dict[str, Any], path: str, errs: Errors) -> None:
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    if not kind:
        errs.append(required(f"{path}.type", "type is required when seccompProfile is set"))
    elif kind not in _PROFILE_TYPES:
        errs.append(not_supported(f"{path}.type", kind, _PROFILE_TYPES))
    if kind != "Localhost":
        if local is not None:
            errs.append(
                invalid(
                    f"{path}.localhostProfile",
                    go_dump("core.SeccompProfile", profile),
                    "can only be set when seccomp type is Localhost",
                )
            )
    elif local is None:
        errs.append(
            required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
        )
    else:
        check_descending_path(local, f"{path}.localhostProfile", errs)


def _check_apparmor(profile: dict[str, Any], path: str, errs: Errors) -> None:
    kind, local = profile.get("type", ""), profile.get("localhostProfile")
    where = f"{path}.localhostProfile"
    if kind == "Localhost":
        if local is not None and local != local.strip():
            errs.append(invalid(where, local, "must not be padded with whitespace"))
        elif not local:
            errs.append(required(where, "must be set when AppArmor type is Localhost"))
        if byte_len(local or "") > _APPARMOR_LIMIT:
            errs.append(too_long(where, "", _APPARMOR_LIMIT))
    elif kind in _PROFILE_TYPES:
        if local is not None:
            errs.append(invalid(where, local, "can only be set when AppArmor type is Localhost"))
    elif kind:
        errs.append(not_supported(f"{path}.type", kind, _PROFILE_TYPES))
    else:
        errs.append(required(f"{path}.type", "type is required when appArmorProfile is set"))


def check_windows_options(options: dict[str, Any], path: str, errs: Errors) -> None:
    name = options.get("gmsaCredentialSpecName")
    if name is not None:
        all_invalid(is_dns1123_subdomain(name), name, f"{path}.gmsaCredentialSpecName", errs)
    spec = options.get("gmsaCredentialSpec")
    if spec is not None:
        where = f"{path}.gmsaCredentialSpec"
        if not spec:
            errs.append(invalid(where, spec, "gmsaCredentialSpec cannot be an empty string"))
        elif byte_len(spec) > _GMSA_LIMIT:
            errs.append(invalid(where, spec, "gmsaCredentialSpec size must be under 64 KiB"))
    user = options.get("runAsUserName")
    if user is not None:
        for text in _user_name_problems(user):
            shown = pointer_text(user)
            errs.append(invalid(f"{path}.runAsUserName", shown, f"runAsUserName{text}"))


def _user_name_problems(name: str) -> Iterator[str]:
    """The errors of `user` or `DOMAIN\\user`."""
    if not name:
        yield " cannot be an empty string"
        return
    if _search_control(name):
        yield " cannot contain control characters"
        return
    if name.count("\\") > 1:
        yield " cannot contain more than one backslash"
        return
    domain, has_domain, user = name.rpartition("\\")
    if byte_len(domain) >= _DOMAIN_LIMIT:
        yield f"'s Domain length must be under {_DOMAIN_LIMIT} characters"
    if has_domain and not _match_netbios(domain) and not _match_dns(domain):
        yield "'s Domain doesn't match the NetBios nor the DNS format"
    if not user:
        yield "'s User cannot be empty"
    elif byte_len(user) > _USER_LIMIT:
        yield f"'s User length must not be longer than {_USER_LIMIT} characters"
    if _match_dots_and_spaces(user):
        yield "'s User cannot contain only periods or spaces"
    if _search_bad_user(user):
        yield "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


def _host_process(context: dict[str, Any] | None) -> bool | None:
    return ((context or {}).get("windowsOptions") or {}).get("hostProcess")


def check_host_process(spec: dict[str, Any], path: str, errs: Errors) -> None:
    """Host-process containers: all or none, and only on the host's network."""
    pod = _host_process(spec.get("securityContext"))
    total = found = 0
    for container, where in containers_with_path(spec, path):
        total += 1
        own = _host_process(container.get("securityContext"))
        if pod is not None and own is not None and pod != own:
            shown = "true" if pod else "false"
            errs.append(
                invalid(
                    f"{where}.securityContext.windowsOptions.hostProcess",
                    own,
                    f"pod hostProcess value must be identical if both are specified, was {shown}",
                )
            )
        if own or (own is None and pod):
            found += 1
    if not found:
        return
    if found != total:
        errs.append(
            invalid(
                path,
                "",
                (
                    "If pod contains any hostProcess containers then all containers must be "
                    "HostProcess containers"
                ),
            )
        )
    if not spec.get("hostNetwork"):
        errs.append(
            invalid(
                f"{path}.hostNetwork",
                False,
                "hostNetwork must be true if pod contains any hostProcess containers",
            )
        )


def check_os(spec: dict[str, Any], path: str, errs: Errors) -> None:
    """`spec.os` and the fields that the operating system does not support."""
    name = spec["os"].get("name", "")
    if not name:
        errs.append(required(f"{path}.os.name", "cannot be empty"))
    elif name == "linux":
        _check_linux(spec, path, errs)
    elif name == "windows":
        _check_windows(spec, path, errs)
    else:
        errs.append(not_supported(f"{path}.os", name, ("linux", "windows")))


def _check_linux(spec: dict[str, Any], path: str, errs: Errors) -> None:
    text = "windows options cannot be set for a linux pod"
    if "windowsOptions" in (spec.get("securityContext") or ()):
        errs.append(forbidden(f"{path}.securityContext.windowsOptions", text))
    for container, where in containers_with_path(spec, path):
        if "windowsOptions" in (container.get("securityContext") or ()):
            errs.append(forbidden(f"{where}.securityContext.windowsOptions", text))


def _check_windows(spec: dict[str, Any], path: str, errs: Errors) -> None:
    text = "cannot be set for a windows pod"
    context = spec.get("securityContext") or {}
    for name in WINDOWS_POD_FORBIDS:
        in_context = name.removeprefix("securityContext.")
        if in_context in context if in_context != name else name in spec:
            errs.append(forbidden(f"{path}.{name}", text))
    for container, where in containers_with_path(spec, path):
        own = container.get("securityContext") or {}
        for name in WINDOWS_CONTAINER_CONTEXT_FORBIDS:
            if name in own:
                errs.append(forbidden(f"{where}.securityContext.{name}", text))
