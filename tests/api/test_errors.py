"""Every error has a status, and none tells of the inside."""

from __future__ import annotations

import inspect
import json
import logging

import pytest

from fastfront import errors
from fastfront.api.errors import TABLE, error_event, render_error, status_of


def test_every_request_and_engine_error_has_a_row() -> None:
    known = [cls for _, cls in inspect.getmembers(errors, inspect.isclass)]
    served = [cls for cls in known if issubclass(cls, errors.RequestError | errors.EngineError)]
    assert len(served) > 10
    assert not [cls.__name__ for cls in served if cls not in TABLE]


@pytest.mark.parametrize(
    "error, status, body",
    [
        (errors.UnauthorizedError("no"), 401, {"error": "Unauthorized"}),
        (errors.RouteNotFoundError("no"), 404, {"detail": "Not Found"}),
        (errors.MethodNotAllowedError("no", allowed=("POST",)), 405, {"detail": "Method Not Allowed"}),
    ],
)
def test_bare(error: Exception, status: int, body: object) -> None:
    got = render_error(error)
    assert (got[0], json.loads(got[1]), got[2]) == (status, body, "application/json")


def test_allow() -> None:
    assert render_error(errors.MethodNotAllowedError("no", allowed=("GET", "POST")))[3] == (("allow", "GET, POST"),)


@pytest.mark.parametrize(
    "error, status, kind",
    [
        (errors.RequestError("m"), 400, "BadRequestError"),
        (errors.BodyError("m"), 400, "Bad Request"),
        (errors.UnsupportedError("m"), 400, "BadRequestError"),
        (errors.ModelNotFoundError("m"), 404, "NotFoundError"),
        (errors.RequestTimeoutError("m"), 408, "Request Timeout"),
        (errors.PayloadTooLargeError("m"), 413, "Request Entity Too Large"),
        (errors.HeadersTooLargeError("m"), 431, "Request Header Fields Too Large"),
        (errors.EngineDeadError("m"), 500, "InternalServerError"),
    ],
)
def test_table(error: Exception, status: int, kind: str) -> None:
    got = render_error(error)
    assert got[0] == status
    assert json.loads(got[1]) == {"error": {"message": "m", "type": kind, "param": None, "code": status}}


def test_subclass_takes_the_nearest_row() -> None:
    class Own(errors.BodyError):
        pass

    assert status_of(Own("x")) == (400, "Bad Request")


@pytest.mark.parametrize("error", [KeyError("secret"), errors.WireError("secret"), errors.EngineRequestError("secret")])
def test_inside_stays_inside(error: Exception) -> None:
    status, body, _, _ = render_error(error)
    assert status == 500
    assert b"secret" not in body
    assert json.loads(body)["error"]["message"] == "Internal server error"


def test_param_and_value_are_named() -> None:
    error = errors.RequestError("top_p must be in (0, 1], got 1.5.", param="top_p", value=1.5)
    info = json.loads(render_error(error)[1])["error"]
    assert info["message"] == "top_p must be in (0, 1], got 1.5. (parameter=top_p, value=1.5)"
    assert info["param"] == "top_p"


def test_long_value_is_cut() -> None:
    body = render_error(errors.RequestError("m", param="p", value="x" * 100_000))[1]
    assert len(body) < 500


def test_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        event = error_event(errors.EngineDeadError("gone"))
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert json.loads(event[6:])["error"] == {
        "message": "gone",
        "type": "server_error",
        "param": None,
        "code": "server_error",
    }
    assert "gone" in caplog.text
