"""Invariants on random clusters: column-wise results equal those of single nodes, and cached
results equal fresh ones.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from transom.scheduler.arrays import np
from transom.scheduler.cycle import (
    filtered_nodes_statuses,
    nodes_that_pass_filters,
    prioritize_nodes,
)
from transom.scheduler.framework import CycleState
from transom.scheduler.pods import PodInfo

from .conftest import SchedulerHarness
from .objects import Object, node, pod, preferred, required, spread, term

HOST, ZONE = "kubernetes.io/hostname", "zone"
APPS = ("x", "y", "z")


def random_node(rng: random.Random, i: int) -> Object:
    labels = {ZONE: str(rng.randrange(3))} if rng.random() < 0.8 else {}
    effect = rng.choice(["NoSchedule", "PreferNoSchedule"])
    taints = [{"key": "t", "value": "v", "effect": effect}] if rng.random() < 0.2 else []
    return node(
        f"n{i}",
        cpu=str(rng.randint(1, 8)),
        memory=f"{rng.randint(1, 16)}Gi",
        labels=labels,
        taints=taints,
    )


def random_term(rng: random.Random) -> Object:
    return term({"app": rng.choice(APPS)}, rng.choice([HOST, ZONE]))


def random_pod(rng: random.Random, name: str, node_name: str = "") -> Object:
    spec: dict[str, Any] = {}
    affinity: dict[str, Any] = {}
    if rng.random() < 0.3:
        affinity["podAntiAffinity"] = {
            **required(random_term(rng)),
            **preferred((rng.randint(1, 100), random_term(rng))),
        }
    if rng.random() < 0.3:
        affinity["podAffinity"] = preferred((rng.randint(1, 100), random_term(rng)))
        if rng.random() < 0.4:
            affinity["podAffinity"] |= required(
                *(random_term(rng) for _ in range(rng.randint(1, 2)))
            )
    if affinity:
        spec["affinity"] = affinity
    if rng.random() < 0.3:
        actions = rng.sample(["DoNotSchedule", "ScheduleAnyway"], rng.randint(1, 2))
        spec["topologySpreadConstraints"] = [
            spread(rng.randint(1, 3), rng.choice([HOST, ZONE]), {"app": rng.choice(APPS)}, action)
            for action in actions
        ]
    if rng.random() < 0.2:
        spec["nodeSelector"] = {ZONE: str(rng.randrange(3))}
    made = pod(
        name,
        cpu=rng.choice(["", "100m", "500m"]),
        memory=rng.choice(["", "100Mi", "1Gi"]),
        labels={"app": rng.choice(APPS)},
        node_name=node_name,
        **spec,
    )
    if rng.random() < 0.1:
        made["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
    return made


class Naive:
    """The rules of pod affinity and spreading, one node and one pod at a time."""

    def __init__(self, harness: SchedulerHarness) -> None:
        self.nodes = {
            info.name: info for info in harness.snapshot.nodes.values() if info.node is not None
        }

    def labels(self, name: str) -> dict[str, str]:
        return self.nodes[name].labels

    def pods(self) -> list[tuple[str, PodInfo]]:
        return [(name, p) for name, info in self.nodes.items() for p in info.pods.values()]

    def near(self, a: str, b: str, key: str) -> bool:
        return key in self.labels(a) and self.labels(a)[key] == self.labels(b).get(key)

    def affinity(self, wanted: PodInfo, name: str) -> bool:
        terms = wanted.shape.terms
        together = [
            where
            for where, p in self.pods()
            if terms.affinity and all(t.pod_selector.matches(p.identity) for t in terms.affinity)
        ]
        if any(t.key not in self.labels(name) for t in terms.affinity):
            return False
        if not all(
            any(self.near(name, where, t.key) for where in together) for t in terms.affinity
        ):
            somewhere = any(
                t.key in self.labels(where) for where in together for t in terms.affinity
            )
            if somewhere or not all(
                t.pod_selector.matches(wanted.identity) for t in terms.affinity
            ):
                return False
        for where, p in self.pods():
            if any(
                t.pod_selector.matches(p.identity) and self.near(name, where, t.key)
                for t in terms.anti_affinity
            ):
                return False
            if any(
                t.pod_selector.matches(wanted.identity) and self.near(name, where, t.key)
                for t in p.shape.terms.anti_affinity
            ):
                return False
        return True

    def matching(self, selector: Any, name: str) -> int:
        return sum(
            not p.terminating and selector.matches(p.identity.labels)
            for p in self.nodes[name].pods.values()
        )

    def eligible(self, wanted: PodInfo, keys: list[str]) -> list[str]:
        return [
            name
            for name in self.nodes
            if all(key in self.labels(name) for key in keys)
            and all(self.labels(name).get(k) == v for k, v in wanted.shape.node_selector.items())
        ]

    def evenly(self, wanted: PodInfo, name: str) -> bool:
        hard = [s for s in wanted.shape.spreads if s.hard]
        eligible = self.eligible(wanted, [s.key for s in hard])
        for s in hard:
            if s.key not in self.labels(name):
                return False
            domains = {self.labels(e)[s.key] for e in eligible}
            counts = {
                d: sum(
                    self.matching(s.selector, n)
                    for n in self.nodes
                    if self.labels(n).get(s.key) == d
                )
                for d in domains
            }
            lowest = min(counts.values(), default=1 << 31)
            own = s.selector is not None and s.selector.matches(wanted.identity.labels)
            if counts.get(self.labels(name)[s.key], 0) + own - lowest > s.max_skew:
                return False
        return True

    def spread_score(self, wanted: PodInfo, names: list[str]) -> dict[str, int]:
        soft = [s for s in wanted.shape.spreads if not s.hard]
        if not soft:
            return dict.fromkeys(names, 100)
        keys = [s.key for s in soft]
        scored = [n for n in names if all(k in self.labels(n) for k in keys)]
        raw = {}
        for name in scored:
            total = 0.0
            for s in soft:
                value = self.labels(name)[s.key]
                if s.key == HOST:
                    size, count = len(scored), self.matching(s.selector, name)
                else:
                    size = len({self.labels(n)[s.key] for n in scored})
                    inside = [
                        n for n in self.eligible(wanted, keys) if self.labels(n)[s.key] == value
                    ]
                    count = sum(self.matching(s.selector, n) for n in inside)
                total += count * math.log(size + 2) + (s.max_skew - 1)
            raw[name] = int(total)
        highest, lowest = max(raw.values(), default=0), min(raw.values(), default=0)
        return {
            n: 0
            if n not in raw
            else 100
            if not highest
            else 100 * (highest + lowest - raw[n]) // highest
            for n in names
        }

    def affinity_score(self, wanted: PodInfo, names: list[str]) -> dict[str, int]:
        def likes(name: str) -> int:
            total = 0
            for where, p in self.pods():
                own, others = wanted.shape.terms, p.shape.terms
                for terms, about, sign in (
                    (own.preferred, p, 1),
                    (own.avoided, p, -1),
                    (others.preferred, wanted, 1),
                    (others.avoided, wanted, -1),
                ):
                    held = [
                        t
                        for t in terms
                        if t.pod_selector.matches(about.identity) and self.near(name, where, t.key)
                    ]
                    total += sign * sum(t.weight for t in held)
                hard = [t for t in others.affinity if t.pod_selector.matches(wanted.identity)]
                total += sum(self.near(name, where, t.key) for t in hard)
            return total

        raw = {name: likes(name) for name in names}
        highest, lowest = max(0, *raw.values()), min(0, *raw.values())
        return {
            n: int(100 * ((v - lowest) / (highest - lowest))) if highest > lowest else 0
            for n, v in raw.items()
        }


def populate(harness: SchedulerHarness, rng: random.Random) -> list[Object]:
    names = [f"n{i}" for i in range(rng.randint(2, 9))]
    harness.nodes(*(random_node(rng, i) for i in range(len(names))))
    pods = [random_pod(rng, f"r{i}", rng.choice(names)) for i in range(rng.randint(0, 25))]
    harness.running(*pods)
    return pods


@pytest.mark.parametrize("seed", range(120))
def test_columns_say_what_single_looks_say(harness: SchedulerHarness, seed: int) -> None:
    rng = random.Random(seed)
    populate(harness, rng)
    naive = Naive(harness)
    profile = harness.scheduler.profiles["default-scheduler"]
    by_name = {plugin.name: plugin for plugin in profile.filter_plugins}
    rows = harness.snapshot.order
    names = [harness.snapshot.name(row) for row in rows]
    for i in range(4):
        wanted = PodInfo(random_pod(rng, f"p{i}"))
        state = CycleState()
        assert profile.run_pre_filter_plugins(state, wanted) is None
        for plugin, rule in (
            ("InterPodAffinity", naive.affinity),
            ("PodTopologySpread", naive.evenly),
        ):
            mask = by_name[plugin].filter_nodes(state, wanted, rows)
            expected = [rule(wanted, name) for name in names]
            assert (mask.tolist() if mask is not None else [True] * len(names)) == expected, plugin
            if mask is not None and not mask.all():
                refused = np.concatenate(
                    [
                        some
                        for _, some in by_name[plugin].filter_statuses(state, wanted, rows[~mask])
                    ]
                )
                assert sorted(refused.tolist()) == sorted(rows[~mask].tolist())
        profile.run_pre_score_plugins(state, wanted, rows)
        scores = {
            name: np.broadcast_to(s, len(rows)).tolist()
            for name, s, _ in profile.run_score_plugins(state, wanted, rows)
        }
        assert dict(zip(names, scores["PodTopologySpread"], strict=True)) == naive.spread_score(
            wanted, names
        )
        assert dict(zip(names, scores["InterPodAffinity"], strict=True)) == naive.affinity_score(
            wanted, names
        )


def view(harness: SchedulerHarness, wanted: Object) -> tuple[Any, Any]:
    """All that is known about a pod, by the names of nodes."""
    profile = harness.scheduler.profiles["default-scheduler"]
    state, info = CycleState(), PodInfo(wanted)
    assert profile.run_pre_filter_plugins(state, info) is None
    snapshot = harness.snapshot
    verdicts = {
        snapshot.name(row): verdict
        for verdict, rows in filtered_nodes_statuses(profile, state, info)
        for row in rows
    }
    rows = nodes_that_pass_filters(profile, state, info, snapshot.order)
    if not len(rows):
        return verdicts, {}
    return verdicts, dict(
        zip(
            map(snapshot.name, rows),
            prioritize_nodes(profile, state, info, rows).tolist(),
            strict=True,
        )
    )


@pytest.mark.loop_budget(None)  # all of the test is one callback
@pytest.mark.parametrize("seed", range(60))
async def test_what_is_kept_is_what_a_fresh_look_finds(seed: int) -> None:
    rng = random.Random(seed)
    harness = SchedulerHarness()
    running = {p["metadata"]["name"]: p for p in populate(harness, rng)}
    nodes = {name: info.node for name, info in harness.snapshot.nodes.items()}
    wanted = [random_pod(rng, f"p{i}") for i in range(3)]
    for step in range(12):
        what = rng.random()
        if what < 0.35:
            new = random_pod(rng, f"s{step}", rng.choice([*nodes]))
            running[new["metadata"]["name"]] = new
            harness.running(new)
        elif what < 0.6 and running:
            gone = running.pop(rng.choice([*running]))
            harness.scheduler.cache.remove_pod(gone["metadata"]["uid"])
        elif what < 0.7 and running:
            name = rng.choice([*running])
            changed = random_pod(rng, name, running[name]["spec"]["nodeName"])
            running[name] = changed
            harness.running(changed)
        elif what < 0.85:
            i = rng.randrange(12)
            nodes[f"n{i}"] = random_node(rng, i)
            harness.nodes(nodes[f"n{i}"])
        elif len(nodes) > 1:
            name = rng.choice([*nodes])
            del nodes[name]
            harness.snapshot.remove_node(name)
        fresh = SchedulerHarness()
        fresh.nodes(*nodes.values())
        fresh.running(*running.values())
        for one in wanted:
            assert view(harness, one) == view(fresh, one), step


@pytest.mark.parametrize("seed", range(20))
async def test_a_pod_is_never_put_where_it_does_not_fit(seed: int) -> None:
    rng = random.Random(seed)
    harness = SchedulerHarness(seed=seed)
    harness.nodes(
        *(node(f"n{i}", cpu=str(rng.randint(1, 4)), pods=str(rng.randint(1, 12))) for i in range(8))
    )
    for i in range(60):
        harness.place(pod(f"p{i}", cpu=f"{rng.randint(1, 20) * 50}m"))
    snapshot = harness.snapshot
    assert (snapshot.used_cpu <= snapshot.alloc_cpu).all()
    assert (snapshot.used_pods <= snapshot.alloc_pods).all()
    assert snapshot.used_pods.sum() == sum(len(info.pods) for info in snapshot.nodes.values()) > 0
