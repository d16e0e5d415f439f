"""Recovers a damaged SQLite file: every intact row, and a report of everything else.

Read-only. A row is used only if its checksum is right (`rows.py`). A key whose newest version is
lost is not served from an older one: it is quarantined, with the newest readable version.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from transom.store.api import KeyQuarantined
from transom.store.pages import Fields, PageCell, PageFile, read_tolerantly
from transom.store.rows import Ledger, StoredRow, is_intact, key_hash, written_before

_LOG_ROOT, _META_ROOT = 2, 3  # where they are in all our files
_COLUMNS = 7
_MOST_REPORTED = 1000


class QuarantineRow(NamedTuple):
    about: KeyQuarantined
    raw: bytes


class SalvagedRows(NamedTuple):
    rows: list[StoredRow]  # in order of revision
    quarantine: list[QuarantineRow]
    ledger: Ledger | None  # None: it was not readable
    earlier: list[QuarantineRow]  # the earlier contents of the quarantine


def row_of_cell(rowid: int, fields: Fields | None) -> StoredRow | None:
    """None unless it is an intact row of the log table."""
    if fields is None or len(fields) != _COLUMNS:
        return None
    _, found, trail, key, create_revision, expires, value = fields
    if isinstance(expires, int):  # SQLite stores whole numbers as integers in any column
        expires = float(expires)
    row = (rowid, found, trail, key, create_revision, expires, value)
    return StoredRow(*row) if is_intact(row) else None  # type: ignore[arg-type]


def salvage_rows(path: Path, log: Path, page_size: int, now: float) -> SalvagedRows:
    """`log`: the write-ahead log, before SQLite opened it."""
    file = PageFile(read_tolerantly(path, page_size), read_tolerantly(log, page_size), page_size)
    roots = file.roots()
    rows: dict[int, StoredRow] = {}
    bad: list[PageCell] = []
    leaves, tree, problems = file.walk(roots.get("log", _LOG_ROOT))
    used = set(tree)
    for number in leaves:
        _take(rows, bad, file.leaf(number).cells)
        used |= file.overflow_pages(file.page(number))
    ledger, meta_pages = _ledger(file, roots.get("meta", _META_ROOT))
    earlier, quarantine_pages = _earlier(file, roots.get("quarantine", 0))
    used |= meta_pages | quarantine_pages
    free, is_plausible = file.free_pages()
    _take_orphans(file, rows, bad, used, free, ledger, trusted=is_plausible)
    _take_log(file, rows, ledger)
    lost = _Losses(rows, ledger, now)
    lost.report_damaged(cell for cell in bad if cell.rowid not in rows)
    for problem in problems:
        lost.report("", 0, problem, b"")
    lost.drop_superseded()
    lost.report_missing()
    return SalvagedRows(
        [rows[revision] for revision in sorted(rows)], lost.found[:_MOST_REPORTED], ledger, earlier
    )


def _take(rows: dict[int, StoredRow], bad: list[PageCell], cells: Iterable[PageCell]) -> None:
    for cell in cells:
        row = row_of_cell(cell.rowid, cell.fields)
        if row is None:
            bad.append(cell)
        else:
            rows[row.revision] = row


def _ledger(file: PageFile, root: int) -> tuple[Ledger | None, set[int]]:
    leaves, tree, _ = file.walk(root)
    found = None
    for number in leaves:
        for cell in file.leaf(number).cells:
            if cell.fields is not None and len(cell.fields) == 2 and cell.fields[0] == "ledger":
                found = Ledger.unpack(cell.fields[1])
    return found, tree


def _earlier(file: PageFile, root: int) -> tuple[list[QuarantineRow], set[int]]:
    if not root:
        return [], set()
    leaves, tree, _ = file.walk(root)
    used = set(tree)
    found: list[QuarantineRow] = []
    for number in leaves:
        used |= file.overflow_pages(file.page(number))
        for cell in file.leaf(number).cells:
            match cell.fields:
                case (None, str(key), int(revision), str(reason), int(at) | float(at), bytes(raw)):
                    found.append(
                        QuarantineRow(KeyQuarantined(key, revision, reason, float(at)), raw)
                    )
                case _:
                    continue  # the quarantine is lost, too; the damaged file still has it
    return found, used


def _take_orphans(
    file: PageFile,
    rows: dict[int, StoredRow],
    bad: list[PageCell],
    used: set[int],
    free: set[int],
    ledger: Ledger | None,
    *,
    trusted: bool,
) -> None:
    """Leaves that no page refers to, because their parent page is damaged. A page on the free list
    holds deleted rows; if that list is damaged, only rows that cannot have been deleted are used.
    """
    for number in range(2, file.count + 1):
        if number in used or number in free:
            continue
        found: dict[int, StoredRow] = {}
        _take(found, bad if trusted else [], file.leaf(number).cells)
        for revision, row in found.items():
            if trusted or (ledger is not None and revision > ledger.compacted):
                rows.setdefault(revision, row)


def _take_log(file: PageFile, rows: dict[int, StoredRow], ledger: Ledger | None) -> None:
    """Rows in the write-ahead log that no page of the file refers to: recent rows are never
    deleted.
    """
    since = ledger.compacted if ledger is not None else max(rows, default=0)
    for frame in file.frames:
        for cell in file.cells(file.image(frame.offset)):
            if cell.rowid > since and cell.rowid not in rows:
                row = row_of_cell(cell.rowid, cell.fields)
                if row is not None:
                    rows[row.revision] = row


class _Losses:
    """Determines which rows are lost."""

    def __init__(self, rows: dict[int, StoredRow], ledger: Ledger | None, now: float) -> None:
        self._rows = rows
        self._ledger = ledger
        self._now = now
        self.found: list[QuarantineRow] = []
        self._newest: dict[str, int] = {}
        self._by_hash: dict[int, list[str]] = {}
        self._revisions: dict[str, list[int]] = {}
        for revision in sorted(rows):
            self._newest[rows[revision].key] = revision
            self._revisions.setdefault(rows[revision].key, []).append(revision)
        for key in self._newest:
            self._by_hash.setdefault(key_hash(key), []).append(key)
        self._lost: dict[int, int | None] = {}  # revision -> hash of the key, None if unknown
        for row in rows.values():
            self._lost.update(
                (at, name) for at, name in written_before(row.revision, row.trail) if at not in rows
            )
        if ledger is not None:
            self._lost.update(
                (at, name)
                for at, name in written_before(ledger.revision, ledger.trail)
                if at not in rows
            )
        # revision -> the contents of a damaged row
        self._claimed: dict[int, tuple[str, bytes]] = {}
        self._told: set[int] = set()

    def report(self, key: str, revision: int, reason: str, raw: bytes) -> None:
        self.found.append(QuarantineRow(KeyQuarantined(key, revision, reason, self._now), raw))
        self._told.add(revision)

    def report_damaged(self, cells: Iterable[PageCell]) -> None:
        for cell in cells:
            key = _text(cell.fields, 3)
            hashed = self._lost.get(cell.rowid)
            if hashed is not None and (key is None or key_hash(key) != hashed):
                key = next(iter(self._by_hash.get(hashed, ())), None)
            if cell.rowid > 0 and key is not None and self._newest.get(key, 0) > cell.rowid:
                continue  # an old version; the newest one exists
            value = (
                cell.fields[6] if cell.fields is not None and len(cell.fields) == _COLUMNS else None
            )
            if key is not None:
                self._lost[cell.rowid] = key_hash(key)
            self.report(
                key or "",
                cell.rowid,
                "the checksum does not match",
                value if isinstance(value, bytes) else cell.raw,
            )

    def drop_superseded(self) -> None:
        """Removes a key that a lost row changed: its older version must not reappear."""
        for revision in sorted(self._lost, reverse=True):
            hashed = self._lost[revision]
            for key in self._by_hash.get(-1 if hashed is None else hashed, ()):
                last = self._newest.get(key)
                if last is None or last >= revision:
                    continue
                old = self._rows[last]
                if revision not in self._told and old.value is not None:
                    self.report(
                        key,
                        revision,
                        f"the version of revision {revision} is lost; this is revision {last}",
                        old.value,
                    )
                self._told.add(revision)
                for gone in self._revisions[key]:
                    del self._rows[gone]
                del self._newest[key]

    def report_missing(self) -> None:
        """Reports lost rows whose keys are unknown."""
        ledger = self._ledger
        if ledger is None:
            return
        missing = [
            revision
            for revision, hashed in self._lost.items()
            if revision > ledger.compacted
            and revision not in self._told
            and hashed not in self._by_hash
        ]
        for revision in sorted(missing):
            self.report("", revision, "lost with a damaged page", b"")
        found = sum(1 for revision in self._rows if revision <= ledger.revision)
        known = sum(1 for revision in self._lost if ledger.compacted < revision <= ledger.revision)
        more = ledger.rows - found - known
        if more > 0:
            self.report("", 0, f"{more} more rows are missing", b"")


def _text(fields: Sequence[object] | None, at: int) -> str | None:
    found = fields[at] if fields is not None and len(fields) == _COLUMNS else None
    return found if isinstance(found, str) and found.find("/") > 0 else None


class LogTail(NamedTuple):
    rows: list[StoredRow]
    is_damaged: bool  # acknowledged transactions follow it


def read_log_tail(log: Path, page_size: int, after: int) -> LogTail:
    """Rows of the write-ahead log that SQLite does not show, because it stops at the first frame
    whose checksum is wrong.

    After a crash that is the transaction that was being written. If further transactions follow, it
    was acknowledged, and the log is damaged.
    """
    file = PageFile(b"", read_tolerantly(log, page_size), page_size)
    rows: dict[int, StoredRow] = {}
    first = None
    for at, frame in enumerate(file.frames):
        for cell in file.cells(file.image(frame.offset)):
            if cell.rowid > after:
                row = row_of_cell(cell.rowid, cell.fields)
                if row is not None:
                    rows[row.revision] = row
                    first = at if first is None else first
    if first is None:
        return LogTail([], False)
    salts = file.frames[first].salts
    commits = sum(1 for frame in file.frames[first:] if frame.commits and frame.salts == salts)
    return LogTail([rows[revision] for revision in sorted(rows)], commits > 1)
