from __future__ import annotations

import pytest

from fastfront.errors import RequestError
from fastfront.prompt import limits
from fastfront.prompt.limits import UNLIMITED, PromptLimits, check_messages, prompt_limits


def test_output_longer_than_the_model_is_refused_by_the_field_that_asked() -> None:
    assert prompt_limits(2048, max_tokens=2048) == PromptLimits(2048)
    with pytest.raises(RequestError) as caught:
        prompt_limits(2048, max_tokens=5000, max_tokens_param="max_completion_tokens")
    assert caught.value.message.startswith("max_completion_tokens=5000 cannot be greater than max_model_len=2048.")
    assert (caught.value.param, caught.value.value) == ("max_completion_tokens", 5000)


@pytest.mark.parametrize(
    "truncate, side, param",
    [(-2, None, "truncate_prompt_tokens"), (9, None, "truncate_prompt_tokens"), (1, "up", "truncation_side")],
)
def test_bad_truncation(truncate: int, side: str | None, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        prompt_limits(8, truncate_prompt_tokens=truncate, truncation_side=side)
    assert caught.value.param == param


def test_truncation() -> None:
    ids = list(range(10))
    assert limits.truncate(ids, prompt_limits(100, truncate_prompt_tokens=3)) == [7, 8, 9]
    assert limits.truncate(ids, prompt_limits(100, truncate_prompt_tokens=3, truncation_side="right")) == [0, 1, 2]
    assert limits.truncate(ids, prompt_limits(100, truncate_prompt_tokens=0)) == []
    assert limits.truncate(ids, prompt_limits(8, truncate_prompt_tokens=-1)) == ids[-8:]
    assert limits.truncate(ids, prompt_limits(8, max_tokens=1, truncate_prompt_tokens=-1)) == ids[-7:]
    assert limits.truncate(ids, UNLIMITED) is ids


def test_length() -> None:
    limits.check_length(8, PromptLimits(8))
    limits.check_length(0, UNLIMITED)
    with pytest.raises(RequestError) as caught:
        limits.check_length(9, PromptLimits(8))
    assert caught.value.message == (
        "This model's maximum context length is 8 tokens. However, your prompt contains 9 input tokens, which exceeds "
        "this limit even without any output tokens. Please reduce the length of the input prompt."
    )
    assert (caught.value.param, caught.value.value, caught.value.limit) == ("input_tokens", 9, 8)
    with pytest.raises(RequestError, match="cannot be empty"):
        limits.check_length(0, PromptLimits(8))


def test_text_that_cannot_fit_is_not_tokenized() -> None:
    assert limits.check_text("x" * 80, PromptLimits(8), 10) == "x" * 80
    with pytest.raises(RequestError, match=r"contains 81 characters \(more than 80 characters"):
        limits.check_text("x" * 81, PromptLimits(8), 10)
    assert limits.check_text("a" + "x" * 80, PromptLimits(8, 3, "left"), 10) == "x" * 80
    assert limits.check_text("a" + "x" * 80, PromptLimits(8, 3, "right"), 10) == "a" + "x" * 79


@pytest.mark.parametrize("ids, ok", [([], True), ([0, 9], True), ([10], False), ([3, -1], False)])
def test_ids(ids: list[int], ok: bool) -> None:
    if ok:
        limits.check_ids(ids, 9)
        return
    with pytest.raises(RequestError, match=r"is out of vocabulary \(ids go from 0 to 9\)"):
        limits.check_ids(ids, 9)


def test_more_messages_than_tokens() -> None:
    check_messages(8, PromptLimits(8))
    check_messages(9, UNLIMITED)
    check_messages(9, PromptLimits(8, truncate_to=4))
    with pytest.raises(RequestError, match=r"is 8 tokens. However, the conversation has 9 messages"):
        check_messages(9, PromptLimits(8))
