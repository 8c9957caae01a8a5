"""What the stages are built from, as frozen records: `cli/` fills them from flags or `--args-json`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fastfront.errors import ConfigError

Json = dict[str, Any]

#: The model that `serve` takes where none is named.
DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS of the HTTP side; `cert_reqs` as in the ssl module: 0 no, 1 optional, 2 required client certificates."""

    certfile: str
    keyfile: str | None = None
    ca_certs: str | None = None
    cert_reqs: int = 0
    ciphers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsConfig:
    """Cross-origin access; no origin is allowed by default."""

    origins: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("*",)
    headers: tuple[str, ...] = ("*",)
    credentials: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Where HTTP is listened for, and its limits (bytes, seconds). `listen_fd` wins over `uds`, `uds` over host."""

    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None
    listen_fd: int | None = None
    keep_alive_timeout: int = 5
    max_head_size: int = 64 << 10
    max_header_count: int = 256
    max_body_size: int = 32 << 20
    request_id_headers: bool = False
    access_log: bool = False
    log_error_stack: bool = False
    api_keys: tuple[str, ...] = ()
    tls: TlsConfig | None = None
    cors: CorsConfig = CorsConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The model's files and how prompts are made of them. `model` is a folder, a GGUF file or a hub name.

    `generation_config`: auto, vllm or a folder. `hf_token` True: the token that is logged in on this machine.
    """

    model: str = DEFAULT_MODEL
    #: Whether nobody has named the model, so that another form of it will do.
    is_default: bool = False
    #: The folder or file that has been found; None: `model` has not been looked for yet.
    place: str | None = None
    served_names: tuple[str, ...] = ()
    revision: str | None = None
    tokenizer: str | None = None
    tokenizer_mode: str = "auto"
    tokenizer_revision: str | None = None
    hf_token: str | bool | None = None
    hf_overrides: Json = field(default_factory=dict)
    download_dir: str | None = None
    generation_config: str = "auto"
    override_generation_config: Json = field(default_factory=dict)
    chat_template: str | None = None
    chat_template_content_format: Literal["auto", "string", "openai"] = "auto"
    default_chat_template_kwargs: Json = field(default_factory=dict)
    safe_user_text: bool = False
    #: Of `render` alone, in tokens; None: what the model was made for. An engine tells its own.
    max_model_len: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The public names, the reported one first."""
        return self.served_names or (self.model,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """The flags that change what the API answers; `max_logprobs` -1 is no limit."""

    stream_interval: int = 1
    max_logprobs: int = 20
    return_tokens_as_token_ids: bool = False
    enable_prompt_tokens_details: bool = False
    enable_force_include_usage: bool = False
    trust_request_chat_template: bool = False
    exclude_tools_when_tool_choice_none: bool = False
    response_role: str = "assistant"
    strict_request_fields: bool = False
    #: Seconds of silence after which a stream gets a comment; 0: never.
    sse_keep_alive_interval: int = 0
    #: full, hash, custom (then `fingerprint_value`) or none.
    fingerprint_mode: str = "full"
    fingerprint_value: str | None = None
    log_requests: bool = False
    log_outputs: bool = False
    #: Characters, and token ids, of a prompt or an answer that are logged; None: all.
    max_log_len: int | None = None
    #: What the engine knows of reasoning beside a parser.
    reasoning_config: Json | None = None
    enable_tokenizer_info_endpoint: bool = False
    #: Names of parsers; None: there is none.
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    #: What of every call is held to a grammar: what the request asks for, the envelope, or its arguments too.
    tool_strict_level: Literal["auto", "function", "parameter"] = "auto"
    #: vLLM's; its `backend` is the engine's, which then decides what constraints are taken.
    structured_outputs_config: Json | None = None
    #: Where further parsers are registered: a file, a module or an entry point.
    tool_parser_plugin: str = ""
    reasoning_parser_plugin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The engines of `serve`, which this process starts and watches, or, with `kind` none, waits for.

    `size` counts the ranks of the whole deployment, `size_local` those started here (None: all). `rpc_port` None: any
    free one. `arguments` are, by kind of engine, the words for its command line that its starter does not write itself.
    """

    kind: Literal["auto", "torch", "vllm", "mock", "none"] = "auto"
    host: str = "127.0.0.1"
    rpc_port: int | None = None
    size: int = 1
    size_local: int | None = None
    python: str = sys.executable
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InheritedConfig:
    """The sockets that a supervisor passes to `frontend`: `count` engines from `start_index` on register on them.

    `size` counts the engines of the whole deployment, None where nobody said; ConfigError for more than those.
    """

    input_fd: int
    output_fd: int
    start_index: int = 0
    count: int = 1
    size: int | None = None
    coordinator_address: str | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.start_index + self.count > self.size:
            raise ConfigError(
                f"--engine-start-index {self.start_index} and --engine-count {self.count} go beyond "
                f"--data-parallel-size {self.size}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderConfig:
    """What every process needs, and all that one without engines needs. Times are seconds."""

    http: HttpConfig
    model: ModelConfig
    api: ApiConfig
    shutdown_timeout: int = 0
    log_stats: bool = True
    log_level: str = "INFO"
    #: Processes that serve the port; None: as many as suit the command.
    workers: int | None = None
    #: What of the flags will have no effect, for the log at start.
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RenderConfig):
    """One process with engines; `engine` says whether it serves alone or under a supervisor."""

    engine: EngineConfig | InheritedConfig
    ready_timeout: int = 600
