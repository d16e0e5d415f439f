"""Checks of the values of a node's specification that its kubelet or the API server would reject
later: the node would never become Ready. Light to import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from transom.kit.lazy import lazy_import
from transom.kit.user_errors import UserError
from transom.machinery.quantity import QuantityError, parse_quantity

if TYPE_CHECKING:
    from transom.kubelet import allocatable
    from transom.machinery.validation import names
else:
    allocatable = lazy_import("transom.kubelet.allocatable")
    names = lazy_import("transom.machinery.validation.names")

Refuse = Callable[[str, str], UserError]
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check_labels(labels: Mapping[str, str], refuse: Refuse) -> None:
    for key, value in labels.items():
        problems = [*names.is_qualified_name(key), *names.is_label_value(value)]
        if problems:
            raise refuse(f"{key}={value} is not a label: {problems[0]}", "write it like zone=a")


def check_taints(taints: Iterable[Mapping[str, str]], refuse: Refuse) -> None:
    for taint in taints:
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        problems = [*names.is_qualified_name(key), *names.is_label_value(value)]
        if effect not in _EFFECTS:
            problems.append(f"the effect must be one of {', '.join(_EFFECTS)}")
        if problems:
            raise refuse(
                f"{key}={value}:{effect} is not a taint: {problems[0]}",
                "write it like os=windows:NoSchedule",
            )


def check_positive_quantity(name: str, text: str, refuse: Refuse) -> None:
    try:
        size = parse_quantity(text)
    except QuantityError as problem:
        raise refuse(f"{name}: {problem}", 'write a quantity, for example "8Gi"') from problem
    if size.sign <= 0:
        raise refuse(f"{name}: {text} is not more than 0", 'write a quantity, for example "8Gi"')


def check_swap(text: str, windows: bool, refuse: Refuse) -> None:
    try:
        size = parse_quantity(text)
    except QuantityError as problem:
        raise refuse(f"swap: {problem}", 'write a quantity, for example "2Gi"') from problem
    if size.sign < 0:
        raise refuse(f"swap: {text} is less than 0", 'write a quantity, for example "2Gi"')
    if windows and not size.is_zero:
        raise refuse("a Windows node has a page file, no swap", "only Linux nodes can have swap")


def check_reservation(
    name: str, reserved: Mapping[str, str], capacity: Mapping[str, str], refuse: Refuse
) -> None:
    """`capacity`: of the node; a kubelet that reserves more does not start."""
    hint = 'write quantities, for example {cpu: 500m, memory: "500Mi"}'
    try:
        found = allocatable.parse_reserved(reserved)
    except ValueError as problem:
        raise refuse(f"{name}: {problem}", hint) from problem
    for resource, amount in found.items():
        if (
            resource in capacity
            and amount.milli_value() > parse_quantity(capacity[resource]).milli_value()
        ):
            raise refuse(
                f"{name}: {reserved[resource]} {resource} is more than the node has "
                f"({capacity[resource]})",
                "reserve less",
            )


def check_eviction(name: str, thresholds: Mapping[str, str], refuse: Refuse) -> None:
    for signal, text in thresholds.items():
        try:
            allocatable.parse_threshold(signal, text)
        except ValueError as problem:
            raise refuse(
                f"{name}: {problem}", 'write it like {memory.available: "500Mi"}'
            ) from problem
