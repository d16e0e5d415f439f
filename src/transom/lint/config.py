"""The configuration file of a project, stored beside its manifests.

# .transom-lint.yaml
target: {release: "1.25", build: ltsc2022, runtime: containerd, network: overlay, mixed: true, features: [dsr]}
paths: [deploy, charts/rendered]       # if the command line has none
exclude: ["*/testdata/*"]
ignore:
  - WIN-RES-003
  - {ids: [WIN-SEC-*], paths: ["deploy/legacy/*"]}
severities: {WIN-SEC-009: error, WIN-NET-001: none}
fail-on: warning
"""

from __future__ import annotations

from dataclasses import field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, get_args

from transom.kit.lazy_dataclass import dataclass
from transom.lint.findings import SEVERITIES, LintFinding
from transom.lint.ignores import matches_patterns
from transom.lint.rules import OWN
from transom.machinery import goyaml
from transom.windows import builds
from transom.windows.records import Network, Release, Runtime, Severity
from transom.windows.registry import RECORDS, known_features, known_release

NAME: Final = ".transom-lint.yaml"
NETWORKS: Final[tuple[str, ...]] = get_args(Network)
RUNTIMES: Final[tuple[str, ...]] = get_args(Runtime)
_KEYS: Final = ("target", "paths", "exclude", "ignore", "severities", "fail-on")
_TARGET_KEYS: Final = ("release", "build", "runtime", "network", "mixed", "features")


class LintConfigError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """The configured properties of the nodes; None for unset ones."""

    release: Release | None = None
    build: int | None = None
    runtime: Runtime | None = None
    network: Network | None = None
    mixed: bool | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LintConfig:
    target: TargetConfig = TargetConfig()
    paths: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    # ids, and the paths they apply to (none: everywhere)
    ignore: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    severities: dict[str, Severity] = field(default_factory=dict)
    fail_on: str = ""
    path: Path | None = None

    def ignores(self, finding: LintFinding) -> bool:
        name = finding.source.name
        return any(
            matches_patterns(finding.id, ids)
            and (not paths or any(fnmatchcase(name, path) for path in paths))
            for ids, paths in self.ignore
        )


def find_lint_config(start: Path) -> Path | None:
    """Finds the configuration file: in this folder or one above, up to the root of the
    repository.
    """
    for folder in (start, *start.parents):
        path = folder / NAME
        if path.is_file():
            return path
        if (folder / ".git").exists():
            return None
    return None


def load_lint_config(path: Path) -> LintConfig:
    try:
        value = goyaml.load_yaml(path.read_bytes())
    except (OSError, goyaml.YamlError) as error:
        raise LintConfigError(f"{path} cannot be read: {error}") from error
    try:
        return _config(value if value is not None else {}, path)
    except LintConfigError as error:
        raise LintConfigError(f"{path}: {error}") from None


def _config(value: Any, path: Path) -> LintConfig:
    _known(value, _KEYS, "the file")
    base = path.parent
    severities = value.get("severities") or {}
    if not isinstance(severities, dict) or not set(severities.values()) <= {*SEVERITIES, "none"}:
        raise LintConfigError("severities: give ids and error, warning, info or none")
    fail_on = value.get("fail-on", "")
    if fail_on not in ("", "none", *SEVERITIES):
        raise LintConfigError("fail-on is error, warning, info or none")
    return LintConfig(
        target=_target(value.get("target") or {}),
        paths=tuple(str(base / one) if base != Path() else one for one in _texts(value, "paths")),
        exclude=_texts(value, "exclude"),
        ignore=tuple(_ignore(one) for one in value.get("ignore") or ()),
        severities={str(key): level for key, level in severities.items()},
        fail_on=fail_on,
        path=path,
    )


def _target(value: Any) -> TargetConfig:
    _known(value, _TARGET_KEYS, "target")
    mixed = value.get("mixed")
    if mixed is not None and not isinstance(mixed, bool):
        raise LintConfigError("target.mixed is true or false")
    return TargetConfig(
        release=release_option(str(value["release"])) if "release" in value else None,
        build=build_option(str(value["build"])) if "build" in value else None,
        runtime=_one_of(value, "runtime", RUNTIMES),
        network=_one_of(value, "network", NETWORKS),
        mixed=mixed,
        features=feature_options(_texts(value, "features")),
    )


def _ignore(value: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(value, str):
        return record_ids((value,)), ()
    _known(value, ("ids", "paths", "reason"), "ignore")
    return record_ids(_texts(value, "ids")), _texts(value, "paths")


def _known(value: Any, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(value, dict):
        raise LintConfigError(f"{where} is not a map")
    for key in value:
        if key not in keys:
            raise LintConfigError(f"{where} has no {key!r}; it knows {', '.join(keys)}")


def _texts(value: dict[str, Any], key: str) -> tuple[str, ...]:
    listed = value.get(key) or ()
    if isinstance(listed, str):
        listed = [listed]
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise LintConfigError(f"{key} is a list of texts")
    return tuple(listed)


def _one_of(value: dict[str, Any], key: str, known: tuple[str, ...]) -> Any:
    one = value.get(key)
    if one is not None and one not in known:
        raise LintConfigError(f"target.{key} is one of {', '.join(known)}")
    return one


def release_option(text: str) -> Release:
    try:
        return known_release(text)
    except ValueError as problem:
        raise LintConfigError(str(problem)) from None


def feature_options(names: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return known_features(names)
    except ValueError as problem:
        raise LintConfigError(str(problem)) from None


def record_ids(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Ids of records and of lint's own rules, or patterns of ids."""
    known = (*RECORDS, *OWN)
    for pattern in patterns:
        if not any(matches_patterns(one, (pattern,)) for one in known):
            near = get_close_matches(pattern.upper(), known, 3)
            areas = sorted({one.rpartition("-")[0] for one in known})
            meant = (
                f"did you mean {' or '.join(near)}?"
                if near
                else f"ids begin with {', '.join(areas)}"
            )
            raise LintConfigError(f"there is no record {pattern!r}: {meant}")
    return patterns


def build_option(text: str) -> int:
    """Accepts any name of a build: 17763, 10.0.17763, 1809, ltsc2019."""
    known = builds.build_by_name(text)
    if known is not None:
        return known.number
    if text.isdigit() and len(text) == 5:
        return int(text)
    names = ", ".join(one.tags[0] for one in builds.BUILDS.values())
    raise LintConfigError(
        f"{text!r} is not a Windows build; known are numbers such as 17763, and {names}"
    )
