"""The choice of a Windows node, for Lint and Windows: release, build, runtime and network mode.

Values come from a browser, so they are checked; the form offers what the tables of
`transom.windows` have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, cast

from transom.machinery.errors import ApiError
from transom.web.markup import Markup, tag
from transom.web.routing import PageRequest
from transom.windows import builds, registry, releases, wording
from transom.windows.records import (
    ALL_NETWORKS,
    ALL_RUNTIMES,
    Network,
    NodeTarget,
    Release,
    Runtime,
)

FIELDS: Final = ("release", "build", "runtime", "network")
_LATER: Final = "to-"  # before the names of the fields of an upgrade rehearsal


class NodeChoice(NamedTuple):
    release: Release
    build: int | None
    runtime: Runtime | None
    network: Network | None

    def target(self) -> NodeTarget:
        return NodeTarget(self.release, self.build, self.runtime, self.network)


def read_choice(value: Callable[[str], str], default: str = "") -> NodeChoice:
    """Reads a choice; `value` returns the text of a field, empty for any. Raises ApiError 400."""
    return NodeChoice(
        choice_release(value("release") or default),
        _build(value("build")),
        cast(Runtime | None, _one_of("runtime", value("runtime"), ALL_RUNTIMES)),
        cast(Network | None, _one_of("network", value("network"), ALL_NETWORKS)),
    )


def read_choices(fields: Mapping[str, str]) -> tuple[NodeChoice, NodeChoice | None]:
    """The nodes of a form, now and after an upgrade. Raises ApiError 400."""

    def value(name: str) -> str:
        return fields.get(name, "")

    choice = read_choice(value)
    return choice, read_rehearsal(value, choice)


def read_rehearsal(value: Callable[[str], str], now: NodeChoice) -> NodeChoice | None:
    """The nodes after an upgrade, with the network of now; None if no release is chosen. Raises
    ApiError 400.
    """
    later = read_choice(lambda name: value(_LATER + name))
    return later._replace(network=now.network) if value(f"{_LATER}release") else None


async def server_release(request: PageRequest) -> str:
    """The release of the cluster, if the tables have it."""
    try:
        version = await request.services.api.get_json("/version")
        text = f"{version['major']}.{version['minor'].rstrip('+')}"
        choice_release(text)
    except (ApiError, KeyError):
        return ""
    return text


def choice_release(text: str) -> Release:
    try:
        return registry.known_release(text) if text else releases.DEFAULT
    except ValueError as problem:
        raise ApiError(400, "BadRequest", str(problem)) from None


def _build(text: str) -> int | None:
    build = builds.build_by_name(text) if text else None
    if text and build is None:
        raise ApiError(400, "BadRequest", f"unknown Windows build {text[:40]!r}")
    return build.number if build else None


def _one_of(name: str, text: str, known: Iterable[str]) -> str | None:
    if text and text not in known:
        raise ApiError(400, "BadRequest", f"{name} is one of {', '.join(known)}")
    return text or None


def choice_fields(chosen: NodeChoice) -> list[Markup]:
    """The form's fields."""
    values = {
        "release": ("Release", _RELEASES, releases.release_text(chosen.release)),
        "build": ("Windows build", _BUILDS, str(chosen.build or "")),
        "runtime": ("Runtime", _RUNTIMES, chosen.runtime or ""),
        "network": ("Network", _NETWORKS, chosen.network or ""),
    }
    return [select_input(name, *values[name]) for name in FIELDS]


def rehearsal_fields() -> Markup:
    """The nodes after an upgrade."""
    return tag(
        "fieldset",
        tag("legend", "Rehearse an upgrade to"),
        select_input(f"{_LATER}release", "Release", [("", "no"), *_RELEASES], ""),
        select_input(f"{_LATER}build", "Windows build", _BUILDS, ""),
        select_input(f"{_LATER}runtime", "Runtime", _RUNTIMES, ""),
        class_="rehearsal",
    )


_Options = list[tuple[str, str]]
_RELEASES: Final[_Options] = [
    (releases.release_text(one), releases.release_text(one))
    for one in sorted(releases.RELEASES, reverse=True)
]
_BUILDS: Final[_Options] = [
    ("", "any"),
    *((str(number), wording.build_name(number)) for number in builds.BUILDS),
]
_RUNTIMES: Final[_Options] = [("", "any"), *((one, one) for one in ALL_RUNTIMES)]
_NETWORKS: Final[_Options] = [("", "any"), *((one, one) for one in ALL_NETWORKS)]


def select_input(name: str, title: str, options: Iterable[tuple[str, str]], chosen: str) -> Markup:
    return tag(
        "label",
        title,
        tag(
            "select",
            [tag("option", text, value=v, selected=v == chosen) for v, text in options],
            name=name,
        ),
        class_="field",
    )
