"""Query parameters as Kubernetes reads them: list options, and the options of writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transom.apiserver.resources import Resource
from transom.machinery import errors, field, selectors
from transom.machinery.objects import Object
from transom.machinery.validation import options as rules

Query = Mapping[str, list[str]]
_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False", ""}


def first(query: Query, name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""


def boolean(query: Query, name: str) -> bool:
    """Kubernetes takes any value but `false` and `0` for true, a bare parameter included."""
    values = query.get(name)
    if not values:
        return False
    return values[0].lower() not in ("false", "0")


_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def duration(text: str) -> float | None:
    """Seconds of a duration as Go writes it (`1m30s`); None when it is none."""
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            return None
        total += float(part[1]) * _SECONDS[part[2]]
        at = part.end()
    return None if not rest else -total if text.startswith("-") else total


def integer(query: Query, name: str) -> int | None:
    text = first(query, name)
    if not text:
        return None
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise errors.bad_request(f"strconv.ParseInt: parsing {field.go_quote(text)}: invalid syntax")
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise errors.bad_request(f"strconv.ParseInt: parsing {field.go_quote(text)}: value out of range")
    return number


@dataclass(slots=True)
class ListOptions:
    labels: selectors.LabelSelector | None = None
    fields: selectors.FieldSelector | None = None
    limit: int = 0
    token: str = ""
    version: str = ""
    version_match: str = ""
    timeout: int | None = None
    bookmarks: bool = False
    send_initial_events: bool | None = None

    @property
    def filtered(self) -> bool:
        return self.labels is not None or self.fields is not None


_PLAIN = ListOptions()


def list_options(query: Query, res: Resource, watch: bool) -> ListOptions:
    """Parse and check. The common case of no parameters costs nothing."""
    if not query:
        return _PLAIN
    out = ListOptions(
        limit=integer(query, "limit") or 0,
        token=first(query, "continue"),
        version=first(query, "resourceVersion"),
        version_match=first(query, "resourceVersionMatch"),
        timeout=integer(query, "timeoutSeconds"),
        bookmarks=boolean(query, "allowWatchBookmarks"),
        send_initial_events=boolean(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
    )
    try:
        text = first(query, "labelSelector")
        if text:
            parsed = selectors.parse_labels(text)
            out.labels = None if parsed.empty else parsed
        text = first(query, "fieldSelector")
        if text:
            terms = selectors.convert_fields(selectors.parse_fields(text), res.kind, res.gvk)
            out.fields = None if terms.empty else terms
    except selectors.SelectorError as problem:
        raise errors.bad_request(str(problem)) from None
    problems = rules.validate_list_options(
        {"resourceVersion": out.version, "resourceVersionMatch": out.version_match, "continue": out.token,
         "sendInitialEvents": out.send_initial_events, "allowWatchBookmarks": out.bookmarks, "watch": watch}
    )
    if problems:
        raise errors.invalid(errors.GroupResource("meta.k8s.io", "ListOptions"), "", problems)
    return out


def parse_revision(text: str) -> int:
    """A resourceVersion parameter; 0 when absent."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise errors.ApiError(
            500, "",
            f"resourceVersion: Invalid value: {field.go_quote(text)}: "
            f"strconv.ParseUint: parsing {field.go_quote(text)}: invalid syntax",
        )
    return int(text)


def write_options(query: Query, kind: str, patch_type: str = "") -> Object:
    """The options of create, update and patch: dryRun, fieldManager, force, fieldValidation. Checked."""
    if not query and not patch_type.startswith("application/apply"):
        return {}
    out: dict[str, Any] = {}
    if "dryRun" in query:
        out["dryRun"] = [v for v in query["dryRun"] if v] or []
    for name in ("fieldManager", "fieldValidation"):
        if first(query, name):
            out[name] = first(query, name)
    if "force" in query and kind == "PatchOptions":
        out["force"] = boolean(query, "force")
    if kind == "PatchOptions":
        problems = rules.validate_patch_options(out, patch_type)
    else:
        problems = rules.validate_create_options(out)
    if problems:
        raise errors.invalid(errors.GroupResource("meta.k8s.io", kind), "", problems)
    return out


def delete_options(query: Query, body: Object | None) -> Object:
    """DeleteOptions: from the body, or else (without a body at all) from the query."""
    options: dict[str, Any] = dict(body) if body else {}
    if body is None and query:
        period = integer(query, "gracePeriodSeconds")
        if period is not None:
            options["gracePeriodSeconds"] = period
        if "orphanDependents" in query:
            options["orphanDependents"] = boolean(query, "orphanDependents")
        if first(query, "propagationPolicy"):
            options["propagationPolicy"] = first(query, "propagationPolicy")
        if "dryRun" in query:
            options["dryRun"] = [v for v in query["dryRun"] if v]
        preconditions = {name: first(query, name) for name in ("uid", "resourceVersion") if first(query, name)}
        if preconditions:
            options["preconditions"] = preconditions
    if options:
        problems = rules.validate_delete_options(options)
        if problems:
            raise errors.invalid(errors.GroupResource("meta.k8s.io", "DeleteOptions"), "", problems)
    return options
