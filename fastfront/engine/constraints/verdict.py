"""Which backend of vLLM takes a constraint: xgrammar, else guidance, else outlines, as vLLM chooses with `auto`.

Without xgrammar here its part is judged by what is certain about its rules: what may be right passes.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fastfront.engine.constraints import ebnf, features, shapes

_NAMED_RULE = re.compile(r"::=")
#: xgrammar's regexes have none of these.
_NOT_XGRAMMAR = re.compile(r"\(\?(?!:)|\\[pP]")

#: What backends beside xgrammar and guidance do not do at all; the rest is between them and the engine.
_FOR_NO_OTHER = ("grammar", "structural_tag")


class Judge:
    """`guidance` is the module llguidance, `xgrammar` its Grammar class or None."""

    def __init__(self, guidance: Any, xgrammar: Any) -> None:
        self._guidance = guidance
        self._xgrammar = xgrammar

    def __call__(self, kind: str, text: str, backend: str = "auto") -> dict[str, str]:
        """{"backend"} or {"problem"}; `backend` is the one that the engine is set to."""
        if kind == "json" and (circle := shapes.circle(json.loads(text))) is not None:
            return {"problem": circle}
        if backend == "auto":
            return self._first_that_takes(kind, text)
        problem = None
        if backend == "xgrammar":
            problem = self._xgrammar_problem(kind, text)
        elif backend == "guidance" and kind == "structural_tag":
            problem = self._old_tag_problem(text)
        elif backend == "guidance":
            problem = self._guidance_problem(kind, text)
        elif kind in _FOR_NO_OTHER:
            problem = f"{backend} does not support it"
        return {"backend": backend} if problem is None else {"problem": problem}

    def _first_that_takes(self, kind: str, text: str) -> dict[str, str]:
        problem = self._xgrammar_problem(kind, text)
        if problem is None:
            return {"backend": "xgrammar"}
        if kind == "structural_tag":
            return {"problem": problem}
        if kind == "json" and features.has(json.loads(text), "patternProperties"):
            # guidance is not asked: vLLM goes on to outlines
            found = self._schema_problem(text)
            return {"backend": "outlines"} if found is None else {"problem": found}
        problem = self._guidance_problem(kind, text)
        return {"backend": "guidance"} if problem is None else {"problem": problem}

    def _xgrammar_problem(self, kind: str, text: str) -> str | None:
        """Why xgrammar does not take it; None if it does."""
        if kind == "regex":
            if self._xgrammar is not None:
                return _why(self._xgrammar.from_regex, text)
            if _NOT_XGRAMMAR.search(text):
                return "xgrammar has no such construct"
            problem = self._guidance_problem(kind, text)
            return problem if problem is not None and shapes.is_no_regex(text) else None
        if kind == "json":
            schema = json.loads(text)
            if features.unsupported(schema):
                return "features that xgrammar does not hold to"
            return self._schema_problem(text)
        if kind == "grammar":
            return self._grammar_problem(text)
        return self._tag_problem(text)

    def _schema_problem(self, text: str) -> str | None:
        schema = json.loads(text)
        if not isinstance(schema, dict):
            return "the schema must be an object"
        if self._xgrammar is not None:
            return _why(self._xgrammar.from_json_schema, schema)
        if self._guidance_problem("json", text) is None:
            return None
        return shapes.schema_problem(schema)

    def _grammar_problem(self, text: str) -> str | None:
        lark = ebnf.is_lark(text)
        if self._xgrammar is not None:
            return _why(self._xgrammar.from_lark if lark else self._xgrammar.from_ebnf, text)
        return self._guidance_problem("grammar", text) if lark else ebnf.problem(text)

    def _tag_problem(self, text: str) -> str | None:
        try:
            document = json.loads(text)
            if self._xgrammar is None:
                return shapes.tag_problem(document, self)
            if "structures" in document:
                document = _new_form(document)
        except (ValueError, KeyError, TypeError) as error:
            return f"not a structural tag: {error}"
        return _why(self._xgrammar.from_structural_tag, document)

    def _old_tag_problem(self, text: str) -> str | None:
        """Why guidance does not take a structural tag: it reads the old form alone."""
        try:
            document = json.loads(text)
            schemas = [json.dumps(part["schema"]) for part in document["structures"]]
            triggers = tuple(document["triggers"])
            if not schemas or not all(part["begin"].startswith(triggers) for part in document["structures"]):
                return "a trigger must begin every tag, and there must be one"
        except (ValueError, KeyError, TypeError, AttributeError):
            return "guidance takes only tags with structures and triggers"
        found = (self._guidance_problem("json", schema) for schema in schemas)
        return next((problem for problem in found if problem is not None), None)

    def _guidance_problem(self, kind: str, text: str) -> str | None:
        matcher, grammar_from = self._guidance.LLMatcher, self._guidance.grammar_from
        try:
            if kind == "json":
                grammar = matcher.grammar_from_json_schema(text, defaults={"whitespace_flexible": True})
            else:
                grammar = grammar_from(kind, text)
        except (ValueError, KeyError, TypeError) as error:
            return str(error)
        return str(matcher.validate_grammar(grammar, None)) or None


def _new_form(document: dict[str, Any]) -> dict[str, Any]:
    """The old form of a structural tag in the new one's words."""
    tags = [
        {
            "type": "tag",
            "begin": part["begin"],
            "content": {"type": "json_schema", "json_schema": part["schema"]},
            "end": part["end"],
        }
        for part in document["structures"]
    ]
    return {
        "type": "structural_tag",
        "format": {"type": "triggered_tags", "triggers": document["triggers"], "tags": tags},
    }


def _why(build: Any, argument: Any) -> str | None:
    """The reason of a library that raises, without the place in its source; None if it does not."""
    try:
        build(argument)
    except Exception as error:
        return re.sub(r"^\[[\d:]+\] \S+:\d+: ", "", str(error).strip()) or type(error).__name__
    return None
