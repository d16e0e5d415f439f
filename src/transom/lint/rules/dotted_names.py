"""Names of services that Windows does not complete: `redis.shop`, `redis.shop.svc`.

A word with a dot may be anything, so only what is known to be a service's name counts: a name of a Service in the set, a
name in a namespace that is known and that stands where hosts stand, or what ends in `.svc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from transom.lint.findings import Found
from transom.lint.rules.base import Rule, listed
from transom.lint.scene import Scene
from transom.lint.tree import Steps

_LABEL: Final = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(
    rf"(?<![-\w.$/\\])(?P<host>(?P<service>{_LABEL})\.(?P<namespace>{_LABEL})(?P<svc>\.svc)?)(?P<port>:[0-9]+)?(?![-\w.(\\])"
)
_AFTER_SCHEME: Final = re.compile(
    rf"(?:://|@)(?P<host>(?P<service>{_LABEL})\.(?P<namespace>{_LABEL})(?P<svc>\.svc)?)(?P<port>:[0-9]+)?(?![-\w.])"
)
_NAMESPACES: Final = frozenset(("default", "kube-system", "kube-public"))


def find(scene: Scene) -> Iterator[Found]:
    services = {(service.name, service.namespace) for service in scene.of("Service")}
    namespaces = {obj.namespace for obj in scene.objects if obj.namespace} | _NAMESPACES
    namespaces |= {obj.name for obj in scene.of("Namespace")}
    for workload in scene.windows:
        for steps, container in workload.containers():
            for at, text in _texts(steps, container):
                host = _host(text, services, namespaces)
                if host:
                    whole = f"{host.removesuffix('.svc')}.svc.cluster.local"
                    yield Found(workload.obj, at, f"Windows does not complete the name {host}", remedy=f"Write {whole}.")


def _texts(steps: Steps, container: Any) -> Iterator[tuple[Steps, str]]:
    for key in ("command", "args"):
        for i, text in enumerate(listed(container.get(key))):
            if isinstance(text, str):
                yield (*steps, key, i), text
    for i, variable in enumerate(listed(container.get("env"))):
        value = variable.get("value") if isinstance(variable, dict) else None
        if isinstance(value, str):
            yield (*steps, "env", i, "value"), value


def _host(text: str, services: set[tuple[str, str]], namespaces: set[str]) -> str:
    if "." not in text:
        return ""
    for match in (*_AFTER_SCHEME.finditer(text), *_NAME.finditer(text)):
        service, namespace = match["service"], match["namespace"]
        if (service, namespace) in services or match["svc"]:
            return match["host"]
        stands_alone = match["port"] or match.re is _AFTER_SCHEME or match[0] == text
        if namespace in namespaces and stands_alone:
            return match["host"]
    return ""


RULE = Rule("dotted-names", find)
