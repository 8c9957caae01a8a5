"""Answers as the models write them, by parser: from the formats' model cards and templates."""

from __future__ import annotations

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "metric": {"type": "boolean"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
]
OBJECT = '{"name": "get_weather", "arguments": {"city": "Zürich 🫠", "days": 3}}'
CITY = '{"city": "Paris", "days": 3}'
GLM = (
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
)
QWEN = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
DSML = (
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Paris'
    '</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    "</｜DSML｜function_calls>"
)
INVOKE = (
    '<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
    '<parameter name="days">3</parameter>\n</invoke>'
)
DEEPSEEK = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
HUNYUAN = (
    "<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n</tool_calls>"
)
PLAMO = "<|plamo:{}:plamo|>".format
M3 = "]<]minimax[>["

#: Each holds one call of get_weather with the city Paris for 3 days, with text before it and behind.
ONE_CALL: dict[str, str] = {
    "apertus": f'Hi <|tools_prefix|>[{{"get_weather": {CITY}}}]<|tools_suffix|> done',
    "cohere_command3": (
        'Hi <|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": '
        f"{CITY}}}\n]<|END_ACTION|> done"
    ),
    "deepseek_v3": "Hi " + DEEPSEEK.format(f"function<｜tool▁sep｜>get_weather\n```json\n{CITY}\n```") + " done",
    "deepseek_v31": "Hi " + DEEPSEEK.format(f"get_weather<｜tool▁sep｜>{CITY}") + " done",
    "deepseek_v32": f"Hi {DSML} done",
    "deepseek_v4": f"Hi {DSML.replace('function_calls', 'tool_calls')} done",
    "deepseek_v41": f"Hi {DSML.replace('function_calls', 'calls').replace('｜DSML｜', '｜DSML｜ ')} done",
    "dots": f"Hi <dots_function_call>\n{INVOKE}\n</dots_function_call> done",
    "ernie45": f'Hi <tool_call>\n{{"name": "get_weather", "arguments": {CITY}}}\n</tool_call> done',
    "functiongemma": (
        "Hi <start_function_call>call:get_weather{city:<escape>Paris<escape>,days:<escape>3<escape>}"
        "<end_function_call> done"
    ),
    "gemma4": 'Hi <|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|> done',
    "gigachat3": f'Hi <|message_sep|><|function_call|>{{"name": "get_weather", "arguments": {CITY}}}</s> done',
    "glm45": f"Hi {GLM} done",
    "glm47": f"Hi {GLM.replace(chr(10), '')} done",
    "granite": f'Hi <|tool_call|> [{{"name": "get_weather", "arguments": {CITY}}}] done',
    "granite-20b-fc": f'Hi <function_call> {{"name": "get_weather", "arguments": {CITY}}} done',
    "hermes": f'Hi <tool_call>\n{{"name": "get_weather", "arguments": {CITY}}}\n</tool_call> done',
    "hunyuan_a13b": f'Hi <tool_calls>[{{"name": "get_weather", "arguments": {CITY}}}]</tool_calls> done',
    "hy_v3": f"Hi {HUNYUAN} done",
    "hy_v4": f"Hi {HUNYUAN.replace('<tool_sep>', '')} done",
    "inkling": (
        "<|content_text|>Hi <|end_message|><|message_model|>get_weather<|content_invoke_tool_json|>"
        f'{{"name":"get_weather","args":{CITY}}}<|end_message|><|message_model|><|content_text|> done<|end_message|>'
    ),
    "internlm": (f'Hi <|action_start|><|plugin|>\n{{"name": "get_weather", "parameters": {CITY}}}<|action_end|> done'),
    "jamba": f'Hi <tool_calls>[\n  {{"name": "get_weather", "arguments": {CITY}}}\n]</tool_calls> done',
    "k2_horizon": (
        "Hi <ifm|tool_calls><ifm|tool_call>get_weather<ifm|arg_key>city</ifm|arg_key><ifm|arg_value>Paris"
        "</ifm|arg_value><ifm|arg_key>days</ifm|arg_key><ifm|arg_type>integer</ifm|arg_type><ifm|arg_value>3"
        "</ifm|arg_value></ifm|tool_call></ifm|tool_calls> done"
    ),
    "kimi_k2": (
        "Hi <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        f"{CITY}<|tool_call_end|><|tool_calls_section_end|> done"
    ),
    "kimi_k3": (
        'Hi <|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" '
        'type="string"<|sep|>Paris<|close|>argument<|sep|><|open|>argument key="days" type="number"<|sep|>3<|close|>'
        "argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|> done"
    ),
    "lfm2": 'Hi <|tool_call_start|>[get_weather(city="Paris", days=3)]<|tool_call_end|> done',
    "llama4_pythonic": 'Hi <|python_start|>[get_weather(city="Paris", days=3)]<|python_end|> done',
    "llama3_json": f'Hi <|python_tag|>{{"name": "get_weather", "parameters": {CITY}}} done',
    "longcat": f'Hi <longcat_tool_call>{{"name": "get_weather", "arguments": {CITY}}}</longcat_tool_call> done',
    "mimo": f"Hi {QWEN.replace('=city>' + chr(10), '=city>').replace('Paris' + chr(10), 'Paris')} done",
    "minicpm5": (
        'Hi <function name="get_weather"><param name="city"><![CDATA[Paris]]></param>\n'
        "<param name='days'>3</param></function> done"
    ),
    "minimax_m2": f"Hi <minimax:tool_call>\n{INVOKE}\n</minimax:tool_call> done",
    "minimax_m3": (
        f'Hi {M3}<tool_call>\n{M3}<invoke name="get_weather">{M3}<city>Paris{M3}</city>{M3}<days>3{M3}</days>'
        f"{M3}</invoke>\n{M3}</tool_call> done"
    ),
    "mistral": f"Hi [TOOL_CALLS]get_weather[ARGS]{CITY} done",
    "muse_glimmer": (
        " to=user<|message|>Hi <|eom|><|start|>assistant to=get_weather<|message|>\n<atem:function_calls>\n"
        f"{INVOKE.replace('invoke', 'atem:invoke').replace('parameter', 'atem:parameter')}\n</atem:function_calls>"
        "<|eom|><|start|>assistant to=user<|message|> done<|eot|>"
    ),
    "olmo3": 'Hi <function_calls>\nget_weather(city="Paris", days=3)\n</function_calls> done',
    "openai": (
        "<|channel|>final<|message|>Hi <|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
        f"<|constrain|>json<|message|>{CITY}<|call|><|start|>assistant<|channel|>final<|message|> done<|return|>"
    ),
    "phi4_mini_json": f'Hi functools[{{"name": "get_weather", "arguments": {CITY}}}] done',
    "plamo3": (
        f"Hi {PLAMO('begin_tool_requests')}{PLAMO('begin_tool_request')}{PLAMO('begin_tool_name')}get_weather"
        f"{PLAMO('end_tool_name')}{PLAMO('begin_tool_arguments')}<|plamo:constrain|>json<|plamo:msg|>{CITY}"
        f"{PLAMO('end_tool_arguments')}{PLAMO('end_tool_request')}{PLAMO('end_tool_requests')} done"
    ),
    "poolside_v1": f"Hi {GLM} done",
    "qwen3_coder": f"Hi {QWEN} done",
    "seed_oss": f"Hi {QWEN.replace('tool_call', 'seed:tool_call')} done",
    "step3": (
        'Hi <｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">'
        '<steptml:parameter name="city">Paris</steptml:parameter><steptml:parameter name="days">3'
        "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜> done"
    ),
    "xlam": f'Hi ```json\n[{{"name": "get_weather", "arguments": {CITY}}}]\n``` done',
}
#: Parsers of the same format.
ONE_CALL |= {
    same: ONE_CALL[of]
    for same, of in {
        "cohere_command4": "cohere_command3",
        "granite4": "hermes",
        "ling3": "glm45",
        "llama4_json": "llama3_json",
        "qwen3_json": "hermes",
        "qwen3_xml": "qwen3_coder",
        "step3p5": "qwen3_coder",
    }.items()
}
#: In these text before the call or behind it is no content of the same answer.
ONE_CALL["pythonic"] = '[get_weather(city="Paris", days=3)] done'

#: More of what models write, right and wrong, by parser.
OTHERS: dict[str, list[str]] = {
    "hermes": [
        f"<tool_call>\n{OBJECT}\n</tool_call>\n<tool_call>\n{OBJECT}\n</tool_call>",
        "Use the <tool_call> tag, as in <tool_call>{}</tool_call>.",
        '<tool_call>{"name": "now"}</tool_call><tool_call>{"name": "x", bad}</tool_call> end',
        '<tool_call>{"arguments": "{\\"a\\": \\"\\\\u00e9\\\\ud83d\\\\ude00\\"}", "name": "now"}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"s": "</tool_call>"}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": }}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {}}}\n</tool_call>',
        '<tool_call>{"type": "function", "function": {"name": "now", "arguments": {"a": 1}}}</tool_call>',
        '<tool_call>[{"name": "now", "arguments": null}, {"name": "now", "parameters": [1]}, 5]</tool_call>',
        '<tool_call>{"name": "now", "arguments": "plain"}</tool_call>',
        "<tool_call>\n<tool_call>\n" + OBJECT,
        "<tool_call></tool_call>",
    ],
    "llama3_json": [
        '{"name": "now", "parameters": {}}; {"name": "now", "parameters": {"a": 1}}',
        '  {"a": 1} and {"b": 2}',
        '<|python_tag|>print("x")',
    ],
    "mistral": [
        '[TOOL_CALLS] [{"name": "now", "arguments": {"a": 1}}, {"name": "now", "arguments": {}}]',
        '[TOOL_CALLS]now[CALL_ID]abc[ARGS]{"a": 1}[TOOL_CALLS]now{}',
        "Say [TOOL_CALLS] hello to it",
        "[TOOL_CALLS]now",
    ],
    "qwen3_coder": [
        "<tool_call>\n<function=now>\n</function>\n<function=now>\n</function>\n</tool_call>\n",
        "<function=get_weather>\n<parameter=city>\na < b & <c>\n\n</parameter>\n</function>",
        "<function=get_weather><parameter=days>x<parameter=metric>true</function></tool_call>",
        "<tool_call>\nnot a call\n</tool_call>",
        "<function=get_weather>\noops\n<parameter=city>\nx\n</parameter>\n</function>",
        "<tool_call>\n<function=get_weather",
    ],
    "glm45": ["<tool_call>now</tool_call>", "<tool_call>not a call at all</tool_call>", "a <tool_call>b<arg_key>c"],
    "kimi_k2": [
        "<|tool_calls_section_begin|><|tool_call_begin|>now:1<|tool_call_argument_begin|> <|tool_call_end|>"
        "<|tool_call_begin|>functions.now<|tool_call_argument_begin|>{}<|tool_call_end|>",
        "<|tool_calls_section_begin|>hm",
    ],
    "pythonic": [
        "[get_weather(city='it\\'s \\u00e9\\x41\\n', tags=['a', \"b\"], days=-1), now()]",
        "[get_weather(city={'a': [1, (2, 3)], 'b': None}, x=true, y=f(2))]",
        "[get_weather(city='''a 'quoted' ''text''', days=1)] and more",
        "[1, 2, 3]",
        "[see](http://x) for more",
        "[f(a=1 b=2)]",
        '[f(a="x" \'y\', b="")]',
        "[f(a=1), oops",
    ],
    "gemma4": [
        '<|tool_call>call:f{a:{b:<|"|>x{}<|"|>,c:[1,<|"|>y<|"|>,{d:true}]},e:null,f:bare text}<tool_call|>'
        "<|tool_call>call:now{}<tool_call|>",
        '<|tool_call>:f{a:<|"|>x<tool_call|>',
        "<|tool_call>hello there",
        '<|tool_call>call:get_weather{days:<|"|>3<|"|>,metric:true',
    ],
    "openai": [
        "<|channel|>analysis<|message|>Let me think.<|end|><|start|>assistant<|channel|>analysis<|message|>More."
        "<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
        " to=functions.now<|channel|>commentary<|message|>{}<|call|>",
        "Plain text without a header",
        "<|start|>assistant<|channel|>final<|message|>Hi",
        "<|channel|><|channel|>final<|message|>Hi<|start|>assistant<|channel|>final<|message|>again",
        "<|channel|>commentary to=browser.search<|message|>{}<|call|>",
        "<|channel|>anal",
    ],
    "inkling": [
        "<|content_thinking|>hm<|end_message|><|message_model|><|content_text|>Hi<|content_model_end_sampling|>",
        "Plain text, no blocks",
    ],
    "deepseek_v3": [
        DEEPSEEK.format('function<｜tool▁sep｜>now\n```json\n{"code": "```x```"}\n```').replace("end｜>", "end｜>\n")
    ],
    "minimax_m3": [
        f'{M3}<tool_call>{M3}<invoke name="f">{M3}<a>{M3}<item>1{M3}</item>{M3}<item>2{M3}</item>{M3}</a>{M3}</invoke>'
    ],
    "k2_horizon": [f"<ifm|tool_calls><ifm|tool_call>{OBJECT}</ifm|tool_call></ifm|tool_calls>"],
    "dots": [f"<dots_function_call>{OBJECT}</dots_function_call>"],
    "muse_glimmer": [" to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Hi<|eot|>", "No header"],
    "xlam": ['[{"name": "now", "arguments": {}}]', "```python\nx = 1\n```", "```json\n{}\n```"],
}

THINKING = [
    "<think>\nabc\n</think>\n\nHi",
    "abc</think>\n\nHi",
    "Hi there",
    "<think>abc",
    "<think>abc\n<tool_call>\n" + '{"name": "now", "arguments": {}}\n</tool_call>',
    "<think>a</think>b<think>c</think>d",
    "  <think> a </think> b ",
    "<think>\n\n</think>\n\n<tool_call>\n" + OBJECT + "\n</tool_call>",
    "<think>I could write <tool_call> here</think>Hi",
    "x</think>y</think>z",
]
