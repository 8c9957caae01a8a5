"""From words to config.Config, for both ways to start."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastfront.cli.build import frontend_config, render_config, serve_config
from fastfront.config import DEFAULT_MODEL, Config, EngineConfig, InheritedConfig, RenderConfig
from fastfront.errors import ConfigError

VARIABLES = (
    *("VLLM_API_KEY", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_LOGGING_LEVEL"),
    *("VLLM_SERVER_DEV_MODE", "VLLM_RS_PYTHON"),
)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def serve(line: str) -> Config:
    return serve_config(line.split())


def frontend(args: dict[str, Any], more: str = "") -> Config:
    base = "--listen-fd 3 --input-listener-fd 4 --output-listener-fd 5 --args-json".split()
    return frontend_config([*base, json.dumps(args), *more.split()])


def engine(config: Config) -> EngineConfig:
    assert isinstance(config.engine, EngineConfig)
    return config.engine


def test_serve_alone() -> None:
    config = serve("m")
    assert (config.http.host, config.http.port, config.http.max_body_size) == ("127.0.0.1", 8000, 32 << 20)
    assert (config.model.names, config.model.is_default) == (("m",), False)
    assert engine(config) == EngineConfig(kind="auto", arguments={"torch": (), "vllm": ()})
    assert (config.ready_timeout, config.shutdown_timeout, config.log_stats, config.log_level) == (600, 0, True, "INFO")
    assert config.warnings == ()


@pytest.mark.parametrize("line", ["", "--port 1 --engine mock"])
def test_serve_without_a_model(line: str) -> None:
    model = serve(line).model
    assert (model.model, model.names, model.is_default) == (DEFAULT_MODEL, (DEFAULT_MODEL,), True)
    assert serve(f"{line} --served-model-name x").model.names == ("x",)


def test_every_section_is_filled() -> None:
    config = serve(
        "m --host 0.0.0.0 --port 1 --http-timeout-keep-alive 0 --h11-max-incomplete-event-size 7 "
        "--h11-max-header-count 8 --max-body-size 9 --enable-request-id-headers --enable-access-log "
        '--api-key a b --allowed-origins ["o"] '
        "--allow-credentials --ssl-certfile c --ssl-cert-reqs 2 --ssl-ca-certs d "
        "--served-model-name x y --revision r --tokenizer t --hf-token --generation-config vllm "
        "--override-generation-config.temperature 0.5 --chat-template f "
        "--default-chat-template-kwargs.enable_thinking false --stream-interval 2 --max-logprobs -1 "
        "--enable-force-include-usage --trust-request-chat-template "
        "--engine-ready-timeout-secs 3 --shutdown-timeout 4 --disable-log-stats --log-level warning"
    )
    http, model, api = config.http, config.model, config.api
    assert (http.host, http.port, http.keep_alive_timeout, http.max_head_size) == ("0.0.0.0", 1, 0, 7)
    assert (http.max_header_count, http.max_body_size, http.request_id_headers, http.access_log) == (8, 9, True, True)
    assert http.api_keys == ("a", "b")
    assert (http.cors.origins, http.cors.methods, http.cors.credentials) == (("o",), ("*",), True)
    assert http.tls is not None
    assert (http.tls.certfile, http.tls.keyfile, http.tls.cert_reqs, http.tls.ca_certs) == ("c", None, 2, "d")
    assert (model.names, model.revision, model.tokenizer, model.hf_token) == (("x", "y"), "r", "t", True)
    assert (model.generation_config, model.override_generation_config) == ("vllm", {"temperature": 0.5})
    assert (model.chat_template, model.default_chat_template_kwargs) == ("f", {"enable_thinking": False})
    assert (api.stream_interval, api.max_logprobs, api.enable_force_include_usage) == (2, -1, True)
    assert api.trust_request_chat_template
    assert (config.ready_timeout, config.shutdown_timeout, config.log_stats) == (3, 4, False)
    assert config.log_level == "WARNING"


def test_the_environment_counts_where_no_flag_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "k")
    monkeypatch.setenv("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "9")
    monkeypatch.setenv("VLLM_ENGINE_READY_TIMEOUT_S", "8")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "debug")
    monkeypatch.setenv("VLLM_RS_PYTHON", "p")
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")
    config = serve("m")
    assert (config.http.api_keys, config.http.keep_alive_timeout) == (("k",), 9)
    assert (config.ready_timeout, config.log_level, engine(config).python) == (8, "DEBUG", "p")
    assert config.warnings == ("VLLM_SERVER_DEV_MODE has no effect: the developer routes are not served yet",)
    flags = "--api-key a --http-timeout-keep-alive 1 --engine-ready-timeout-secs 2 --log-level error --python q"
    given = serve(f"m {flags}")
    assert (given.http.api_keys, given.http.keep_alive_timeout) == (("a",), 1)
    assert (given.ready_timeout, given.log_level, engine(given).python) == (2, "ERROR", "q")
    assert frontend({"model_tag": "m"}).http.api_keys == ("k",)
    assert frontend({"model_tag": "m", "api_key": [""]}).http.api_keys == ()


@pytest.mark.parametrize("name", VARIABLES[1:5])
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "-x")
    with pytest.raises(ConfigError, match=name):
        serve("m")


def test_the_vllm_engine_gets_what_is_its_own() -> None:
    config = serve(
        "m -tp 2 --port 1 --max-model-len 8k --revision r --disable-log-stats --shutdown-timeout 3 "
        "--hf-overrides {\"a\":1} --served-model-name n --language-model-only --tool-call-parser none "
        "--reasoning-parser none --max-logprobs 20 --engine vllm -- --seed 1"
    )
    assert engine(config).kind == "vllm"
    assert " ".join(engine(config).arguments["vllm"]) == (
        "-tp 2 --max-model-len 8k --revision r --disable-log-stats --shutdown-timeout 3 "
        '--hf-overrides {"a": 1} --language-model-only --seed 1'
    )


def test_the_mock_engine_gets_the_length_and_what_follows_the_dashes() -> None:
    config = serve("m --engine mock --max-model-len 99 --revision r -- --step-ms 1")
    assert engine(config).arguments == {"mock": ("--max-model-len", "99", "--step-ms", "1")}


@pytest.mark.parametrize("kind", ["auto", "torch"])
def test_the_built_in_engine_gets_its_options_and_none_of_the_frontends(kind: str) -> None:
    config = serve(
        f"m --engine {kind} --dtype half --max-model-len 8k --revision r --disable-log-stats --shutdown-timeout 3 "
        "--hf-overrides {\"a\":1} -- --seed 1"
    )
    assert " ".join(engine(config).arguments["torch"]) == (
        '--dtype half --max-model-len 8k --disable-log-stats --hf-overrides {"a": 1} --seed 1'
    )
    assert set(engine(config).arguments) == {"auto": {"torch", "vllm"}, "torch": {"torch"}}[kind]


def test_no_engine() -> None:
    config = serve("m --data-parallel-size-local 0 --data-parallel-rpc-port 5 -dp 2 --tool-call-parser none")
    assert engine(config) == EngineConfig(kind="none", rpc_port=5, size=2, size_local=0)
    assert engine(serve("m --engine none")).size_local == 0
    assert serve("m --engine none --max-model-len 5").warnings == (
        "--max-model-len has no effect: engines from outside have their own",
    )


@pytest.mark.parametrize(
    "line, says",
    [
        ("--port 1 m", "unexpected argument 'm'; the model comes right after `serve`"),
        ("m --port 1 n", "unexpected argument 'n'"),
        ("m --engine mock --dtype half", "unknown options: --dtype half"),
        ("m --engine none --dtype half", "unknown options: --dtype half"),
        ("m --engine none -- --x", "no engine is started"),
        ("m --engine none --data-parallel-size-local 1", "--engine none starts no engine"),
        ("m -dp 2 -dpl 3", "--data-parallel-size-local 3 is more than --data-parallel-size 2"),
        ("m --ssl-keyfile k", "without ssl_certfile"),
        ("m --config c --grpc --middleware a --port 1", "yet: --config, --grpc, --middleware."),
        ("m --headless", "--headless"),
    ],
)
def test_serve_errors(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        serve(line)
    assert says in str(caught.value)


def test_refused_options_may_have_their_defaults() -> None:
    assert serve("m --no-grpc --fingerprint-mode full --api-server-count 1").warnings == ()


def test_options_without_effect_are_said() -> None:
    assert serve("m --uvicorn-log-level debug --no-enable-log-deltas").warnings == (
        "--uvicorn-log-level has no effect: there is no uvicorn",
        "--no-enable-log-deltas has no effect: a stream is logged when it ends",
    )


PROFILER = {"profiler": None, "torch_profiler_dir": "", "max_iterations": 0}


def test_frontend() -> None:
    args = {
        "model_tag": "m", "engine_ready_timeout_secs": 30, "http_timeout_keep_alive": 6, "profiler_config": PROFILER,
        "api_key": ["a", "b"], "served_model_name": ["n"], "dtype": "half", "host": "h", "port": 1, "model": "m",
        "max_model_len": 5, "data_parallel_size": 4, "revision": None, "max_logprobs": None, "config": "c.yaml",
        "default_chat_template_kwargs": {"a": 1}, "allowed_origins": ["*"], "disable_log_stats": True,
        "hf_token": "s", "tokenizer": None, "otlp_traces_endpoint": None,
    }  # fmt: skip
    config = frontend(args, "--engine-start-index 2 --engine-count 3 --data-parallel-size 8 --coordinator-address ipc://x")
    assert config.engine == InheritedConfig(
        input_fd=4, output_fd=5, start_index=2, count=3, size=8, coordinator_address="ipc://x"
    )
    assert (config.http.listen_fd, config.http.port, config.http.host) == (3, 8000, "127.0.0.1")
    assert config.http.api_keys == ("a", "b")
    assert config.http.cors.origins == ("*",)
    assert (config.model.model, config.model.names, config.model.hf_token) == ("m", ("n",), "s")
    assert config.model.default_chat_template_kwargs == {"a": 1}
    assert (config.ready_timeout, config.http.keep_alive_timeout, config.api.max_logprobs) == (30, 6, 20)
    assert not config.log_stats
    assert config.warnings == ()


def test_frontend_counts_default_to_one_another() -> None:
    config = frontend({"model_tag": "m"}, "--engine-count 3")
    assert config.engine == InheritedConfig(input_fd=4, output_fd=5, count=3)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "'model_tag' is missing"),
    ({"model_tag": 1}, "'model_tag' must be a string, not 1"),
    ({"model_tag": None}, "'model_tag' must be a string, not None"),
    ({"stream_interval": 0}, "'stream_interval' must be a whole number of at least 1, not 0"),
    ({"stream_interval": True}, "'stream_interval' must be a whole number of at least 1, not True"),
    ({"stream_interval": None}, "not None"),
    ({"max_logprobs": "q"}, "'max_logprobs' must be a whole number of at least -1, not 'q'"),
    ({"ssl_cert_reqs": 3}, "'ssl_cert_reqs' must be a whole number from 0 to 2, not 3"),
    ({"served_model_name": "n"}, "'served_model_name' must be a list of strings, not 'n'"),
    ({"allowed_origins": [1]}, "'allowed_origins' must be a JSON list of strings, not [1]"),
    ({"hf_overrides": []}, "'hf_overrides' must be a JSON object, not []"),
    ({"disable_log_stats": 1}, "'disable_log_stats' must be true or false, not 1"),
    ({"chat_template_content_format": "x"}, "must be one of auto, string, openai, not 'x'"),
    ({"reasoning_parser": 3}, "'reasoning_parser' must be a string, not 3"),
    ({"api_key": 12345}, "'api_key' must be a string or a list of strings, not (hidden)"),
    ({"shutdown_timeout": 1.5, "port": "x", "revision": 2}, "must be a string, not 2; 'shutdown_timeout' must"),
    ({"tokens_only": True, "lora_modules": ["a=b"], "middleware": ["m"]}, "lora_modules, middleware, tokens_only."),
    ({"profiler_config": {"profiler": "torch"}}, "yet: profiler_config."),
    ({"max_num_queued_reqs": "many"}, "yet: max_num_queued_reqs."),
]  # fmt: skip


@pytest.mark.parametrize("args, says", WRONG, ids=[str(args) for args, _ in WRONG])
def test_frontend_names_wrong_and_refused_keys(args: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        frontend({"model_tag": "m", **args} if args else {})
    assert says in str(caught.value)
    assert "12345" not in str(caught.value)


@pytest.mark.parametrize(
    "argv, says",
    [
        ([], "missing: --listen-fd, --input-listener-fd, --output-listener-fd, --args-json"),
        (["--listen-fd", "x"], "--listen-fd must be a whole number of at least 0, not 'x'"),
        (["--args-json", '{"api_key": "sec'], "--args-json must be a JSON object, not (hidden)"),
        (["--what", "1"], "unknown options: --what 1"),
    ],
)
def test_frontend_argument_errors(argv: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        frontend_config(argv)
    assert says in str(caught.value)
    assert "sec" not in str(caught.value)


def test_grpc_is_refused() -> None:
    with pytest.raises(ConfigError, match="--grpc-listen-fd"):
        frontend({"model_tag": "m"}, "--grpc-listen-fd 6")


def test_engines_beyond_the_deployment() -> None:
    config = frontend({"model_tag": "m"}, "--engine-start-index 2 --engine-count 2").engine
    assert config == InheritedConfig(input_fd=4, output_fd=5, start_index=2, count=2)
    with pytest.raises(ConfigError, match="-start-index 2 and --engine-count 3 go beyond --data-parallel-size 4"):
        frontend({"model_tag": "m"}, "--engine-start-index 2 --engine-count 3 --data-parallel-size 4")


def render(line: str) -> RenderConfig:
    return render_config(line.split())


def test_render() -> None:
    config = render("m --host 0.0.0.0 --served-model-name x --tool-call-parser hermes --reasoning-parser qwen3")
    assert (config.http.host, config.model.names) == ("0.0.0.0", ("x",))
    assert (config.api.tool_call_parser, config.api.reasoning_parser) == ("hermes", "qwen3")
    assert config.api.enable_tokenizer_info_endpoint
    assert config.warnings == ()


def test_render_without_parsers() -> None:
    api = render("m --tool-call-parser none --reasoning-parser auto --no-enable-tokenizer-info-endpoint").api
    assert (api.tool_call_parser, api.reasoning_parser, api.enable_tokenizer_info_endpoint) == ("none", "auto", False)


@pytest.mark.parametrize("word, length", [("64", 64), ("32k", 32000), ("32K", 32768), ("1.5k", 1500), ("1M", 1 << 20)])
def test_render_max_model_len(word: str, length: int) -> None:
    assert render(f"m --max-model-len {word}").model.max_model_len == length


@pytest.mark.parametrize("word", ["0", "x", "1.5", "-1", "k", "inf", "nan", "1e999", "infk"])
def test_render_wrong_max_model_len(word: str) -> None:
    with pytest.raises(ConfigError, match="--max-model-len must be a whole number of at least 1"):
        render(f"m --max-model-len={word}")


def test_render_has_no_engine() -> None:
    with pytest.raises(ConfigError, match="unknown options: --data-parallel-size"):
        render("m --data-parallel-size 2")
    with pytest.raises(ConfigError, match="fastfront does not serve these options yet: --grpc-port"):
        render("m --grpc-port 1")
    warnings = render("m --stream-interval 2 --enable-auto-tool-choice").warnings
    assert len(warnings) == 2
    assert "--stream-interval has no effect: nothing is streamed" in warnings
