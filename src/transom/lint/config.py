"""The configuration file: what a project wants of lint, beside its manifests.

    # .transom-lint.yaml
    target: {release: "1.25", build: ltsc2022, runtime: containerd, network: overlay, mixed: true, features: [dsr]}
    paths: [deploy, charts/rendered]       # when the command line names none
    exclude: ["*/testdata/*"]
    ignore:
      - WIN-RES-003
      - {ids: [WIN-SEC-*], paths: ["deploy/legacy/*"]}
    severities: {WIN-SEC-009: error, WIN-NET-001: none}
    fail-on: warning
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, get_args

import yaml

from transom.lint.findings import SEVERITIES, Finding
from transom.lint.ignores import matches
from transom.windows import builds
from transom.windows.landscape import parse_release
from transom.windows.records import Network, Release, Runtime, Severity

NAME: Final = ".transom-lint.yaml"
NETWORKS: Final[tuple[str, ...]] = get_args(Network)
RUNTIMES: Final[tuple[str, ...]] = get_args(Runtime)
_KEYS: Final = ("target", "paths", "exclude", "ignore", "severities", "fail-on")
_TARGET_KEYS: Final = ("release", "build", "runtime", "network", "mixed", "features")


class ConfigError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Target:
    """What is said of the nodes; None for what is not."""

    release: Release | None = None
    build: int | None = None
    runtime: Runtime | None = None
    network: Network | None = None
    mixed: bool | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    target: Target = Target()
    paths: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    ignore: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()  # ids, and the paths where (none: everywhere)
    severities: dict[str, Severity] = field(default_factory=dict)
    fail_on: str = ""
    path: Path | None = None

    def ignores(self, finding: Finding) -> bool:
        name = finding.source.name
        return any(
            matches(finding.id, ids) and (not paths or any(fnmatchcase(name, path) for path in paths))
            for ids, paths in self.ignore
        )


def find(start: Path) -> Path | None:
    """The file of a project: here, or in a folder above, up to the root of the repository."""
    for folder in (start, *start.parents):
        path = folder / NAME
        if path.is_file():
            return path
        if (folder / ".git").exists():
            return None
    return None


def load(path: Path) -> Config:
    try:
        value = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        return _config(value if value is not None else {}, path)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _config(value: Any, path: Path) -> Config:
    _known(value, _KEYS, "the file")
    base = path.parent
    severities = value.get("severities") or {}
    if not isinstance(severities, dict) or not set(severities.values()) <= {*SEVERITIES, "none"}:
        raise ConfigError("severities: give ids and error, warning, info or none")
    fail_on = value.get("fail-on", "")
    if fail_on not in ("", "none", *SEVERITIES):
        raise ConfigError("fail-on is error, warning, info or none")
    return Config(
        target=_target(value.get("target") or {}),
        paths=tuple(str(base / one) if base != Path() else one for one in _texts(value, "paths")),
        exclude=_texts(value, "exclude"),
        ignore=tuple(_ignore(one) for one in value.get("ignore") or ()),
        severities={str(key): level for key, level in severities.items()},
        fail_on=fail_on,
        path=path,
    )


def _target(value: Any) -> Target:
    _known(value, _TARGET_KEYS, "target")
    mixed = value.get("mixed")
    if mixed is not None and not isinstance(mixed, bool):
        raise ConfigError("target.mixed is true or false")
    return Target(
        release=release(str(value["release"])) if "release" in value else None,
        build=build(str(value["build"])) if "build" in value else None,
        runtime=_one_of(value, "runtime", RUNTIMES),
        network=_one_of(value, "network", NETWORKS),
        mixed=mixed,
        features=_texts(value, "features"),
    )


def _ignore(value: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(value, str):
        return (value,), ()
    _known(value, ("ids", "paths", "reason"), "ignore")
    return _texts(value, "ids"), _texts(value, "paths")


def _known(value: Any, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is not a map")
    for key in value:
        if key not in keys:
            raise ConfigError(f"{where} has no {key!r}; it knows {', '.join(keys)}")


def _texts(value: dict[str, Any], key: str) -> tuple[str, ...]:
    listed = value.get(key) or ()
    if isinstance(listed, str):
        listed = [listed]
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise ConfigError(f"{key} is a list of texts")
    return tuple(listed)


def _one_of(value: dict[str, Any], key: str, known: tuple[str, ...]) -> Any:
    one = value.get(key)
    if one is not None and one not in known:
        raise ConfigError(f"target.{key} is one of {', '.join(known)}")
    return one


def release(text: str) -> Release:
    found = parse_release(text)
    if found is None:
        raise ConfigError(f"{text!r} is no release of Kubernetes, such as 1.20")
    return found


def build(text: str) -> int:
    """By any name: 17763, 10.0.17763, 1809, ltsc2019."""
    known = builds.by_name(text)
    if known is not None:
        return known.number
    if text.isdigit() and len(text) == 5:
        return int(text)
    names = ", ".join(one.tags[0] for one in builds.BUILDS.values())
    raise ConfigError(f"{text!r} is no build of Windows; known are numbers such as 17763, and {names}")
