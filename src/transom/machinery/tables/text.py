"""How Kubernetes writes durations, labels, selectors and long lists in table cells.

Shared by the cells of nearly every kind. Does not depend on kinds; the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"
INVALID = "<invalid>"

Object = Mapping[str, Any]

_MINUTE = 60
_HOUR = 3600
_DAY = 24  # hours
_YEAR = 365  # days


def human_duration(seconds: float) -> str:
    """Two or three significant figures: `45s`, `3m5s`, `47m`, `5h3m`, `2d5h`, `3y20d`."""
    whole = int(seconds)
    # A clock may be less than two seconds behind before the time counts as invalid.
    if whole < -1:
        return INVALID
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    minutes = whole // _MINUTE
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = whole // _HOUR
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // _DAY
    if days < 8:
        return _pair(days, "d", hours % _DAY, "h")
    if days < 2 * _YEAR:
        return f"{days}d"
    if days < 8 * _YEAR:
        return _pair(days // _YEAR, "y", days % _YEAR, "d")
    return f"{days // _YEAR}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def timestamp(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time; raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"no offset in {text!r}")
    return moment.astimezone(UTC).timestamp()


def since_cell(text: str | None, now: float) -> str:
    """The age of a stored time; a missing time is `<unknown>`."""
    return human_duration(now - timestamp(text)) if text else UNKNOWN


def age_cell(obj: Object, now: float) -> str:
    return since_cell(obj["metadata"].get("creationTimestamp"), now)


def name_cell(obj: Object) -> str:
    return obj["metadata"].get("name", "")


def part_cell(obj: Object, *path: str) -> Any:
    """The value at the end of the path, an empty dict if a part is missing."""
    value: Any = obj
    for key in path:
        value = value.get(key)
        if not value:
            return {}
    return value


def labels_cell(pairs: Mapping[str, str] | None) -> str:
    return ",".join(f"{k}={pairs[k]}" for k in sorted(pairs)) if pairs else NONE


_OPERATORS = {"In": " in ", "NotIn": " notin "}


def selector_string(selector: Mapping[str, Any] | None) -> str:
    """A LabelSelector in the syntax of query parameters, ordered by key."""
    if not selector:
        return ""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for rule in selector.get("matchExpressions") or ():
        key, operator = rule.get("key", ""), rule.get("operator", "")
        if operator in _OPERATORS:
            text = f"{key}{_OPERATORS[operator]}({','.join(sorted(rule.get('values') or ()))})"
        elif operator == "Exists":
            text = key
        elif operator == "DoesNotExist":
            text = f"!{key}"
        else:
            return "<error>"
        terms.append((key, text))
    terms.sort(key=lambda term: term[0])
    return ",".join(text for _, text in terms)


def selector_cell(value: Mapping[str, Any] | None) -> str:
    return selector_string(value) or NONE


def container_cells(template_spec: Object) -> tuple[str, str]:
    """The names and the images of the containers of a pod template."""
    of = template_spec.get("containers") or ()
    return ",".join(c.get("name", "") for c in of), ",".join(c.get("image", "") for c in of)


def shorten_list(
    items: Sequence[str], limit: int, separator: str = ",", total: int | None = None
) -> str:
    """The first items, and the number of the others."""
    count = len(items) if total is None else total
    head = separator.join(items[:limit])
    return f"{head} + {count - limit} more..." if count > limit else head


def condition_of_type(conditions: Iterable[Object] | None, kind: str) -> Object | None:
    return next((c for c in conditions or () if c.get("type") == kind), None)
