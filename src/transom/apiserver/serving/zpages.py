"""/statusz and /flagz, the debugging pages of kube-apiserver (ComponentStatusz, ComponentFlagz).

1.32 to 1.34 serve text only. Since 1.35 clients may also request the objects Statusz and Flagz of
config.k8s.io. The text has a random delimiter, as in Kubernetes: programs must not parse it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from transom.apiserver.core import discovery
from transom.apiserver.core.bodies import JSON, PROTOBUF, YAML
from transom.apiserver.serving.negotiate import OutputForm, accept_clauses
from transom.apiserver.serving.responses import document_response, warning_headers
from transom.http.messages import HttpRequest, HttpResponse, text_response
from transom.kit.clock import Clock
from transom.kit.named_tuple import NamedTuple
from transom.machinery import errors
from transom.machinery.objects import Object
from transom.machinery.releases import BUILDS
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.releases.bootstrap import DEBUG_PAGES
from transom.machinery.releases.features import FeatureSet

STATUSZ: Final = "/statusz"
FLAGZ: Final = "/flagz"
_GROUP = "config.k8s.io"
_TEXT = "text/plain"
_DELIMITERS = (":", ": ", "=", " ")
_NOTE = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees and is for debugging purposes only.\n"
)
_NOT_FOR_DEBUGGING = frozenset(("", "api", "apis", "openid", "openapi", ".well-known"))


class PageForm(NamedTuple):
    """The negotiated form: text, or an object in a version of config.k8s.io."""

    media: str = _TEXT
    version: str = ""
    pretty: bool = False


class DebugPages:
    """The pages that the feature gates enable."""

    def __init__(
        self,
        features: FeatureSet,
        flags: Mapping[str, str],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        release = features.release
        self._release = release
        self._flags = dict(sorted(flags.items()))
        self._clock = clock
        self._rng = rng
        self._started = int(clock.time())
        self._flags_text = ""
        self._lists_paths = has_behaviour(release, "StatuszPaths")
        self._newer = has_behaviour(release, "ZpagesV1beta1")
        self._versions: tuple[str, ...] = ()
        if has_behaviour(release, "StructuredZpages"):
            self._versions = ("v1alpha1", "v1beta1") if self._newer else ("v1alpha1",)
        pages = {STATUSZ: self.statusz, FLAGZ: self.flagz}
        self.handlers = {
            path: pages[path] for path, gate in DEBUG_PAGES.items() if features.enabled(gate)
        }

    def statusz(self, request: HttpRequest) -> HttpResponse:
        form = self._form(request, "Statusz")
        if form is None:
            return _not_text()
        if form.media == _TEXT:
            return text_response(200, self._statusz_text())
        build = BUILDS[str(self._release)]
        return self._structured(
            "statusz",
            form,
            {
                "kind": "Statusz",
                "apiVersion": f"{_GROUP}/{form.version}",
                "metadata": {"name": "apiserver"},
                "startTime": f"{datetime.fromtimestamp(self._started, UTC):%Y-%m-%dT%H:%M:%SZ}",
                "uptimeSeconds": self._uptime(),
                "goVersion": build.go,
                "binaryVersion": build.git_version.removeprefix("v"),
                "emulationVersion": str(self._release),
                "paths": self._paths(),
            },
        )

    def flagz(self, request: HttpRequest) -> HttpResponse:
        form = self._form(request, "Flagz")
        if form is None:
            return _not_text()
        component = "apiserver" if self._newer else "kube-apiserver"
        if form.media == _TEXT:
            self._flags_text = self._flags_text or self._flagz_text(component)
            return text_response(200, self._flags_text)
        found: Object = {
            "kind": "Flagz",
            "apiVersion": f"{_GROUP}/{form.version}",
            "metadata": {"name": component},
            "flags": self._flags,
        }
        return self._structured("flagz", form, found)

    def _form(self, request: HttpRequest, kind: str) -> PageForm | None:
        """None if only text is served and the client does not accept it."""
        accept = request.header(b"accept")
        if not self._versions:
            return PageForm() if accepts_text(accept) else None
        return negotiate_page(accept, kind, self._versions, self._media_types())

    def _media_types(self) -> tuple[str, ...]:
        return (JSON, YAML, _TEXT) if self._newer else (JSON, YAML, PROTOBUF, _TEXT)

    def _structured(self, page: str, form: PageForm, obj: Object) -> HttpResponse:
        if form.media != JSON and not self._newer:
            text = f"content negotiation failed: unsupported media type '{form.media}'"
            raise errors.ApiError(500, "", text)
        warnings = []
        if form.version != self._versions[-1]:
            warnings.append(
                f"This version of the {page} endpoint is deprecated. Please use a newer version."
            )
        return document_response(
            obj, OutputForm(form.media, pretty=form.pretty), headers=warning_headers(warnings)
        )

    def _paths(self) -> list[str]:
        return debugging_paths(discovery.root_paths((), {}, more=self.handlers)["paths"])

    def _uptime(self) -> int:
        return max(0, int(self._clock.time()) - self._started)

    def _statusz_text(self) -> str:
        mark = self._rng.choice(_DELIMITERS)
        build = BUILDS[str(self._release)]
        seconds = self._uptime()
        started = datetime.fromtimestamp(self._started, UTC)
        lines = [
            "",
            f"{'apiserver' if self._lists_paths else 'kube-apiserver'} statusz",
            _NOTE,
            f"Started{mark} {started:%a %b} {started.day:2d} {started:%H:%M:%S} UTC {started.year}",
            f"Up{mark} {seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec",
            f"Go version{mark} {build.go}",
            f"Binary version{mark} {build.git_version.removeprefix('v')}",
            f"Emulation version{mark} {self._release}",
        ]
        if self._lists_paths:
            # 1.34 writes a space before each path, later releases between them.
            gap = "" if self._versions else " "
            lines.append(f"Paths{mark} {gap}{' '.join(self._paths())}")
        return "\n".join(lines) + "\n"

    def _flagz_text(self, component: str) -> str:
        mark = self._rng.choice(_DELIMITERS)
        title = (
            f"\n{component} flagz\n{_NOTE}" if self._versions else f"\n{component} flags\n{_NOTE}\n"
        )
        return title + "".join(f"{name}{mark}{value}\n" for name, value in self._flags.items())


def _not_text() -> HttpResponse:
    return text_response(406, "media type not acceptable, must be: text/plain\n")


def accepts_text(accept: str) -> bool:
    """Of releases without objects; a request without an Accept header is not acceptable."""
    for clause in accept_clauses(accept):
        kind, _, detail = clause.media.partition("/")
        if kind not in ("text", "*") or detail not in ("plain", "*"):
            continue
        if {k: v.lower() for k, v in clause.params.items()} in ({}, {"charset": "utf-8"}):
            return True
    return False


def negotiate_page(
    accept: str, kind: str, versions: tuple[str, ...], media_types: tuple[str, ...]
) -> PageForm:
    """An object needs `as`, `g` and `v`; text needs none of them. 406 if nothing matches."""
    if not accept.strip():
        return PageForm()
    for clause in accept_clauses(accept):
        params = clause.params
        if params.get("stream") or params.get("sv"):
            continue
        convert = tuple(params.get(name, "") for name in ("as", "g", "v"))
        for media in media_types:
            if clause.media not in ("*/*", media, f"{media.partition('/')[0]}/*"):
                continue
            if media == _TEXT and not any(name in params for name in ("as", "g", "v")):
                return PageForm()
            if media != _TEXT and convert in [(kind, _GROUP, version) for version in versions]:
                return PageForm(media, convert[2], params.get("pretty") == "1")
    raise errors.no_such_form(", ".join(media_types))


def debugging_paths(paths: Iterable[str]) -> list[str]:
    """The first segments of the paths, without those of the API and its documents."""
    first = {path.split("/")[1] for path in paths}
    return [f"/{name}" for name in sorted(first - _NOT_FOR_DEBUGGING)]
