"""The environment of a container: from config maps and secrets, declared variables, and the
Services of its namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from transom.client.events import WARNING
from transom.kubelet import downward
from transom.kubelet.base import KubeletContext
from transom.kubelet.expansion import (
    MOST_CHARACTERS,
    ExpansionTooLarge,
    expand_variables,
    variable_mapping,
)
from transom.kubelet.failures import ContainerFailure
from transom.kubelet.labels import is_static
from transom.kubelet.referenced import ReferencedObjects, ReferenceFailure, secret_bytes
from transom.kubelet.service_variables import MOST_CHARACTERS as MOST_SERVICE_CHARACTERS
from transom.kubelet.service_variables import Variable, linked_services, service_variables
from transom.machinery.objects import Object
from transom.machinery.validation.names import is_env_var_name

_MASTER_NAMESPACE = "default"
_IN_A_ROW = 5_000  # variables before other tasks may run


def create_container_config_error(message: str) -> ContainerFailure:
    return ContainerFailure("CreateContainerConfigError", message)


async def make_environment_variables(
    env: KubeletContext,
    objects: ReferencedObjects,
    pod: Object,
    container: Object,
    pod_ips: tuple[str, ...],
) -> tuple[Variable, ...]:
    """Names and values. Raises ContainerFailure."""
    services = await _services(env, pod)
    sources = _Sources(objects, pod["metadata"]["namespace"])
    own: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        await _take_all(env, pod, entry, sources, own)
    resolve = variable_mapping(own, _Values(services))
    left = MOST_CHARACTERS
    for variable in container.get("env") or ():
        name = variable["name"]
        value = variable.get("value") or ""
        if value:
            try:
                value = expand_variables(value, resolve, left)
            except ExpansionTooLarge as problem:
                raise create_container_config_error(str(problem)) from problem
            left -= len(value)
        elif variable.get("valueFrom"):
            found = await _value_from(env, pod, container, variable["valueFrom"], sources, pod_ips)
            if found is None:
                continue
            value = found
        own[name] = value
    if len(services) > _IN_A_ROW:
        await asyncio.sleep(0)
    made = (*own.items(), *(pair for name, pair in services.items() if name not in own))
    if len(made) > _IN_A_ROW:
        await asyncio.sleep(0)
    return made


class _Values(dict[str, str]):
    """Service variables are stored as shared pairs; expansion needs only the value."""

    def __init__(self, pairs: Mapping[str, Variable]) -> None:
        super().__init__({name: pair[1] for name, pair in pairs.items()})


async def _services(env: KubeletContext, pod: Object) -> dict[str, Variable]:
    links = pod["spec"].get("enableServiceLinks")
    if links is None:
        raise create_container_config_error(
            "nil pod.spec.enableServiceLinks encountered, cannot construct envvars"
        )
    if not is_static(pod):
        await env.services.synced()
    namespace = pod["metadata"]["namespace"]
    neighbours: Sequence[Object] = env.services.list(namespace) if links else ()
    out: dict[str, Variable] = {}
    size = since = 0
    for service in linked_services(links, env.services.list(_MASTER_NAMESPACE), neighbours):
        variables = service_variables(service)
        size += variables.size
        if size > MOST_SERVICE_CHARACTERS:
            raise create_container_config_error(str(ExpansionTooLarge()))
        out.update((pair[0], pair) for pair in variables.pairs)
        since += len(variables.pairs)
        if since > _IN_A_ROW:
            await asyncio.sleep(0)
            since = 0
    return out


class _Sources:
    """The config maps and secrets of one container, each fetched once. None means an optional
    object that does not exist.
    """

    __slots__ = ("_found", "_namespace", "_objects")

    def __init__(self, objects: ReferencedObjects, namespace: str) -> None:
        self._objects = objects
        self._namespace = namespace
        self._found: dict[tuple[str, str], Object] = {}

    async def get(self, kind: str, ref: Object) -> Object | None:
        name = ref.get("name") or ""
        known = self._found.get((kind, name))
        if known is not None:
            return known
        ask = self._objects.secret if kind == "secret" else self._objects.config_map
        try:
            obj = await ask(self._namespace, name)
        except ReferenceFailure as problem:
            if problem.missing and ref.get("optional"):
                return None
            raise create_container_config_error(str(problem)) from problem
        self._found[kind, name] = obj
        return obj


async def _take_all(
    env: KubeletContext, pod: Object, entry: Object, sources: _Sources, into: dict[str, str]
) -> None:
    kind = "configMap" if entry.get("configMapRef") else "secret"
    ref = entry.get(kind + "Ref")
    if not ref:
        return
    obj = await sources.get(kind, ref)
    if obj is None:
        return
    prefix = entry.get("prefix") or ""
    wrong = []
    for number, (key, value) in enumerate((obj.get("data") or {}).items(), 1):
        if number % _IN_A_ROW == 0:
            await asyncio.sleep(0)
        name = prefix + key
        if not env.config.pod_features.any_variable_names and is_env_var_name(name):
            wrong.append(name)
        else:
            into[name] = _text(kind, value)
    if wrong:
        where = f"{pod['metadata']['namespace']}/{ref.get('name') or ''}"
        env.events.event(
            pod,
            WARNING,
            "InvalidEnvironmentVariableNames",
            f"Keys [{', '.join(sorted(wrong))}] from the EnvFrom {kind} {where} were skipped "
            "since they are considered "
            "invalid environment variable names.",
        )


def _text(kind: str, value: str) -> str:
    return secret_bytes(value).decode("utf-8", "replace") if kind == "secret" else value


async def _value_from(
    env: KubeletContext,
    pod: Object,
    container: Object,
    source: Object,
    sources: _Sources,
    pod_ips: tuple[str, ...],
) -> str | None:
    """None when the variable is omitted."""
    try:
        if ref := source.get("fieldRef"):
            return downward.env_field(pod, ref.get("fieldPath") or "", env.config.node_ip, pod_ips)
        if ref := source.get("resourceFieldRef"):
            return downward.resource_value(pod, container, ref, allocatable_amounts(env))
    except downward.UnsupportedFieldPath as problem:
        raise create_container_config_error(str(problem)) from problem
    if ref := source.get("configMapKeyRef"):
        return await _key(pod, "configMap", "ConfigMap", ref, sources)
    if ref := source.get("secretKeyRef"):
        return await _key(pod, "secret", "Secret", ref, sources)
    return ""


def allocatable_amounts(env: KubeletContext) -> Mapping[str, str]:
    node = env.node()
    if node is None:
        raise create_container_config_error("failed to find node object, expected a node")
    return (node.get("status") or {}).get("allocatable") or {}


async def _key(pod: Object, kind: str, word: str, ref: Object, sources: _Sources) -> str | None:
    obj = await sources.get(kind, ref)
    if obj is None:
        return None
    key = ref.get("key") or ""
    value = (obj.get("data") or {}).get(key)
    if value is not None:
        return _text(kind, value)
    if ref.get("optional"):
        return None
    raise create_container_config_error(
        f"couldn't find key {key} in {word} {pod['metadata']['namespace']}/{ref.get('name') or ''}"
    )
