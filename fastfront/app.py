"""A process with engines: prompts go to them, their tokens come back as answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shlex
from dataclasses import replace

from fastfront import __version__, env, memory, workers
from fastfront.api.routes import routes
from fastfront.api.state import ApiState
from fastfront.bound import Bound, bind
from fastfront.config import Config, EngineConfig, HttpConfig
from fastfront.engine.attach import Attachment, Client, attach
from fastfront.engine.balance import read_stats
from fastfront.engine.constraints.checker import Checker
from fastfront.engine.engine_sockets import EngineSockets, open_sockets
from fastfront.engine.guard import Guard
from fastfront.errors import EngineDeadError, StartError
from fastfront.fast import NATIVE, Router, Vocab
from fastfront.metrics import Metrics
from fastfront.parse.registry import has_marks, known_to_vllm, meant
from fastfront.pipeline import Pipeline
from fastfront.process import Process, Stop, agree, in_thread, load_parsers, vocabulary
from fastfront.process import run as run_process
from fastfront.prompt.prompter import Prompter
from fastfront.settle import settle
from fastfront.workers import Worker

log = logging.getLogger(__name__)

#: How long a process whose engines are gone still tells its clients so, before it ends (s). A supervisor that watches
#: the engines itself is quicker; one that does not must not be left with a server that can do nothing.
LAST_WORDS = 3.0


def run(config: Config) -> int:
    """Serves until SIGTERM or SIGINT; the exit code. StartError or ConfigError where it cannot begin or go on."""
    count = config.workers or 1
    workers.check_room(count)
    with contextlib.ExitStack() as cleanup:
        bound = bind(config.http, count)
        cleanup.callback(bound.remove)
        sockets = open_sockets(config.engine, count)
        if sockets is not None:
            cleanup.callback(sockets.remove)
        worker = workers.fork(count)
        if worker.index:
            cleanup.pop_all()  # the first removes what all share
        with worker.telling_errors():
            settled = agree(worker, config, settle)
            return run_process(worker, lambda stop: App(settled, bound, sockets, worker, stop))


class App(Process):
    """The process of `serve` and of `frontend`."""

    def __init__(
        self, config: Config, bound: Bound, sockets: EngineSockets | None, worker: Worker, stop: Stop
    ) -> None:
        super().__init__(config, bound, worker, stop)
        self._config = config
        self._sockets = sockets
        self._engines: Attachment | None = None
        self._checker = Checker(env.regex_compilation_timeout(), backend=grammar_backend(config))

    async def start(self) -> None:
        """Attaches the engines, loads the model's files while they start, and, once all are ready, listens."""
        config = self._config
        model = await self.find()
        router = Router()
        _, reasoning = meant(None, config.api.reasoning_parser, config.model.model, model.info.model_type)
        client = Client(self.worker.index, self.worker.count, self._sockets)
        self._engines = attach(tell_engine(config, reasoning), model.info, router, self.flusher, client)
        link = self._engines.link
        link.on_broken, self.worker.give_up = self.worker.broken, link.give_up
        if self._engines.must_live:
            link.on_dead = self._on_dead
        await self._engines.start(self.fail)
        prompter = await self.load(model)
        parsers = load_parsers(config, prompter)
        vocab = await in_thread(_settled, prompter)
        info = prompter.info
        link.guard = Guard(info.vocab_size)
        engine = await self._engines.wait_ready(config.ready_timeout)
        info.max_model_len = engine.max_model_len  # it knows; what the files say is a guess
        ranks = tuple(link.balancer.loads)
        metrics = self.metrics(info, ranks)
        if metrics is not None:
            link.on_stats = lambda rank, raw: _observe_stats(metrics, rank, raw)
        state = ApiState(
            pipeline=Pipeline(info, prompter, vocab, link, router, metrics, self._checker),
            engine_version=engine.vllm_version,
            version=__version__,
            native=NATIVE,
            dead=lambda: link.dead and EngineDeadError(str(link.dead)),  # one of its own for whoever raises it
            settings=parsers.settings,
            max_new_tokens=config.model.override_generation_config.get("max_new_tokens"),
            metrics=metrics,
            preparation=parsers.preparation,
            format=parsers.format,
            counting=parsers.counting,
            thinking_budgets=holds_budgets(config, reasoning),
            chat_template=prompter.chat_template,
            template_kwargs=config.model.default_chat_template_kwargs,
        )
        port = await self.serve(state, routes(state), metrics)
        memory.begin_serving()
        if isinstance(config.engine, EngineConfig) and self.worker.index == 0:
            length = info.max_model_len
            log.info("engine: %s, up to %d tokens; try: %s", engine.dtype, length, _try(config.http, port))

    async def close(self) -> None:
        """As every process, and ends the engines that were started here."""
        try:
            await super().close()
        finally:
            await self._checker.close()
            if self._engines is not None:
                await self._engines.close()

    def _on_dead(self, error: EngineDeadError) -> None:
        asyncio.get_running_loop().call_later(LAST_WORDS, self._still_dead)

    def _still_dead(self) -> None:
        if self._engines is not None and self._engines.link.dead is not None:
            self.fail(StartError(str(self._engines.link.dead)))


def grammar_backend(config: Config) -> str:
    """What constraints must suit: the backend that the engine is set to; the built-in one has xgrammar alone."""
    said = (config.api.structured_outputs_config or {}).get("backend") or "auto"
    built_in = isinstance(config.engine, EngineConfig) and config.engine.kind == "torch"
    return "xgrammar" if built_in else str(said)


def holds_budgets(config: Config, reasoning: str | None) -> bool:
    """Whether the engine can end a reasoning that has had its budget of tokens."""
    if isinstance(config.engine, EngineConfig) and config.engine.kind == "torch":
        return False
    return bool(config.api.reasoning_config) or has_marks(reasoning)


def tell_engine(config: Config, reasoning: str | None) -> Config:
    """With the reasoning parser for vLLM's engine, which looks for the end of reasoning itself."""
    engine = config.engine
    if not isinstance(engine, EngineConfig) or engine.kind != "vllm" or reasoning is None:
        return config
    words = engine.arguments.get("vllm", ())
    if any(word.partition("=")[0] == "--reasoning-parser" for word in words):
        return config
    if not known_to_vllm(reasoning):
        log.warning(
            "the engine is not told of the plug-in %r: give it --reasoning-parser and --reasoning-parser-plugin after "
            "`--` if vLLM can load it too",
            reasoning,
        )
        return config
    told = {**engine.arguments, "vllm": (*words, "--reasoning-parser", reasoning)}
    return replace(config, engine=replace(engine, arguments=told))


def _try(http: HttpConfig, port: int | None) -> str:
    """A command that asks this server something."""
    words = ["curl"]
    if http.uds is not None:
        words += ["--unix-socket", shlex.quote(http.uds), "http://localhost/v1/chat/completions"]
    else:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        words.append(f"http{'s' if http.tls else ''}://{where}/v1/chat/completions")
    if http.api_keys:
        words.append("-H 'authorization: Bearer KEY'")
    question = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}
    return " ".join([*words, "-H 'content-type: application/json'", f"-d '{json.dumps(question)}'"])


def _settled(prompter: Prompter) -> Vocab:
    """The vocabulary; and the prompter has its fast libraries, and no more than it needs."""
    vocab = vocabulary(prompter.tokenizer)
    prompter.speed_up()
    prompter.let_go()
    return vocab


def _observe_stats(metrics: Metrics, rank: int, raw: bytes) -> None:
    stats = read_stats(raw)
    if stats is not None:
        metrics.observe_scheduler(rank, stats.num_running_reqs, stats.num_waiting_reqs, stats.kv_cache_usage)
