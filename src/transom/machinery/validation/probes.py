"""Probes and lifecycle hooks: exactly one handler, and valid numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transom.machinery.field import forbidden, invalid, not_supported, required
from transom.machinery.validation.common import all_invalid, check_nonnegative_fields, check_port
from transom.machinery.validation.names import is_http_header_name
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions
from transom.machinery.validation.rules import Errors

_SCHEMES = ("HTTP", "HTTPS")
_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
Action = Callable[[dict[str, Any], str, Errors], None]


def _check_exec(action: dict[str, Any], path: str, errs: Errors) -> None:
    if not action.get("command"):
        errs.append(required(f"{path}.command"))


def _check_http_get(action: dict[str, Any], path: str, errs: Errors) -> None:
    if not action.get("path"):
        errs.append(required(f"{path}.path"))
    check_port(action.get("port", 0), f"{path}.port", errs)
    scheme = action.get("scheme", "")
    if scheme not in _SCHEMES:
        errs.append(not_supported(f"{path}.scheme", scheme, _SCHEMES))
    for header in action.get("httpHeaders") or ():
        name = header.get("name", "")
        all_invalid(is_http_header_name(name), name, f"{path}.httpHeaders", errs)


def _check_with_port(action: dict[str, Any], path: str, errs: Errors) -> None:
    check_port(action.get("port", 0), f"{path}.port", errs)


_PROBE_HANDLERS: dict[str, Action] = {
    "exec": _check_exec,
    "httpGet": _check_http_get,
    "tcpSocket": _check_with_port,
    "grpc": _check_with_port,
}


def _lifecycle_handlers(grace: int | None, zero_allowed: bool) -> dict[str, Action]:
    def check_sleep(action: dict[str, Any], path: str, errs: Errors) -> None:
        seconds = action.get("seconds", 0)
        if grace is None:
            return
        if zero_allowed:
            if not 0 <= seconds <= grace:
                text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
                errs.append(invalid(path, seconds, text))
        elif not 0 < seconds <= grace:
            errs.append(
                invalid(
                    path,
                    seconds,
                    "must be greater than 0 and less than terminationGracePeriodSeconds "
                    f"({grace}). Enable "
                    "AllowPodLifecycleSleepActionZeroValue feature gate for zero sleep.",
                )
            )

    return {
        "exec": _check_exec,
        "httpGet": _check_http_get,
        "tcpSocket": _check_with_port,
        "sleep": check_sleep,
    }


def _check_handler(
    handler: dict[str, Any], known: dict[str, Action], path: str, errs: Errors
) -> None:
    found = False
    for kind, check in known.items():
        action = handler.get(kind)
        if action is None:
            continue
        if found:
            errs.append(forbidden(f"{path}.{kind}", "may not specify more than 1 handler type"))
        else:
            found = True
            check(action, f"{path}.{kind}", errs)
    if not found:
        errs.append(required(path, "must specify a handler type"))


def check_probe(probe: dict[str, Any], path: str, errs: Errors) -> None:
    _check_handler(probe, _PROBE_HANDLERS, path, errs)
    check_nonnegative_fields(probe, _NUMBERS, path, errs)
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        errs.append(
            invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")
        )


def check_restarting_probe(probe: dict[str, Any], path: str, errs: Errors) -> None:
    """A liveness or startup probe: its success threshold must be 1."""
    check_probe(probe, path, errs)
    threshold = probe.get("successThreshold", 0)
    if threshold != 1:
        errs.append(invalid(f"{path}.successThreshold", threshold, "must be 1"))


def check_readiness_probe(probe: dict[str, Any], path: str, errs: Errors) -> None:
    check_probe(probe, path, errs)
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None:
        errs.append(
            invalid(
                f"{path}.terminationGracePeriodSeconds",
                grace,
                "must not be set for readinessProbes",
            )
        )


_REALTIME = (
    "SIGRTMIN",
    *(f"SIGRTMIN+{i}" for i in range(1, 16)),
    *(f"SIGRTMAX-{i}" for i in range(1, 15)),
    "SIGRTMAX",
)
_PLAIN = """
ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP
SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ
"""
_LINUX_SIGNALS = (*(f"SIG{name}" for name in _PLAIN.split()), *_REALTIME)
_SIGNALS = {"linux": tuple(sorted(_LINUX_SIGNALS)), "windows": ("SIGKILL", "SIGTERM")}


def _check_stop_signal(signal: str, os: str | None, path: str, errs: Errors) -> None:
    if os is None:
        errs.append(forbidden(path, "may not be set for containers with empty `spec.os.name`"))
    elif os in _SIGNALS and signal not in _SIGNALS[os]:
        errs.append(not_supported(path, signal, _SIGNALS[os]))


def check_lifecycle(
    lifecycle: dict[str, Any],
    grace: int | None,
    path: str,
    errs: Errors,
    options: PodOptions = BASE_OPTIONS,
    os: str | None = None,
) -> None:
    """`os` is the name in `spec.os`, None for a pod without it."""
    for hook in ("postStart", "preStop"):
        handler = lifecycle.get(hook)
        if handler is not None:
            known = _lifecycle_handlers(grace, options.sleep_zero)
            _check_handler(handler, known, f"{path}.{hook}", errs)
    if options.newer and (signal := lifecycle.get("stopSignal")) is not None:
        _check_stop_signal(signal, os, f"{path}.stopSignal", errs)
