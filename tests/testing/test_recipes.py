"""The recipes of docs/testing.md, as they are written there."""

from __future__ import annotations

import re

import pytest
from tests.conftest import ROOT

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.e2e

_RECIPE = re.compile(r"^### (.+?)$(.*?)^```python\n(.*?)^```$", re.M | re.S)


def recipes() -> dict[str, str]:
    page = (ROOT / "docs" / "testing.md").read_text()
    return {title: code for title, _, code in _RECIPE.findall(page.partition("## Recipes")[2])}


def test_all_recipes_are_found() -> None:
    assert list(recipes()) == [
        "The official Python client",
        "An operator written with kopf",
        "A Helm chart",
        "An admission webhook",
    ]


def test_recipes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = ROOT / ".tools" / "helm" / "bin"
    if not (tools / "helm").exists():
        pytest.skip("helm is not installed")
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    pytester.makeini("[pytest]\ntransom_release = 1.36\n")
    found = recipes()
    pytester.makepyfile(**{f"test_{number}": code for number, code in enumerate(found.values())})
    # As in an environment without plugins that only Transom's own tests need.
    others = ("xdist", "cacheprovider", "hypothesispytest")
    result = pytester.runpytest_subprocess(*(f"-pno:{name}" for name in others))
    result.assert_outcomes(passed=len(found))
