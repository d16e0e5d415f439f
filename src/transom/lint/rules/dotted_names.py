"""Service names that Windows does not resolve with search domains: `redis.shop`, `redis.shop.svc`.

A word with a dot may be anything. In any text, words that end in `.svc` or name a Service of the
set are service names. Other words of two parts count only where hosts are expected (after a scheme
or an @, before a port, after `Server=`, in a variable like DB_HOST), unless the second part is a
top-level domain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.lint.tree import Steps
from transom.windows.podchecks import list_or_empty

_LABEL: Final = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
_HOST: Final = (
    rf"(?P<host>(?P<service>{_LABEL})\.(?P<namespace>{_LABEL})(?P<svc>\.svc)?)(?P<port>:[0-9]+)?"
)
_WORD: Final = re.compile(rf"(?<![-\w.$/\\]){_HOST}(?![-\w.(\\]|\.[A-Za-z])")
# Positions where only hosts are valid: http://..., user@..., tcp:..., Server=...
_BEHIND: Final = re.compile(
    r"(?:://|@|(?i:\b(?:server|host|hostname|data "
    rf"source|address|addr|endpoint|tcp)[=:]\s*(?:tcp:)?)){_HOST}(?![-\w.])"
)
_HOST_VARIABLE: Final = re.compile(
    r"(?i)(?:^|_)(?:host|hostname|addr|address|url|uri|server|endpoint|broker|brokers|service)$"
)
# Second parts that are not namespaces: domains of the internet and of local networks, and file
# extensions.
_DOMAINS: Final = frozenset(
    (
        "com",
        "org",
        "net",
        "edu",
        "gov",
        "mil",
        "int",
        "info",
        "biz",
        "pro",
        "cloud",
        "tech",
        "online",
        "xyz",
        "top",
        "local",
        "internal",
        "lan",
        "corp",
        "intranet",
        "localdomain",
        "localhost",
        "example",
        "invalid",
        "arpa",
        "exe",
        "dll",
        "json",
        "yaml",
        "yml",
        "xml",
        "txt",
        "conf",
        "cfg",
        "ini",
        "pem",
        "crt",
        "key",
        "jar",
        "war",
        "zip",
        "tar",
        "html",
        "htm",
        "css",
        "csv",
        "sql",
        "ps1",
        "bat",
        "cmd",
        "aspx",
        "asp",
        "php",
        "sock",
    )
)
# Top-level domains that are also common namespaces: only a port decides.
_EITHER: Final = frozenset(
    (
        "dev",
        "app",
        "shop",
        "store",
        "blog",
        "wiki",
        "page",
        "link",
        "live",
        "home",
        "site",
        "test",
        "name",
        "log",
        "config",
    )
)
_NAMESPACES: Final = frozenset(("default", "kube-system", "kube-public"))


def find_dotted_names(context: LintContext) -> Iterator[RuleMatch]:
    services = {(service.name, service.namespace) for service in context.of("Service")}
    namespaces = {obj.namespace for obj in context.objects if obj.namespace} | _NAMESPACES
    namespaces |= {obj.name for obj in context.of("Namespace")}
    for workload in context.windows:
        for steps, container in workload.containers():
            for at, text, names_host in _texts(steps, container):
                host = _host(text, names_host, services, namespaces)
                if host:
                    whole = f"{host.removesuffix('.svc')}.svc.cluster.local"
                    yield RuleMatch(
                        workload.obj,
                        at,
                        f"Windows does not complete the name {host}",
                        remedy=f"Write {whole}.",
                    )


def _texts(steps: Steps, container: Any) -> Iterator[tuple[Steps, str, bool]]:
    """The texts of a container, and whether each as a whole can be a host name."""
    for key in ("command", "args"):
        for i, text in enumerate(list_or_empty(container.get(key))):
            if isinstance(text, str):
                yield (*steps, key, i), text, False
    for i, variable in enumerate(list_or_empty(container.get("env"))):
        value = variable.get("value") if isinstance(variable, dict) else None
        if isinstance(value, str):
            yield (
                (*steps, "env", i, "value"),
                value,
                bool(_HOST_VARIABLE.search(str(variable.get("name", "")))),
            )


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
        stands_for_host = match["port"] or (
            namespace not in _EITHER and (match.re is _BEHIND or (names_host and alone))
        )
        if stands_for_host and namespace not in _DOMAINS and len(namespace) > 2:
            return match["host"]
    return ""


RULE = LintRule("dotted-names", find_dotted_names)
