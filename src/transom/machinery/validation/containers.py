"""Containers, init containers and ephemeral containers of a pod spec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from transom.kit.named_tuple import NamedTuple
from transom.machinery.field import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from transom.machinery.validation.common import all_invalid, check_dns_label
from transom.machinery.validation.env import check_env, check_env_from
from transom.machinery.validation.godump import go_dump
from transom.machinery.validation.mounts import Volumes, check_mounts_and_devices
from transom.machinery.validation.names import (
    is_dns1123_label,
    is_valid_port_name,
    is_valid_port_num,
)
from transom.machinery.validation.podoptions import BASE_OPTIONS, PodOptions
from transom.machinery.validation.probes import (
    check_lifecycle,
    check_readiness_probe,
    check_restarting_probe,
)
from transom.machinery.validation.resources import check_resource_requirements
from transom.machinery.validation.rules import Errors
from transom.machinery.validation.security import check_security_context

_PROTOCOLS = ("SCTP", "TCP", "UDP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_NOT_FOR_INIT = "must not be set for init containers"
_NOT_FOR_EPHEMERAL = "cannot be set for an Ephemeral Container"
_INIT_FORBIDS = (
    ("lifecycle", "core.Lifecycle"),
    ("livenessProbe", "core.Probe"),
    ("readinessProbe", "core.Probe"),
    ("startupProbe", "core.Probe"),
)
_HOOKS = frozenset(name for name, _ in _INIT_FORBIDS)
_RESTART_FIELDS = frozenset(("restartPolicy", "restartPolicyRules"))
_EPHEMERAL_FORBIDS = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
_INIT_HOOKS = "may not be set for init containers without restartPolicy=Always"
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_RESTART_OPERATORS = ("In", "NotIn")
_MOST_RESTART_RULES = 20
_MOST_EXIT_CODES = 255
_RESIZE_RESOURCES = ("cpu", "memory")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")

Containers = list[dict[str, Any]]


class PodContext(NamedTuple):
    """What the rules of a container need from its pod."""

    volumes: Volumes
    restart_policy: str
    grace: int | None
    claims: frozenset[str]
    options: PodOptions = BASE_OPTIONS
    os: str | None = None
    host_users: bool = True


def check_containers(containers: Containers, context: PodContext, path: str, errs: Errors) -> None:
    if not containers:
        errs.append(required(path))
        return
    names: set[str] = set()
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        _check_container(container, names, context, where, errs)
        if context.options.restart_rules:
            if not _RESTART_FIELDS.isdisjoint(container):
                _check_restart_rules(container, context.options, where, errs)
        elif "restartPolicy" in container:
            errs.append(
                forbidden(f"{where}.restartPolicy", "may not be set for non-init containers")
            )
    _check_host_ports(containers, path, errs)


def check_init_containers(
    containers: Containers, others: Containers, context: PodContext, path: str, errs: Errors
) -> None:
    if context.options.common_first:
        _check_init_containers(containers, others, context, path, errs)
        return
    names: set[str] = set()
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        _check_container(container, names, context, where, errs)
        policy = container.get("restartPolicy", "Always")
        if policy != "Always":
            errs.append(not_supported(f"{where}.restartPolicy", policy, ("Always",)))
    for container in containers:
        # Init containers run in sequence, so each is checked alone (and always reported as the
        # first).
        _check_host_ports([container], path, errs)
    names = {container.get("name", "") for container in others}
    for i, container in enumerate(containers):
        name = container.get("name", "")
        if name in names:
            errs.append(duplicate(f"{path}[{i}].name", name))
        if name:
            names.add(name)
        if container.get("restartPolicy") == "Always":
            continue
        for field, go_type in _INIT_FORBIDS:
            if field in container:
                errs.append(
                    invalid(
                        f"{path}[{i}].{field}", go_dump(go_type, container[field]), _NOT_FOR_INIT
                    )
                )


def _check_init_containers(
    containers: Containers, others: Containers, context: PodContext, path: str, errs: Errors
) -> None:
    """The order of the checks since 1.25."""
    options = context.options
    names = {container.get("name", "") for container in others}
    for i, container in enumerate(containers):
        where, name = f"{path}[{i}]", container.get("name", "")
        _check_common(container, context, where, errs)
        sidecar = container.get("restartPolicy") == "Always"
        _check_init_restart_policy(container, options, where, errs)
        if name in names:
            errs.append(duplicate(f"{where}.name", name))
        elif name:
            names.add(name)
        _check_host_ports([container], path, errs)
        if sidecar:
            _check_hooks(container, context, where, errs)
        else:
            _check_no_hooks(container, options, where, errs)
        policies = container.get("resizePolicy") or ()
        if policies and not options.sidecar_resize:
            shown = go_dump("[]core.ContainerResizePolicy", policies)
            errs.append(invalid(f"{where}.resizePolicy", shown, _NOT_FOR_INIT))
        if sidecar or not options.checks_init_resize:
            continue
        for j, policy in enumerate(policies):
            if policy.get("restartPolicy") == "RestartContainer":
                errs.append(
                    invalid(
                        f"{where}.resizePolicy[{j}].restartPolicy",
                        "RestartContainer",
                        "must not be set to 'RestartContainer' for non-sidecar initContainers",
                    )
                )


def _check_no_hooks(
    container: dict[str, Any], options: PodOptions, path: str, errs: Errors
) -> None:
    """Init containers that end have neither hooks nor probes."""
    for field, go_type in _INIT_FORBIDS:
        if field not in container:
            continue
        if options.forbids_init_hooks:
            errs.append(forbidden(f"{path}.{field}", _INIT_HOOKS))
        else:
            shown = go_dump(go_type, container[field])
            errs.append(invalid(f"{path}.{field}", shown, _NOT_FOR_INIT))


def _check_init_restart_policy(
    container: dict[str, Any], options: PodOptions, path: str, errs: Errors
) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules")
    if policy is None:
        if rules:
            text = "must specify restartPolicy when restart rules are used"
            errs.append(required(f"{path}.restartPolicy", text))
    elif not options.restart_rules:
        if policy != "Always":
            errs.append(not_supported(f"{path}.restartPolicy", policy, ("Always",)))
    elif policy != "Always" or options.restart_all:
        _check_restart_rules(container, options, path, errs)
    elif rules:
        text = "restartPolicyRules are not allowed for init containers with restart policy Always"
        errs.append(forbidden(f"{path}.restartPolicyRules", text))


def _check_restart_rules(
    container: dict[str, Any], options: PodOptions, path: str, errs: Errors
) -> None:
    """The restart policy of a container and its rules."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None:
        if not rules:
            return
        text = "must specify restartPolicy when restart rules are used"
        errs.append(required(f"{path}.restartPolicy", text))
    elif policy not in _RESTART_POLICIES:
        errs.append(not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES))
    if len(rules) > _MOST_RESTART_RULES:
        errs.append(too_many(f"{path}.restartPolicyRules", len(rules), _MOST_RESTART_RULES))
    actions = ("Restart", "RestartAllContainers") if options.restart_all else ("Restart",)
    for i, rule in enumerate(rules):
        where = f"{path}.restartPolicyRules[{i}]"
        if rule.get("action", "") not in actions:
            errs.append(not_supported(f"{where}.action", rule.get("action", ""), actions))
        codes = rule.get("exitCodes")
        if codes is None:
            errs.append(required(f"{where}.exitCodes", "must be specified"))
            continue
        operator, values = codes.get("operator", ""), codes.get("values") or ()
        if operator not in _RESTART_OPERATORS:
            errs.append(not_supported(f"{where}.exitCodes.operator", operator, _RESTART_OPERATORS))
        if len(values) > _MOST_EXIT_CODES:
            errs.append(too_many(f"{where}.exitCodes.values", len(values), _MOST_EXIT_CODES))


def check_ephemeral_containers(
    containers: Containers,
    others: Iterable[dict[str, Any]],
    context: PodContext,
    path: str,
    errs: Errors,
) -> None:
    regular = {container.get("name", "") for container in others}
    names = set(regular)
    for i, container in enumerate(containers):
        where = f"{path}[{i}]"
        if context.options.common_first:
            _check_common(container, context, where, errs)
            check_image_whitespace([container], "", errs, where)
            _check_unique_name(container.get("name", ""), names, where, errs)
        else:
            _check_container(container, names, context, where, errs)
            check_image_whitespace([container], "", errs, where)
        target = container.get("targetContainerName")
        if target and target not in regular:
            errs.append(not_found(f"{where}.targetContainerName", target))
        for field in _EPHEMERAL_FORBIDS:
            if container.get(field):
                errs.append(forbidden(f"{where}.{field}", _NOT_FOR_EPHEMERAL))
        for j, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    errs.append(forbidden(f"{where}.volumeMounts[{j}].{field}", _NOT_FOR_EPHEMERAL))


def check_image_whitespace(containers: Containers, path: str, errs: Errors, only: str = "") -> None:
    """Only pods reject white space around an image name: templates may use it as a placeholder."""
    for i, container in enumerate(containers):
        image = container.get("image", "")
        if image != image.strip():
            where = only or f"{path}[{i}]"
            errs.append(
                invalid(f"{where}.image", image, "must not have leading or trailing whitespace")
            )


def _check_unique_name(name: str, names: set[str], path: str, errs: Errors) -> None:
    if name in names:
        errs.append(duplicate(f"{path}.name", name))
    else:
        names.add(name)


def _check_hooks(container: dict[str, Any], context: PodContext, path: str, errs: Errors) -> None:
    if _HOOKS.isdisjoint(container):
        return
    if (lifecycle := container.get("lifecycle")) is not None:
        check_lifecycle(
            lifecycle, context.grace, f"{path}.lifecycle", errs, context.options, context.os
        )
    if (probe := container.get("livenessProbe")) is not None:
        check_restarting_probe(probe, f"{path}.livenessProbe", errs)
    if (probe := container.get("readinessProbe")) is not None:
        check_readiness_probe(probe, f"{path}.readinessProbe", errs)
    if (probe := container.get("startupProbe")) is not None:
        check_restarting_probe(probe, f"{path}.startupProbe", errs)


def _check_common(container: dict[str, Any], context: PodContext, path: str, errs: Errors) -> None:
    """The rules of containers of all kinds."""
    name = container.get("name", "")
    if not name:
        errs.append(required(f"{path}.name"))
    else:
        check_dns_label(name, f"{path}.name", errs)
    if not container.get("image"):
        errs.append(required(f"{path}.image"))
    policy = container.get("terminationMessagePolicy", "")
    if policy not in _MESSAGE_POLICIES:
        where = f"{path}.terminationMessagePolicy"
        errs.append(not_supported(where, policy, _MESSAGE_POLICIES) if policy else required(where))
    _check_shared(container, context, path, errs)


def _check_shared(container: dict[str, Any], context: PodContext, path: str, errs: Errors) -> None:
    if ports := container.get("ports"):
        _check_ports(ports, f"{path}.ports", errs)
    if variables := container.get("env"):
        check_env(variables, f"{path}.env", errs, context.options)
    if sources := container.get("envFrom"):
        check_env_from(sources, f"{path}.envFrom", errs, context.options)
    check_mounts_and_devices(container, context.volumes, path, errs, context.options.image_paths)
    check_pull_policy(container.get("imagePullPolicy", ""), f"{path}.imagePullPolicy", errs)
    if resources := container.get("resources"):
        check_resource_requirements(resources, f"{path}.resources", errs, context.options)
        check_resource_claims(
            resources.get("claims") or (), context, f"{path}.resources.claims", errs
        )
    if policies := container.get("resizePolicy"):
        _check_resize(policies, context, f"{path}.resizePolicy", errs)
    if (security := container.get("securityContext")) is not None:
        check_security_context(
            security,
            f"{path}.securityContext",
            errs,
            unmasked=not context.host_users or not context.options.unmasked_needs_users,
        )


def _check_container(
    container: dict[str, Any], names: set[str], context: PodContext, path: str, errs: Errors
) -> None:
    name = container.get("name", "")
    if context.options.common_first:
        _check_common(container, context, path, errs)
        _check_unique_name(name, names, path, errs)
        _check_hooks(container, context, path, errs)
        return
    if not name:
        errs.append(required(f"{path}.name"))
    elif is_dns1123_label(name):
        check_dns_label(name, f"{path}.name", errs)
    if name in names:
        errs.append(duplicate(f"{path}.name", name))
    else:
        names.add(name)
    if not container.get("image"):
        errs.append(required(f"{path}.image"))
    if (lifecycle := container.get("lifecycle")) is not None:
        check_lifecycle(lifecycle, context.grace, f"{path}.lifecycle", errs, context.options)
    if (probe := container.get("livenessProbe")) is not None:
        check_restarting_probe(probe, f"{path}.livenessProbe", errs)
    if (probe := container.get("startupProbe")) is not None:
        check_restarting_probe(probe, f"{path}.startupProbe", errs)
    _check_message_policy(container.get("terminationMessagePolicy", ""), path, errs)
    if (probe := container.get("readinessProbe")) is not None:
        check_readiness_probe(probe, f"{path}.readinessProbe", errs)
    _check_shared(container, context, path, errs)


def _check_message_policy(policy: str, path: str, errs: Errors) -> None:
    if policy in _MESSAGE_POLICIES:
        return
    text = "must be 'File' or 'FallbackToLogsOnError'"
    where = f"{path}.terminationMessagePolicy"
    errs.append(invalid(where, policy, text) if policy else required(where, text))


def check_pull_policy(policy: str, path: str, errs: Errors) -> None:
    if policy in PULL_POLICIES:
        return
    errs.append(not_supported(path, policy, PULL_POLICIES) if policy else required(path))


def _check_ports(ports: list[dict[str, Any]], path: str, errs: Errors) -> None:
    names: set[str] = set()
    for i, port in enumerate(ports):
        name = port.get("name")
        if name:
            messages = is_valid_port_name(name)
            if messages:
                all_invalid(messages, name, f"{path}[{i}].name", errs)
            elif name in names:
                errs.append(duplicate(f"{path}[{i}].name", name))
            else:
                names.add(name)
        number, host = port.get("containerPort", 0), port.get("hostPort", 0)
        if number == 0:
            errs.append(required(f"{path}[{i}].containerPort"))
        else:
            all_invalid(is_valid_port_num(number), number, f"{path}[{i}].containerPort", errs)
        if host:
            all_invalid(is_valid_port_num(host), host, f"{path}[{i}].hostPort", errs)
        protocol = port.get("protocol", "")
        if not protocol:
            errs.append(required(f"{path}[{i}].protocol"))
        elif protocol not in _PROTOCOLS:
            errs.append(not_supported(f"{path}[{i}].protocol", protocol, _PROTOCOLS))


def _check_host_ports(containers: Containers, path: str, errs: Errors) -> None:
    taken: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports") or ()):
            number = port.get("hostPort", 0)
            if not number:
                continue
            key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
            if key in taken:
                errs.append(duplicate(f"{path}[{i}].ports[{j}].hostPort", key))
            taken.add(key)


def check_resource_claims(
    claims: Iterable[dict[str, Any]], context: PodContext, path: str, errs: Errors
) -> None:
    """The claims that a container uses: each once, and all of them in the pod."""
    newer = context.options.newer
    seen: set[str] = set()
    for i, claim in enumerate(claims):
        name, request = claim.get("name", ""), claim.get("request", "")
        if not name:
            errs.append(required(f"{path}[{i}]"))
            continue
        key = f"{name}/{request}" if request else name
        if name in seen:
            errs.append(duplicate(f"{path}[{i}]", name if newer else key))
        else:
            if request and context.options.checks_claim_requests:
                check_dns_label(request, f"{path}[{i}].request", errs)
            if key in seen:
                errs.append(duplicate(f"{path}[{i}]", key))
            elif not request and newer:
                for other in seen:
                    if other.startswith(f"{name}/"):
                        errs.append(duplicate(f"{path}[{i}]", name))
            seen.add(key)
        if name not in context.claims:
            errs.append(_claim_not_found(name, context, f"{path}[{i}]"))


def _claim_not_found(name: str, context: PodContext, path: str) -> FieldError:
    error = not_found(path, name)
    if not context.options.newer:
        return error
    known = ": " + ", ".join(sorted(context.claims)) if context.claims else " which is empty"
    return error._replace(detail=f"must be one of the names in pod.spec.resourceClaims{known}")


def _check_resize(
    policies: list[dict[str, Any]], context: PodContext, path: str, errs: Errors
) -> None:
    seen: set[str] = set()
    for i, policy in enumerate(policies):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            errs.append(duplicate(f"{path}[{i}]", resource))
        seen.add(resource)
        for value, supported in ((resource, _RESIZE_RESOURCES), (restart, _RESIZE_POLICIES)):
            if not value:
                errs.append(required(path))
            elif value not in supported:
                errs.append(not_supported(path, value, supported))
        if context.restart_policy == "Never" and restart != "NotRequired":
            errs.append(
                invalid(path, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'")
            )
