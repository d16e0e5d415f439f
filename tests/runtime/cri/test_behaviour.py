"""What a kubelet relies on, shown on a real containerd: the cases that every kind of runtime is
held against.
"""

from __future__ import annotations

from tests.runtime.oci import test_behaviour as shared

# These have words or numbers of one runtime; test_containerd.py shows the same of containerd.
_OWN = {
    "test_the_life_of_a_sandbox",
    "test_what_cannot_start",
    "test_what_it_says_is_in_its_log",
    "test_statistics",
}

globals().update(
    {
        name: case
        for name, case in vars(shared).items()
        if name.startswith("test_") and name not in _OWN
    }
)
