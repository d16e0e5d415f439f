import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from transom.kit import logs


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)


def test_text_lines_look_like_klog(tmp_path: Path) -> None:
    logs.setup(path=tmp_path / "log")
    logging.getLogger("transom.x").debug("too fine")
    logging.getLogger("transom.x").warning("disk %s is %d%% full", "a", 93)
    (line,) = (tmp_path / "log").read_text().splitlines()
    pattern = r"W\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_logs\.py:\d+\] disk a is 93% full"
    assert re.fullmatch(pattern, line)
    assert (tmp_path / "log").stat().st_mode & 0o777 & ~0o640 == 0


def test_json_lines_carry_the_error(tmp_path: Path) -> None:
    logs.setup(path=tmp_path / "log", form="json", level="error")
    logging.getLogger("transom.x").warning("not bad enough")
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("transom.x").exception("it failed\nbadly")
    (line,) = (tmp_path / "log").read_text().splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["msg"]) == ("error", "transom.x", "it failed\nbadly")
    assert "ValueError: boom" in entry["error"]


def test_a_second_setup_replaces_the_first(tmp_path: Path) -> None:
    logs.setup(path=tmp_path / "one")
    logs.setup(path=tmp_path / "two")
    logging.getLogger("transom.x").info("hello")
    assert (tmp_path / "one").read_text() == ""
    assert "hello" in (tmp_path / "two").read_text()
