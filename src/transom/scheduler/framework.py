"""What plugins are: small classes with some of the methods below, and the words they speak in.

A plugin has a `name` and implements the points it cares about; the profile calls what is there. Rows are those of the
snapshot. Filters and scores work on all rows they are given at once.

| method | what it does |
|---|---|
| `pre_filter(cycle) -> Verdict or None` | looks at the pod once; a verdict means no node will do |
| `filter(cycle, rows) -> mask or None` | True where the pod may run; None: everywhere |
| `filter_row(cycle, row) -> bool` | the same of one row, where that can be had cheaper |
| `verdicts(cycle, rows) -> [(Verdict, rows)]` | why the rows that its filter refused were refused |
| `post_filter(cycle, failure) -> node name` | makes room when no node will do; "" if it cannot |
| `pre_score(cycle, rows)` | looks at the nodes that will do, once |
| `score(cycle, rows) -> numbers, or one for all` | how much it likes each row, 0 to 100 unless normalised |
| `normalize(cycle, rows, scores) -> numbers` | brings its scores into 0 to 100 |
| `reserve(cycle, node)`, `unreserve(cycle, node)` | notes what the pod will use on the chosen node, and takes that back |
| `pre_bind(cycle, node)`, `bind(cycle, node)` | awaited before, and for, the binding |
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from transom.client.api import Client
from transom.client.informer import Informer, InformerFactory
from transom.kit.clock import Clock
from transom.machinery.objects import Object
from transom.scheduler.arrays import Ints, Mask, Rows
from transom.scheduler.pods import PodInfo
from transom.scheduler.snapshot import Snapshot

if TYPE_CHECKING:
    from transom.scheduler.events import Announcer
    from transom.scheduler.nominator import Nominator
    from transom.scheduler.profile import Profile

MAX_SCORE = 100


class Verdict(NamedTuple):
    """Why a node will not do. `final`: taking pods away from it would not help."""

    reasons: tuple[str, ...]
    final: bool = False


Verdicts = list[tuple[Verdict, Rows]]
Score = Ints | int


class SchedulingError(Exception):
    """Something went wrong while a pod was looked at; not that it fits nowhere."""


class Failure(NamedTuple):
    """No node will do: the verdict on each."""

    nodes: int
    verdicts: Verdicts

    @property
    def message(self) -> str:
        counts: dict[str, int] = {}
        for verdict, rows in self.verdicts:
            for reason in verdict.reasons:
                counts[reason] = counts.get(reason, 0) + len(rows)
        return f"0/{self.nodes} nodes are available: {', '.join(sorted(f'{n} {r}' for r, n in counts.items()))}."

    def open_rows(self) -> Rows:
        """Where taking pods away could help."""
        rows = [rows for verdict, rows in self.verdicts if not verdict.final]
        return np.concatenate(rows) if rows else np.zeros(0, np.intp)

    def verdict_on(self, row: int) -> Verdict | None:
        return next((verdict for verdict, rows in self.verdicts if row in rows), None)


class Plugin(Protocol):
    name: str


@dataclass(slots=True)
class Handle:
    """What plugins are built with."""

    snapshot: Snapshot
    client: Client
    informers: InformerFactory
    pods: Informer  # those that have not ended
    clock: Clock
    rng: random.Random
    nominator: Nominator
    announcer: Callable[[str], Announcer]  # by scheduler name
    shared: dict[str, Any] = field(default_factory=dict)  # what plugins of all profiles have in common


class Cycle:
    """One attempt to find a node for one pod. `state` is where plugins leave things for their later points."""

    __slots__ = ("pod", "profile", "snapshot", "state")

    def __init__(self, pod: PodInfo, snapshot: Snapshot, profile: Profile) -> None:
        self.pod = pod
        self.snapshot = snapshot
        self.profile = profile
        self.state: dict[str, Any] = {}


def everywhere(verdict: Verdict, rows: Rows) -> Verdicts:
    return [(verdict, rows)] if len(rows) else []


def split(mask: Mask, rows: Rows) -> tuple[Rows, Rows]:
    """The rows where the mask is True, and the others."""
    return rows[mask], rows[~mask]


def scaled(scores: Score, *, reverse: bool = False) -> Score:
    """Scores in proportion to the largest, which becomes 100; or, reversed, the other way round."""
    highest = int(scores.max()) if isinstance(scores, np.ndarray) else scores
    if highest <= 0:
        return MAX_SCORE if reverse else scores
    out = MAX_SCORE * scores // highest
    return MAX_SCORE - out if reverse else out


def check_args(args: Object, known: Sequence[str], plugin: str) -> None:
    """Arguments of a plugin with a field that it does not have are refused, as a strict decoder does."""
    for name in args:
        if name not in (*known, "apiVersion", "kind"):
            raise ConfigError(f'decoding args for plugin {plugin}: strict decoder error: unknown field "{name}"')


class ConfigError(ValueError):
    """The configuration cannot be used; the text says why."""
