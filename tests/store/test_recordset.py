"""Record sets: the same records as `list`, immutable, and mostly shared between states of a
bucket.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from transom.store.api import StoreEvent, StoreRecord
from transom.store.mvcc import MvccState

NAMESPACES = ("a", "b", "bb", "c")


class Writer:
    """Applies writes to a state, one event at a time."""

    def __init__(self, max_events: int = 1000) -> None:
        self.state = MvccState(max_events=max_events, max_bytes=1 << 30)

    def put(self, key: str, value: bytes = b"{}") -> None:
        revision = self.state.revision + 1
        self.state.apply(
            [
                StoreEvent(
                    revision, key, StoreRecord(key, value, revision, revision), self.state.get(key)
                )
            ]
        )

    def delete(self, key: str) -> None:
        previous = self.state.get(key)
        if previous is not None:
            self.state.apply([StoreEvent(self.state.revision + 1, key, None, previous)])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "read", "other"]),
        st.sampled_from(NAMESPACES),
        st.integers(0, 900),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, max_events=st.sampled_from([3, 1000]), filled=st.sampled_from([0, 700]))
def test_a_record_set_is_what_a_list_gives(
    steps: list[tuple[str, str, int]], max_events: int, filled: int
) -> None:
    writer = Writer(max_events)
    state = writer.state
    for number in range(filled):
        writer.put(f"pods/{NAMESPACES[number % 4]}/p{number}")
    earlier = []
    for verb, namespace, number in steps:
        if verb == "put":
            writer.put(f"pods/{namespace}/p{number}", b"x" * number)
        elif verb == "delete":
            writer.delete(f"pods/{namespace}/p{number}")
        elif verb == "other":
            writer.put("nodes/n")
        for prefix in ("pods/", f"pods/{namespace}/", "pods/missing/"):
            found, page = state.records(prefix), state.list(prefix)
            assert list(found) == page.records
            assert (len(found), found.revision) == (len(page.records), state.revision)
            assert found.size == sum(len(record.value) for record in page.records)
            earlier.append((found, page.records))
    for found, records in earlier:
        assert list(found) == records


def test_states_of_a_large_bucket_share_their_chunks() -> None:
    writer = Writer()
    for number in range(5000):
        writer.put(f"pods/a/p{number:05}")
    before = writer.state.records("pods/")
    writer.put("pods/a/p02500", b"new")
    after = writer.state.records("pods/")
    assert before.serial != after.serial
    assert len(set(map(id, after.chunks)) - set(map(id, before.chunks))) == 1


def test_nothing_that_the_history_has_forgotten_is_kept() -> None:
    writer = Writer(max_events=2)
    writer.put("pods/a/p", b"first")
    writer.state.records("pods/")
    for number in range(4):
        writer.put("pods/a/p", b"%d" % number)
    assert not writer.state._buckets["pods/"].sets.built


def test_events_are_read_in_steps_without_gap_or_duplicate() -> None:
    writer = Writer()
    for number in range(50):
        writer.put(f"pods/{'ab'[number % 2]}/p{number}")
        writer.put("nodes/n")
    for limit in (1, 7, 1000):
        seen, position = [], 1
        while position < writer.state.revision:
            events, position = writer.state.events("pods/a/", position, limit)
            seen += [event.key for event in events]
        assert seen == [f"pods/a/p{number}" for number in range(0, 50, 2)]
