"""When a static pod gets its mirror in the API, and when that is made anew."""

from __future__ import annotations

import logging

from transom.kit.clock import Clock
from transom.kubelet.parts import Mirrors
from transom.kubelet.podstate import describe, is_deleted, uid_of
from transom.machinery.errors import ApiError
from transom.machinery.objects import Object

log = logging.getLogger("transom.kubelet")


# A real kubelet is never faster. Whoever waits for the end of a mirror must be looking before the next one is there: it has
# the same name.
_PAUSE = 0.25


async def keep_mirror(node: Object | None, pod: Object, mirror: Object | None, mirrors: Mirrors, clock: Clock) -> None:
    """A mirror that shows another manifest, or that somebody deletes, goes; one that is missing comes, unless the node
    itself is gone. Failures are tried again at the next look."""
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
        log.warning("the mirror of static pod %s: %s", describe(pod), problem)
