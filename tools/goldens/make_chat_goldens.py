#!/usr/bin/env python3
"""Writes tests/golden/chat/cases.json: what Jinja2, set up as transformers sets it up for chat templates, makes of the templates
in tests/golden/chat, for several conversations: the text, and the bytes that {% generation %} wrote; or that it refuses.

    pip install jinja2==3.1.6
    tools/goldens/make_chat_goldens.py
"""
import json
import pathlib

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "chat"

SYSTEM = {"role": "system", "content": " Be \"brief\".\n"}
USER = {"role": "user", "content": "Hi there, ünïcode ß!  "}
ASSISTANT = {"role": "assistant", "content": "Hello! <think>\nhm\n</think>\n\n It's fine. "}
MORE = {"role": "user", "content": "What's 2+2?\n\nplease"}
ANSWER = {"role": "assistant", "content": "4"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {
    "name": "weather", "arguments": {"city": "Paris", "x": 1.5, "l": [1, True, None]}}}]}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "{\"t\": 20}"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "required": ["city"]}}}]

CONVERSATIONS = [[USER], [SYSTEM, USER, ASSISTANT, MORE], [USER, ASSISTANT, MORE, ANSWER], [ASSISTANT, USER],
                 [USER, CALL, RESULT, ANSWER], [USER, MORE], [], [PARTS, ANSWER]]


class Generation(Extension):
    """{% generation %}: notes what is written inside; places are found by marks that no text has."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        return "\ue000" + caller() + "\ue001"


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def to_json(value, indent=None):
    return json.dumps(value, ensure_ascii=False, indent=indent)


def environment():
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    e.filters["tojson"] = to_json
    e.globals["raise_exception"] = refuse
    return e


def find_marks(text):
    spans, clean = [], ""
    for part in text.split("\ue000"):
        if "\ue001" in part:
            begin = len(clean.encode())
            inside, _, rest = part.partition("\ue001")
            clean += inside
            spans.append([begin, len(clean.encode())])
            clean += rest
        else:
            clean += part
    return clean, spans


def main():
    cases = []
    for path in sorted(FOLDER.glob("*.jinja")):
        template = environment().from_string(path.read_text())
        for messages in CONVERSATIONS:
            for asks, tools in ((False, None), (True, TOOLS)):
                context = {"messages": messages, "add_generation_prompt": asks, "tools": tools, "bos_token": "<s>",
                           "eos_token": "</s>"}
                case = {"template": path.name, "context": context}
                try:
                    case["text"], case["generation"] = find_marks(template.render(**context))
                except Exception as error:
                    case["refused"] = type(error).__name__
                cases.append(case)
    (FOLDER / "cases.json").write_text(json.dumps(cases, ensure_ascii=False, indent=0) + "\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
