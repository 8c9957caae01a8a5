"""A process with engines: prompts go to them, their tokens come back as answers."""

from __future__ import annotations

import asyncio

from fastfront import __version__
from fastfront.api.routes import routes
from fastfront.api.state import ApiState
from fastfront.config import Config
from fastfront.engine.attach import Attachment, attach
from fastfront.engine.balance import read_stats
from fastfront.errors import EngineDeadError, StartError
from fastfront.fast import NATIVE, Router
from fastfront.metrics import Metrics
from fastfront.pipeline import Pipeline
from fastfront.process import Process, Stop, load_parsers, vocabulary
from fastfront.process import run as run_process

#: How long a process whose engines are gone still tells its clients so, before it ends (s). A supervisor that watches
#: the engines itself is quicker; one that does not must not be left with a server that can do nothing.
LAST_WORDS = 3.0


def run(config: Config) -> int:
    """Serves until SIGTERM or SIGINT; the exit code. StartError or ConfigError where it cannot begin or go on."""
    return run_process(lambda stop: App(config, stop))


class App(Process):
    """The process of `serve` and of `frontend`."""

    def __init__(self, config: Config, stop: Stop) -> None:
        super().__init__(config, stop)
        self._config = config
        self._engines: Attachment | None = None

    async def start(self) -> None:
        """Loads the model's files, attaches the engines, and, once they are ready, listens."""
        config = self._config
        prompter = await self.load()
        info, vocab = prompter.info, vocabulary(prompter.tokenizer)
        parsers = load_parsers(config, prompter)
        router = Router()
        self._engines = attach(config, info, router, self.flusher)
        await self._engines.start(self._fail)
        link = self._engines.link
        engine = await self._engines.wait_ready(config.ready_timeout)
        info.max_model_len = engine.max_model_len  # it knows; what the files say is a guess
        ranks = tuple(link.balancer.loads)
        metrics = Metrics(info.names[0], info.max_model_len, ranks) if config.log_stats else None
        if metrics is not None:
            link.on_stats = lambda rank, raw: _observe_stats(metrics, rank, raw)
        if self._engines.must_live:
            link.on_dead = self._on_dead
        state = ApiState(
            pipeline=Pipeline(info, prompter, vocab, link, router, metrics),
            engine_version=engine.vllm_version,
            version=__version__,
            native=NATIVE,
            dead=lambda: link.dead,
            settings=parsers.settings,
            max_new_tokens=config.model.override_generation_config.get("max_new_tokens"),
            metrics=metrics.render if metrics is not None else None,
            preparation=parsers.preparation,
            format=parsers.format,
            chat_template=prompter.chat_template,
            template_kwargs=config.model.default_chat_template_kwargs,
        )
        await self.serve(routes(state), metrics)

    async def close(self) -> None:
        """As every process, and ends the engines that were started here."""
        await super().close()
        if self._engines is not None:
            await self._engines.close()

    def _fail(self, error: StartError) -> None:
        if not self.stop.done():
            self.stop.set_exception(error)

    def _on_dead(self, error: EngineDeadError) -> None:
        asyncio.get_running_loop().call_later(LAST_WORDS, self._still_dead)

    def _still_dead(self) -> None:
        if self._engines is not None and self._engines.link.dead is not None:
            self._fail(StartError(str(self._engines.link.dead)))


def _observe_stats(metrics: Metrics, rank: int, raw: bytes) -> None:
    stats = read_stats(raw)
    if stats is not None:
        metrics.observe_scheduler(rank, stats.num_running_reqs, stats.num_waiting_reqs, stats.kv_cache_usage)
