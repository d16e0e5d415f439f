"""Expressions that select devices: what compiles, and what is too expensive."""

from __future__ import annotations

import pytest

from transom.machinery.cel.devices import DeviceSelectorError, compile_device_selector
from transom.machinery.releases import Release


@pytest.mark.parametrize(
    "text",
    [
        'device.driver == "gpu.example.com"',
        'device.attributes["gpu.example.com"].healthy',
        'cel.bind(gpu, device.attributes["gpu.example.com"], gpu.a && gpu.b == "x")',
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("1Gi")) >= 0',
        "device.allowMultipleAllocations",
    ],
)
def test_selectors_compile(text: str) -> None:
    compile_device_selector(text, Release(1, 36), consumable_capacity=True)


def test_a_field_behind_a_feature_is_unknown_without_it() -> None:
    with pytest.raises(DeviceSelectorError, match="undefined field 'allowMultipleAllocations'"):
        compile_device_selector(
            "device.allowMultipleAllocations", Release(1, 34), consumable_capacity=False
        )


def test_expensive_selectors_are_rejected() -> None:
    text = "true"
    for name in "abcd":
        text = f"device.attributes.all({name}, {text} && {name} == device.driver)"
    with pytest.raises(DeviceSelectorError, match="exceeds cost limit") as caught:
        compile_device_selector(text, Release(1, 36), consumable_capacity=True)
    assert caught.value.too_complex
