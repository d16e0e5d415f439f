"""Random UUIDs."""

from __future__ import annotations

import random
import uuid

from hypothesis import given
from hypothesis import strategies as st

from transom.kit.uuids import random_uuid


@given(st.integers())
def test_it_is_the_uuid_that_the_standard_library_makes(seed: int) -> None:
    expected = uuid.UUID(int=random.Random(seed).getrandbits(128), version=4)
    assert random_uuid(random.Random(seed)) == str(expected)
