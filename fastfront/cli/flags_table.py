"""Every flag of vLLM 0.32.0's frontends (Python and Rust) that is the frontend's business, and fastfront's own.

What is not here is the engine's: `serve` passes it on, `--args-json` ignores it.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastfront.cli.flags import Flag, Status

S: Status = "supported"
R: Status = "refused"
N: Status = "no effect"
E: Status = "engine"

HTTP = (
    Flag("host", "text", None, S, "address to listen on (127.0.0.1)", "http.host", "serve"),
    Flag("port", "port", 8000, S, "TCP port; 0 takes a free one", "http.port", "serve"),
    Flag("uds", "text", None, S, "path of a Unix socket, instead of host and port", "http.uds", "serve"),
    Flag("http_timeout_keep_alive", "natural", 5, S, "seconds that an idle connection is kept "
         "(VLLM_HTTP_TIMEOUT_KEEP_ALIVE)", "http.keep_alive_timeout", null=True),
    Flag("api_server_count", "positive", 1, S, "processes that serve the port, for more than one core's work",
         "config.workers", "serve", ("-asc",)),
    Flag("h11_max_incomplete_event_size", "positive", 4194304, S, "most bytes of a request's head (65536 if not given)",
         "http.max_head_size"),
    Flag("h11_max_header_count", "positive", 256, S, "most header lines of a request", "http.max_header_count"),
    Flag("max_body_size", "positive", 33554432, S, "most bytes of a request's body", "http.max_body_size"),
    Flag("api_key", "keys", None, S, "keys of which clients must send one (VLLM_API_KEY)", "http.api_keys",
         null=True, secret=True),
    Flag("allowed_origins", "texts", [], S, "CORS origins", "cors.origins"),
    Flag("allowed_methods", "texts", ["*"], S, "CORS methods", "cors.methods"),
    Flag("allowed_headers", "texts", ["*"], S, "CORS request headers", "cors.headers"),
    Flag("allow_credentials", "switch", False, S, "CORS credentials", "cors.credentials"),
    Flag("ssl_certfile", "text", None, S, "certificate (PEM); turns TLS on", "tls.certfile", null=True),
    Flag("ssl_keyfile", "text", None, S, "its key, when it is not in the same file", "tls.keyfile", null=True),
    Flag("ssl_ca_certs", "text", None, S, "authorities that sign client certificates", "tls.ca_certs", null=True),
    Flag("ssl_cert_reqs", "verify", 0, S, "client certificates: 0 no, 1 optional, 2 required", "tls.cert_reqs"),
    Flag("ssl_ciphers", "text", None, S, "OpenSSL ciphers, TLS 1.2 and below", "tls.ciphers", null=True),
    Flag("enable_ssl_refresh", "switch", False, R, "reload certificates that change"),
    Flag("enable_request_id_headers", "switch", False, S, "X-Request-Id in every answer", "http.request_id_headers"),
    Flag("enable_access_log", "switch", False, S, "a log line for each answer", "http.access_log"),
    Flag("sse_keep_alive_interval", "natural", 0, S, "seconds of silence after which a stream gets a comment; 0: none",
         "api.sse_keep_alive_interval"),
    Flag("root_path", "text", None, R, "path prefix of a proxy"),
    Flag("middleware", "many", [], R, "ASGI middleware"),
    Flag("grpc_port", "port", None, R, "port of the gRPC services"),
    Flag("grpc", "switch", False, R, "gRPC instead of HTTP"),
    Flag("uvicorn_log_level", "text", "info", N, "there is no uvicorn"),
    Flag("disable_uvicorn_access_log", "switch", False, N, "off unless --enable-access-log"),
    Flag("disable_access_log_for_endpoints", "text", None, N, "off unless --enable-access-log"),
    Flag("disable_fastapi_docs", "switch", False, N, "there are no documentation pages"),
    Flag("enable_offline_docs", "switch", False, R, "documentation pages without network"),
)  # fmt: skip

MODEL = (
    Flag("model_tag", "text", None, S, "", "model.model", required=True),
    Flag("served_model_name", "words", [], S, "public names, the first is reported", "model.served_names", null=True),
    Flag("revision", "text", None, S, "revision on the hub", "model.revision", null=True, to_engine=True),
    Flag("tokenizer", "text", None, S, "folder or hub name of another tokenizer", "model.tokenizer", null=True,
         to_engine=True),
    Flag("tokenizer_revision", "text", None, S, "its revision", "model.tokenizer_revision", null=True, to_engine=True),
    Flag("tokenizer_mode", "text", "auto", S, "chat format and tokenizer: the model's template (hf) or coded ones",
         "model.tokenizer_mode", choices=("auto", "hf", "harmony", "deepseek_v32", "deepseek_v4", "mistral"),
         to_engine=True),
    Flag("hf_token", "token", None, S, "token for the hub; without a value, or true, the one that is logged in",
         "model.hf_token", null=True, to_engine=True, secret=True),
    Flag("hf_overrides", "object", {}, S, "merged into config.json", "model.hf_overrides", to_engine=True),
    Flag("download_dir", "text", None, S, "cache folder for the hub's files", "model.download_dir", null=True,
         to_engine=True),
    Flag("generation_config", "text", "auto", S, "sampling defaults: auto (the model's), vllm (neutral) or a folder",
         "model.generation_config", to_engine=True),
    Flag("override_generation_config", "object", {}, S, "sampling defaults on top of those",
         "model.override_generation_config", to_engine=True),
    Flag("chat_template", "text", None, S, "file or text of the chat template", "model.chat_template", null=True),
    Flag("chat_template_content_format", "text", "auto", S, "how templates get a message's content",
         "model.chat_template_content_format", choices=("auto", "string", "openai")),
    Flag("default_chat_template_kwargs", "object", None, S, "template variables, below the request's",
         "model.default_chat_template_kwargs", null=True),
    Flag("trust_request_chat_template", "switch", False, S, "use a template that a request brings",
         "api.trust_request_chat_template"),
    Flag("safe_user_text", "switch", False, S, "control tokens in what clients send stay plain text",
         "model.safe_user_text"),
    Flag("hf_config_path", "text", None, R, "folder or hub name of another config.json"),
    Flag("skip_tokenizer_init", "switch", False, R, "serve without a tokenizer"),
    Flag("renderer_num_workers", "positive", 1, N, "long prompts are always made in worker threads"),
    Flag("language_model_only", "switch", False, S, "text only; that is all there is now", to_engine=True),
    Flag("limit_mm_per_prompt", "object", {}, E, "images, videos ... a prompt; requests with media are refused",
         to_engine=True),
    Flag("enable_prompt_embeds", "switch", False, R, "prompts as embeddings"),
    Flag("io_processor_plugin", "text", None, R, "plug-in for inputs and outputs"),
    Flag("lora_modules", "many", None, R, "LoRA adapters to load"),
    Flag("default_mm_loras", "anything", None, R, "LoRA adapters by kind of media"),
    Flag("trust_request_mm_kwargs", "switch", False, R, "media options in requests"),
    Flag("allowed_local_media_path", "text", "", R, "folder of media files"),
    Flag("allowed_media_domains", "many", None, R, "hosts that media may come from"),
    Flag("media_io_kwargs", "anything", {}, R, "media options"),
    Flag("mm_processor_kwargs", "anything", None, R, "media processor options"),
    Flag("mm_processor_cache_gb", "anything", 4, R, "media cache, GiB"),
    Flag("mm_processor_cache_type", "text", "lru", R, "media cache, kind"),
    Flag("mm_hasher_algorithm", "text", "blake3", R, "media cache, hash"),
    Flag("mm_tensor_ipc", "text", "direct_rpc", R, "how media reach the engine"),
    Flag("mm_processor_device", "text", "auto", R, "device of the media processor"),
    Flag("mm_ipc_gpu_memory_gb", "anything", 0, R, "GPU memory for media, GiB"),
)  # fmt: skip

API = (
    Flag("stream_interval", "positive", 1, S, "tokens per streamed event", "api.stream_interval", to_engine=True),
    Flag("max_logprobs", "integer", 20, S, "most log-probabilities a token; -1 no limit", "api.max_logprobs", null=True,
         to_engine=True),
    Flag("enable_prompt_tokens_details", "switch", False, S, "cached prompt tokens in usage",
         "api.enable_prompt_tokens_details"),
    Flag("enable_force_include_usage", "switch", False, S, "usage in every stream", "api.enable_force_include_usage"),
    Flag("response_role", "text", "assistant", S, "role of the answer", "api.response_role"),
    Flag("exclude_tools_when_tool_choice_none", "switch", False, S, "no tools in the prompt for tool_choice none",
         "api.exclude_tools_when_tool_choice_none"),
    Flag("tool_call_parser", "text", None, S, "format of tool calls: a name, auto (by the model) or none",
         "api.tool_call_parser", null=True),
    Flag("reasoning_parser", "text", "", S, "format of reasoning: a name, auto (by the model) or none",
         "api.reasoning_parser", null=True),
    Flag("reasoning_config", "object", None, S, "marks of reasoning, with which the engine holds thinking budgets also "
         "without a reasoning parser", "api.reasoning_config", null=True, to_engine=True),
    Flag("enable_auto_tool_choice", "switch", False, N, "a tool parser is enough"),
    Flag("tool_strict_level", "strictness", "auto", S, "hold every answer with tools to calls of the parser's format "
         "(function), and their arguments to the tools' schemas (parameter)", "api.tool_strict_level"),
    Flag("structured_outputs_config", "object", None, S, "how the engine holds answers; its backend decides which "
         "constraints are taken", "api.structured_outputs_config", null=True, to_engine=True),
    Flag("tool_parser_plugin", "text", "", S, "file, module or entry point that registers tool parsers",
         "api.tool_parser_plugin"),
    Flag("reasoning_parser_plugin", "text", "", S, "file, module or entry point that registers reasoning parsers",
         "api.reasoning_parser_plugin"),
    Flag("tool_server", "text", None, R, "servers of built-in tools"),
    Flag("return_tokens_as_token_ids", "switch", False, S, "token_id:N in log-probabilities",
         "api.return_tokens_as_token_ids"),
    Flag("enable_tokenizer_info_endpoint", "switch", False, S, "the route /tokenizer_info, chat template included",
         "api.enable_tokenizer_info_endpoint"),
    Flag("enable_server_load_tracking", "switch", False, N, "the route /load always counts"),
    Flag("enable_per_request_metrics", "switch", False, R, "timings in answers"),
    Flag("enable_scale_out", "switch", False, R, "the token routes; the render routes are always served"),
    Flag("tokens_only", "switch", False, R, "only the token routes"),
    Flag("strict_request_fields", "switch", False, S, "refuse requests with fields that nobody knows (else the log "
         "tells each name once)", "api.strict_request_fields"),
    Flag("fingerprint_mode", "text", "full", S, "system_fingerprint: full, hash (the same here), custom or none",
         "api.fingerprint_mode", choices=("full", "hash", "custom", "none")),
    Flag("fingerprint_value", "text", None, S, "the custom one", "api.fingerprint_value", null=True),
    Flag("cohere_is_reasoning_model", "switch", True, R, "the Cohere route"),
    Flag("cohere_format", "text", "cmd4", R, "the Cohere prompt format"),
    Flag("anthropic_disabled_thinking_effort", "text", "auto", R, "the Anthropic route"),
    Flag("enable_flash_late_interaction", "switch", True, N, "there are no scoring routes", to_engine=True),
)  # fmt: skip

OPERATION = (
    Flag("engine_ready_timeout_secs", "natural", 600, S, "seconds to wait for the engines "
         "(VLLM_ENGINE_READY_TIMEOUT_S)", "config.ready_timeout"),
    Flag("shutdown_timeout", "natural", 0, S, "seconds that running requests get after SIGTERM",
         "config.shutdown_timeout", to_engine=True),
    Flag("disable_log_stats", "switch", False, S, "no metrics, here and in the engine", "config.log_stats",
         to_engine=True),
    Flag("log_level", "level", "INFO", S, "DEBUG, INFO, WARNING, ERROR or CRITICAL (VLLM_LOGGING_LEVEL)",
         "config.log_level"),
    Flag("aggregate_engine_logging", "switch", False, N, "there is no statistics line in the log"),
    Flag("log_config_file", "text", None, R, "file that configures logging"),
    Flag("enable_log_requests", "switch", False, S, "a line when a request comes and one when it ends; at DEBUG "
         "prompts too", "api.log_requests"),
    Flag("enable_log_outputs", "switch", False, S, "answers in the log, with --enable-log-requests", "api.log_outputs"),
    Flag("enable_log_deltas", "switch", True, N, "a stream is logged when it ends"),
    Flag("max_log_len", "natural", None, S, "most characters, or ids, of a prompt or an answer in the log (all)",
         "api.max_log_len", null=True),
    Flag("log_error_stack", "switch", False, S, "tracebacks of error answers in the log", "http.log_error_stack"),
    Flag("otlp_traces_endpoint", "text", None, R, "where traces go"),
    Flag("collect_detailed_traces", "many", None, R, "what is traced"),
    Flag("profiler_config", "object", None, R, "the profile routes; a configuration without profiler is ignored",
         null=True),
    Flag("max_num_queued_reqs", "positive", None, R, "refuse above so many requests"),
    Flag("max_num_queued_tokens", "positive", None, R, "refuse above so many prompt tokens"),
    Flag("enable_fault_tolerance", "switch", False, R, "recover from engine faults"),
    Flag("kv_sharing_fast_prefill", "switch", False, R, "changes which log-probabilities exist"),
)  # fmt: skip

ENGINE = (
    Flag("engine", "text", "auto", S, "torch: the built-in one; vllm: start `vllm serve --headless`; auto: vllm where "
         "it is installed, else torch; mock: a stand-in without a model; none: engines join from outside",
         "engine.kind", "serve", choices=("auto", "torch", "vllm", "mock", "none")),
    Flag("python", "text", None, S, "Python with vLLM (FASTFRONT_PYTHON, VLLM_RS_PYTHON, or the one that runs us)",
         "engine.python", "serve"),
    Flag("data_parallel_size", "positive", 1, S, "engines altogether", "engine.size", "serve", ("-dp",)),
    Flag("data_parallel_size_local", "natural", None, S, "engines started here; 0 as --engine none",
         "engine.size_local", "serve", ("-dpl",)),
    Flag("data_parallel_address", "text", "127.0.0.1", S, "address that engines reach this process at",
         "engine.host", "serve", ("-dpa", "--handshake-host")),
    Flag("data_parallel_rpc_port", "port", None, S, "port of the handshake; any free one if not given",
         "engine.rpc_port", "serve", ("-dpp", "--handshake-port")),
    Flag("max_model_len", "text", None, E, "context length, as the engine understands it", "", "serve"),
    Flag("headless", "switch", False, R, "start only the engine: that is `vllm serve --headless`", "", "serve"),
    Flag("config", "text", None, R, "file of options", "", "serve"),
    Flag("data_parallel_rank", "natural", None, R, "one rank of an external balancer", "", "serve", ("-dpn",)),
    Flag("data_parallel_hybrid_lb", "switch", False, R, "balancer outside, ranks of a node inside", "", "serve",
         ("-dph",)),
    Flag("data_parallel_external_lb", "switch", False, R, "balancer outside", "", "serve", ("-dpe",)),
    Flag("model", "text", None, R, "the model is the first argument", "", "serve"),
)  # fmt: skip

#: What a supervisor gives `frontend` on the command line (wire a.3).
FRONTEND = (
    Flag("listen_fd", "natural", None, S, "HTTP socket, bound", "http.listen_fd", "frontend", required=True),
    Flag("input_listener_fd", "natural", None, S, "socket for requests to the engines", "inherited.input_fd",
         "frontend", required=True),
    Flag("output_listener_fd", "natural", None, S, "socket for what the engines send", "inherited.output_fd",
         "frontend", required=True),
    Flag("args_json", "object", None, S, "the options of `vllm serve` that differ from their defaults", "", "frontend",
         required=True, secret=True),
    Flag("engine_start_index", "natural", 0, S, "rank of the first engine", "inherited.start_index", "frontend"),
    Flag("engine_count", "positive", 1, S, "engines to wait for", "inherited.count", "frontend"),
    Flag("data_parallel_size", "positive", None, S, "engines of the whole deployment", "inherited.size", "frontend"),
    Flag("coordinator_address", "text", None, S, "address of the data-parallel coordinator",
         "inherited.coordinator_address", "frontend"),
    Flag("grpc_listen_fd", "natural", None, R, "socket of the gRPC services", "", "frontend"),
)  # fmt: skip

GROUPS = {"HTTP": HTTP, "Model": MODEL, "API": API, "Operation": OPERATION, "Engine": ENGINE}
SERVE = tuple(flag for group in GROUPS.values() for flag in group if flag.name != "model_tag")
ARGS_JSON = tuple(flag for group in GROUPS.values() for flag in group if flag.where == "both")

#: What is different for `render`, which has no engine.
_OF_RENDER = {
    flag.name: flag
    for flag in (
        Flag("max_model_len", "length", None, S, "context length in tokens, also as 32k or 1M (the model's own)",
             "model.max_model_len"),
        Flag("api_server_count", "positive", None, S, "processes that serve the port (one for each core, at most 4)",
             "config.workers", "serve", ("-asc",)),
        Flag("enable_scale_out", "switch", False, N, "the render routes are all that there is"),
        Flag("enable_tokenizer_info_endpoint", "switch", True, S, "the route /tokenizer_info",
             "api.enable_tokenizer_info_endpoint"),
        Flag("limit_mm_per_prompt", "object", {}, N, "requests with media are refused"),
        Flag("stream_interval", "positive", 1, N, "nothing is streamed"),
        Flag("sse_keep_alive_interval", "natural", 0, N, "nothing is streamed"),
        Flag("reasoning_config", "object", None, N, "there is no engine"),
        Flag("structured_outputs_config", "object", None, N, "there is no engine"),
        Flag("fingerprint_mode", "text", "full", N, "derendered answers have no fingerprint"),
        Flag("fingerprint_value", "text", None, N, "derendered answers have no fingerprint"),
        Flag("enable_log_requests", "switch", False, N, "nothing is generated"),
        Flag("enable_log_outputs", "switch", False, N, "nothing is generated"),
        Flag("max_log_len", "natural", None, N, "nothing is generated"),
        Flag("enable_prompt_tokens_details", "switch", False, N, "the engine's server counts"),
        Flag("enable_force_include_usage", "switch", False, N, "the engine's server counts"),
        Flag("response_role", "text", "assistant", N, "derendered messages are the assistant's"),
        Flag("engine_ready_timeout_secs", "natural", 600, N, "there is no engine"),
    )
}  # fmt: skip
#: Flags of the frontends' other half.
_NOT_OF_RENDER = ("model_tag", "aggregate_engine_logging", "enable_fault_tolerance", "kv_sharing_fast_prefill")


def _of_render(group: tuple[Flag, ...]) -> Iterator[Flag]:
    for flag in group:
        if flag.name not in _NOT_OF_RENDER:
            yield _OF_RENDER.get(flag.name, flag)


RENDER_GROUPS = {title: tuple(_of_render(group)) for title, group in GROUPS.items() if title != "Engine"}
RENDER_GROUPS["Model"] += (_OF_RENDER["max_model_len"],)
RENDER = tuple(flag for group in RENDER_GROUPS.values() for flag in group)
