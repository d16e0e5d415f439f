"""Modules that are imported at their first use."""

from __future__ import annotations

import sys

import pytest

from transom.kit.lazy import lazy_import


def test_a_module_is_imported_with_the_first_use_of_an_attribute() -> None:
    name = "transom.kit.dnswire"
    known = sys.modules.pop(name, None)
    try:
        module = lazy_import(name)
        assert name not in sys.modules
        assert module.encode_query is sys.modules[name].encode_query
        with pytest.raises(AttributeError):
            _ = module.nothing_of_that_name
    finally:
        if known is not None:
            sys.modules[name] = known
