"""The records about Windows: limits, supported features, and the node they are evaluated for.

Records are data. They contain no functions: `match.py` determines where they apply and which fields
of an object they match; kubelet, proxy, admission, lint and the documentation use them.

A path names what a record concerns from the root of the object:
`spec.containers[*].securityContext.privileged`.
- `[*]` stands for every element of a list, `[0]` for its first, `['a.b/c']` for a key with dots in
  it.
- A name or quoted key that ends in `*` stands for every key that begins so:
  `resources.limits.hugepages-*`.
- Kind "Pod" means pods and everything with a template of pods, and the path starts at the pod or
  template.
- `spec.containers` of a pod means its `initContainers` and `ephemeralContainers` too.
"""

from __future__ import annotations

from typing import Final, Literal

from transom.kit.named_tuple import NamedTuple

Release = tuple[int, int]
Runtime = Literal["docker", "containerd"]
Network = Literal["l2bridge", "l2tunnel", "overlay", "transparent", "nat"]
Scalar = str | int | float | bool

# The outcome on a Windows node: nothing, a rejection by the API or the kubelet, a failure with an
# event, or different behaviour than on Linux.
Effect = Literal["ignored", "rejected", "fails", "degraded"]
# The severity in lint: "none" is for limits that no manifest shows.
Severity = Literal["error", "warning", "info", "none"]
# The automatic fix of lint: drop the field (with empty parents), or nothing.
Fix = Literal["none", "drop"]
# How a path's value is tested.
#   set        it exists, and is neither null nor empty
#   is         it equals `value`;  not: it exists and differs
#   one-of     it is in the tuple `value`;  none-of: it exists and is not
#   matches    it is a string that contains a match of the regular expression `value`
#   above      it is a number above `value`; below: a number below it
#   longer     it is a list or map of more than `value` elements
#   absent     its parent exists, but it does not
Test = Literal[
    "set", "is", "not", "one-of", "none-of", "matches", "above", "below", "longer", "absent"
]

ALL_RUNTIMES: Final[tuple[Runtime, ...]] = ("docker", "containerd")
ALL_NETWORKS: Final[tuple[Network, ...]] = ("l2bridge", "l2tunnel", "overlay", "transparent", "nat")
FIRST_RELEASE: Final[Release] = (1, 14)


class NodeTarget(NamedTuple):
    """A Windows node, as far as it is known. Unknown facts (None) match anything; `features` are
    those that its owner turned on beyond the defaults: "dsr", "csi-proxy", "hyperv", feature gates
    by name.
    """

    release: Release = (1, 20)
    build: int | None = None
    runtime: Runtime | None = None
    network: Network | None = None
    features: frozenset[str] = frozenset()
    revision: int | None = None  # the patch level (UBR) of the build; None for a current one


class RecordField(NamedTuple):
    """A field of an object that a record is about."""

    path: str
    test: Test = "set"
    value: Scalar | tuple[Scalar, ...] = ""
    kind: str = "Pod"


class WindowsLimit(NamedTuple):
    """Something that Windows does not support, or does differently."""

    id: str  # "WIN-POD-003"; never reused
    title: str  # a few words: "hostNetwork is not available"
    statement: str  # the fact
    effect: Effect
    remedy: str
    checklist: tuple[str, ...] = ()  # ids of the documents' statements
    since: Release = FIRST_RELEASE
    until: Release | None = None  # the last release where it applies
    builds: tuple[int, int | None] = (0, None)  # the first and the last build where it applies
    # builds in which an update fixed it, and its revision: (17763, 1817)
    patches: tuple[tuple[int, int], ...] = ()
    runtimes: tuple[Runtime, ...] = ALL_RUNTIMES
    networks: tuple[Network, ...] = ALL_NETWORKS
    needs: tuple[str, ...] = ()  # node features, without which the limit does not apply
    lifted_by: tuple[str, ...] = ()  # node features, any of which removes the limit
    fields: tuple[RecordField, ...] = ()  # each of these shows that the limit applies
    given: tuple[RecordField, ...] = ()  # as long as all of these match too,
    unless: tuple[RecordField, ...] = ()  # and none of these
    check: str = ""  # the lint rule that detects it without a single field
    severity: Severity = "none"
    fix: Fix = "none"
    reason: str = ""  # of the event, condition or waiting container that shows it
    message: str = ""  # its message, with {names} for variable parts
    section: str = ""  # of the document
    note: str = ""  # where the documents and Kubernetes disagree, or other things worth knowing
    topics: tuple[str, ...] = ()  # additional search terms


class WindowsSupport(NamedTuple):
    """Something that works on Windows, or how it works there: a rule, a default, a procedure, a
    plan.
    """

    id: str  # "SUP-POD-001"
    title: str
    statement: str
    kind: Literal["supported", "rule", "default", "procedure", "symptom", "planned"] = "supported"
    checklist: tuple[str, ...] = ()
    since: Release = FIRST_RELEASE
    until: Release | None = None
    builds: tuple[int, int | None] = (0, None)
    patches: tuple[tuple[int, int], ...] = ()  # builds that need an update, and its revision
    runtimes: tuple[Runtime, ...] = ALL_RUNTIMES
    networks: tuple[Network, ...] = ALL_NETWORKS
    needs: tuple[str, ...] = ()  # required node features
    enable: str = ""  # how to use it, or what to do about a symptom
    stage: Literal["alpha", "beta", "stable"] = "stable"
    section: str = ""
    note: str = ""
    topics: tuple[str, ...] = ()


Record = WindowsLimit | WindowsSupport
