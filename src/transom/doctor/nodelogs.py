"""Logs of nodes: from our own clusters' paths, or from the log directories that kubelets serve."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from transom.client.api import ApiUnreachable
from transom.doctor.gather import ApiReader
from transom.doctor.snapshot import (
    ClusterSnapshot,
    Object,
    is_windows_node,
    name_of_object,
    status_condition,
)
from transom.machinery.errors import ApiError

_WANTED: Final = re.compile(r"(?i)(kubelet|kube-proxy|flanneld?|containerd|docker|hns|start)")
_LOG: Final = re.compile(r"(?i)\.(log|err|out|txt|INFO|WARNING|ERROR)(\.|$)")
_LONGEST: Final = 1 << 20  # of a file: its end
_MOST: Final = 40  # nodes
_FILES: Final = 20  # of a node's directory


async def collect_node_logs(
    api: ApiReader, s: ClusterSnapshot, progress: Callable[[str], None]
) -> tuple[Mapping[str, Mapping[str, str]], Mapping[str, Any]]:
    """For each Windows node the logs of its programs, and the state of its host networking service
    if available.
    """
    logs: dict[str, Mapping[str, str]] = {}
    hns: dict[str, Any] = {}
    for node in [
        name_of_object(node) for node in sorted(filter(is_windows_node, s.nodes), key=_ready)
    ][:_MOST]:  # nodes with problems first
        progress(f"reading the logs of {node} ...")
        found = await _own(api, node) if node in s.inside else {}
        if found.get("hns"):
            hns[node] = found["hns"]
        programs = {
            f"{program}.log": str(text)[-_LONGEST:]
            for program, text in (found.get("logs") or {}).items()
            if text
        }
        logs[node] = {
            **programs,
            **await _directory(api, f"/api/v1/nodes/{quote(node)}/proxy/logs/", deep=True),
        }
    return logs, hns


def _ready(node: Object) -> bool:
    return bool(status_condition(node, "Ready").get("status") == "True")


async def _own(api: ApiReader, node: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = await api.get_json(f"/transom/nodes/{quote(node)}/logs")
    except (ApiError, ApiUnreachable):
        return {}
    return found


async def _directory(api: ApiReader, path: str, deep: bool) -> dict[str, str]:
    """The files that may be relevant. A listing is a page of links; directories end in a slash."""
    try:
        page = await api.get_text(path)
    except (ApiError, ApiUnreachable):
        return {}
    found: dict[str, str] = {}
    for link in re.findall(r'<a href="([^"?]+)"', page):
        entry = unquote(link)
        if (
            entry.startswith(("/", ".."))
            or len(found) >= _FILES
            or not (_WANTED.search(entry) or not deep)
        ):
            continue
        if entry.endswith("/"):
            inner = await _directory(api, path + link, deep=False) if deep else {}
            found |= {f"{entry}{file}": text for file, text in inner.items()}
        elif _LOG.search(entry):
            try:
                found[entry] = (await api.get_text(path + link))[-_LONGEST:]
            except (ApiError, ApiUnreachable):
                continue  # it has been rotated in the meantime
    return found
