"""Logs of nodes: by the paths of our own clusters, or as kubelets show the log directories of their machines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from transom.client.api import Unreachable
from transom.doctor.gather import Api
from transom.doctor.snapshot import Object, Snapshot, condition, is_windows, name
from transom.machinery.errors import ApiError

_WANTED: Final = re.compile(r"(?i)(kubelet|kube-proxy|flanneld?|containerd|docker|hns|start)")
_LOG: Final = re.compile(r"(?i)\.(log|err|out|txt|INFO|WARNING|ERROR)(\.|$)")
_LONGEST: Final = 1 << 20  # of a file: its end
_MOST: Final = 40  # nodes
_FILES: Final = 20  # of a node's directory


async def collect(
    api: Api, s: Snapshot, tell: Callable[[str], None]
) -> tuple[Mapping[str, Mapping[str, str]], Mapping[str, Any]]:
    """Of each Windows node its programs' logs, and what its host networking service has been told where that can be known."""
    logs: dict[str, Mapping[str, str]] = {}
    hns: dict[str, Any] = {}
    for node in [name(node) for node in sorted(filter(is_windows, s.nodes), key=_ready)][:_MOST]:  # those in trouble first
        tell(f"reading the logs of {node} ...")
        found = await _own(api, node) if node in s.inside else {}
        if found.get("hns"):
            hns[node] = found["hns"]
        programs = {f"{program}.log": str(text)[-_LONGEST:] for program, text in (found.get("logs") or {}).items() if text}
        logs[node] = {**programs, **await _directory(api, f"/api/v1/nodes/{quote(node)}/proxy/logs/", deep=True)}
    return logs, hns


def _ready(node: Object) -> bool:
    return bool(condition(node, "Ready").get("status") == "True")


async def _own(api: Api, node: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = await api.get_json(f"/transom/nodes/{quote(node)}/logs")
    except (ApiError, Unreachable):
        return {}
    return found


async def _directory(api: Api, path: str, deep: bool) -> dict[str, str]:
    """What may concern Kubernetes. A listing is a page of links, directories end in a slash."""
    try:
        page = await api.get_text(path)
    except (ApiError, Unreachable):
        return {}
    found: dict[str, str] = {}
    for link in re.findall(r'<a href="([^"?]+)"', page):
        entry = unquote(link)
        if entry.startswith(("/", "..")) or len(found) >= _FILES or not (_WANTED.search(entry) or not deep):
            continue
        if entry.endswith("/"):
            inner = await _directory(api, path + link, deep=False) if deep else {}
            found |= {f"{entry}{file}": text for file, text in inner.items()}
        elif _LOG.search(entry):
            try:
                found[entry] = (await api.get_text(path + link))[-_LONGEST:]
            except (ApiError, Unreachable):
                continue  # it has been rotated away meanwhile
    return found
