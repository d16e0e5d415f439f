"""Large texts are linted in a child process, with the same result."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.conftest import ContextFactory

from transom.http.messages import HttpRequest, HttpResponse
from transom.machinery.errors import ApiError
from transom.web.child_jobs import ChildJobs, Job
from transom.web.pages.lint import MOST_BYTES

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  hostNetwork: true
  nodeSelector: {kubernetes.io/os: windows}
  containers: []
"""
LARGE = POD + "# " + "x" * 100_000
FIELDS: dict[str, Any] = {"release": "1.20", "runtime": "docker", "to-release": "1.36"}


def _no_api(_: HttpRequest) -> HttpResponse:
    return HttpResponse(500, [], b"no")


def _body(text: str, **fields: str) -> bytes:
    return orjson.dumps(FIELDS | {"text": text} | fields)


async def test_only_large_texts_start_a_child_process(browser: ContextFactory) -> None:
    async with browser(_no_api) as page:
        page.jobs.results |= {Job.LINT: {"findings": []}, Job.LINT_REPORT: {"name": "lint.txt"}}
        small = await page.post("/lint/check", _body(POD), accept="application/json")
        assert small.status == 200 and "WIN-POD-002" in small.text and page.jobs.ran == []
        for path in ("/lint/check", "/lint/report"):
            answer = await page.post(path, _body(LARGE), accept="application/json")
            assert answer.status == 200
        assert page.jobs.ran == [Job.LINT, Job.LINT_REPORT]
        page.jobs.results[Job.LINT] = ApiError(504, "Timeout", "lint takes more than 120 s")
        late = await page.post("/lint/check", _body(LARGE), accept="application/json")
        assert (late.status, "120 s" in late.text) == (504, True)


@pytest.mark.parametrize(
    "body",
    [
        _body(LARGE, release="9.9"),
        _body(LARGE, build="vista"),
        _body(LARGE, format="exe"),
        _body("x" * (MOST_BYTES + 1)),
    ],
)
async def test_wrong_fields_start_no_process(browser: ContextFactory, body: bytes) -> None:
    async with browser(_no_api) as page:
        answer = await page.post("/lint/report", body, accept="application/json")
        assert answer.status in (400, 413) and page.jobs.ran == []


async def test_the_child_process_finds_the_same(browser: ContextFactory) -> None:
    async with browser(_no_api) as page:
        small = await page.post("/lint/check", _body(POD), accept="application/json")
        saved = await page.post(
            "/lint/report", _body(POD, **{"to-release": ""}), accept="application/json"
        )
        jobs = ChildJobs(page.services.api.target)
    found = await jobs.run(Job.LINT, _body(LARGE).decode())
    wanted = orjson.loads(small.text)
    assert (found["findings"], found["rehearsal"]) == (wanted["findings"], wanted["rehearsal"])
    report = await jobs.run(Job.LINT_REPORT, _body(LARGE, **{"to-release": ""}).decode(), "text")
    assert report == orjson.loads(saved.text)
