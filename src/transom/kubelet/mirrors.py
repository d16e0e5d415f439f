"""Creates and replaces the mirror pods of static pods in the API."""

from __future__ import annotations

import logging

from transom.kit.clock import Clock
from transom.kubelet.interfaces import Mirrors
from transom.kubelet.podstate import format_pod, is_deleted, uid_of
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.kubelet")


# A real kubelet is never faster. A client that waits for the deletion of a mirror must start
# watching before the next one exists: it has the same name.
_PAUSE = 0.25


async def keep_mirror(
    node: Object | None, pod: Object, mirror: Object | None, mirrors: Mirrors, clock: Clock
) -> None:
    """Deletes a mirror that shows another manifest or that a client is deleting; creates a missing
    one, unless the node itself is deleted. Failures are retried at the next sync.
    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    try:
        if mirror is not None:
            if not is_deleted(mirror) and mirrors.is_mirror_of(mirror, pod):
                return
            if is_deleted(mirror):
                await clock.sleep(_PAUSE)
            if not await mirrors.delete(namespace, name, uid_of(mirror)):
                return
        if node is not None and not is_deleted(node):
            await mirrors.create(pod)
    except (ApiError, OSError) as problem:
        log.warning("the mirror of static pod %s: %s", format_pod(pod), problem)
