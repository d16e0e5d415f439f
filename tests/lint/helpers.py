"""Shared by the tests of lint: texts in, findings out, without files and processes."""

from __future__ import annotations

from typing import Any

from transom.lint.config import Config
from transom.lint.engine import Report, lint
from transom.lint.sources import Reading, Source
from transom.lint.text import Text
from transom.windows.landscape import Landscape, described


def source(text: str, name: str = "a.yaml", scope: str = "here") -> Source:
    return Source(name, Text(text), scope)


def report(text: str, config: Config | None = None, landscape: Landscape | None = None, **nodes: Any) -> Report:
    return lint(Reading([source(text)]), landscape or described(**nodes), config or Config())


def ids(text: str, **nodes: Any) -> list[str]:
    return [finding.id for finding in report(text, **nodes).findings]


def pod(spec: str, name: str = "a") -> str:
    """A pod for Windows that nothing is said of, but for what `spec` adds."""
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n"
        "  nodeSelector: {kubernetes.io/os: windows}\n"
        "  containers:\n  - name: a\n    image: example.com/app:1\n    resources: {limits: {memory: 1Gi}}\n" + spec
    )
