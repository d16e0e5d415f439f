"""What a cluster does about pods that use what Windows cannot do, as its options and its cluster file say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from transom.cluster.config import ClusterConfig
from transom.cluster.errors import ClusterError
from transom.windows.policy import Policy, UnknownRecord, parse


class Windows(NamedTuple):
    """None: nobody said."""

    warn: bool | None = None
    reject: tuple[str, ...] | None = None  # ids, or patterns of them; () for no longer any


def from_file(content: Any) -> Windows:
    """Of the cluster file's `windows`."""
    unknown = set(content) - {"warn", "reject"}
    warn, reject = content.get("warn"), content.get("reject")
    if unknown or not isinstance(warn, bool | None) or not isinstance(reject, list | None) or (
        not all(isinstance(id, str) for id in reject or ())
    ):
        raise ClusterError("the cluster file's part windows is wrong", 'it has warn: true|false and reject: ["WIN-STO-*", ...]')
    return Windows(warn, None if reject is None else tuple(reject))


def choose(config: ClusterConfig, wanted: Windows, file: Windows) -> ClusterConfig:
    """The configuration with what was said; options count before the file."""
    warn = wanted.warn if wanted.warn is not None else file.warn
    if warn is not None:
        config = replace(config, warn_windows=warn)
    reject = wanted.reject if wanted.reject is not None else file.reject
    if reject is not None:
        try:
            config = replace(config, reject_windows=parse(reject))
        except UnknownRecord as problem:
            raise ClusterError(str(problem), problem.hint) from problem
    return config


def policy(config: ClusterConfig) -> Policy | None:
    """A control plane alone says nothing of nodes it does not have, unless it was told to refuse something."""
    if config.no_nodes and not config.reject_windows:
        return None
    if not config.warn_windows and not config.reject_windows:
        return None
    return Policy(config.warn_windows, config.reject_windows)
