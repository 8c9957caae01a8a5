"""Requests that are alike but for one field, a chat's messages or a completion's prompt.

Clients send the same model, settings and tools again and again. The bytes of a body around that field's value decide
all but the value; what was made of them once serves the next request that has the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from fastfront.api.body import REFUSED, BodyReader, Model, check_content_type
from fastfront.fast import cut_field
from fastfront.flow import Handler, HttpRequest, Reply, Running, Work

Plan = TypeVar("Plan")

#: Bytes of a body that is looked at: a longer one takes its time elsewhere.
_LOOKED_AT = 64 << 10
#: Plans that are kept, the bytes that one may be known by, and those of all; what plans hold is of that order.
_KEPT, _KEPT_SIZE, _KEPT_SIZES = 256, 32 << 10, 1 << 20
#: A plan is kept when its bytes come a second time: of so many hashes are those known that came once.
_ONCE = 4096


class Alike(Generic[Model, Plan]):
    """Reads the bodies of an endpoint. A plan is kept when a request is the second of its kind, and serves the third.

    `plan` checks a whole body and makes what others share, which must not depend on `field` nor be changed by anyone;
    it gets to keep the body, without the field's value. `check` does for a value of its own what `plan` did for this.
    """

    def __init__(
        self, reader: BodyReader[Model], field: str, plan: Callable[[Model], Plan], check: Callable[[Any], None]
    ) -> None:
        self._reader = reader
        self._field = field
        self._key = b'"%b"' % field.encode()
        self._plan = plan
        self._check = check
        self._value = msgspec.json.Decoder(reader.type_of(field))
        self._plans: dict[bytes, Plan] = {}
        self._sizes = 0
        self._once: set[int] = set()

    def serve(self, handle: Callable[[HttpRequest, Reply, Plan, Any], Work | Running | None]) -> Handler:
        """The handler that gives `handle` the plan and the value of the field."""

        def start(request: HttpRequest, reply: Reply) -> Work | Running | None:
            data, around = request.body, None
            cut = cut_field(data, self._key) if len(data) <= _LOOKED_AT else None
            if cut is not None:
                around, text = cut
                plan = self._plans.get(around)
                if plan is not None:
                    check_content_type(request.headers)
                    try:
                        value = self._value.decode(text)
                    except REFUSED:
                        pass  # it is told best where the whole body is read
                    else:
                        self._check(value)
                        return handle(request, reply, plan, value)

            def first(request: HttpRequest, reply: Reply, body: Model) -> Work | Running | None:
                value = getattr(body, self._field)
                plan = self._plan(body)
                setattr(body, self._field, None)
                if around is not None:
                    self._keep(around, data, plan)
                return handle(request, reply, plan, value)

            return self._reader.start(request, reply, first)

        return start

    def _keep(self, around: bytes, data: bytes, plan: Plan) -> None:
        if len(around) > _KEPT_SIZE or around in self._plans:
            return
        mark = hash(around)
        if mark not in self._once:
            if len(self._once) >= _ONCE:
                self._once.clear()
            self._once.add(mark)
            return
        if not self._names_it_once(data):
            return
        self._once.discard(mark)
        self._sizes += len(around)
        if len(self._plans) >= _KEPT or self._sizes > _KEPT_SIZES:
            self._plans.clear()
            self._sizes = len(around)
        self._plans[around] = plan

    def _names_it_once(self, data: bytes) -> bool:
        """Whether the value that was cut is the one that counts: of a field that stands there twice it is the last."""
        try:
            pairs = json.loads(data.decode(), object_pairs_hook=list)  # in UTF-16 what was cut may be something else
        except (ValueError, RecursionError):
            return False
        return [name for name, _ in pairs].count(self._field) == 1
