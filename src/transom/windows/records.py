"""The shapes of what is known of Windows: limits, what is supported, and the node that either is asked about.

Records are data. They hold no functions and decide nothing: `match.py` says which of them hold where and what in an object
they concern; kubelet, proxy, admission, lint and the documentation do the rest.

A path names what a record concerns from the root of the object: `spec.containers[*].securityContext.privileged`.
- `[*]` stands for every element of a list, `[0]` for its first, `['a.b/c']` for a key with dots in it.
- A name or quoted key that ends in `*` stands for every key that begins so: `resources.limits.hugepages-*`.
- Kind "Pod" means pods and everything with a template of pods, and the path starts at the pod or template.
- `spec.containers` of a pod means its `initContainers` and `ephemeralContainers` too.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Release = tuple[int, int]
Runtime = Literal["docker", "containerd"]
Network = Literal["l2bridge", "l2tunnel", "overlay", "transparent", "nat"]
Scalar = str | int | float | bool

# What becomes of it on a Windows node: nothing, a refusal by the API or the kubelet, a failure that an event tells of,
# or something else than on Linux.
Effect = Literal["ignored", "rejected", "fails", "degraded"]
# Of a finding of lint: "none" is for what no manifest shows.
Severity = Literal["error", "warning", "info", "none"]
# How lint may mend it unasked: drop the field (empty parents with it), or nothing.
Fix = Literal["none", "drop"]
# How a path's value is looked at.
#   set        it is there, and neither null nor empty
#   is         it equals `value`;  not: it is there and differs
#   one-of     it is in the tuple `value`;  none-of: it is there and is not
#   matches    it is a string in which the regular expression `value` is found
#   above      it is a number above `value`; below: under it
#   longer     it is a list or map of more than `value` elements
#   absent     its parent is there, it is not
Test = Literal["set", "is", "not", "one-of", "none-of", "matches", "above", "below", "longer", "absent"]

ALL_RUNTIMES: Final[tuple[Runtime, ...]] = ("docker", "containerd")
ALL_NETWORKS: Final[tuple[Network, ...]] = ("l2bridge", "l2tunnel", "overlay", "transparent", "nat")
FIRST_RELEASE: Final[Release] = (1, 14)


class Target(NamedTuple):
    """A Windows node, as far as is known. What is not known (None) counts as any; `features` are what its owner has turned
    on beyond the defaults: "dsr", "csi-proxy", "hyperv", feature gates by name."""

    release: Release = (1, 20)
    build: int | None = None
    runtime: Runtime | None = None
    network: Network | None = None
    features: frozenset[str] = frozenset()
    revision: int | None = None  # the patch level (UBR) of the build; None for one of today


class Field(NamedTuple):
    """What in an object a record concerns."""

    path: str
    test: Test = "set"
    value: Scalar | tuple[Scalar, ...] = ""
    kind: str = "Pod"


class Limit(NamedTuple):
    """Something that Windows cannot do, or does otherwise."""

    id: str  # "WIN-POD-003"; never used again for anything else
    title: str  # a few words: "hostNetwork is not available"
    statement: str  # what is so
    effect: Effect
    remedy: str
    checklist: tuple[str, ...] = ()  # ids of the documents' statements
    since: Release = FIRST_RELEASE
    until: Release | None = None  # the last release where it holds
    builds: tuple[int, int | None] = (0, None)  # the first and the last build where it holds
    patches: tuple[tuple[int, int], ...] = ()  # builds in which an update ended it, and its revision: (17763, 1817)
    runtimes: tuple[Runtime, ...] = ALL_RUNTIMES
    networks: tuple[Network, ...] = ALL_NETWORKS
    needs: tuple[str, ...] = ()  # features of a node, without which nobody can meet the limit
    lifted_by: tuple[str, ...] = ()  # features of a node, any of which ends the limit
    fields: tuple[Field, ...] = ()  # each by itself shows that the limit is met
    given: tuple[Field, ...] = ()  # as long as all of these are met too,
    unless: tuple[Field, ...] = ()  # and none of these
    check: str = ""  # the rule of lint that finds what no single field shows
    severity: Severity = "none"
    fix: Fix = "none"
    reason: str = ""  # of the event, condition or waiting container that tells of it
    message: str = ""  # its text, with {names} for what varies
    section: str = ""  # of the document
    note: str = ""  # where the documents and Kubernetes disagree, or other things worth knowing
    topics: tuple[str, ...] = ()  # further words to find it by


class Support(NamedTuple):
    """Something that works on Windows, or how it is there: a rule, a default, a way to do it, a plan."""

    id: str  # "SUP-POD-001"
    title: str
    statement: str
    kind: Literal["supported", "rule", "default", "procedure", "symptom", "planned"] = "supported"
    checklist: tuple[str, ...] = ()
    since: Release = FIRST_RELEASE
    until: Release | None = None
    builds: tuple[int, int | None] = (0, None)
    patches: tuple[tuple[int, int], ...] = ()  # builds in which it takes an update, and its revision
    runtimes: tuple[Runtime, ...] = ALL_RUNTIMES
    networks: tuple[Network, ...] = ALL_NETWORKS
    needs: tuple[str, ...] = ()  # features of a node, all of which it takes
    enable: str = ""  # how to have it, or what to do about a symptom
    stage: Literal["alpha", "beta", "stable"] = "stable"
    section: str = ""
    note: str = ""
    topics: tuple[str, ...] = ()


Record = Limit | Support
