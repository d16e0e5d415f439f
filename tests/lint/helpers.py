"""Shared by the tests of lint: texts in, findings out, without files and processes."""

from __future__ import annotations

from typing import Any

from transom.lint.config import LintConfig
from transom.lint.engine import LintReport, lint_sources
from transom.lint.sources import ManifestSource, SourcesRead
from transom.lint.text import SourceText
from transom.windows.target_nodes import TargetNodes, target_nodes_from_options


def source(text: str, name: str = "a.yaml", scope: str = "here") -> ManifestSource:
    return ManifestSource(name, SourceText(text), scope)


def report(
    text: str,
    config: LintConfig | None = None,
    target_nodes: TargetNodes | None = None,
    **nodes: Any,
) -> LintReport:
    return lint_sources(
        SourcesRead([source(text)]),
        target_nodes or target_nodes_from_options(**nodes),
        config or LintConfig(),
    )


def ids(text: str, **nodes: Any) -> list[str]:
    return [finding.id for finding in report(text, **nodes).findings]


def pod(spec: str, name: str = "a") -> str:
    """A pod for Windows without findings, except for what `spec` adds."""
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n"
        "  nodeSelector: {kubernetes.io/os: windows}\n"
        "  containers:\n  - name: a\n    image: example.com/app:1\n    resources: {limits: "
        "{memory: 1Gi}}\n" + spec
    )
