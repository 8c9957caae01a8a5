"""A process without engines: requests to prompts, and engines' tokens to answers, for others that have the engines.

Nothing of engine/ is imported here, neither directly nor by what this imports: no zmq, no torch.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import cached_property

from fastfront import __version__, memory, workers
from fastfront.api.routes import render_routes
from fastfront.api.state import RenderState
from fastfront.bound import bind
from fastfront.config import RenderConfig
from fastfront.fast import NATIVE, Vocab
from fastfront.flow import ModelInfo
from fastfront.process import Process, agree, in_thread, load_parsers, vocabulary
from fastfront.process import run as run_process
from fastfront.prompt.prompter import Prompter

#: The vLLM whose requests and answers these are.
VLLM_VERSION = "0.32.0"


def run(config: RenderConfig) -> int:
    """Serves until SIGTERM or SIGINT; the exit code. StartError or ConfigError where it cannot begin."""
    count = config.workers or workers.unasked()
    workers.check_room(count)
    with contextlib.ExitStack() as cleanup:
        bound = bind(config.http, count)
        cleanup.callback(bound.remove)
        worker = workers.fork(count)
        if worker.index:
            cleanup.pop_all()  # the first removes what all share
        with worker.telling_errors():
            agreed = agree(worker, config, lambda same: same)
            return run_process(worker, lambda stop: RenderApp(agreed, bound, worker, stop))


class Frontend:
    """The request side of the pipeline. The vocabulary, which only answers need, is built when it serves already."""

    def __init__(self, prompter: Prompter) -> None:
        self.info: ModelInfo = prompter.info
        self.prompter = prompter

    @cached_property
    def vocab(self) -> Vocab:
        """What every id stands for."""
        return vocabulary(self.prompter.tokenizer)


class RenderApp(Process):
    """The process of `render`."""

    async def start(self) -> None:
        """Loads the model's files and listens; what is only there for speed comes after."""
        config = self.config
        prompter = await self.load(await self.find())
        info = prompter.info
        metrics = self.metrics(info, engines=())
        parsers = load_parsers(config, prompter)
        frontend = Frontend(prompter)
        state = RenderState(
            pipeline=frontend,
            engine_version=VLLM_VERSION,
            version=__version__,
            native=NATIVE,
            settings=parsers.settings,
            max_new_tokens=config.model.override_generation_config.get("max_new_tokens"),
            metrics=metrics,
            preparation=parsers.preparation,
            format=parsers.format,
            chat_template=prompter.chat_template,
            template_kwargs=config.model.default_chat_template_kwargs,
        )
        state.vocab_ready = asyncio.get_running_loop().create_future()
        await self.serve(state, render_routes(state), metrics)
        state.vocab_ready.set_result(await in_thread(getattr, frontend, "vocab"))
        await in_thread(_speed_up, prompter)
        memory.begin_serving()


def _speed_up(prompter: Prompter) -> None:
    prompter.speed_up()
    prompter.let_go()
