#!/usr/bin/env python3
"""Writes tests/golden/chat/cases.json: for each template in tests/golden/chat and several conversations, the
text that Jinja2 renders and the bytes that {% generation %} wrote, or that Jinja2 refuses the template.
Jinja2 is configured as transformers configures it for chat templates.

    pip install jinja2==3.1.6
    tools/goldens/make_chat_goldens.py
    tools/goldens/make_chat_goldens.py FILE COUNT SEED    # the same for COUNT random conversations, into FILE

The exit code is 77 if jinja2 is not installed.
"""
import datetime
import json
import pathlib
import random
import sys

try:
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit(77)

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "chat"

SYSTEM = {"role": "system", "content": " Be \"brief\".\n"}
USER = {"role": "user", "content": "Hi there, ünïcode ß!  "}
ASSISTANT = {"role": "assistant", "content": "Hello! <think>\nhm\n</think>\n\n It's fine. "}
MORE = {"role": "user", "content": "What's 2+2?\n\nplease"}
ANSWER = {"role": "assistant", "content": "4"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function",
                                                            "function": {
    "name": "weather", "arguments": {"city": "Paris", "x": 1.5, "l": [1, True, None]}}}]}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "name": "weather", "content": "{\"t\": 20}"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
                                                                             "required": ["city"]}}}]

CONVERSATIONS = [[USER], [SYSTEM, USER, ASSISTANT, MORE], [USER, ASSISTANT, MORE, ANSWER], [ASSISTANT, USER],
                 [USER, CALL, RESULT, ANSWER], [USER, MORE], [], [PARTS, ANSWER],
                 [dict(USER, tool_calls=None), dict(CALL, content=None), RESULT, dict(ANSWER,
                                                                                      tool_calls=None)]]
DATE = datetime.date(2026, 11, 24)
WORDS = ["", " ", "a", "B b", "\n", "é", "日本", "<think>\nx\n</think>\n\n", "</s>", "{{ x }}",
         "'\"", "\\n", "1,2", "\t", "🙂"]


def random_text(draw):
    return "".join(draw.choices(WORDS, k=draw.randint(0, 6)))


def random_value(draw, depth=0):
    kind = draw.randint(0, 7 if depth < 2 else 5)
    if kind == 6:
        return [random_value(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    if kind == 7:
        return {random_text(draw): random_value(draw, depth + 1) for _ in range(draw.randint(0, 3))}
    return [None, True, draw.randint(-9, 9), draw.uniform(-9, 9), random_text(draw), draw.choice([1e16, 1e-7,
                                                                                                  2.0])][kind]


def random_message(draw):
    role = draw.choice(["system", "user", "user", "assistant", "assistant", "tool"])
    message = {"role": role, "content": random_text(draw)}
    if role == "assistant" and draw.random() < 0.4:
        message["content"] = draw.choice(["", None])
        message["tool_calls"] = [{"id": "abcdefghi", "type": "function", "function": {
            "name": draw.choice("fgH"), "arguments": {random_text(draw): random_value(draw)
                                                      for _ in range(2)}}}
            for _ in range(draw.randint(1, 2))]
    if role == "user" and draw.random() < 0.2:
        message["content"] = [{"type": "text", "text": random_text(draw)}, {"type": "image"}]
    if role == "tool":
        message["tool_call_id"] = "abcdefghi"
    if draw.random() < 0.2:
        message["name"] = draw.choice([None, "n"])
    return message


def random_conversations(count, seed):
    draw = random.Random(seed)
    return [[random_message(draw) for _ in range(draw.randint(0, 7))] for _ in range(count)]


class Generation(Extension):
    """{% generation %}: puts marks, which no text contains, around the text inside."""
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
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation,
                                                                                        loopcontrols])
    e.filters["tojson"] = to_json
    e.globals["raise_exception"] = refuse
    e.globals["strftime_now"] = DATE.strftime
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


def without_null_members(messages):
    """Removes null members, as transformers does before it renders a template."""
    return [{key: value for key, value in message.items() if value is not None} for message in messages]


def make_cases(conversations):
    cases = []
    for path in sorted(FOLDER.glob("*.jinja")):
        template = environment().from_string(path.read_text())
        for messages in map(without_null_members, conversations):
            for asks, tools in ((False, None), (True, TOOLS)):
                context = {"messages": messages, "add_generation_prompt": asks, "tools": tools,
                           "bos_token": "<s>",
                           "eos_token": "</s>"}
                case = {"template": path.name, "context": context}
                try:
                    case["text"], case["generation"] = find_marks(template.render(**context))
                except Exception as error:
                    case["refused"] = type(error).__name__
                cases.append(case)
    return cases


def main():
    file, conversations = FOLDER / "cases.json", CONVERSATIONS
    if len(sys.argv) == 4:
        file, conversations = pathlib.Path(sys.argv[1]), random_conversations(int(sys.argv[2]),
                                                                              int(sys.argv[3]))
    cases = make_cases(conversations)
    file.write_text(json.dumps(cases, ensure_ascii=False, indent=0) + "\n")
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
