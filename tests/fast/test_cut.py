"""One field cut out of an object's JSON. See also tests/api/test_alike.py."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastfront.fast import cut_field, load

KEY = b'"messages"'


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b'{"messages":[1,"]"],"a":{"messages":2}}', (b'{"messages":,"a":{"messages":2}}', b'[1,"]"]')),
        (b'{ "a" : "messages", "messages" :\n{"b":[]} }', (b'{ "a" : "messages", "messages" :\n }', b'{"b":[]}')),
        (rb'{"a":{"messages":[1]},"messages":"\\\"x"}', (rb'{"a":{"messages":[1]},"messages":}', rb'"\\\"x"')),
        (b'{"messages":[],"messages":[1]}', (b'{"messages":,"messages":[1]}', b"[]")),
        # the value is whole; whether the rest is JSON is for others to see
        (b'{"messages":"a"', (b'{"messages":', b'"a"')),
        (b'{"messages":[1}', (b'{"messages":', b"[1}")),
    ],
)
def test_what_is_cut(fast: SimpleNamespace, text: bytes, want: tuple[bytes, bytes]) -> None:
    assert fast.cut_field(text, KEY) == want


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"{}", b"[]", b' {"messages":[]}', b'["messages",[]]', b'{"a":{"messages":[]}}', b'{"messages"}',
        b'{"messages":', b'{"messages":}', b'{"messages":1}', b'{"messages":null}', b'{"messages":"a}',
        b'{"messages":[1',        b'{"messages":["]}', b'{"a":"}', b'{"a":1}"messages":[]', rb'{"messages":"a\"}',
        rb'{"\u006dessages":[]}', b'{"messages',
    ],
)  # fmt: skip
def test_nothing_to_cut(fast: SimpleNamespace, text: bytes) -> None:
    assert fast.cut_field(text, KEY) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["messages", '"', "\\", "]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["messages", "a", '"', "\\"]) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["messages", "a", "b"]) | st.text(max_size=4), VALUES, max_size=4),
    st.booleans(),
    st.sampled_from([None, 1]),
)
def test_it_is_the_field_of_any_json(value: dict[str, Any], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    cut = cut_field(text, KEY)
    if not isinstance(value.get("messages"), str | list | dict):
        assert cut is None
        return
    assert cut is not None
    around, found = cut
    assert json.loads(found) == value["messages"]
    assert any(around[:at] + found + around[at:] == text for at in range(len(around) + 1))


def test_twins_agree_on_what_is_no_json() -> None:
    try:
        native = load(native=True)["cut_field"]
    except ImportError:
        pytest.skip("there is nothing to compare with: the compiled modules are not built")
    pure = load(native=False)["cut_field"]
    rng = random.Random(7)
    pieces = [b'"messages"', b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b" ", b"a", b"\n"]
    cuts = 0
    for _ in range(20_000):
        text = b'{"messages":' * (rng.random() < 0.5) + b"".join(rng.choices(pieces, k=rng.randrange(14)))
        want = pure(text, KEY)
        assert native(text, KEY) == want, text
        cuts += want is not None
    assert cuts > 1000
