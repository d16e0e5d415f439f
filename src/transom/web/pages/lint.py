"""The Lint page: paste or drop manifests, see the findings beside their lines, and the fix as a diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from transom.http.messages import Answer
from transom.kit.lazy import lazy_import
from transom.machinery.errors import ApiError
from transom.web.child_jobs import Job
from transom.web.layout import page_response
from transom.web.markup import tag
from transom.web.responses import json_page
from transom.web.routing import Page, PageRequest, Route
from transom.web.workers import run_in_worker

if TYPE_CHECKING:
    from transom.web.pages import manifest_check, node_choice
    from transom.web.pages.node_choice import NodeChoice
else:
    node_choice = lazy_import("transom.web.pages.node_choice")
    manifest_check = lazy_import("transom.web.pages.manifest_check")

MOST_BYTES: Final = 256 * 1024
_MOST_IN_THREAD: Final = 16 * 1024  # characters; starting a process takes 0.3 s
_FORMATS: Final = (("text", "text"), ("json", "JSON"), ("sarif", "SARIF"), ("junit", "JUnit"))
_EXAMPLE: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      hostNetwork: true
      nodeSelector:
        kubernetes.io/os: windows
      containers:
      - name: iis
        image: mcr.microsoft.com/windows/servercore/iis:windowsservercore-ltsc2019
        securityContext:
          privileged: true
          runAsUser: 1000
"""


async def show_lint(request: PageRequest) -> Answer:
    choice = node_choice.read_choice(request.query, await node_choice.server_release(request))
    return page_response(
        request,
        PAGE,
        tag("link", rel="stylesheet", href="/static/why.css"),
        tag("h1", "Lint"),
        tag(
            "form",
            node_choice.choice_fields(choice),
            tag("span", class_="grow"),
            node_choice.select_input("format", "Save as", _FORMATS, "text"),
            tag("button", "Save", type="button", id="save"),
            tag("button", "Check", type="submit", class_="primary"),
            node_choice.rehearsal_fields(),
            class_="toolbar trace-form",
            id="options",
        ),
        tag(
            "div",
            tag("label", "Manifests: paste or type YAML, or drop files here", for_="manifest"),
            tag(
                "input",
                type="file",
                id="files",
                multiple=True,
                accept=".yaml,.yml,.json,.txt",
                aria_label="Open files",
            ),
            class_="toolbar",
        ),
        tag(
            "textarea",
            _EXAMPLE,
            id="manifest",
            rows=16,
            spellcheck="false",
            autocomplete="off",
            autocapitalize="off",
            wrap="off",
            data_most=MOST_BYTES,
        ),
        tag("p", id="summary", class_="live-summary", role="status"),
        tag("div", id="result"),
    )


async def check_manifests(request: PageRequest) -> Answer:
    manifest = _read(request)
    if manifest.is_large:
        return json_page(await request.services.jobs.run(Job.LINT, manifest.document()))
    arguments = (manifest.text, manifest.choice, manifest.later)
    return json_page(await run_in_worker(manifest_check.check_manifest, *arguments))


async def save_report(request: PageRequest) -> Answer:
    manifest = _read(request)
    form = manifest.fields.get("format") or "text"
    if form not in dict(_FORMATS):
        raise ApiError(400, "BadRequest", f"format is one of {', '.join(dict(_FORMATS))}")
    if manifest.is_large:
        report = await request.services.jobs.run(Job.LINT_REPORT, manifest.document(), form)
        return json_page(report)
    arguments = (manifest.text, manifest.choice, form, manifest.later)
    return json_page(await run_in_worker(manifest_check.render_report, *arguments))


class _PastedManifest(NamedTuple):
    """A checked request: the text, the nodes now and after an upgrade, and all fields of the form."""

    text: str
    choice: NodeChoice
    later: NodeChoice | None
    fields: dict[str, str]

    @property
    def is_large(self) -> bool:
        """Whether it is checked in a child process: a thread would hold the interpreter's lock for
        too long, and cannot be ended.
        """
        return len(self.text) > _MOST_IN_THREAD

    def document(self) -> str:
        return orjson.dumps(self.fields).decode()


def _read(request: PageRequest) -> _PastedManifest:
    if len(request.http.body) > 2 * MOST_BYTES:
        raise ApiError(413, "RequestEntityTooLarge", "at most 256 KiB of manifests can be checked")
    body = request.json()
    text = body.get("text")
    if not isinstance(text, str):
        raise ApiError(400, "BadRequest", "text is required")
    if len(text.encode(errors="replace")) > MOST_BYTES:
        raise ApiError(413, "RequestEntityTooLarge", "at most 256 KiB of manifests can be checked")
    fields = {name: str(value or "") for name, value in body.items()} | {"text": text}
    choice, later = node_choice.read_choices(fields)
    return _PastedManifest(text, choice, later, fields)


PAGE = Page(
    "lint",
    "Lint",
    "/lint",
    (
        Route("GET", "/lint", show_lint),
        Route("POST", "/lint/check", check_manifests),
        Route("POST", "/lint/report", save_report),
    ),
)
