"""Loads scheduler plugins from Python files and modules of the user."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from transom.scheduler.errors import SchedulerConfigError
from transom.scheduler.framework import Plugin, Registry


def load_plugins(references: Iterable[str]) -> Registry:
    """Each reference is FILE.py:CLASS or MODULE:CLASS."""
    registry: Registry = {}
    for reference in references:
        plugin = _load_plugin(reference)
        if plugin.name in registry:
            raise SchedulerConfigError(f"a plugin named {plugin.name} already exists")
        registry[plugin.name] = plugin
    return registry


def _load_plugin(reference: str) -> type[Plugin]:
    location, _, class_name = reference.rpartition(":")
    if not location or not class_name:
        raise SchedulerConfigError(f"plugin {reference!r} must be FILE.py:CLASS or MODULE:CLASS")
    try:
        module = _load_module(location)
    except Exception as error:
        raise SchedulerConfigError(
            f"cannot load plugin {reference!r}: {type(error).__name__}: {error}"
        ) from error
    plugin = vars(module).get(class_name)
    if not isinstance(plugin, type) or not issubclass(plugin, Plugin):
        raise SchedulerConfigError(f"{location} has no scheduler plugin {class_name!r}")
    if not plugin.__dict__.get("name"):
        raise SchedulerConfigError(f"plugin {reference!r} has no name")
    return plugin


def _load_module(location: str) -> ModuleType:
    if not location.endswith(".py"):
        return importlib.import_module(location)
    path = Path(location)
    name = f"transom_scheduler_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
