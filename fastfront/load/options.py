"""What a measurement is made of, as frozen records: `cli/` fills them from flags."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server that is measured. `names` are what requests call the model: one for all, or adapters to share out."""

    base_url: str = "http://127.0.0.1:8000"
    chat: bool = False
    endpoint: str = "/v1/completions"
    names: tuple[str, ...] = ()
    pick_names: Literal["random", "round-robin"] = "random"
    headers: tuple[tuple[str, str], ...] = ()
    verify: bool = True
    request_id_prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What every request asks for beside its prompt; `fields` win over all others."""

    ignore_eos: bool = False
    logprobs: int | None = None
    fields: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Where prompts come from: lengths in tokens, fractions from 0 to 1; a data set reads those that are its own."""

    name: Literal["random", "sharegpt", "custom", "prefix_repetition", "timed_trace"] = "random"
    path: str = ""
    as_ids: bool = False
    oversample: bool = True
    shuffle: bool = True
    max_model_len: int | None = None
    random_input_len: int = 1024
    random_output_len: int = 128
    random_prefix_len: int = 0
    input_range: float = 0.0
    output_range: float = 0.0
    cache_hit_fraction: float = 0.0
    cache_ratio: float = 0.0
    #: None: as long as the file's own answers (sharegpt).
    sharegpt_output_len: int | None = None
    #: -1: the lines' own `output_tokens`.
    custom_output_len: int = 256
    prefix_len: int = 256
    suffix_len: int = 256
    num_prefixes: int = 10
    prefix_output_len: int = 128
    chunk_size: int = 16
    seconds: float = 1.0
    timestamp_key: str = "timestamp"
    input_key: str = "input_length"
    output_key: str = "output_length"
    hash_key: str = "hash_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """When requests are sent. `rate` (a second) is infinity for all at once; `burstiness` is a gamma's shape.

    `ramp` is the kind, the first and the last rate. `self_timed`: at the samples' own times.
    """

    rate: float = math.inf
    burstiness: float = 1.0
    ramp: tuple[Literal["linear", "exponential"], float, float] | None = None
    max_concurrency: int | None = None
    self_timed: bool = False
    warmups: int = 0
    ready_timeout: float = 0.0
    profile: bool = False
    reset_prefix_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """Conversations, whose turns each wait for the answer before. `most` 0: as many as `count`, or as the file has."""

    count: int = 3
    least: int = 0
    most: int = 0
    concurrency: int | None = None
    delay: float = 0.0
    #: Tokens of every question after the first; 0: as the first.
    input_len: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which figures are told. `goodput` are limits in ms by metric."""

    metrics: tuple[str, ...] = ("ttft", "tpot", "itl", "e2el")
    percentiles: tuple[float, ...] = (99.0,)
    goodput: dict[str, float] = field(default_factory=dict)
    #: Share of `max_concurrency` at which a run counts as steady; None: no steady-state figures.
    steady_threshold: float | None = 0.95
    #: Seconds under which a steady window is too short; None: 10, or a tenth of the run where that is more.
    steady_least: float | None = None
    #: Whether every request's own figures and texts are kept.
    detailed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One measurement: `num_prompts` requests, or conversations where there are `turns`."""

    target: Target
    data: Data = Data()
    asking: Asking = Asking()
    traffic: Traffic = Traffic()
    wanted: Wanted = Wanted()
    turns: Turns | None = None
    num_prompts: int = 1000
    seed: int = 0
