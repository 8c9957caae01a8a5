"""Sampling parameters: limits, defaults, and what the engine gets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fastfront.api.state import Limits
from fastfront.flow import Generation, ModelInfo, SamplingParams
from tests.api.fakes import QWEN, Client


def own(client: Client, **body: Any) -> Generation:
    """What the pipeline is asked for."""
    answer = client.complete(**body)
    assert answer.status == 200, answer.body
    return client.generation


def sent(client: Client, **body: Any) -> SamplingParams:
    """What the engine would get, and requests alike share."""
    return own(client, **body).sampling


@pytest.mark.parametrize(
    "field, value, param",
    [
        ("temperature", -0.1, "temperature"),
        ("temperature", 2.1, "temperature"),
        ("top_p", 0, "top_p"),
        ("top_p", 1.1, "top_p"),
        ("top_k", -2, None),
        ("min_p", -0.1, None),
        ("min_p", 1.1, None),
        ("presence_penalty", 2.1, None),
        ("presence_penalty", -2.1, None),
        ("frequency_penalty", 2.1, None),
        ("repetition_penalty", 0, None),
        ("repetition_penalty", -1, None),
        ("n", 0, None),
        ("n", -1, None),
        ("n", 16385, None),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", -1, "max_tokens"),
        ("max_tokens", 2049, "max_tokens"),
        ("min_tokens", -1, None),
        ("min_tokens", 17, None),
        ("stop", "", None),
        ("stop", [""], None),
        ("stop", ["a", ""], None),
        ("stop", ["a", "b", "c", "d", "e"], "body.stop"),
        ("stop_token_ids", [-1], "stop_token_ids"),
        ("stop_token_ids", [151936], "stop_token_ids"),
        ("logit_bias", {"151936": 1}, "logit_bias"),
        ("logit_bias", {"-1": 1}, "logit_bias"),
        ("logit_bias", {"x": 1}, "logit_bias"),
        ("allowed_token_ids", [], "allowed_token_ids"),
        ("allowed_token_ids", [151936], "allowed_token_ids"),
        ("bad_words", [""], None),
        ("bad_words", ["ok", ""], None),
        ("seed", 2**63, "body.seed"),
        ("thinking_token_budget", -2, "thinking_token_budget"),
        ("thinking_token_budget", 1.0, "thinking_token_budget"),
        ("thinking_token_budget", "5", "thinking_token_budget"),
        ("thinking_token_budget", True, "thinking_token_budget"),
        ("repetition_detection", {"max_pattern_size": 1, "min_pattern_size": 2}, "repetition_detection"),
        ("repetition_detection", {"max_pattern_size": 3, "min_count": 1}, "repetition_detection"),
        ("repetition_detection", {"max_pattern_size": -1}, "repetition_detection"),
        ("stream_interval", 0, "body.stream_interval"),
        ("vllm_xargs", {"a": 2**64}, "vllm_xargs"),
        ("kv_transfer_params", {"a": [{"b": -(2**63) - 1}]}, "kv_transfer_params"),
        ("routed_experts_prompt_start", 3, "routed_experts_prompt_start"),
        ("cache_salt", "", "cache_salt"),
        ("cache_salt", "a@b", "cache_salt"),
        ("cache_salt", "a/b", "cache_salt"),
        ("cache_salt", "x" * 129, "cache_salt"),
    ],
)
def test_out_of_range(client: Client, field: str, value: object, param: str | None) -> None:
    answer = client.complete(**{field: value})
    assert answer.status == 400, answer.body
    assert answer.error["param"] == param
    assert not client.pipeline.asked


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity"])
@pytest.mark.parametrize(
    "field", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
)
def test_not_finite(client: Client, field: str, value: bytes) -> None:
    answer = client.post("/v1/completions", b'{"prompt":"x","%b":%b}' % (field.encode(), value))
    assert answer.status == 400
    assert not client.pipeline.asked


def test_values_reach_the_engine(client: Client) -> None:
    params = sent(
        client,
        temperature=0.7, top_p=0.9, top_k=40, min_p=0.1, presence_penalty=-2, frequency_penalty=2,
        repetition_penalty=2.5, seed=-(2**63), max_tokens=20, min_tokens=3, logit_bias={"5": 200, "6": -200, "7": 0.5},
        allowed_token_ids=[5, 6], watermarking=False, thinking_token_budget=9,
        repetition_detection={"max_pattern_size": 4, "min_count": 2}, vllm_xargs={"k": [1, "x"]},
        kv_transfer_params={"do_remote_prefill": True}, ec_transfer_params={"e": 1}, routed_experts_prompt_start=2,
    )  # fmt: skip
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.7, 0.9, 40, 0.1)
    assert (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (-2.0, 2.0, 2.5)
    assert (client.generation.seed, client.generation.max_tokens, params.min_tokens) == (-(2**63), 20, 3)
    assert params.logit_bias == {5: 100.0, 6: -100.0, 7: 0.5}
    assert params.allowed_token_ids == [5, 6]
    assert params.watermarking is False
    assert params.thinking_token_budget == 9
    assert params.repetition_detection == {"max_pattern_size": 4, "min_pattern_size": 0, "min_count": 2}
    assert params.extra_args == {
        "k": [1, "x"],
        "kv_transfer_params": {"do_remote_prefill": True},
        "ec_transfer_params": {"e": 1},
    }
    assert params.routed_experts_prompt_start == 2
    assert params.output_kind == 1
    assert params.n == 1
    assert msgspec.msgpack.encode(params)


def test_nothing_asked_is_nothing_sent(client: Client) -> None:
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(sent(client)))
    assert set(wire) == {"output_kind", "stop_token_ids", "_eos_token_id", "_all_stop_token_ids"}


def test_greedy_switches_the_filters_off(client: Client) -> None:
    params = sent(client, temperature=0, top_p=0.5, top_k=5, min_p=0.5)
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.0, 1.0, 0, 0.0)
    assert client.complete(temperature=0, n=2).status == 400
    assert client.complete(temperature=1, n=2).status == 200


@pytest.mark.parametrize("value, sent_value", [(1e-9, 0.01), (0.001, 0.01), (0.01, 0.01), (0.02, 0.02)])
def test_tiny_temperature(client: Client, value: float, sent_value: float) -> None:
    assert sent(client, temperature=value).temperature == sent_value


@pytest.mark.parametrize("value, sent_value", [(-1, 0), (0, 0), (10**9, 10**9), (2**70, 2**31 - 1)])
def test_top_k(client: Client, value: int, sent_value: int) -> None:
    assert sent(client, top_k=value).top_k == sent_value


def test_seed_minus_one_is_none(client: Client) -> None:
    assert own(client, seed=-1).seed is None
    assert own(client, seed=0).seed == 0


def test_unlimited_thinking(client: Client) -> None:
    assert sent(client, thinking_token_budget=-1).thinking_token_budget is None


def test_a_thinking_budget_needs_an_engine_that_knows_thinking(client: Client) -> None:
    client.state.thinking_budgets = False
    answer = client.complete(thinking_token_budget=5)
    assert (answer.status, answer.error["param"]) == (400, "thinking_token_budget")
    assert sent(client, thinking_token_budget=-1).thinking_token_budget is None


def test_empty_transfer_params_are_not_sent(client: Client) -> None:
    assert sent(client, kv_transfer_params={}, vllm_xargs={}).extra_args is None


class TestDefaults:
    """Request value, then the model's, then the neutral one."""

    info = msgspec.structs.replace(
        QWEN, sampling_defaults={"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_tokens": 33}
    )

    def test_model(self) -> None:
        params = sent(Client(self.info))
        assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.6, 0.95, 20, 0.0)

    def test_request(self) -> None:
        params = sent(Client(self.info), temperature=1.5, top_k=0, top_p=None)
        assert (params.temperature, params.top_p, params.top_k) == (1.5, 0.95, 0)

    def test_max_tokens(self) -> None:
        client = Client(self.info)
        assert own(client).max_tokens == 16  # the endpoint's own default goes first
        assert client.chat().status == 200
        assert client.generation.max_tokens == 33

    def test_cap_that_no_request_lifts(self) -> None:
        client = Client(self.info)
        client.state.max_new_tokens = 10
        assert own(client, max_tokens=12).max_tokens == 10


class TestStopIds:
    """End tokens: which stop, and which are masked until min_tokens."""

    def test_usual(self, client: Client) -> None:
        params = sent(client)
        assert params.eos_token_id == 151645
        assert params.stop_token_ids == [151643]
        assert params.all_stop_token_ids == [151645, 151643]

    def test_own(self, client: Client) -> None:
        params = sent(client, stop_token_ids=[7, 7, 8])
        assert params.stop_token_ids == [7, 8, 151643]
        assert params.all_stop_token_ids == [7, 8, 151645, 151643]

    def test_ignore_eos(self, client: Client) -> None:
        params = sent(client, ignore_eos=True, stop_token_ids=[7])
        assert params.eos_token_id is None
        assert params.stop_token_ids == [7]
        assert params.all_stop_token_ids == [7, 151645, 151643]
        assert sent(client, ignore_eos=True).stop_token_ids is None

    def test_no_eos(self) -> None:
        info = ModelInfo(names=["m"], root="m", max_model_len=100, vocab_size=100)
        params = sent(Client(info))
        assert params.eos_token_id is None
        assert params.stop_token_ids is None
        assert params.all_stop_token_ids == []


class TestBadWords:
    """Each word as it begins a text and as it stands after a space."""

    def test_same_length_only(self, client: Client) -> None:
        # one id a character: " ab" is longer than "ab" and therefore no second form
        assert sent(client, bad_words=["ab", "ab", " c"]).bad_words_token_ids == [[97, 98], [99]]

    def test_two_forms(self, client: Client) -> None:
        words = {"Paris": [38634], " Paris": [7042]}
        client.pipeline.prompter.tokenizer.encode = lambda text, add_special_tokens=True: words[text]
        client.pipeline.prompter.ids([1])
        assert sent(client, prompt=[1], bad_words=["Paris"]).bad_words_token_ids == [[38634], [7042]]

    def test_too_many(self) -> None:
        answer = Client(limits=Limits(bad_words=2)).complete(bad_words=["a", "b", "c"])
        assert (answer.status, answer.error["param"]) == (400, "bad_words")

    def test_blank(self, client: Client) -> None:
        assert client.complete(bad_words=[" "]).error["param"] == "bad_words"

    def test_too_long(self, client: Client) -> None:
        """Nothing of them is tokenized."""
        client.pipeline.prompter.tokenizer.encode = None
        answer = client.complete(prompt=[1], bad_words=["a" * 8000, "b" * 193])
        assert (answer.status, answer.error["param"]) == (400, "bad_words")
        assert "at most 8192 characters" in answer.error["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(
    ("spaces", "skip", "between", "status"),
    [(True, False, False, 400), (True, True, False, 200), (True, False, True, 200), (False, False, False, 200)],
)
def test_spaces_between_special_tokens(
    client: Client, path: str, spaces: bool, skip: bool, between: bool, status: int
) -> None:
    """Refused exactly where it would change the text."""
    client.pipeline.prompter.tokenizer.spaces_special_tokens = spaces
    body = {"prompt": "Hi"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "Hi"}]}
    wish = {"skip_special_tokens": skip, "spaces_between_special_tokens": between}
    answer = client.post(path, {**body, **wish})
    assert answer.status == status
    if status == 400:  # and that before other parameters
        also = client.post(path, {**body, **wish, "temperature": 9})
        assert answer.error["param"] == also.error["param"] == "spaces_between_special_tokens"


@pytest.mark.parametrize("stop, sent_stop", [(None, ()), ([], ()), ("x", ("x",)), (["x", "yz"], ("x", "yz"))])
def test_stop(client: Client, stop: object, sent_stop: tuple[str, ...]) -> None:
    sent(client, stop=stop)
    assert client.generation.text.stop == sent_stop


def test_stop_limit_is_settable() -> None:
    assert Client(limits=Limits(stop_strings=5)).complete(stop=["a", "b", "c", "d", "e"]).status == 200


def test_text_options(client: Client) -> None:
    sent(client, skip_special_tokens=False, include_stop_str_in_output=True, ignore_eos=True, return_token_ids=True)
    text = client.generation.text
    assert not text.skip_special_tokens
    assert text.include_stop_str_in_output
    assert text.ignore_eos
    assert text.return_token_ids


class TestRoom:
    """max_tokens against the context length."""

    info = msgspec.structs.replace(QWEN, max_model_len=10)

    def test_cut_to_the_room(self) -> None:
        assert own(Client(self.info), prompt="abcd", max_tokens=10).max_tokens == 6

    def test_full(self) -> None:
        answer = Client(self.info).complete(prompt="0123456789", max_tokens=5)
        assert (answer.status, answer.error["param"]) == (400, "max_tokens")

    def test_min_tokens_against_the_room(self) -> None:
        assert Client(self.info).complete(prompt="abcd", max_tokens=10, min_tokens=7).status == 400
        assert Client(self.info).complete(prompt="abcd", max_tokens=10, min_tokens=6).status == 200

    def test_each_prompt_of_a_list(self) -> None:
        client = Client(self.info)
        assert own(client, prompt=["ab", "abcdef"], max_tokens=10).max_tokens == 8
        assert client.complete(prompt=["ab", "0123456789"]).status == 400

    def test_rest_of_the_context_for_chat(self) -> None:
        client = Client(msgspec.structs.replace(QWEN, max_model_len=20))
        assert client.chat().status == 200
        assert client.generation.max_tokens == 20 - len("<user>Hi")
