from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastfront.errors import ConfigError, RequestError, StartError
from fastfront.flow import ChatInput
from fastfront.prompt.formats.jinja import JinjaFormat
from fastfront.prompt.prompter import Prompter
from fastfront.prompt.template import CachedJson, ChatTemplate, tojson

USER = {"role": "user", "content": "hi"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.characters(categories=["Cc", "Cs"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.booleans(), inner),
)


def test_tojson_writes_what_many_prompts_show_once_in_each_form() -> None:
    plain = {"b": "é<", "a": [1, None]}
    shown = CachedJson(**plain)
    forms: list[dict[str, Any]] = [
        {}, {"indent": 2}, {"ensure_ascii": True}, {"sort_keys": True}, {"separators": (",", ":")},
        {"separators": [",", ":"]},
    ]  # fmt: skip
    for form in forms:
        want = json.dumps(plain, **{"ensure_ascii": False, **form})
        assert tojson(shown, **form) == tojson(shown, **form) == want
    assert tojson(shown) is tojson(shown)
    template = ChatTemplate("{% for tool in tools %}{{ tool | tojson }}{{ tool._written }}{% endfor %}")
    assert template.render({"messages": [], "tools": [shown]}) == json.dumps(plain, ensure_ascii=False)


@given(JSON)
@example([float("inf"), {"x": None}])
def test_tojson_writes_what_json_does(value: Any) -> None:
    assert tojson(value) == json.dumps(value, ensure_ascii=False)


def rendered(source: str, messages: list[dict[str, Any]] | None = None, **chat: Any) -> str:
    return JinjaFormat({"default": ChatTemplate(source)}).render(ChatInput(messages or [USER], **chat))


@pytest.mark.parametrize(
    "source, text",
    [
        ("{{ messages.0.content }}", "hi"),
        ("{% set ns = namespace(name=none if none else 'd') %}{{ ns.name }}", "d"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "hi!"),
        ("{%- generation -%} a {%- endgeneration -%}", "a"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ {'b': 'é<&', 'a': none} | tojson }}", '{"b": "é<&", "a": null}'),
        ("{{ {'b': 1, 'a': [1.0, true]} | tojson(indent=0, sort_keys=true) }}", '{\n"a": [\n1.0,\ntrue\n],\n"b": 1\n}'),
        ("{{ 'é' | tojson(ensure_ascii=true, separators=(',', ':')) }}", '"\\u00e9"'),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ none }} {{ 1.5 }} {{ true }} {{ nothing }}.", "None 1.5 True ."),
        ("  {% if true %}\nx\n  {% endif %}\n", "x\n"),
        ("{{ tools }} {{ documents }} {{ add_generation_prompt }}", "None None True"),
    ],
)
def test_the_language_of_templates(source: str, text: str) -> None:
    assert rendered(source) == text


def test_generation_blocks_have_a_scope_of_their_own() -> None:
    assert rendered("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}") == "21"


@pytest.mark.parametrize(
    "source, words",
    [
        ("{{ raise_exception('no ' ~ 'system') }}", "no system"),
        ("{{ messages[0].content + 1 }}", "can only concatenate"),
        ("{{ nothing.at.all }}", "'nothing' is undefined"),
        ("{{ messages.append(1) }}", "access to attribute .append. of .list. object is unsafe"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{% include 'x' %}", "no loader"),
        ("{{ range(1000000) }}", "Range too big"),
    ],
)
def test_what_a_template_refuses_is_a_400_with_its_words(source: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        rendered(source)


@pytest.mark.parametrize("source", ["{{ bad", "{% if %}", "{{ x | nofilter }}", "{% endfor %}", "{{ (" + "(" * 5000])
def test_what_does_not_compile_stops_the_start(source: str) -> None:
    with pytest.raises(StartError, match="does not compile"):
        ChatTemplate(source)


LOOP = "{% for m in messages %}"
END = "{% endfor %}"
ONE = "{% macro show(x) %}{% for c in x %}{% endfor %}{% endmacro %}"
TWO = "{% macro show(y, x) %}{% for c in x %}{% endfor %}{% endmacro %}"


@pytest.mark.parametrize(
    "source, content_format",
    [
        (LOOP + "{{ m.content }}" + END, "string"),
        (LOOP + "{% for c in m.content %}{% endfor %}" + END, "openai"),
        ("{% for m in messages[1:] %}{% for c in m['content'] | list %}{% endfor %}" + END, "openai"),
        (
            "{% set x = messages %}{% set messages = x[1:] %}" + LOOP + "{% for c in m.content %}{% endfor %}" + END,
            "openai",
        ),
        ("{% set x = messages[1:] %}{% for m in x %}{% for c in m.content %}{% endfor %}" + END, "openai"),
        (LOOP + "{% for c in m.tool_calls %}{% endfor %}" + END, "string"),
        (LOOP + "{% set content = m.content %}{% for c in content %}{% endfor %}" + END, "openai"),
        (ONE + LOOP + "{{ show(m.content) }}" + END, "openai"),
        (TWO + LOOP + "{{ show(1, x=m.content) }}" + END, "openai"),
        (TWO + LOOP + "{{ show(m.content, 1) }}" + END, "string"),
        (ONE + LOOP + "{{ show(m.tool_calls) }}" + END, "string"),
        (ONE.replace("x", "content") + "{{ show(1) }}", "string"),
        ("{% for k, v in messages[0].items() %}{{ k }}" + END, "string"),
        ("plain", "string"),
    ],
)
def test_content_format(source: str, content_format: str) -> None:
    assert ChatTemplate(source).content_format == content_format


def test_text_parts_in_a_template_that_adds_strings() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    template = ChatTemplate("{% for m in messages %}{{ m.content + '!' }}{% endfor %}")
    assert JinjaFormat({"default": template}).render(ChatInput(parts)) == "hi!"
    with pytest.raises(RequestError, match="can only concatenate list"):
        JinjaFormat({"default": template}, content_format="openai").render(ChatInput(parts))
    with pytest.raises(ConfigError, match="--chat-template-content-format"):
        JinjaFormat({}, content_format="html")


def test_named_templates() -> None:
    templates = {name: ChatTemplate(name) for name in ("default", "tool_use", "rag")}
    both = JinjaFormat(templates)
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert both.render(ChatInput([USER])) == "default"
    assert both.render(ChatInput([USER], tools=tools)) == "tool_use"
    assert both.render(ChatInput([USER], chat_template="rag")) == "rag"
    assert JinjaFormat({"default": ChatTemplate("d")}).render(ChatInput([USER], tools=tools)) == "d"
    with pytest.raises(RequestError, match=r"none of them is the default.*rag"):
        JinjaFormat({"rag": ChatTemplate("x")}).render(ChatInput([USER]))
    with pytest.raises(RequestError, match="you must provide a chat template"):
        JinjaFormat({}).render(ChatInput([USER]))


def test_kwargs_of_server_and_request() -> None:
    source = (
        "{{ a }} {{ b }} {{ c is defined }} {{ bos_token }} {{ add_generation_prompt }} {{ max_length is defined }}"
    )
    format = JinjaFormat(
        {"default": ChatTemplate(source)}, special_tokens={"bos_token": "<s>"}, default_kwargs={"a": 1, "b": 2}
    )
    given = {"b": 3, "a": None, "c": None, "add_generation_prompt": False, "max_length": 1}
    assert format.render(ChatInput([USER], chat_template_kwargs=given)) == "1 3 False <s> True False"
    assert format.render(ChatInput([USER], chat_template_kwargs={"bos_token": "x"})).split()[3] == "x"
    for name in ("messages", "conversation", "return_assistant_tokens_mask"):
        with pytest.raises(RequestError, match=name):
            format.render(ChatInput([USER], chat_template_kwargs={name: [USER]}))
    with pytest.raises(RequestError, match="tools must be a list of objects"):
        format.render(ChatInput([USER], chat_template_kwargs={"tools": "x"}))
    with pytest.raises(RequestError, match="documents must be a list of objects"):
        format.render(ChatInput([USER], documents=[1]))  # type: ignore[list-item]


def test_developer_messages() -> None:
    messages = [{"role": "user", "content": "u"}, {"role": "developer", "content": "d"}]
    assert rendered("{% for m in messages %}{{ m.role }} {% endfor %}", messages) == "system user "
    knowing = "{% for m in messages %}{{ m.role }} {% endfor %}{{ 'developer' }}"
    assert rendered(knowing, messages) == "user developer developer"


CHATML = LOOP + "[{{ m.role }}|{{ m.content }}]" + END + "{% if add_generation_prompt %}[assistant|{% endif %}"
TRIMMED = CHATML.replace("m.content", "m.content | trim")
PARTS = "{% for m in messages %}[{% for c in m.content %}{{ c.text }},{% endfor %}]{% endfor %}"


@pytest.mark.parametrize(
    "source, content, text",
    [
        (CHATML, "OK!\n", "[user|hi][assistant|OK!\n"),
        (TRIMMED, "OK!\n", "[user|hi][assistant|OK!"),
        (TRIMMED, "OK! ", "[user|hi][assistant|OK!"),
        (CHATML, "", "[user|hi][assistant|"),
        (PARTS, "OK", "[hi,][OK"),
        (PARTS, [{"type": "text", "text": "a"}, {"type": "text", "text": "b "}], "[hi,][a,b "),
    ],
)
def test_continue_final_message(source: str, content: Any, text: str) -> None:
    messages = [USER, {"role": "assistant", "content": content}]
    assert rendered(source, messages, continue_final_message=True, add_generation_prompt=False) == text


def test_continue_final_message_that_cannot_be() -> None:
    messages = [USER, {"role": "assistant", "content": "OK"}]
    for source, words in (("{{ messages[0].content }}", "does not appear"), ("x", "does not use `content`")):
        with pytest.raises(RequestError, match=words):
            rendered(source, messages, continue_final_message=True, add_generation_prompt=False)
    with pytest.raises(RequestError, match="Cannot set both"):
        rendered(CHATML, messages, continue_final_message=True)
    with pytest.raises(RequestError, match="no text to continue"):
        rendered(PARTS, [USER, {"role": "x"}], continue_final_message=True, add_generation_prompt=False)


def test_qwen3(load: Callable[..., Prompter]) -> None:
    format = load("qwen3").format
    open_ended = ChatInput(
        [USER, {"role": "assistant", "content": "OK!\n"}], add_generation_prompt=False, continue_final_message=True
    )
    assert str(format.render(open_ended)).endswith("<think>\n\n</think>\n\nOK!\n")
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    history = ChatInput([USER, {"role": "assistant", "content": None, "tool_calls": [call]}])
    assert '{"name": "f", "arguments": {"x": 1}}' in str(format.render(history))
    with pytest.raises(RequestError, match="Cannot apply chat template to an empty conversation"):
        format.render(ChatInput([]))


def test_gemma3_refuses_in_its_own_words(load: Callable[..., Prompter]) -> None:
    with pytest.raises(RequestError, match="Conversation roles must alternate"):
        load("gemma3").format.render(ChatInput([USER, USER]))
