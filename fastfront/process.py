"""What every serving process does: load the model's files, listen, run until it is told to stop, drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

import uvloop

from fastfront import memory
from fastfront.api import ops
from fastfront.api.errors import render_and_log, render_error
from fastfront.api.routes import Routes
from fastfront.api.state import RenderState
from fastfront.bound import Bound
from fastfront.config import ApiConfig, HttpConfig, RenderConfig
from fastfront.errors import FastfrontError
from fastfront.fast import NATIVE, Flusher, Vocab
from fastfront.flow import ModelInfo
from fastfront.http.auth import Keys
from fastfront.http.cors import Cors
from fastfront.http.listener import check_alone
from fastfront.http.router import Router
from fastfront.http.server import Server
from fastfront.http.settings import Settings
from fastfront.metrics import Metrics
from fastfront.parse.counting import Counting
from fastfront.parse.plugin import load_plugin
from fastfront.parse.prepare import Preparation
from fastfront.parse.registry import Format, check_names, choose
from fastfront.prompt.load import Model, PromptSettings, find_model, open_prompter
from fastfront.prompt.mistral import AnyTokenizer
from fastfront.prompt.prompter import Prompter
from fastfront.text.vocab import build_vocab
from fastfront.workers import Worker

log = logging.getLogger(__name__)

#: How long the event loop waits for a thread that runs Python (s), each time that it has given the interpreter away:
#: with each turn, and with each prompt that fastokens encodes. Python's own 5 ms are made for threads that are equals.
SWITCH_S = 0.0005

_T = TypeVar("_T")
_C = TypeVar("_C", bound=RenderConfig)
#: Ends the process: with a result because somebody asked, with an exception because it cannot go on.
Stop = asyncio.Future[None]


def agree(worker: Worker, config: _C, settle: Callable[[_C], _C]) -> _C:
    """What the first worker makes of the configuration, and every worker's plug-ins; StartError or ConfigError."""

    def decide() -> _C:
        _load_plugins(config)
        return settle(config)

    settled = worker.agree(decide)
    if worker.index:
        _load_plugins(config)
    return settled


def _load_plugins(config: RenderConfig) -> None:
    api = config.api
    for plugin in dict.fromkeys((api.tool_parser_plugin, api.reasoning_parser_plugin)):
        if plugin:
            load_plugin(plugin, config.model.model)
    check_names(api.tool_call_parser, api.reasoning_parser)


class Process(ABC):
    """The process, from its configuration to its end."""

    def __init__(self, config: RenderConfig, bound: Bound, worker: Worker, stop: Stop) -> None:
        self.config = config
        self.worker = worker
        self.stop = stop
        self.flusher = Flusher()
        self._hurry = asyncio.Event()  # a second signal: no more draining
        self._tls = bound.tls
        self._listener = bound.part(worker.index)
        self._closing = False
        #: What went wrong while it ended.
        self.late: FastfrontError | None = None
        self._prompter: Prompter | None = None
        self._server: Server | None = None

    @abstractmethod
    async def start(self) -> None:
        """Returns once it serves; StartError or ConfigError."""

    async def find(self) -> Model:
        """Finds the model's files and reads what is small of them."""
        await self.worker.before_finding()
        model = await in_thread(find_model, _prompt_settings(self.config), leave=True)
        self.worker.found()
        return model

    async def load(self, model: Model) -> Prompter:
        """Loads the model's tokenizer and templates."""
        self._prompter = await in_thread(open_prompter, model)
        return self._prompter

    def metrics(self, info: ModelInfo, engines: Iterable[int]) -> Metrics | None:
        """What counts; None where nothing is to be."""
        if not self.config.log_stats:
            return None
        return Metrics(info.names[0], info.max_model_len, engines, alone=self.worker.count == 1)

    async def serve(self, state: RenderState, routes: Routes, metrics: Metrics | None) -> int | None:
        """Listens once all workers can; `load` has been called. `metrics` counts the answers. The TCP port, if any."""
        assert self._prompter is not None
        state.others = self.worker.others
        self.worker.counts = lambda: ops.snapshot(state)
        server = _server(self.config.http, routes, self.flusher, self._tls, metrics)
        await self.worker.all_ready(lambda: check_alone(self._listener))
        self._server = server
        await server.start([self._listener])
        port = self._listener.port()
        if self.worker.index == 0:
            self._log_serving(self._prompter.info.names[0], port)
        return port

    def _log_serving(self, name: str, port: int | None) -> None:
        where = self.config.http.uds or f"port {port}"
        how = "native" if NATIVE else "pure Python"
        if self.worker.count > 1:
            how += f", {self.worker.count} workers"
        log.info("serving %s on %s (%s)", name, where, how)

    async def close(self) -> None:
        """Drains as long as the configuration says, then takes everything down; also what a start has only begun."""
        self._closing = True
        asked = self.stop.done() and self.stop.exception() is None
        drain = self.config.shutdown_timeout if asked else 0
        if asked and self._server is not None and self.worker.index == 0:
            active = self._server.active
            log.info("told to end; requests under way in this process: %d, time for them: %g s", active, drain)
        ending = asyncio.ensure_future(self.worker.end(quick=not asked, drain=drain, hurry=self._hurry))
        if self._server is not None:
            await self._drain(self._server, drain)
        else:
            self._listener.remove()
        await ending
        if self._prompter is not None:
            await self._prompter.close()

    def fail(self, error: FastfrontError) -> None:
        """Ends the process with this error; also where it ends already."""
        if self._closing:
            self.late = self.late or error
        elif not self.stop.done():
            self.stop.set_exception(error)

    def on_signal(self) -> None:
        """The first signal asks for the end, the second for a quick one."""
        if self.stop.done():
            self._hurry.set()
        else:
            self.stop.set_result(None)

    async def _drain(self, server: Server, seconds: float) -> None:
        draining = asyncio.ensure_future(server.stop(seconds))
        hurrying = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not draining.done():
            draining.cancel()
            draining = asyncio.ensure_future(server.stop())
        try:
            await draining
        except Exception:
            log.exception("the HTTP server did not stop in order")


def run(worker: Worker, build: Callable[[Stop], Process]) -> int:
    """Serves until SIGTERM or SIGINT; the exit code. StartError or ConfigError where it cannot begin or go on."""
    memory.begin_loading()
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(worker, build))


async def _run(worker: Worker, build: Callable[[Stop], Process]) -> int:
    loop = asyncio.get_running_loop()
    stop: Stop = loop.create_future()
    process = build(stop)
    await worker.begin(process)
    starting = loop.create_task(process.start())
    try:
        await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            worker.started()
        await stop
    finally:
        starting.cancel()
        await process.close()
    if process.late is not None:
        raise process.late
    if worker.index == 0:
        log.info("ended")
    return 0


async def in_thread(work: Callable[..., _T], *args: object, leave: bool = False) -> _T:
    """Runs `work` in a thread. The process may end without it only with `leave`: native code would be torn apart."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(set_result: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(lambda: None if done.done() else set_result())

    def target() -> None:
        try:
            result = work(*args)
        except BaseException as error:
            caught = error
            settle(lambda: done.set_exception(caught))
        else:
            settle(lambda: done.set_result(result))

    threading.Thread(target=target, daemon=leave, name=getattr(work, "__name__", None)).start()
    return await done


class Parsers(NamedTuple):
    """What reads answers: `format` is None without parsers, `settings` has their resolved names."""

    format: Format | None
    preparation: Preparation | None
    settings: ApiConfig
    counting: Counting | None = None


def load_parsers(config: RenderConfig, prompter: Prompter) -> Parsers:
    """The configured parsers; ConfigError for a pair that cannot be."""
    api, tokenizer = config.api, prompter.tokenizer
    format = choose(
        api.tool_call_parser,
        api.reasoning_parser,
        config.model.model,
        prompter.info.model_type,
        (str(piece.token) for piece in tokenizer.pieces() if piece is not None),
    )
    settings = replace(api, tool_call_parser=format.tool, reasoning_parser=format.reasoning)
    if format.tool is None and format.reasoning is None:
        return Parsers(None, None, settings)
    log.info("tool calls: %s, reasoning: %s", format.tool or "no parser", format.reasoning or "no parser")
    preparation = Preparation(
        format.tool, format.reasoning, tokenizer.token_to_id, api.tool_strict_level, format.suffix
    )
    counting = None
    if format.reasoning is not None:
        counting = Counting(format, lambda text: tokenizer.encode(text, add_special_tokens=False))
    return Parsers(format, preparation, settings, counting)


def vocabulary(tokenizer: AnyTokenizer) -> Vocab:
    """The detokenizer's vocabulary; StartError for a tokenizer whose text cannot be told token by token."""
    tokens = (None if piece is None else piece.token for piece in tokenizer.pieces())
    return build_vocab(tokens, tokenizer.special_ids, tokenizer.decoder())


def _prompt_settings(config: RenderConfig) -> PromptSettings:
    model = config.model
    return PromptSettings(
        model=model.model,
        place=model.place,
        served_model_name=model.names,
        tokenizer=model.tokenizer,
        tokenizer_mode=model.tokenizer_mode,
        revision=model.revision,
        tokenizer_revision=model.tokenizer_revision,
        download_dir=model.download_dir,
        hf_token=model.hf_token,
        hf_overrides=model.hf_overrides,
        generation_config=model.generation_config,
        override_generation_config=model.override_generation_config,
        max_model_len=model.max_model_len,
        chat_template=model.chat_template,
        chat_template_content_format=model.chat_template_content_format,
        default_chat_template_kwargs=model.default_chat_template_kwargs,
        trust_request_chat_template=config.api.trust_request_chat_template,
        safe_user_text=model.safe_user_text,
    )


def _server(
    http: HttpConfig, routes: Routes, flusher: Flusher, tls: ssl.SSLContext | None, metrics: Metrics | None
) -> Server:
    paths = Router()
    for method, path, handler in routes:
        paths.add(method, path, handler)
    settings = Settings(
        max_head_size=http.max_head_size,
        max_header_count=http.max_header_count,
        max_body_size=http.max_body_size,
        keep_alive_timeout=http.keep_alive_timeout,
        request_id_headers=http.request_id_headers,
        access_log=http.access_log,
        observe=metrics.observe_http if metrics is not None else None,
        idle=memory.Spare().look,
    )
    cors = http.cors
    return Server(
        paths,
        flusher,
        render_and_log if http.log_error_stack else render_error,
        settings,
        keys=Keys(http.api_keys) if http.api_keys else None,
        cors=Cors(list(cors.origins), list(cors.methods), list(cors.headers), cors.credentials),
        tls=tls,
    )
