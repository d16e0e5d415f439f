"""The shipped helpers match their sources."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.runtime.wine import probe

from transom.runtime.wine import helpers
from transom.runtime.wine.helpers import Helper

# Where the built ones, their sums and their sources are.
_KINDS: list[tuple[Path, Path, Mapping[str, Helper]]] = [
    (helpers.BUILT, helpers.FOLDER, {**helpers.HELPERS, **helpers.PROGRAMS}),
    (probe.FOLDER, probe.FOLDER, {"probe.exe": probe.PROBE}),
]
_ALL = [(built, sources, helper) for built, sources, found in _KINDS for helper in found.values()]


@pytest.mark.parametrize(
    "built, sources, helper", _ALL, ids=lambda value: getattr(value, "name", "")
)
def test_shipped_with_its_source(built: Path, sources: Path, helper: Helper) -> None:
    source, made, _ = helpers.helper_checksums(built)[helper.name]
    assert helpers.source_hash(helper, sources) == source, (
        "changed: run `python -m transom.runtime.wine.helpers`"
    )
    assert hashlib.sha256((built / helper.name).read_bytes()).hexdigest() == made


@pytest.mark.parametrize(
    "built, sources, helper", _ALL, ids=lambda value: getattr(value, "name", "")
)
def test_the_same_compiler_makes_the_same_bytes(
    built: Path, sources: Path, helper: Helper, tmp_path: Path
) -> None:
    _, made, compiler = helpers.helper_checksums(built)[helper.name]
    here = helpers.compiler_version(helper)
    if here != compiler:
        pytest.skip(f"made by {compiler}; here is {here or 'no ' + helper.compiler}")
    helpers.build_helper(helper, tmp_path / helper.name, sources)
    assert hashlib.sha256((tmp_path / helper.name).read_bytes()).hexdigest() == made


def test_they_are_small() -> None:
    assert sum(path.stat().st_size for path in helpers.BUILT.iterdir()) < 128 << 10


def test_what_is_not_shipped_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One of each compiler: the test above builds all of them.
    wanted = [
        *{h.compiler: h for h in helpers.HELPERS.values() if helpers.compiler_version(h)}.values()
    ]
    monkeypatch.setattr(helpers, "HELPERS", {helper.name: helper for helper in wanted})
    found = helpers.Helpers(tmp_path, shipped=tmp_path / "none")
    assert all(found.get(helper.name) is not None for helper in wanted)
    monkeypatch.setattr(helpers, "build_helper", None)
    again = helpers.Helpers(tmp_path, shipped=tmp_path / "none")
    assert [again.get(helper.name) for helper in wanted] == [
        found.get(helper.name) for helper in wanted
    ]


def test_without_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "find_program", lambda name: None)
    missing = helpers.Helpers(tmp_path, shipped=tmp_path).missing()
    assert len(missing) == len(helpers.HELPERS)
    assert (
        "without winctrl.exe, containers are ended at once instead of receiving CTRL_SHUTDOWN_EVENT"
    ) in missing
