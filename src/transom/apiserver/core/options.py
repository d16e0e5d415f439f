"""Query parameters, parsed as in Kubernetes: list options and write options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transom.apiserver.core.resources import Resource
from transom.kit.durations import DurationError, parse_duration
from transom.kit.goquote import go_quote
from transom.kit.lazy import lazy_import
from transom.kit.lazy_dataclass import dataclass
from transom.machinery import errors, field_selectors, selectors
from transom.machinery.field import FieldError
from transom.machinery.integers import parse_int
from transom.machinery.objects import Object
from transom.machinery.releases import DEFAULT, Release
from transom.machinery.releases.behaviour import has_behaviour
from transom.machinery.validation import options as rules

if TYPE_CHECKING:
    from transom.machinery.releases import texts
else:
    texts = lazy_import("transom.machinery.releases.texts")

Query = Mapping[str, list[str]]


def first_query_value(query: Query, name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""


def query_boolean(query: Query, name: str) -> bool:
    """As in Kubernetes, any value except `false` and `0` is true, including an empty one."""
    values = query.get(name)
    if not values:
        return False
    return values[0].lower() not in ("false", "0")


def query_duration(text: str) -> float | None:
    """Seconds of a duration in a query; None if it is invalid."""
    try:
        return parse_duration(text)
    except DurationError:
        return None


def query_integer(query: Query, name: str) -> int | None:
    values = query.get(name)
    if not values:
        return None
    text = values[0]
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise errors.bad_request(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    number = parse_int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise errors.bad_request(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return number


@dataclass(slots=True)
class ListOptions:
    labels: selectors.LabelSelector | None = None
    fields: field_selectors.FieldSelector | None = None
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


def parse_list_options(
    query: Query, res: Resource, watch: bool, watch_list: bool = False
) -> ListOptions:
    """Parses and validates. The common case of no parameters is free. `watch_list`: whether the
    feature WatchList is on.
    """
    if not query:
        return _PLAIN
    newer = has_behaviour(res.release, "WatchListOptions")
    out = ListOptions(
        limit=query_integer(query, "limit") or 0,
        token=first_query_value(query, "continue"),
        version=first_query_value(query, "resourceVersion"),
        version_match=first_query_value(query, "resourceVersionMatch"),
        timeout=query_integer(query, "timeoutSeconds"),
        bookmarks=query_boolean(query, "allowWatchBookmarks"),
        send_initial_events=query_boolean(query, "sendInitialEvents")
        if newer and "sendInitialEvents" in query
        else None,
    )
    try:
        text = first_query_value(query, "labelSelector")
        if text:
            parsed = selectors.parse_labels(text)
            out.labels = None if parsed.empty else parsed
        text = first_query_value(query, "fieldSelector")
        if text:
            terms = field_selectors.convert_fields(
                field_selectors.parse_fields(text), res.kind, res.gvk, res.release
            )
            out.fields = None if terms.empty else terms
    except selectors.SelectorError as problem:
        by_field = has_behaviour(res.release, "SelectorFieldErrors")
        message = problem.newer if by_field else str(problem)
        if has_behaviour(res.release, "LabelKeyTexts"):
            message = message.replace("a qualified name must", "a valid label key must")
        raise errors.bad_request(message) from None
    given = {
        "resourceVersion": out.version,
        "resourceVersionMatch": out.version_match,
        "continue": out.token,
        "sendInitialEvents": out.send_initial_events,
        "allowWatchBookmarks": out.bookmarks,
        "watch": watch,
    }
    problems = (
        rules.validate_newer_list_options(given, watch_list)
        if newer
        else rules.validate_list_options(given)
    )
    if problems:
        raise _invalid_options("ListOptions", problems, res.release)
    return out


def _invalid_options(kind: str, problems: list[FieldError], release: Release) -> errors.ApiError:
    worded = texts.in_release(release, problems)
    return errors.invalid(errors.GroupResource("meta.k8s.io", kind), "", worded)


def parse_revision(text: str, listed_by: Release = DEFAULT) -> int:
    """A resourceVersion parameter; 0 when absent. `listed_by`: the release of a list's server."""
    if not text:
        return 0
    problem = ""
    number = 0
    if not (text.isascii() and text.isdigit()):
        problem = "invalid syntax"
    else:
        number = parse_int(text)
        if number >= 1 << 64:
            problem = "value out of range"
    if not problem:
        return number
    shown = (
        f"resourceVersion: Invalid value: {go_quote(text)}: "
        f"strconv.ParseUint: parsing {go_quote(text)}: {problem}"
    )
    if has_behaviour(listed_by, "BadRevisionsAreBadRequests"):
        raise errors.bad_request(f"invalid resource version: {shown}")
    raise errors.ApiError(500, "", shown)


def parse_write_options(
    query: Query, kind: str, patch_type: str = "", release: Release = DEFAULT
) -> Object:
    """The validated options of create, update and patch: dryRun, fieldManager, force,
    fieldValidation, which some releases check.
    """
    if not query and not patch_type.startswith("application/apply"):
        return {}
    out: dict[str, Any] = {}
    if "dryRun" in query:
        out["dryRun"] = [v for v in query["dryRun"] if v] or []
    for name in ("fieldManager", "fieldValidation"):
        if first_query_value(query, name):
            out[name] = first_query_value(query, name)
    if "force" in query and kind == "PatchOptions":
        out["force"] = query_boolean(query, "force")
    if kind == "PatchOptions":
        problems = rules.validate_patch_options(out, patch_type)
    else:
        problems = rules.validate_create_options(out)
    if has_behaviour(release, "FieldValidationWarns"):
        problems += rules.validate_field_validation(out)
    if problems:
        raise _invalid_options(kind, problems, release)
    return out


def parse_delete_options(query: Query, body: Object | None, release: Release) -> Object:
    """DeleteOptions: from the body or, without a body, from the query."""
    options: dict[str, Any] = dict(body) if body else {}
    if body is None and query:
        period = query_integer(query, "gracePeriodSeconds")
        if period is not None:
            options["gracePeriodSeconds"] = period
        if "orphanDependents" in query:
            options["orphanDependents"] = query_boolean(query, "orphanDependents")
        if "propagationPolicy" in query and query["propagationPolicy"][0]:
            options["propagationPolicy"] = query["propagationPolicy"][0]
        if "dryRun" in query:
            options["dryRun"] = [v for v in query["dryRun"] if v]
        preconditions = {
            name: first_query_value(query, name)
            for name in ("uid", "resourceVersion")
            if name in query and first_query_value(query, name)
        }
        if preconditions:
            options["preconditions"] = preconditions
    if options:
        problems = rules.validate_delete_options(options)
        if problems:
            raise _invalid_options("DeleteOptions", problems, release)
    return options
