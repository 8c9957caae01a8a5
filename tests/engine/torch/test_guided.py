"""Structured outputs: whatever the model would rather say, its answer fits the grammar; a bad one hurts only itself."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from fastfront.engine.torch.guided import choice_grammar, is_lark
from fastfront.engine.torch.vocabulary import read_vocabulary
from tests.engine.torch.fake import Bench, FakeRunner, greedy

VOCAB = 49152
EOS = 2
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"enum": [1, 2, 3]}},
    "required": ["name", "age"],
}


@pytest.fixture(scope="module")
def model(peers: Path) -> Path:
    """A folder with a tokenizer."""
    return peers / "models" / "smollm2"


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    """The same tokenizer, by its own library."""
    return Tokenizer.from_file(str(model / "tokenizer.json"))


@pytest.fixture
def bench(model: Path) -> Bench:
    """An engine whose model says anything."""
    return Bench(FakeRunner(num_blocks=400, max_model_len=300, vocab_size=VOCAB), model)


def settle(bench: Bench) -> None:
    """Steps until all have ended, with waits for the threads that compile."""
    while bench.engine.unfinished or bench.engine.runnable:
        if bench.engine.runnable:
            bench.step()
        else:
            time.sleep(0.005)


def ask(bench: Bench, name: str, structured: dict[str, Any], **params: Any) -> None:
    """Adds a guided request."""
    stops = {"_eos_token_id": EOS, "_all_stop_token_ids": [EOS]}
    bench.add(name, [1, 2, 3], structured_outputs=structured, **{"max_tokens": 100, **stops, **params})


CASES: dict[str, tuple[dict[str, Any], Callable[[str], bool]]] = {
    "json": ({"json": SCHEMA}, lambda text: json.loads(text)["age"] in (1, 2, 3)),
    "json as text": ({"json": json.dumps(SCHEMA)}, lambda text: len(json.loads(text)["name"]) <= 5),
    "tight json": (
        {"json": SCHEMA, "disable_any_whitespace": True},
        lambda text: text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False),
    ),
    "regex": ({"regex": r"[ab]{3}-\d{2}"}, lambda text: bool(re.fullmatch(r"[ab]{3}-\d{2}", text))),
    "choice": ({"choice": ["red", 'gr"een', "blue\n"]}, lambda text: text in ("red", 'gr"een', "blue\n")),
    "ebnf": ({"grammar": 'root ::= "yes" | "no"'}, lambda text: text in ("yes", "no")),
    "lark": ({"grammar": 'start: "yes" | "no"'}, lambda text: text in ("yes", "no")),
    "tag": (
        {"structural_tag": json.dumps({"type": "structural_tag", "format": {"type": "const_string", "value": "hi"}})},
        lambda text: text == "hi",
    ),
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_fit(bench: Bench, tokenizer: Tokenizer, temperature: float) -> None:
    # JSON may have white space without end, which this model would find.
    blank = {at: -50.0 for token, at in tokenizer.get_vocab().items() if set(token) <= set("ĠĊĉč")}
    for name, (structured, _) in CASES.items():
        ask(bench, name, structured, temperature=temperature, seed=4, logit_bias=blank)
    bench.add("free", [4, 5], max_tokens=5)
    settle(bench)
    for name, (_, fits) in CASES.items():
        tokens = bench.tokens(name)
        assert bench.finish(name) == (0, None), (name, bench.said)
        assert tokens[-1] == EOS and fits(tokenizer.decode(tokens[:-1])), (name, tokenizer.decode(tokens))
    assert bench.tokens("free") == greedy([4, 5], 5, VOCAB)
    bench.check_empty()


def test_any_json_object(bench: Bench, tokenizer: Tokenizer) -> None:
    bias = {tokenizer.token_to_id("{"): 60.0, tokenizer.token_to_id("}"): 40.0, EOS: 80.0}
    ask(bench, "a", {"json_object": True}, logit_bias=bias)
    settle(bench)
    assert tokenizer.decode(bench.tokens("a")[:-1]) == "{}"


def test_the_old_form_of_structural_tags(bench: Bench, tokenizer: Tokenizer) -> None:
    tag = {"structures": [{"begin": "<f>", "schema": {"enum": [7]}, "end": "</f>"}], "triggers": ["<f>"]}
    bias = {tokenizer.token_to_id(token): 30.0 for token in "<f>"}
    ask(bench, "a", {"structural_tag": json.dumps(tag)}, logit_bias=bias, max_tokens=60)
    settle(bench)
    assert bench.finish("a")[0] == 1
    text = tokenizer.decode(bench.tokens("a"))
    assert all(part.startswith("7</f>"[: len(part)]) for part in text.split("<f>")[1:])


@pytest.mark.parametrize(
    "structured",
    [
        {"regex": "(("},
        {"grammar": "root ::= nowhere"},
        {"grammar": 'start: "a" ('},
        {"json": '{"type": "no such type"}'},
        {"json": '{"type": '},
        {"structural_tag": "{}"},
        {"structural_tag": "no json"},
        {"json": SCHEMA, "whitespace_pattern": " *"},
    ],
    ids=str,
)
def test_a_bad_grammar_ends_its_request_alone(bench: Bench, structured: dict[str, Any]) -> None:
    ask(bench, "bad", structured)
    ask(bench, "good", {"choice": ["x"]})
    bench.add("free", [4, 5], max_tokens=5)
    settle(bench)
    (output,) = bench.outputs["bad"]
    assert output[1:7] == [[], None, None, None, 3, None]
    assert [event["type"] for event in output[7]] == [1] and output[11] is None
    assert "bad" in bench.said[0] and "structured_outputs" in bench.said[0]
    assert bench.finish("good") == (0, None)
    assert bench.tokens("free") == greedy([4, 5], 5, VOCAB)
    bench.check_empty()


def test_without_xgrammar_the_request_fails_with_the_reason(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    ask(bench, "a", {"choice": ["x"]})
    settle(bench)
    assert bench.finish("a") == (3, None) and "need xgrammar" in bench.said[0]
    monkeypatch.undo()
    ask(bench, "b", {"choice": ["x"]})
    settle(bench)
    assert bench.finish("b") == (0, None)


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    bench = Bench(FakeRunner(num_blocks=400), tmp_path)
    ask(bench, "a", {"choice": ["x"]})
    settle(bench)
    assert bench.finish("a") == (3, None) and "tokenizer.json" in bench.said[0]


def test_an_abort_while_a_grammar_is_compiled(bench: Bench) -> None:
    for n in range(20):
        ask(bench, f"r{n}", {"regex": f"[a-z]{{1,{200 + n}}}"})
    bench.step()
    assert bench.stats[-1]["num_skipped_waiting_reqs"] > 0
    bench.engine.abort([f"r{n}" for n in range(20)])
    settle(bench)
    bench.check_empty()


def test_preemption_keeps_the_place_in_the_grammar(model: Path, tokenizer: Tokenizer) -> None:
    bench = Bench(FakeRunner(num_blocks=27, max_model_len=100, vocab_size=VOCAB), model)
    for n in range(8):
        ask(bench, f"r{n}", {"regex": "[ab]{40}"}, max_tokens=60, seed=n, temperature=1.0)
    settle(bench)
    assert any(stats["prefix_cache_stats"]["preempted_requests"] for stats in bench.stats)
    for n in range(8):
        assert re.fullmatch("[ab]{40}", tokenizer.decode(bench.tokens(f"r{n}")[:-1]))


def test_a_grammar_that_ends_before_min_tokens(bench: Bench) -> None:
    ask(bench, "a", {"choice": ["x"]}, min_tokens=20)
    settle(bench)
    assert bench.finish("a") == (0, None)


def test_reasoning_is_free_until_it_ends(bench: Bench, tmp_path: Path, model: Path) -> None:
    document = json.loads((model / "tokenizer.json").read_text())
    document["added_tokens"].append({"id": 17, "content": "</think>"})
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    bench = Bench(FakeRunner(num_blocks=400, max_model_len=300, vocab_size=VOCAB), tmp_path)
    ask(bench, "a", {"choice": ["x"]}, reasoning_ended=False, logit_bias={17: 6.0}, max_tokens=200)
    settle(bench)
    tokens = bench.tokens("a")
    assert 17 in tokens and len(tokens[tokens.index(17) :]) <= 3 and bench.finish("a") == (0, None)
    assert tokens.index(17) > 0


def test_vocabularies_are_those_of_the_tokenizer(model: Path, peers: Path, tokenizer: Tokenizer) -> None:
    ours = read_vocabulary(model, VOCAB)
    assert {token: at for at, token in enumerate(ours.tokens) if token} == tokenizer.get_vocab()
    assert (ours.kind, ours.stop_ids) == ("byte_level", [EOS])
    gguf = read_vocabulary(peers / "smollm2.gguf", VOCAB)
    assert gguf.tokens == ours.tokens and gguf.kind == ours.kind and gguf.stop_ids == [EOS]
    llama = read_vocabulary(peers / "models" / "llama2", 32000)
    assert (llama.kind, llama.tokens[3:5], llama.space_first) == ("byte_fallback", ["<0x00>", "<0x01>"], True)


def test_grammars_of_choices_and_notations() -> None:
    assert choice_grammar(['a"b', "c\\\n\x01"]) == 'root ::= "a\\"b" | "c\\\\\\n\\u0001"'
    assert is_lark('start: "a"') and not is_lark('root ::= "a"') and is_lark('start: "a" // ::= \n')
