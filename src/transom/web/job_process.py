"""The program of a child process of the console: runs one job and writes its result as JSON.

`child_jobs` starts it; the console itself never imports it, because doctor and the scheduler take
more memory than the console. Each job loads only its own modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import orjson

from transom.client.kubeconfig import RestConfig, rest_config_from_document
from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.machinery.errors import ApiError
from transom.web.child_jobs import Job

if TYPE_CHECKING:
    from transom.cluster import components
    from transom.doctor import connect, examine
    from transom.doctor.snapshot import ClusterSnapshot
    from transom.web.pages import manifest_check, node_choice
else:
    components = lazy_import("transom.cluster.components")
    connect = lazy_import("transom.doctor.connect")
    examine = lazy_import("transom.doctor.examine")
    manifest_check = lazy_import("transom.web.pages.manifest_check")
    node_choice = lazy_import("transom.web.pages.node_choice")

MOST_FINDINGS: Final = 500
_MOST_PLACES: Final = 500
_NICE: Final = 5  # pages and the cluster come first


def find_causes(target: RestConfig, *names: str) -> list[dict[str, Any]]:
    """Doctor's findings as documents, errors first: about pods and nodes, all of them without
    names. `count` is the number of places, of which a bounded number is listed.
    """
    return _findings(_read_cluster(target, names), names)


def _read_cluster(target: RestConfig, names: tuple[str, ...]) -> ClusterSnapshot:
    seen = connect.take_snapshot(target, names)
    if seen.unreachable:
        raise ApiError(502, "", seen.unreachable)
    return seen


def _findings(seen: ClusterSnapshot, names: tuple[str, ...]) -> list[dict[str, Any]]:
    about = examine.places_to_check(seen, names) if names else ()
    documents = [one.document() for one in examine.examine(seen, about)[:MOST_FINDINGS]]
    for one in documents:
        one["count"] = len(one["where"])
        one["where"] = one["where"][:_MOST_PLACES]
    return documents


def pod_explanation(target: RestConfig, namespace: str, name: str) -> dict[str, Any]:
    """The scheduler's decision about a pod, and doctor's findings about it; `problem` is why there
    is no decision. A user who may not list nodes gets none.
    """
    found: dict[str, Any] = {"problem": "", "decision": None, "filters": [], "causes": None}
    try:
        names = (f"pod/{namespace}/{name}",)
        seen = _read_cluster(target, names)
        found["causes"] = _findings(seen, names)
        found["problem"] = seen.unread.get("nodes", "")
        if not found["problem"]:
            explanation = components.explain_schedule_at(target, namespace, name)
            found["decision"], found["filters"] = explanation.document(), explanation.filters
    except ApiError as problem:
        found["problem"] = problem.message
    except UserError as problem:  # there is no such pod, or the user may not list pods
        unread = _read_cluster(target, ()).unread
        found["problem"] = unread.get("pods", problem.message)
    return found


def lint_manifest(_: RestConfig, document: str) -> dict[str, Any]:
    """The report of `manifest_check.check_manifest`; the document has the fields of the form."""
    fields = orjson.loads(document)
    return manifest_check.check_manifest(fields["text"], *node_choice.read_choices(fields))


def lint_report_file(_: RestConfig, document: str, form: str) -> dict[str, str]:
    """The file of `manifest_check.render_report`."""
    fields = orjson.loads(document)
    now, later = node_choice.read_choices(fields)
    return manifest_check.render_report(fields["text"], now, form, later)


JOBS: Final[dict[Job, Callable[..., Any]]] = {
    Job.DOCTOR: find_causes,
    Job.EXPLAIN_POD: pod_explanation,
    Job.LINT: lint_manifest,
    Job.LINT_REPORT: lint_report_file,
}


def run_job(order: bytes) -> bytes:
    document = orjson.loads(order)
    try:
        target = rest_config_from_document(document["target"])
        answer = {"result": JOBS[Job(document["job"])](target, *document["arguments"])}
    except UserError as problem:
        hint = f" ({problem.hint})" if problem.hint else ""
        answer = {"error": problem.message + hint, "code": 400}
    except ApiError as problem:
        answer = {"error": problem.message, "code": problem.code}
    return orjson.dumps(answer)


if __name__ == "__main__":
    os.nice(_NICE)
    sys.stdout.buffer.write(run_job(sys.stdin.buffer.read()))
