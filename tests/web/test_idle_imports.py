"""An idle console does not load what only its pages need."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import sys
import transom.kit.process
import transom.web.server
print([name for name in sys.modules if name.startswith(tuple(sys.argv[1:]))])
"""


@pytest.mark.parametrize(
    "package",
    ["transom.doctor", "transom.lint", "transom.scenarios", "transom.windows.registry", "uvloop"],
)
def test_a_package_is_loaded_by_its_page_only(package: str) -> None:
    command = [sys.executable, "-c", LOADED, package]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_lint_loads_only_what_its_page_shows() -> None:
    code = LOADED.replace("transom.web.server", "transom.web.pages.manifest_check")
    command = [sys.executable, "-c", code, "xml", "transom.doctor"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
