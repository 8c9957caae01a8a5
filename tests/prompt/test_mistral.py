"""Mistral's tokenizers by the seam that all tokenizers share."""

from __future__ import annotations

import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from fastfront.errors import ConfigError, RequestError, StartError
from fastfront.fast import Vocab
from fastfront.prompt.load import PromptSettings, load_prompter
from fastfront.prompt.mistral import MistralTokenizer, load_mistral
from fastfront.text.vocab import build_vocab

mistral_common = pytest.importorskip("mistral_common")
DATA = Path(mistral_common.__file__).parent / "data"
TEXT = " Zürich 🫠\n\t世界  two <0x41> [INST]"


@pytest.fixture(scope="module", params=["tekken_240718.json", "mistral_instruct_tokenizer_241114.model.v7"])
def tokenizer(request: pytest.FixtureRequest) -> MistralTokenizer:
    return load_mistral(DATA / request.param)


def vocabulary(tokenizer: MistralTokenizer) -> Vocab:
    tokens = (None if piece is None else piece.token for piece in tokenizer.pieces())
    return build_vocab(tokens, tokenizer.special_ids, tokenizer.decoder())


def test_texts_come_back(tokenizer: MistralTokenizer) -> None:
    for text in (TEXT, "", "x", "  x", "🫠" * 3):
        ids = tokenizer.encode(text)
        assert ids[0] == tokenizer.bos_token_id
        assert tokenizer.decode(ids, skip_special_tokens=True) in (text, text.removeprefix(" "))
        assert ids[1:] == tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(tokenizer.encode("x"), skip_special_tokens=False) in ("<s>x", "<s> x")


def test_the_streams_vocabulary_has_the_same_bytes(tokenizer: MistralTokenizer) -> None:
    vocab = vocabulary(tokenizer)
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    joined = b"".join(vocab.piece(i) or b"" for i in ids).decode()
    assert joined.lstrip(" ") == tokenizer.decode(ids).lstrip(" ")
    assert len(vocab) == tokenizer.vocab_size


def test_markers_of_parsers_stay_in_the_text(tokenizer: MistralTokenizer) -> None:
    call, eos = tokenizer.token_to_id("[TOOL_CALLS]"), tokenizer.eos_token_id
    assert call is not None
    assert eos is not None
    assert tokenizer.decode([call, eos]) == "[TOOL_CALLS]"
    piece = list(tokenizer.pieces())[call]
    assert piece is not None and not piece.special and piece.added
    assert call not in tokenizer.special_ids and eos in tokenizer.special_ids


def test_offsets_cover_the_text(tokenizer: MistralTokenizer) -> None:
    text = "Zürich  世界 x"
    ids, offsets = tokenizer.encode(text), tokenizer.offsets(text)
    assert len(ids) == len(offsets)
    assert offsets[0] == (0, 0)
    assert offsets[-1][1] == len(text)
    assert all(end == start for (_, end), (start, _) in pairwise(offsets))
    assert text[slice(*offsets[-1])].strip() == tokenizer.decode(ids[-1:]).strip()


def test_truncation_keeps_bos(tokenizer: MistralTokenizer) -> None:
    ids = tokenizer.encode("one two three four")
    assert tokenizer.encode_truncated("one two three four", 3) == [ids[0], *ids[-2:]]
    assert tokenizer.encode_truncated("one two three four", 99) == ids


def test_bad_input(tokenizer: MistralTokenizer) -> None:
    with pytest.raises(RequestError, match="lone surrogate"):
        tokenizer.encode("a\ud800")
    with pytest.raises(RequestError, match="Token id -1"):
        tokenizer.decode([-1])
    assert tokenizer.decode([10**6]) == ""
    assert tokenizer.id_to_token(10**6) is None
    assert tokenizer.tokens([1, 10**6]) == ["<s>", ""]


def test_a_whole_model(tmp_path: Path) -> None:
    shutil.copy(DATA / "tekken_240718.json", tmp_path / "tekken.json")
    (tmp_path / "params.json").write_text('{"dim": 5120, "vocab_size": 131072}', encoding="utf-8")
    prompter = load_prompter(PromptSettings(str(tmp_path)))
    assert (prompter.info.max_model_len, prompter.info.vocab_size) == (128_000, 131072)
    assert prompter.info.eos_token_id == 2
    with pytest.raises(ConfigError, match="--chat-template has no effect with --tokenizer-mode mistral"):
        load_prompter(PromptSettings(str(tmp_path), chat_template="x"))


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mistral_common.tokens.tokenizers.mistral", None)
    with pytest.raises(StartError, match=r"needs the package mistral-common: pip install 'fastfront\[mistral\]'"):
        load_mistral(tmp_path / "tekken.json")


def test_a_broken_file(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text("{}", encoding="utf-8")
    with pytest.raises(StartError, match=r"cannot load .*tekken\.json"):
        load_mistral(tmp_path / "tekken.json")
