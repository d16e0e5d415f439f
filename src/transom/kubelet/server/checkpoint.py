"""POST /checkpoint/NAMESPACE/POD/CONTAINER: no runtime here can checkpoint a container, and the
answer is that of a kubelet whose runtime cannot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from transom.kubelet.base import KubeletContext
from transom.kubelet.interfaces import PodView
from transom.kubelet.server.answers import HttpFailure
from transom.kubelet.server.find import container_spec_of, find_pod, running_container


def serve_checkpoint(
    env: KubeletContext, view: PodView, path: Sequence[str], query: Mapping[str, Sequence[str]]
) -> NoReturn:
    """Raises HttpFailure."""
    namespace, name, container = path
    pod = find_pod(view, namespace, name)
    if container_spec_of(pod, container) is None:
        raise HttpFailure(404, f"container {container} does not exist")
    timeout = (query.get("timeout") or ["0"])[-1]
    if not timeout.removeprefix("-").isdigit():
        raise HttpFailure(404, "cannot parse value of timeout parameter")
    problem = "rpc error: code = Unimplemented desc = method CheckpointContainer not implemented"
    if running_container(env, pod, container) is None:
        problem = f"container {container} not found"
    elif int(timeout) < 0:
        problem = "CheckpointContainer requires the timeout value to be > 0"
    raise HttpFailure(500, f"checkpointing of {namespace}/{name}/{container} failed ({problem})")
