"""The configuration of flannel in a cluster with Windows nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator

from transom.lint.findings import Found
from transom.lint.rules.base import Rule
from transom.lint.scene import Scene
from transom.windows.podchecks import inner

_FILE = "net-conf.json"


def find(scene: Scene) -> Iterator[Found]:
    if not scene.mixed:
        return
    for config in scene.of("ConfigMap"):
        text = inner(config.value, "data", _FILE)
        try:
            backend = inner(json.loads(text), "Backend") if isinstance(text, str) else None
        except ValueError:
            continue
        if not isinstance(backend, dict) or str(backend.get("Type", "")).lower() != "vxlan":
            continue
        vni, port = backend.get("VNI", 1), backend.get("Port", 0)
        if isinstance(vni, int) and vni < 4096:
            yield Found(config, ("data", _FILE), f"VNI is {vni}: Windows nodes need 4096", limit="WIN-NET-008")
        if port != 4789:
            said = f"Port is {port}" if port else "there is no Port, and Linux nodes take 8472"
            yield Found(config, ("data", _FILE), f"{said}: Windows nodes need 4789", limit="WIN-NET-009")


RULE = Rule("flannel-backend", find)
