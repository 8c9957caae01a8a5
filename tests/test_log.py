"""Log records stay on one line each."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fastfront import log


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("fastfront")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield logger
    logger.handlers[:], level, logger.propagate = before
    logger.setLevel(level)


def test_one_line_on_standard_error(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("WARNING")
    log.setup("INFO")
    logger.info("asked for %r by %s", "a", "x\r\n2026-01-01T00:00:00 ERROR forged")
    logger.getChild("http").debug("not shown")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith(" INFO fastfront: asked for 'a' by x\\r\\n2026-01-01T00:00:00 ERROR forged\n")
    assert err.count("\n") == 1


def test_a_traceback_follows_its_record(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    log.setup("INFO")
    try:
        raise ValueError("why")
    except ValueError:
        logger.exception("it failed")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("ERROR fastfront: it failed")
    assert lines[-1] == "ValueError: why"
