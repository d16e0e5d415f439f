"""What is done with an object takes CPU time in proportion to its size: decoding, validation,
patches, apply, selectors, CEL.

Each case is run with N and with 4 N items. Linear work grows four times, quadratic work sixteen
times. `make test` counts the lines that run, which is exact; `make hostile` also measures CPU time,
of several runs the shortest.
"""

from __future__ import annotations

import contextlib
import gc
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest

from transom.apiserver.core.typed import BuiltinType
from transom.kit import dnswire
from transom.kit.cel.errors import CompileError
from transom.kit.cel.types import parse_type
from transom.machinery import (
    apply,
    field_selectors,
    goyaml,
    jsonpatch,
    managedfields,
    mergepatch,
    rbac,
    selectors,
    strategic,
)
from transom.machinery.cel.environment import kubernetes_environment
from transom.machinery.errors import ApiError
from transom.machinery.kinds import KINDS
from transom.machinery.validation import certificates

ROOT = Path(__file__).parents[2]
ENOUGH_LINES = 10_000
MAX_LINES_RATIO = 6.0  # linear is 4, sorting a little more
MAX_RATIO = (
    8.0  # linear is 4; caches of a shared machine make larger inputs up to half as slow again
)
MEASURABLE = 0.004  # seconds
MOST_ITEMS = 2048
NOW = "2024-01-01T00:00:00Z"
Work = Callable[[], object]


def kind_of(name: str) -> BuiltinType:
    kind = next(kind for kind in KINDS if kind.kind == name)
    return BuiltinType(kind, kind.gvk())


POD, CONFIG_MAP, ROLE, SERVICE = map(kind_of, ("Pod", "ConfigMap", "Role", "Service"))


def pod(**spec: Any) -> dict[str, Any]:
    meta = {
        "name": "a",
        "namespace": "default",
        "uid": "u",
        "creationTimestamp": NOW,
        "resourceVersion": "1",
    }
    container = {
        "name": "c",
        "image": "i",
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {
            "containers": [container],
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            **spec,
        },
    }


def containers(n: int, name: str = "c{}", **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": name.format(i),
            "image": "i",
            "imagePullPolicy": "Always",
            "terminationMessagePolicy": "File",
            **more,
        }
        for i in range(n)
    ]


def env(n: int, name: str = "E{}") -> list[dict[str, Any]]:
    return containers(1, env=[{"name": name.format(i), "value": "x"} for i in range(n)])


def validating(ops: BuiltinType, obj: dict[str, Any]) -> Work:
    def work() -> None:
        ops.validate_create(obj)
        ops.validate_update(obj, obj, "")

    return work


def validating_pod(make: Callable[[int], dict[str, Any]], n: int) -> Work:
    return validating(POD, make(n))


def config(n: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"},
        "data": {f"k{i}": "value" for i in range(n)},
    }


PODS: dict[str, Callable[[int], dict[str, Any]]] = {
    "containers": lambda n: pod(containers=containers(n)),
    "containers of one name": lambda n: pod(containers=containers(n, "c")),
    "containers of bad names": lambda n: pod(containers=containers(n, "-{}/")),
    "environment": lambda n: pod(containers=env(n)),
    "environment of bad names": lambda n: pod(containers=env(n, "-{}= ")),
    "volumes": lambda n: pod(volumes=[{"name": f"v{i}", "emptyDir": {}} for i in range(n)]),
    "volumes without a source": lambda n: pod(volumes=[{"name": f"v{i}"} for i in range(n)]),
    "mounts at one place": lambda n: pod(
        volumes=[{"name": "v", "emptyDir": {}}],
        containers=containers(1, volumeMounts=[{"name": "v", "mountPath": "/a"} for _ in range(n)]),
    ),
    "ports": lambda n: pod(
        containers=containers(
            1,
            ports=[
                {"name": f"p{i}", "containerPort": i % 65535 + 1, "protocol": "TCP"}
                for i in range(n)
            ],
        )
    ),
    "ports of the host": lambda n: pod(
        hostNetwork=True,
        containers=containers(
            1, ports=[{"containerPort": 80, "hostPort": 80, "protocol": "TCP"} for _ in range(n)]
        ),
    ),
    "tolerations": lambda n: pod(
        tolerations=[{"key": f"k{i}", "operator": "Exists"} for i in range(n)]
    ),
    "tolerations of nonsense": lambda n: pod(
        tolerations=[{"key": "-/", "operator": "x", "value": f"{i}"} for i in range(n)]
    ),
    "affinity": lambda n: pod(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": f"k{i}", "operator": "Exists"}]}
                        for i in range(n)
                    ]
                }
            }
        }
    ),
    "spread": lambda n: pod(
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": f"k{i % 7}", "whenUnsatisfiable": "DoNotSchedule"}
            for i in range(n)
        ]
    ),
    "aliases": lambda n: pod(
        hostAliases=[{"ip": "10.0.0.1", "hostnames": [f"h{i}"]} for i in range(n)]
    ),
    "secrets": lambda n: pod(imagePullSecrets=[{"name": f"s{i}"} for i in range(n)]),
    "readiness gates": lambda n: pod(
        readinessGates=[{"conditionType": f"-/{i}"} for i in range(n)]
    ),
}


def metadata(n: int, bad: bool) -> dict[str, Any]:
    obj, mark = pod(), "-/" if bad else ""
    obj["metadata"] |= {
        "labels": {f"{mark}k{i}": f"{mark}v" for i in range(n)},
        "annotations": {f"{mark}k{i}": "v" for i in range(n)},
        "finalizers": [f"{mark}a.b/x{i}" for i in range(n)],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "X", "name": f"n{i}", "uid": f"u{i}", "controller": bad}
            for i in range(n)
        ],
    }
    return obj


def dns_records(n: int) -> bytes:
    return (
        struct.pack("!6H", 1, 0, 1, n, 0, 0)
        + b"\1a\0"
        + struct.pack("!2H", 1, 1)
        + (b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + b"\1\2\3\4") * n
    )


def decoding(obj: dict[str, Any], *, strict: bool) -> Work:
    return partial(CONFIG_MAP.decode, orjson.dumps(obj), "application/json", strict=strict)


def permitting(rules: list[rbac.Rule]) -> Work:
    return lambda: list(rbac.iterate_uncovered_rules(rules, rules))


def applying(n: int) -> Work:
    live, patch = config(n), config(n)
    patch["data"]["k0"] = "changed"
    return lambda: apply.server_side_apply(
        live, patch, CONFIG_MAP.schema, "b", "v1", True, NOW, CONFIG_MAP.in_version
    )


def merging(n: int) -> Work:
    live = pod(containers=containers(n))
    patch = {
        "spec": {
            "containers": [{"name": f"c{i}", "image": "new"} for i in range(n)],
            "$setElementOrder/containers": [{"name": f"c{i}"} for i in reversed(range(n))],
        }
    }
    return lambda: strategic.strategic_merge(live, patch, POD.schema)


def owning(n: int) -> Work:
    old, new = config(n), config(n)
    new["data"] = {f"j{i}": "x" for i in range(n)}
    return lambda: managedfields.on_update(
        old, new, CONFIG_MAP.schema, "a", "v1", NOW, CONFIG_MAP.in_version
    )


def selecting(text: str) -> Callable[[int], Work]:
    def make(n: int) -> Work:
        terms = ",".join(text.format(i) for i in range(n))
        labels = [{f"k{i}": "v", "app": str(i)} for i in range(200)]

        def work() -> None:
            selector = selectors._parse_labels.__wrapped__(terms)
            for one in labels:
                selector.matches(one)

        return work

    return make


def compiling(expression: str) -> Work:
    def work() -> None:
        with contextlib.suppress(CompileError):
            kubernetes_environment().compile(expression, {}, {})

    return work


def evaluating(expression: str, value: list[int]) -> Work:
    compiled = kubernetes_environment().compile(expression, {"self": parse_type("list(int)")}, {})
    return lambda: compiled.program.evaluate({"self": value}, 10**9)


CASES: dict[str, Callable[[int], Work]] = {
    **{f"validation: {name}": partial(validating_pod, make) for name, make in PODS.items()},
    "validation: metadata": lambda n: validating(POD, metadata(n, False)),
    "validation: bad metadata": lambda n: validating(POD, metadata(n, True)),
    "validation: config map": lambda n: validating(CONFIG_MAP, config(n)),
    "validation: rules of a role": lambda n: validating(
        ROLE,
        {
            "metadata": {"name": "a", "namespace": "default"},
            "rules": [{"verbs": [], "resources": ["x"]}] * n,
        },
    ),
    "validation: ports of a service": lambda n: validating(
        SERVICE,
        {
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "type": "ClusterIP",
                "clusterIP": "None",
                "ports": [
                    {"name": f"p{i % 5}", "port": 80, "protocol": "TCP", "targetPort": 80}
                    for i in range(n)
                ],
            },
        },
    ),
    "validation: PEM": lambda n: partial(
        certificates.pem_blocks, b"-----BEGIN A-----\n" * n + b"-----END A-----\n"
    ),
    "decode: JSON": lambda n: decoding(config(n), strict=True),
    "decode: unknown fields": lambda n: decoding(
        {**config(1), **{f"x{i}": 1 for i in range(n)}}, strict=False
    ),
    "decode: YAML": lambda n: partial(
        goyaml.load_yaml, b"data:\n" + b"".join(b"  k%d: v\n" % i for i in range(n))
    ),
    "decode: YAML aliases": lambda n: partial(goyaml.load_yaml, b"a: &a [1]\nb:\n" + b"- *a\n" * n),
    "decode: DNS": lambda n: partial(dnswire.parse_dns_message, dns_records(n)),
    "patch: JSON": lambda n: partial(
        jsonpatch.json_patch,
        config(1),
        [{"op": "add", "path": f"/data/x{i}", "value": "y"} for i in range(n)],
    ),
    "patch: merge": lambda n: partial(
        mergepatch.merge_patch, config(n), {"data": {f"k{i}": None for i in range(n)}}
    ),
    "patch: strategic": merging,
    "apply": applying,
    "managed fields": owning,
    "selector: absent keys": selecting("!k{}"),
    "selector: values": selecting("app!=v{}"),
    "selector: sets": selecting("k{} notin (a,b)"),
    "selector: fields": lambda n: partial(
        field_selectors.parse_fields, ",".join(f"metadata.name!=x{i}" for i in range(n))
    ),
    "CEL: compile a sum": lambda n: compiling("1" + " + 1" * n + " > 0"),
    "CEL: compile a list": lambda n: compiling(f"size([{', '.join('1' for _ in range(n))}]) > 0"),
    "CEL: compile a text": lambda n: compiling(f"'{'a' * n}' != ''"),
    "CEL: compile what is wrong": lambda n: compiling(" || ".join("unknown" for _ in range(n))),
    "CEL: all": lambda n: evaluating("self.all(x, x > 0)", list(range(1, n + 1))),
    "CEL: map and filter": lambda n: evaluating(
        "self.map(x, x + 1).filter(x, x % 2 == 0).exists(x, x < 0)", list(range(n))
    ),
    "admission: permissions": lambda n: permitting(
        [{"apiGroups": [f"g{i}"], "resources": [f"r{i}"], "verbs": ["get"]} for i in range(n)]
    ),
}


def attempt(work: Work) -> None:
    with contextlib.suppress(ApiError):  # refusing an object must not take longer either
        work()


def lines(work: Work) -> int:
    """The lines of Python that run: the same number in every run, also on a busy machine."""
    count = 0

    def trace(_frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    # Traced frames are garbage, and a collection of all that a worker has kept takes seconds.
    gc.disable()
    sys.settrace(trace)
    try:
        attempt(work)
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


def cpu(work: Work) -> float:
    began = time.thread_time()
    attempt(work)
    return time.thread_time() - began


def test_a_cel_expression_has_a_bounded_number_of_issues() -> None:
    with pytest.raises(CompileError) as caught:
        kubernetes_environment().compile(" || ".join("unknown" for _ in range(1000)), {}, {})
    text = str(caught.value)
    assert text.count("undeclared reference") == 100
    assert text.endswith("\n900 more errors were truncated")


def count_lines(name: str) -> tuple[int, int, int]:
    """A number of items, the lines that run for them, and for four times as many."""
    make, few = CASES[name], 64
    attempt(make(few))  # fills caches
    while lines(make(few)) < ENOUGH_LINES and few < MOST_ITEMS:
        few *= 2
    return few, lines(make(few)), lines(make(4 * few))


@pytest.fixture(scope="module")
def counted_lines() -> dict[str, tuple[int, int, int]]:
    """Counted in a process of its own: tracing is slow in one that has run thousands of tests."""
    command = [sys.executable, "-m", "tests.hostile.test_linear"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    counted: dict[str, tuple[int, int, int]] = orjson.loads(done.stdout)
    return counted


@pytest.mark.parametrize("name", CASES)
def test_lines_grow_with_size(name: str, counted_lines: dict[str, tuple[int, int, int]]) -> None:
    few, small, large = counted_lines[name]
    assert large <= MAX_LINES_RATIO * small, (
        f"{few} items run {small} lines, four times as many run {large}"
    )


@pytest.mark.skipif("ROUNDS" not in os.environ, reason="measures time: make hostile")
@pytest.mark.parametrize("name", CASES)
def test_time_grows_with_size(name: str) -> None:
    """Also finds quadratic work in functions written in C, which runs no lines."""
    make, few = CASES[name], 64
    while cpu(make(few)) < MEASURABLE and few < MOST_ITEMS:
        few *= 2
    small, large = make(few), make(4 * few)
    ratio = 0.0
    gc.disable()
    try:
        for runs in (1, 3, 6, 12):  # noise only ever adds time: more runs find the true one
            ratio = min(cpu(large) for _ in range(runs)) / max(
                min(cpu(small) for _ in range(2 * runs)), 1e-6
            )
            if ratio < MAX_RATIO:
                return
            gc.collect()
    finally:
        gc.enable()
    raise AssertionError(f"4 * {few} items take {ratio:.1f} times as long as {few}")


if __name__ == "__main__":
    sys.stdout.buffer.write(orjson.dumps({name: count_lines(name) for name in CASES}))
