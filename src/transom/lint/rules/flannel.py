"""The configuration of flannel in a cluster with Windows nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from transom.lint.context import LintContext
from transom.lint.findings import RuleMatch
from transom.lint.rules.base import LintRule
from transom.windows.podchecks import inner_pod

_FILE = "net-conf.json"


def find_flannel(context: LintContext) -> Iterator[RuleMatch]:
    if not context.mixed:
        return
    for config in context.of("ConfigMap"):
        text = inner_pod(config.value, "data", _FILE)
        try:
            backend = inner_pod(json.loads(text), "Backend") if isinstance(text, str) else None
        except ValueError:
            continue
        if not isinstance(backend, dict) or str(backend.get("Type", "")).lower() != "vxlan":
            continue
        vni, port = backend.get("VNI", 1), backend.get("Port", 0)
        if isinstance(vni, int) and vni < 4096:
            yield RuleMatch(
                config,
                ("data", _FILE),
                f"VNI is {vni}: Windows nodes need 4096",
                limit="WIN-NET-008",
            )
        if port != 4789:
            port_text = f"Port is {port}" if port else "there is no Port, and Linux nodes take 8472"
            yield RuleMatch(
                config,
                ("data", _FILE),
                f"{port_text}: Windows nodes need 4789",
                limit="WIN-NET-009",
            )


RULE = LintRule("flannel-backend", find_flannel)
