"""Asks a process of its own whether a constraint can be compiled, and by which of the engine's backends.

The libraries that know are native, and a hostile grammar can keep them busy, fill the memory or bring them down; there
they can be bounded and killed. Processes start when they are first needed and stay; what they found is remembered.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastfront.engine.constraints.child import Child, ChildError
from fastfront.engine.constraints.ebnf import choice_grammar
from fastfront.errors import ConfigError, RequestError

log = logging.getLogger(__name__)

#: What a constraint may be, in the order in which the engine looks for it. `json_object` needs no check.
KINDS = ("json", "regex", "grammar", "structural_tag")
#: What vLLM's structured_outputs_config may say.
BACKENDS = ("auto", "xgrammar", "guidance", "outlines", "lm-format-enforcer")
CHILDREN = 2
#: How long a constraint that could not be checked in time is refused unseen (s).
REFUSED_S = 60.0
_KEPT = 1024
#: Libraries repeat what they were given.
_SHOWN = 500


class Verdict(NamedTuple):
    """The backend that takes a constraint, or why none does."""

    backend: str
    problem: str = ""


def with_backend(constraint: Mapping[str, Any], backend: str = "xgrammar", auto: bool = True) -> dict[str, Any]:
    """A constraint as the engine gets it: with its backend, and choices as a grammar where that reads no choices."""
    made = dict(constraint)
    if backend == "xgrammar" and made.get("choice") is not None:
        made["grammar"] = choice_grammar(made.pop("choice"))
    return {**made, "_backend": backend, "_backend_was_auto": auto}


class Checker:
    """`seconds` is the time for one check; `backend` the one that the engine is set to, ConfigError if there is none.

    `isolated`: without xgrammar, even where it is installed (for tests).
    """

    def __init__(self, seconds: float, isolated: bool = False, backend: str = "auto") -> None:
        if backend not in BACKENDS:
            raise ConfigError(f"structured_outputs_config: backend {backend!r} is none of {', '.join(BACKENDS)}")
        self._seconds = seconds
        self._backend = backend
        self._is_auto = backend == "auto"
        self._isolated = isolated
        self._known: OrderedDict[bytes, Verdict] = OrderedDict()
        self._children: list[Child] = []
        self._idle: asyncio.LifoQueue[Child] | None = None

    async def check(self, constraint: Mapping[str, Any], field: str) -> dict[str, Any]:
        """The constraint as the engine gets it; RequestError with `field` as its param where no backend takes it."""
        kind = next((kind for kind in KINDS if constraint.get(kind) is not None), None)
        if kind is None:
            return with_backend(constraint, "xgrammar" if self._is_auto else self._backend, self._is_auto)
        verdict = await self._verdict(kind, constraint[kind])
        if verdict.problem:
            raise RequestError(f"Invalid {kind} in {field}: {verdict.problem}", param=field)
        return with_backend(constraint, verdict.backend, self._is_auto)

    async def close(self) -> None:
        """Ends the processes."""
        self._idle = None
        children, self._children = self._children, []
        for child in children:
            await child.close()

    async def _verdict(self, kind: str, value: Any) -> Verdict:
        text = value if isinstance(value, str) else json.dumps(value)
        key = hashlib.sha256(f"{kind} {text}".encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        try:
            answer = await self._ask({"kind": kind, "text": text, "backend": self._backend})
        except TimeoutError:
            return self._refuse(key, f"it takes longer than {self._seconds:g} seconds to compile")
        except ChildError:
            return self._refuse(key, "it takes too much memory or nests too deeply to compile")
        except OSError as error:
            log.warning("constraints are not checked: %s", error)
            # the engine must see for itself
            return Verdict("xgrammar" if self._is_auto else self._backend)
        return self._keep(key, Verdict(answer.get("backend", ""), answer.get("problem", "")[:_SHOWN]))

    def _refuse(self, key: bytes, problem: str) -> Verdict:
        """What cost a process its time or its life is not tried again at once; later, on a quieter machine, it is."""
        asyncio.get_running_loop().call_later(REFUSED_S, self._known.pop, key, None)
        return self._keep(key, Verdict("", problem))

    def _keep(self, key: bytes, verdict: Verdict) -> Verdict:
        self._known[key] = verdict
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return verdict

    async def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """What an idle child says, as Child.ask."""
        if self._idle is None:
            self._idle = asyncio.LifoQueue()
            self._children = [Child(self._isolated) for _ in range(CHILDREN)]
            for child in self._children:
                self._idle.put_nowait(child)
        idle = self._idle
        child = await idle.get()
        try:
            return await child.ask(job, self._seconds)
        finally:
            idle.put_nowait(child)
