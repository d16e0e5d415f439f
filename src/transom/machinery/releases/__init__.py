"""What exists, and what is on, in which release of Kubernetes.

The facts of releases 1.21 to 1.37 are in the tables beside this module, which
`tools/release_facts.py` takes from Kubernetes' source; those of older releases are in
`releases.older`. A release is a value that is passed in. Only this package compares version
numbers. The tables are read on first use; a cluster of release 1.20 reads none of them.
"""

from __future__ import annotations

from transom.machinery.releases.release import (
    BUILDS,
    DEFAULT,
    NEWEST,
    RELEASES,
    TABLES_SINCE,
    Build,
    Release,
    has_tables,
    in_range,
    parse_release,
)

__all__ = [
    "BUILDS",
    "DEFAULT",
    "NEWEST",
    "RELEASES",
    "TABLES_SINCE",
    "Build",
    "Release",
    "has_tables",
    "in_range",
    "parse_release",
]
