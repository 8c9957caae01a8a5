"""A Jinja chat template, rendered as transformers' apply_chat_template renders it: sandboxed and compiled once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn, Protocol

import jinja2
import msgspec
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fastfront.errors import RequestError, StartError
from fastfront.prompt.content_format import ContentFormat, detect_content_format


class GenerationBlocks(Extension):
    """`{% generation %}...{% endgeneration %}` marks assistant text for training; here its body is just rendered."""

    tags = {"generation"}  # noqa: RUF012  (as jinja2 declares it)

    def parse(self, parser: Parser) -> nodes.Node:
        """Parses the block into a call, which gives the body a scope of its own, as transformers' does."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller: Any) -> Any:
        """The rendered body."""
        return caller()


_json = json.JSONEncoder(ensure_ascii=False).encode
_encode = msgspec.json.Encoder().encode


def _no_float(digits: str) -> NoReturn:
    raise ValueError(digits)


_check_no_floats = msgspec.json.Decoder(float_hook=_no_float).decode


def _plain_json(value: Any) -> str:
    """The text of json.dumps, ten times faster where msgspec writes the same: everywhere but in numbers' exponents."""
    try:
        encoded = _encode(value)
        if b"null" in encoded:
            return _json(value)  # it may be what msgspec writes for a float that is no number
        _check_no_floats(encoded)
        return msgspec.json.format(encoded, indent=0).decode()
    except Exception:  # a float, an integer of more than 64 bits, a lone surrogate, or no JSON at all
        return _json(value)


#: How many forms of one object are kept.
MOST_FORMS = 8


class CachedJson(dict[str, Any]):
    """An object that many prompts show: its JSON is made once in each form. Nobody may change it."""

    __slots__ = ("_texts",)

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._texts: dict[tuple[Any, ...], str] = {}

    def _text(self, *form: Any) -> str:
        """What `tojson` makes of it with these arguments."""
        try:
            text = self._texts.get(form)
        except TypeError:  # a list among the arguments
            return tojson(dict(self), *form)
        if text is None:
            text = tojson(dict(self), *form)
            if len(self._texts) < MOST_FORMS:
                self._texts[form] = text
        return text


def tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """The filter as chat templates know it: Jinja's own escapes HTML, which models were not trained on."""
    if isinstance(value, CachedJson):
        return value._text(ensure_ascii, indent, separators, sort_keys)
    if not ensure_ascii and indent is None and separators is None and not sort_keys:
        return _plain_json(value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: Any) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


#: Functions that chat templates count on.
GLOBALS = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}


def prepare(environment: jinja2.Environment) -> None:
    """Adds the filters and globals that chat templates count on."""
    environment.filters["tojson"] = tojson
    environment.globals.update(GLOBALS)


def new_environment() -> ImmutableSandboxedEnvironment:
    """An environment for the templates of the model and of the operator."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, loopcontrols]
    )
    prepare(environment)
    return environment


class FastRenderer(Protocol):
    """Renders what it is known to render alike."""

    def __call__(self, variables: Mapping[str, Any]) -> str | None:
        """The text; None where another must render."""

    def take(self, variables: Mapping[str, Any]) -> dict[str, Any] | None:
        """What `render` needs beside the messages; None where another must render whatever these are."""

    def render(self, taken: Mapping[str, Any], messages: list[Any], source: bytes) -> str | None:
        """The text of one of many conversations that share all else; None where another must render.

        `source` is JSON that holds the client's part of the variables.
        """


class ChatTemplate:
    """A compiled template; raises StartError when `source` does not compile. `render` may run in several threads."""

    def __init__(self, source: str, *, environment: jinja2.Environment | None = None) -> None:
        environment = environment or new_environment()
        try:
            tree = environment.parse(source)
            self._compiled = environment.from_string(source)
            #: Variables that the template reads and does not set itself.
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            self.content_format: ContentFormat = detect_content_format(tree)
        except (jinja2.TemplateError, RecursionError, ValueError, TypeError, SyntaxError) as error:
            raise StartError(f"the chat template does not compile: {_located(error)}") from error
        self.source = source
        self.tree = tree
        #: A second renderer, asked first; it gives None where this one must render.
        self.fast: FastRenderer | None = None
        #: Whether the template itself tells developer messages from others.
        self.knows_developer = "'developer'" in source or '"developer"' in source

    def render(self, variables: Mapping[str, Any]) -> str:
        """The prompt text; raises RequestError with the template's own words when it refuses the conversation."""
        if self.fast is not None:
            text = self.fast(variables)
            if text is not None:
                return text
        return self.render_exactly(variables)

    def render_exactly(self, variables: Mapping[str, Any]) -> str:
        """The same by jinja2 alone."""
        try:
            return self._compiled.render(variables)
        except RecursionError:
            raise RequestError(
                "The chat template, the messages or the tools are nested too deeply.", param="messages"
            ) from None
        except Exception as error:  # a template may fail in any way that Python code can
            raise RequestError(reason(error)) from error


def reason(error: BaseException) -> str:
    """The words of the template's own error in a chain of errors, else of the error itself."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, jinja2.TemplateError):
            return str(current)
        current = current.__cause__ or current.__context__
    return str(error) or type(error).__name__


def _located(error: BaseException) -> str:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.message} (line {error.lineno})"
    return str(error) or type(error).__name__
