"""Logging: one line a record on standard error, set up once by the command line. Nothing logs per token."""

from __future__ import annotations

import logging
import sys

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
DATES = "%Y-%m-%dT%H:%M:%S"


class OneLine(logging.Formatter):
    """Keeps a record on one line, so that text from a client cannot forge another; tracebacks follow as they are."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        record.asctime = self.formatTime(record, self.datefmt)
        line = self.formatMessage(record)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def name_worker(index: int) -> None:
    """Every line says from now on which of several workers writes it."""
    for handler in logging.getLogger("fastfront").handlers:
        handler.setFormatter(OneLine(FORMAT.replace("%(name)s", f"%(name)s[{index}]"), DATES))


def setup(level: str) -> None:
    """Sends the records of `fastfront` from `level` (a name of logging) on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(FORMAT, DATES))
    logger = logging.getLogger("fastfront")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
