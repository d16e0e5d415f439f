"""Feature gates by name; anything else is refused with what would be right."""

from __future__ import annotations

import pytest

from transom.cluster.errors import ClusterError
from transom.cluster.features import gates


def test_gates_are_read() -> None:
    assert gates(("TTLAfterFinished=true",)) == {"TTLAfterFinished": True}
    assert gates(("TTLAfterFinished=False",)) == {"TTLAfterFinished": False}


@pytest.mark.parametrize(("setting", "text"), [("Nope=true", "unrecognized feature gate: Nope"),
                                               ("TTLAfterFinished=perhaps", "invalid value")])
def test_wrong_gates_are_refused(setting: str, text: str) -> None:
    with pytest.raises(ClusterError, match=text):
        gates((setting,))
