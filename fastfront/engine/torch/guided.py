"""Structured outputs: xgrammar says which tokens may come next.

Grammars are compiled in threads, beside the step loop. What goes wrong there is the request's own affair: it ends with
an error, and the log says why.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fastfront.engine.rank.request import Structured
from fastfront.engine.torch.request import THINK_END, RefusedError, Request
from fastfront.engine.torch.vocabulary import Vocabulary, read_vocabulary

if TYPE_CHECKING:
    import xgrammar

log = logging.getLogger(__name__)

THREADS = 2
CACHE_BYTES = 512 * 1024 * 1024
_COMMENT = re.compile(r"(#|//).*$")
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


class GrammarGuide:
    """One request's place in its grammar; before `after` (the end of its reasoning) has come it may say anything."""

    def __init__(self, matcher: xgrammar.GrammarMatcher, after: int | None) -> None:
        self.matcher = matcher
        self._after = after

    @property
    def holds(self) -> bool:
        """Whether the next token must fit."""
        return self._after is None and not self.matcher.is_terminated()

    def accept(self, token: int) -> bool:
        """Takes the next token; False for one that does not fit."""
        if self._after is not None:
            if token == self._after:
                self._after = None
            return True
        return self.matcher.is_terminated() or bool(self.matcher.accept_token(token))


class Guided:
    """Compiles the grammars of a model's requests; `wake` is called, from any thread, when one is done."""

    def __init__(self, model: Path, vocab_size: int, wake: Callable[[], None]) -> None:
        self._model = model
        self._vocab_size = vocab_size
        self._wake = wake
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="grammar")
        self._first = ThreadPoolExecutor(1, thread_name_prefix="vocabulary")
        self._ground: Future[tuple[xgrammar.GrammarCompiler, Vocabulary]] | None = None

    def begin(self, request: Request) -> None:
        """Starts to compile a request's grammar."""
        structured = request.params.structured_outputs
        if structured is None:
            return
        if self._ground is None or (self._ground.done() and self._ground.exception()):
            self._ground = self._first.submit(self._prepare)
        request.grammar = self._threads.submit(self._compile, structured, request, self._ground)
        request.grammar.add_done_callback(lambda _: self._wake())

    def close(self) -> None:
        """Lets the threads go."""
        for threads in (self._threads, self._first):
            threads.shutdown(wait=False, cancel_futures=True)

    def mask(self, logits: Tensor, requests: Sequence[Request]) -> None:
        """Takes from each row of `logits` what its request's grammar does not allow."""
        guided = [
            (row, request.guide)
            for row, request in enumerate(requests)
            if isinstance(request.guide, GrammarGuide) and request.guide.holds
        ]
        if not guided:
            return
        import xgrammar

        bits = xgrammar.allocate_token_bitmask(len(requests), self._vocab_size)
        for row, guide in guided:
            guide.matcher.fill_next_token_bitmask(bits, row)
        xgrammar.apply_token_bitmask_inplace(logits, bits.to(logits.device), indices=[row for row, _ in guided])

    def _prepare(self) -> tuple[xgrammar.GrammarCompiler, Vocabulary]:
        try:
            import xgrammar
        except ImportError as error:
            raise RefusedError(f"structured outputs need xgrammar, which cannot be loaded: {error}") from error
        vocabulary = read_vocabulary(self._model, self._vocab_size)
        info = xgrammar.TokenizerInfo(
            vocabulary.tokens,
            xgrammar.VocabType[vocabulary.kind.upper()],
            vocab_size=self._vocab_size,
            stop_token_ids=vocabulary.stop_ids or None,
            add_prefix_space=vocabulary.space_first,
        )
        return xgrammar.GrammarCompiler(info, max_threads=THREADS, cache_limit_bytes=CACHE_BYTES), vocabulary

    def _compile(
        self, structured: Structured, request: Request, ground: Future[tuple[xgrammar.GrammarCompiler, Vocabulary]]
    ) -> GrammarGuide:
        compiler, vocabulary = ground.result()
        import xgrammar  # which is there if that has worked

        compiled = compile_grammar(compiler, structured)
        stops = [token for token in request.params.all_stop_token_ids if token < self._vocab_size]
        matcher = xgrammar.GrammarMatcher(compiled, override_stop_tokens=stops or None)
        return GrammarGuide(matcher, vocabulary.find(THINK_END) if request.reasoning else None)


def compile_grammar(compiler: xgrammar.GrammarCompiler, structured: Structured) -> xgrammar.CompiledGrammar:
    """The grammar of a request's constraint; RuntimeError, ValueError or RefusedError for one that is none."""
    if structured.whitespace_pattern is not None:
        raise RefusedError("structured_outputs.whitespace_pattern is not served by xgrammar")
    tight = structured.disable_any_whitespace
    options: dict[str, Any] = {"any_whitespace": not tight, "separators": (",", ":") if tight else None}
    if structured.json is not None:
        schema = structured.json if isinstance(structured.json, str) else json.dumps(structured.json)
        return compiler.compile_json_schema(schema, **options)
    if structured.regex is not None:
        return compiler.compile_regex(structured.regex)
    if structured.choice is not None:
        return compiler.compile_grammar(choice_grammar(structured.choice))
    if structured.grammar is not None:
        if is_lark(structured.grammar):
            return compiler.compile_lark(structured.grammar)
        return compiler.compile_grammar(structured.grammar)
    if structured.structural_tag is not None:
        return _structural_tag(compiler, structured.structural_tag)
    return compiler.compile_json_schema('{"type": "object"}', **options)


def _structural_tag(compiler: xgrammar.GrammarCompiler, text: str) -> xgrammar.CompiledGrammar:
    """Of either form: `format`, or the older `structures` with `triggers`."""
    tag = json.loads(text)
    if "structures" not in tag:
        return compiler.compile_structural_tag(text)
    import xgrammar

    items = [
        xgrammar.StructuralTagItem(begin=part["begin"], schema=json.dumps(part["schema"]), end=part["end"])
        for part in tag["structures"]
    ]
    return compiler.compile_structural_tag(items, tag["triggers"])


def choice_grammar(choices: Sequence[str]) -> str:
    """An EBNF grammar of these texts."""
    literals = ("".join(map(_escaped, choice)) for choice in choices)
    return "root ::= " + " | ".join(f'"{literal}"' for literal in literals)


def _escaped(character: str) -> str:
    control = ord(character) < 0x20 or ord(character) == 0x7F
    return _ESCAPES.get(character) or (f"\\u{ord(character):04x}" if control else character)


def is_lark(grammar: str) -> bool:
    """Whether a grammar is in Lark's notation: no rule in it is written as in EBNF."""
    return not any("::=" in _COMMENT.sub("", line) for line in grammar.splitlines())
