"""Jobs with completion mode Indexed: every pod has an index, and each index has to succeed once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any

from transom.controllers.pods import pod_phase
from transom.machinery.objects import Object

ANNOTATION = "batch.kubernetes.io/job-completion-index"
VARIABLE = "JOB_COMPLETION_INDEX"
_LONGEST_NAME = 63 - 5  # a generated name has five more characters


def is_indexed(job: Object) -> bool:
    return job["spec"].get("completionMode") == "Indexed"


def index_of(pod: Object) -> int | None:
    """The index of a pod; None if it has no valid one."""
    text = (pod["metadata"].get("annotations") or {}).get(ANNOTATION, "")
    return int(text) if text.isascii() and text.isdigit() else None


def succeeded_indexes(pods: Iterable[Object], completions: int) -> list[int]:
    done = {index_of(pod) for pod in pods if pod_phase(pod) == "Succeeded"}
    return sorted(index for index in done if index is not None and index < completions)


def format_indexes(indexes: Sequence[int]) -> str:
    """Formats sorted indexes: `0,2-4,7`."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and runs[-1][-1] == index - 1:
            runs[-1] = [runs[-1][0], index]
        else:
            runs.append([index, index])
    return ",".join(str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in runs)


def pending_indexes(wanted: int, completions: int, taken: Collection[int]) -> list[int]:
    """The lowest indexes that are neither active nor succeeded."""
    return list(islice((i for i in range(completions) if i not in taken), max(wanted, 0)))


def surplus_index_pods(
    active: Iterable[Object], completions: int, rank: Callable[[Object], Any]
) -> list[Object]:
    """Pods that share an index with a better pod, or have no index of this Job."""
    by_index: dict[int | None, list[Object]] = {}
    for pod in active:
        index = index_of(pod)
        by_index.setdefault(
            index if index is not None and index < completions else None, []
        ).append(pod)
    out = list(by_index.pop(None, ()))
    for group in by_index.values():
        out += sorted(group, key=rank)[:-1]
    return out


def with_index(
    pod: Object,
    job_name: str,
    index: int,
    *,
    label: bool = False,
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Object:
    """A pod to create, with its index in the name, host name, annotation and environment. `label`:
    also in a label, from which the environment takes it.
    """
    suffix = f"-{index}"
    meta = pod["metadata"]
    spec: Object = {**pod["spec"], "hostname": job_name + suffix}
    for field in ("initContainers", "containers"):
        if spec.get(field):
            spec[field] = [_with_variable(container, label) for container in spec[field]]
    made = {
        **meta,
        "generateName": job_name[: _LONGEST_NAME - len(suffix) - 1] + suffix + "-",
        "annotations": {**(meta.get("annotations") or {}), ANNOTATION: str(index), **annotations},
    }
    if label:
        made["labels"] = {**(meta.get("labels") or {}), ANNOTATION: str(index)}
    return {**pod, "spec": spec, "metadata": made}


def _with_variable(container: Object, from_label: bool) -> Object:
    env = container.get("env") or []
    if any(variable["name"] == VARIABLE for variable in env):
        return container
    field = "labels" if from_label else "annotations"
    source = {"fieldRef": {"fieldPath": f"metadata.{field}['{ANNOTATION}']"}}
    return {**container, "env": [*env, {"name": VARIABLE, "valueFrom": source}]}
