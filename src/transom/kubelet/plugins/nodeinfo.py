"""Publishes a node's CSI drivers in the API: an annotation and labels of the Node, and the entries
of its CSINode.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from transom.client.api import STRATEGIC_PATCH, is_not_found
from transom.client.resources import CSI_NODES, NODES
from transom.kubelet.base import KubeletContext
from transom.kubelet.node.registration import ensure_csi_node
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

NODE_ID: Final = "csi.volume.kubernetes.io/nodeid"
_LARGEST: Final = 2**31 - 1
_TRIES, _FIRST_WAIT, _FACTOR = 4, 0.01, 5.0


class RegistrationFailure(Exception):
    """The text is for the registrar to show."""


async def install_csi_driver(
    env: KubeletContext, driver: str, node_id: str, limit: int, topology: Mapping[str, str]
) -> None:
    """Raises RegistrationFailure."""
    if not node_id:
        raise RegistrationFailure(
            "error adding CSI driver node info: driverNodeID must not be empty"
        )

    async def node() -> None:
        await _change_node(env, driver, node_id, topology)

    async def csi_node() -> None:
        await _change_csi_node(env, driver, _row(driver, node_id, limit, topology))

    await _try(
        env, node, "error updating Node object with CSI driver node info: error updating node"
    )
    await _try(
        env,
        csi_node,
        "error updating CSINode object with CSI driver node info: error updating CSINode",
    )


async def uninstall_csi_driver(env: KubeletContext, driver: str) -> None:
    """Raises RegistrationFailure."""

    async def csi_node() -> None:
        await _change_csi_node(env, driver, None)

    async def node() -> None:
        await _change_node(env, driver, "", {})

    await _try(
        env, csi_node, "error uninstalling CSI driver from CSINode object error updating CSINode"
    )
    await _try(
        env, node, "error removing CSI driver node info from Node object error updating node"
    )


async def _try(env: KubeletContext, step: Callable[[], Awaitable[None]], what: str) -> None:
    wait = _FIRST_WAIT
    problems = []
    for _ in range(_TRIES):
        try:
            await step()
            return
        except (ApiError, OSError, RegistrationFailure) as problem:
            problems.append(str(problem))
        await env.clock.sleep(wait)
        wait *= _FACTOR
    unique = list(dict.fromkeys(problems))
    cause = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
    raise RegistrationFailure(f"{what}: timed out waiting for the condition; caused by: {cause}")


async def _change_node(
    env: KubeletContext, driver: str, node_id: str, topology: Mapping[str, str]
) -> None:
    name = env.config.node_name
    node = await env.client.get(NODES, "", name)
    notes, labels = node["metadata"].get("annotations") or {}, node["metadata"].get("labels") or {}
    before = _ids(notes.get(NODE_ID, ""))
    after = (
        {**before, driver: node_id} if node_id else {k: v for k, v in before.items() if k != driver}
    )
    for key, value in topology.items():
        if labels.get(key, value) != value:
            raise RegistrationFailure(
                f'detected topology value collision: driver reported "{key}":"{value}" but '
                "existing label is "
                f'"{key}":"{labels[key]}"'
            )
    metadata: Object = {}
    if after != before:
        text = json.dumps(after, sort_keys=True, separators=(",", ":"))
        metadata["annotations"] = {NODE_ID: text if after else None}
    if fresh := {key: value for key, value in topology.items() if key not in labels}:
        metadata["labels"] = fresh
    if metadata:
        await env.client.patch(
            NODES, "", name, {"metadata": metadata}, STRATEGIC_PATCH, subresource="status"
        )


def _ids(text: str) -> dict[str, str]:
    try:
        found = json.loads(text) if text else {}
    except ValueError as problem:
        raise RegistrationFailure(
            f'failed to parse node\'s "{NODE_ID}" annotation value ({json.dumps(text)}) '
            f"err={problem}"
        ) from problem
    return found if isinstance(found, dict) else {}


def _row(driver: str, node_id: str, limit: int, topology: Mapping[str, str]) -> Object:
    row: Object = {"name": driver, "nodeID": node_id, "topologyKeys": sorted(topology)}
    if limit > 0:
        row["allocatable"] = {"count": min(limit, _LARGEST)}
    return row


async def _change_csi_node(env: KubeletContext, driver: str, row: Object | None) -> None:
    name = env.config.node_name
    try:
        found = await env.client.get(CSI_NODES, "", name)
    except ApiError as problem:
        if not is_not_found(problem):
            raise
        if row is None:
            return
        await ensure_csi_node(env.client, await env.client.get(NODES, "", name))
        found = await env.client.get(CSI_NODES, "", name)
    rows = (found.get("spec") or {}).get("drivers") or []
    others = [other for other in rows if other["name"] != driver]
    mine = next((other for other in rows if other["name"] == driver), None)
    if row is None:
        if mine is None:
            return
    elif (
        mine is not None
        and mine["nodeID"] == row["nodeID"]
        and sorted(mine.get("topologyKeys") or ()) == row["topologyKeys"]
    ):
        return
    else:
        others.append(row)
    await env.client.update(
        CSI_NODES, {**found, "spec": {**(found.get("spec") or {}), "drivers": others}}
    )
