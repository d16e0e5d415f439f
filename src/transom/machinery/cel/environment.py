"""The environment that Kubernetes' API server gives CEL expressions, as one table of libraries."""

from __future__ import annotations

from functools import cache
from typing import Final

from transom.kit.cel.environment import CelEnvironment
from transom.kit.cel.functions import Function
from transom.kit.cel.macros import OPTIONAL_MACROS, STANDARD_MACROS, TWO_VARIABLE_MACROS, Macro
from transom.kit.cel.sets import SET_FUNCTIONS
from transom.kit.cel.stdlib import OPTIONAL_FUNCTIONS, TWO_VARIABLE_FUNCTIONS
from transom.kit.cel.strings import STRING_FUNCTIONS
from transom.kit.cel.types import type_of_type
from transom.kit.named_tuple import NamedTuple
from transom.machinery.cel.authorizer import (
    AUTHORIZER_FUNCTIONS,
    AUTHORIZER_SELECTOR_FUNCTIONS,
    AUTHORIZER_TYPE,
    DECISION_TYPE,
    GROUP_CHECK_TYPE,
    PATH_CHECK_TYPE,
    RESOURCE_CHECK_TYPE,
)
from transom.machinery.cel.costs import CHARGED, charge_call
from transom.machinery.cel.lists import EXTENDED_LIST_FUNCTIONS, LIST_FUNCTIONS
from transom.machinery.cel.quantities import (
    CIDR_FUNCTIONS,
    CIDR_TYPE,
    IP_FUNCTIONS,
    IP_TYPE,
    QUANTITY_FUNCTIONS,
    QUANTITY_TYPE,
    SEMVER_FUNCTIONS,
    SEMVER_TYPE,
)
from transom.machinery.cel.texts import (
    FORMAT_FUNCTIONS,
    FORMAT_TYPE,
    JSON_PATCH_FUNCTIONS,
    REGEX_FUNCTIONS,
    URL_FUNCTIONS,
    URL_TYPE,
)
from transom.machinery.releases import has_tables


class Library(NamedTuple):
    name: str
    since: tuple[int, int]  # the release of Kubernetes that adds it
    functions: tuple[Function, ...] = ()
    macros: dict[tuple[str, int, bool], Macro] = {}


LIBRARIES: Final[tuple[Library, ...]] = (
    Library("standard macros", (1, 0), (), STANDARD_MACROS),
    Library("urls", (1, 0), URL_FUNCTIONS),
    Library("regex", (1, 0), REGEX_FUNCTIONS),
    Library("lists", (1, 0), LIST_FUNCTIONS),
    Library("strings", (1, 0), STRING_FUNCTIONS),
    Library("authorizer", (1, 27), AUTHORIZER_FUNCTIONS),
    Library("optional types", (1, 28), OPTIONAL_FUNCTIONS, OPTIONAL_MACROS),
    Library("quantity", (1, 28), QUANTITY_FUNCTIONS),
    Library("sets", (1, 29), SET_FUNCTIONS),
    Library("ip", (1, 30), IP_FUNCTIONS),
    Library("cidr", (1, 30), CIDR_FUNCTIONS),
    Library("format", (1, 31), FORMAT_FUNCTIONS),
    Library("authorizer selectors", (1, 31), AUTHORIZER_SELECTOR_FUNCTIONS),
    Library("two-variable comprehensions", (1, 32), TWO_VARIABLE_FUNCTIONS, TWO_VARIABLE_MACROS),
    Library("semver", (1, 33), SEMVER_FUNCTIONS),
    Library("extended lists", (1, 34), EXTENDED_LIST_FUNCTIONS),
)
# For the patches of mutating policies only.
_PATCH_LIBRARY = Library("jsonpatch", (1, 0), JSON_PATCH_FUNCTIONS)
LIBRARY_TYPES: Final = (
    URL_TYPE,
    QUANTITY_TYPE,
    SEMVER_TYPE,
    IP_TYPE,
    CIDR_TYPE,
    FORMAT_TYPE,
    AUTHORIZER_TYPE,
    PATH_CHECK_TYPE,
    GROUP_CHECK_TYPE,
    RESOURCE_CHECK_TYPE,
    DECISION_TYPE,
)
NEWEST: Final = (1, 99)


@cache
def kubernetes_environment(
    release: tuple[int, int] = NEWEST, *, patches: bool = False
) -> CelEnvironment:
    """The libraries of a release; all of them by default."""
    known = [library for library in LIBRARIES if library.since <= release]
    if patches or release == NEWEST:
        known.append(_PATCH_LIBRARY)
    return CelEnvironment(
        [library.functions for library in known],
        [library.macros for library in known],
        CHARGED,
        charge_call,
        {kind.name: (type_of_type(kind), kind) for kind in LIBRARY_TYPES},
    )


def expression_environment(
    release: tuple[int, int], *, stored: bool, patches: bool = False
) -> CelEnvironment:
    """The libraries for an expression: new expressions may use only what the release before this
    one knows, so that a rollback keeps them valid. Clusters of 1.20 and older know all libraries.
    """
    if not has_tables(release):
        return kubernetes_environment()
    major, minor = release
    return kubernetes_environment((major, minor if stored else minor - 1), patches=patches)
