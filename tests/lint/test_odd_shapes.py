"""Values of unexpected types do not make rules fail: every value of the cases is replaced with
others.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.lint.helpers import source
from tests.lint.test_cases import CASES
from tests.lint.test_fixes import paths

from transom.lint.config import LintConfig
from transom.lint.engine import lint_sources
from transom.lint.fixes.apply import apply_fixes
from transom.lint.fixes.values import value_at_path, with_change
from transom.lint.objects import manifest_objects
from transom.lint.sources import SourcesRead, read_sources
from transom.windows.target_nodes import target_nodes_from_options, target_nodes_of_cluster

ODD: tuple[Any, ...] = (None, 5, "x", [], {}, [None, {"name": 7}], {"a": None}, True)


@pytest.mark.parametrize(
    "name", ["security", "storage-docker", "services", "commands", "policies", "host-process"]
)
def test_odd_values(name: str) -> None:
    documents = list(yaml.safe_load_all((CASES / f"{name}.yaml").read_text()))
    live = target_nodes_of_cluster(
        [{"metadata": {}, "status": {"nodeInfo": {"operatingSystem": "windows"}}}]
    )
    for i, document in enumerate(documents):
        for n, (steps, odd) in enumerate(product(paths(document), ODD)):
            whole = [*documents[:i], _put(document, steps, odd), *documents[i + 1 :]]
            text = "\n---\n".join(json.dumps(one) for one in whole)
            lint_sources(
                SourcesRead([source(text)]),
                live if n % 3 == 0 else target_nodes_from_options(release=(1, 25)),
                LintConfig(),
            )


def test_odd_values_can_be_fixed() -> None:
    (document,) = yaml.safe_load_all((CASES / "security.yaml").read_text())
    for n, steps in enumerate(paths(document)):
        text = yaml.safe_dump(_put(document, steps, ODD[n % len(ODD)]), sort_keys=False)
        one = source(text)
        apply_fixes(
            [one],
            lambda one=one: (
                lint_sources(SourcesRead([one]), target_nodes_from_options(), LintConfig()).findings
            ),
        )  # type: ignore[misc]
        assert yaml.safe_load(one.text.text) is not None


def _put(document: Any, steps: tuple[str | int, ...], value: Any) -> Any:
    whole = json.loads(json.dumps(document))
    value_at_path(whole, steps[:-1])[steps[-1]] = value
    return whole


def test_changes_are_made_to_copies() -> None:
    from transom.lint.findings import FixStep

    value = {"a": {"b": 1, "c": 2}}
    assert with_change(value, FixStep("drop", ("a", "b"))) == {"a": {"c": 2}}
    assert value == {"a": {"b": 1, "c": 2}}


def test_endless_files_and_deep_json_are_reported(tmp_path: Path) -> None:
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    deep = tmp_path / "deep.json"
    deep.write_text('{"a":' * 5000 + r'"\/"' + "}" * 5000)
    reading = read_sources([str(tmp_path / "zero.yaml")], ())
    assert reading.problems == [f"{tmp_path / 'zero.yaml'}: it is too large"]
    found = list(manifest_objects(read_sources([str(deep)], ()).sources[0]))
    assert [type(one).__name__ for one in found] == ["BrokenDocument"]
