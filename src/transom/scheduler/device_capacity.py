"""Capacity that a request consumes of a device which several claims share."""

from __future__ import annotations

from fractions import Fraction

from transom.machinery import quantity
from transom.machinery.objects import Object
from transom.machinery.quantity import Quantity


def consumed_capacity(device: Object, wanted: Object | None) -> dict[str, Quantity] | None:
    """The amount of each capacity, after the policies of the device; None if a request cannot be
    met.
    """
    requests = (wanted or {}).get("requests") or {}
    capacities = device.get("capacity") or {}
    if not set(requests) <= set(capacities):
        return None
    out: dict[str, Quantity] = {}
    for name, capacity in capacities.items():
        amount = _amount(capacity, requests.get(name))
        if amount is None:
            return None
        out[name] = amount
    return out


def _amount(capacity: Object, wanted: str | None) -> Quantity | None:
    whole = quantity.parse_quantity(capacity.get("value", "0"))
    policy = capacity.get("requestPolicy") or {}
    if wanted is None:
        default = policy.get("default")
        return whole if default is None else quantity.parse_quantity(default)
    amount = quantity.parse_quantity(wanted)
    if policy.get("validValues"):
        fitting = [v for v in map(quantity.parse_quantity, policy["validValues"]) if v >= amount]
        return min(fitting) if fitting else None
    limits = policy.get("validRange")
    if limits:
        return _in_range(amount, limits)
    return amount if amount <= whole else None


def _in_range(amount: Quantity, limits: Object) -> Quantity | None:
    lowest = quantity.parse_quantity(limits.get("min", "0"))
    amount = max(amount, lowest)
    step = limits.get("step")
    if step is not None:
        size = quantity.parse_quantity(step)
        steps = -(-_number(amount - lowest) // _number(size))
        amount = _plus_steps(lowest, size, int(steps))
    highest = limits.get("max")
    if highest is not None and amount > quantity.parse_quantity(highest):
        return None
    return amount


def _plus_steps(lowest: Quantity, size: Quantity, steps: int) -> Quantity:
    whole = size.as_int64()
    if whole is not None:
        return lowest + quantity.from_int(whole * steps, size.format)
    return lowest + quantity.from_milli(size.milli_value() * steps, size.format)


def _number(amount: Quantity) -> Fraction:
    whole = amount.as_int64()
    return Fraction(whole) if whole is not None else Fraction(amount.milli_value(), 1000)
