"""Names of services that Windows does not complete: `redis.shop`, `redis.shop.svc`.

A word with a dot may be anything. What ends in `.svc` and what is a Service of the set is a service's name in any text; other
words of two parts count where hosts stand (behind a scheme or an @, before a port, after `Server=`, in a variable like
DB_HOST), unless the second part is one of the internet's own domains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene
from transom.lint.tree import Steps
from transom.windows.podchecks import listed

_LABEL: Final = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
_HOST: Final = rf"(?P<host>(?P<service>{_LABEL})\.(?P<namespace>{_LABEL})(?P<svc>\.svc)?)(?P<port>:[0-9]+)?"
_WORD: Final = re.compile(rf"(?<![-\w.$/\\]){_HOST}(?![-\w.(\\]|\.[A-Za-z])")
# Where only hosts stand: http://..., user@..., tcp:..., Server=...
_BEHIND: Final = re.compile(
    rf"(?:://|@|(?i:\b(?:server|host|hostname|data source|address|addr|endpoint|tcp)[=:]\s*(?:tcp:)?)){_HOST}(?![-\w.])"
)
_HOST_VARIABLE: Final = re.compile(r"(?i)(?:^|_)(?:host|hostname|addr|address|url|uri|server|endpoint|broker|brokers|service)$")
# Second parts that are no namespaces: endings of the internet and of networks, and of files.
_DOMAINS: Final = frozenset((
    "com", "org", "net", "edu", "gov", "mil", "int", "info", "biz", "pro", "cloud", "tech", "online", "xyz", "top",
    "local", "internal", "lan", "corp", "intranet", "localdomain", "localhost", "example", "invalid", "arpa",
    "exe", "dll", "json", "yaml", "yml", "xml", "txt", "conf", "cfg", "ini", "pem", "crt", "key", "jar", "war", "zip", "tar",
    "html", "htm", "css", "csv", "sql", "ps1", "bat", "cmd", "aspx", "asp", "php", "sock",
))
# Those of the internet that are namespaces as well: only a port tells.
_EITHER: Final = frozenset((
    "dev", "app", "shop", "store", "blog", "wiki", "page", "link", "live", "home", "site", "test", "name", "log", "config",
))
_NAMESPACES: Final = frozenset(("default", "kube-system", "kube-public"))


def find(scene: Scene) -> Iterator[Found]:
    services = {(service.name, service.namespace) for service in scene.of("Service")}
    namespaces = {obj.namespace for obj in scene.objects if obj.namespace} | _NAMESPACES
    namespaces |= {obj.name for obj in scene.of("Namespace")}
    for workload in scene.windows:
        for steps, container in workload.containers():
            for at, text, names_host in _texts(steps, container):
                host = _host(text, names_host, services, namespaces)
                if host:
                    whole = f"{host.removesuffix('.svc')}.svc.cluster.local"
                    yield Found(workload.obj, at, f"Windows does not complete the name {host}", remedy=f"Write {whole}.")


def _texts(steps: Steps, container: Any) -> Iterator[tuple[Steps, str, bool]]:
    """Texts of a container, and whether the whole of one is a host's name if anything."""
    for key in ("command", "args"):
        for i, text in enumerate(listed(container.get(key))):
            if isinstance(text, str):
                yield (*steps, key, i), text, False
    for i, variable in enumerate(listed(container.get("env"))):
        value = variable.get("value") if isinstance(variable, dict) else None
        if isinstance(value, str):
            yield (*steps, "env", i, "value"), value, bool(_HOST_VARIABLE.search(str(variable.get("name", ""))))


def _host(text: str, names_host: bool, services: set[tuple[str, str]], namespaces: set[str]) -> str:
    if "." not in text:
        return ""
    for match in (*_BEHIND.finditer(text), *_WORD.finditer(text)):
        service, namespace = match["service"], match["namespace"]
        if (service, namespace) in services or match["svc"]:
            return match["host"]
        alone = match[0] in (text.strip(), text.partition("=")[2])
        if namespace in namespaces and (match["port"] or alone or match.re is _BEHIND):
            return match["host"]
        stands_for_host = match["port"] or (namespace not in _EITHER and (match.re is _BEHIND or (names_host and alone)))
        if stands_for_host and namespace not in _DOMAINS and len(namespace) > 2:
            return match["host"]
    return ""


RULE = Rule("dotted-names", find)
