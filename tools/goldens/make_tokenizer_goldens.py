#!/usr/bin/env python3
"""Writes tests/golden/tokenizers.json: ids and texts of Hugging Face's tokenizers library for a few texts.

Two small BPE models, one of bytes and one of characters, are trained on the text below. Each case is a
tokenizer.json of one of the models with changed options, and of a normalizer, a pre-tokenizer, a decoder, a
post-processor and added tokens.

    {"models": {name: model}, "strings": [text],
     "cases": [{"name", "model", "options": {key: value of the model}, "file": {the other parts},
                "ids": [ids of a text; special tokens are added, and found in the text],
                "plain": [ids of a text; special tokens are neither added nor found; null: equal to "ids"],
                "texts": ["ids" decoded], "skipped": ["ids" decoded without special tokens]}]}

    python tools/goldens/make_tokenizer_goldens.py tests/golden
"""

import json
import os
import pathlib
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

TEXT = """In the beginning God created the heaven and the earth. And the earth was without form, and void; and
darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters. And God said,
Let there be light: and there was light. And God saw the light, that it was good: and God divided the light
from the darkness. And God called the light Day, and the darkness he called Night. And the evening and the
morning were the first day. In 1234 and in 5678, don't we'll 12 345: "naïve café", Привет мир, 中文字符 中文, ... 2
+ 2 = 4; x_y_z
""" * 3

STRINGS = [
    "And God said, Let there be light: and there was light.",
    " the earth  the\n\n heaven \n",
    "don't WE'LL it's 12 12345 x2y ½ Ⅷ ²",
    "café cafe\u0301 naïve Ångström ﬁ ½ İSTANBUL ẞ",
    "Привет, мир! 中文字符。 한국어 日本 😀👍🏽",
    "<A> god<A><A>  <B> and<B>word word, words <S>sword <S> CAFÉ",
    "▁the▁▁light \u00a0\u2003\u180e\u200b|\t\r\n|\u0085",
    "<s>In the <unk>beginning</s>",
    "x_y__z != 'q' \"...\" [1] {a}~$5.00",
    "thethethethethelightlightdarknessdarknessandandandandandthethethethethelightlightdarknessandand" * 2,
    "\u0301\u0323a\u0323\u0301 \u200d👨\u200d👩 क्षि ก็",
    " ",
]


def train(of_bytes):
    tokenizer = Tokenizer(BPE(unk_token=None if of_bytes else "<unk>"))
    tokenizer.pre_tokenizer = byte_level() if of_bytes else pre_tokenizers.Metaspace()
    special = ["<s>", "</s>"] if of_bytes else ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    alphabet = pre_tokenizers.ByteLevel.alphabet() if of_bytes else []
    trainer = BpeTrainer(vocab_size=480, show_progress=False, special_tokens=special,
                         initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXT.split("\n"), trainer)
    return json.loads(tokenizer.to_str())["model"]


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})


def split(pattern, behavior, invert=False, then=None):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, behavior, invert), then
                                    or byte_level(use_regex=False)])


END = [AddedToken(text, special=True, normalized=False) for text in ("<s>", "</s>")]
ADDED = END + [
    AddedToken("<A>", lstrip=True, normalized=False),
    AddedToken("<A><A>", normalized=False),
    AddedToken("<B>", rstrip=True, normalized=True),
    AddedToken("word", single_word=True, normalized=False),
    AddedToken("café", normalized=True),
    AddedToken("<S>", special=True, single_word=True, normalized=False, lstrip=True, rstrip=True),
]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
PREFIX = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
BOTH = processors.TemplateProcessing(single="<s> $A </s> <s>", special_tokens=[("<s>", 1), ("</s>", 2)])


def byte_cases():
    p, n = pre_tokenizers, normalizers
    yield "gpt2", dict(pre=byte_level())
    yield "prefix space", dict(pre=byte_level(add_prefix_space=True), added=ADDED)
    yield "no regex", dict(pre=byte_level(use_regex=False), added=ADDED)
    yield "llama 3", dict(
        pre=split(Regex(LLAMA3), "isolated"), added=END, options={"ignore_merges": True},
        post=processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing("<s> $A", None,
                                                                                        [("<s>", 0)])]),
    )
    yield "phi 4", dict(pre=split(Regex(LLAMA3), "removed", True), added=ADDED)
    yield "qwen", dict(pre=split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"), norm=n.NFC(), added=ADDED)
    yield "tekken", dict(pre=split(Regex(TEKKEN), "isolated"), added=END, options={"ignore_merges": True})
    parts = [p.Split(Regex(regex), "isolated") for regex in DEEPSEEK]
    yield "deepseek", dict(pre=p.Sequence(parts + [byte_level(use_regex=False)]), norm=n.Sequence([]),
                           added=ADDED)
    for behavior in ("isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            name = f"{behavior} {invert}"
            yield f"text {name}", dict(pre=split("e", behavior, invert))
            yield f"regex {name}", dict(pre=split(Regex(r"[0-9]|\s|[a-f]+|\w"), behavior, invert))
    yield "empty matches", dict(pre=split(Regex(r"(?=[aeiou])|x*"), "isolated"))
    yield "not spaces or words", dict(pre=split(Regex(r"\S+|\W"), "contiguous"))
    yield "lines", dict(pre=split(Regex(r"^.|[\w\s]$"), "isolated"))
    yield "digits one by one", dict(pre=p.Sequence([p.Digits(True), byte_level()]))
    yield "digits together", dict(pre=p.Sequence([p.Digits(False), p.Punctuation(),
                                                  byte_level(use_regex=False)]))
    yield "words", dict(pre=p.Sequence([p.Whitespace(), byte_level()]))
    yield "between spaces", dict(pre=p.Sequence([p.WhitespaceSplit(), byte_level(add_prefix_space=True)]))
    for normalizer in (n.NFD(), n.NFKC(), n.NFKD(), n.Lowercase(), n.Strip(), n.Strip(left=False),
                       n.Prepend("x "),
                       n.Replace("a", "bb"), n.Replace(Regex(r"\s+"), " ")):
        name = json.dumps(normalizer.__class__.__name__)
        yield f"normalizer {name}", dict(pre=byte_level(), norm=normalizer, added=ADDED)
    several = [n.NFD(), n.Lowercase(), n.NFKC(), n.Strip(), n.Replace(" ", "__"), n.Prepend("_"), n.NFC()]
    yield "normalizers", dict(pre=byte_level(), norm=n.Sequence(several), added=ADDED)


def character_cases():
    p, n, d = pre_tokenizers, normalizers, decoders
    fallback = {"byte_fallback": True, "fuse_unk": True}
    llama = d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            yield f"metaspace {scheme} {cut}", dict(
                pre=p.Metaspace(prepend_scheme=scheme, split=cut), dec=d.Metaspace(prepend_scheme=scheme),
                added=ADDED,
                options={"fuse_unk": cut})
    yield "mistral", dict(pre=p.Metaspace(prepend_scheme="first", split=False), dec=llama, added=END,
                          post=PREFIX,
                          options=fallback)
    legacy = n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")])
    yield "llama 2", dict(norm=legacy, dec=llama, added=ADDED, post=BOTH, options=fallback)
    yield "whole entries", dict(pre=p.Metaspace(), dec=llama, options={**fallback, "ignore_merges": True})
    yield "unknown one by one", dict(norm=legacy, dec=llama, options={"fuse_unk": False})
    yield "stripped tokens", dict(pre=p.Metaspace(), dec=d.Sequence([d.Replace("▁", " "), d.Strip(" ", 2, 0),
                                                                     d.Strip("t", 1, 0)]))
    yield "fallback alone", dict(pre=p.Metaspace(), dec=d.ByteFallback(), options=fallback)
    yield "no decoder", dict(pre=p.Metaspace(), added=END, options=fallback)
    lower = n.Lowercase()
    yield "first token normalized", dict(norm=lower, pre=p.Metaspace(), dec=d.Metaspace(), added=ADDED)


def case(name, kind, models, pre=None, norm=None, dec=None, post=None, added=(), options=()):
    if dec is None and kind == "bytes":
        dec = decoders.ByteLevel()
    model = {**models[kind], **dict(options)}
    empty = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
             "post_processor": None,
             "decoder": None, "model": model}
    tokenizer = Tokenizer.from_str(json.dumps(empty))
    for part, value in (("normalizer", norm), ("pre_tokenizer", pre), ("decoder", dec), ("post_processor",
                                                                                         post)):
        if value is not None:
            setattr(tokenizer, part, value)
    tokenizer.add_tokens(list(added))
    file = json.loads(tokenizer.to_str())
    ids = [tokenizer.encode(text).ids for text in STRINGS]
    tokenizer.encode_special_tokens = True
    plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in STRINGS]
    parts = {key: file[key] for key in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                                        "decoder")}
    return {"name": name, "model": kind, "options": dict(options), "file": parts,
            "ids": [" ".join(map(str, i)) for i in ids],
            "plain": [None if a == b else " ".join(map(str, b)) for a, b in zip(ids, plain)],
            "texts": [tokenizer.decode(i, skip_special_tokens=False) for i in ids],
            "skipped": [tokenizer.decode(i, skip_special_tokens=True) for i in ids]}


def main():
    models = {"bytes": train(True), "characters": train(False)}
    cases = [case(name, "bytes", models, **parts) for name, parts in byte_cases()]
    cases += [case(name, "characters", models, **parts) for name, parts in character_cases()]
    golden = {"models": models, "strings": STRINGS, "cases": cases}
    path = pathlib.Path(sys.argv[1]) / "tokenizers.json"
    path.write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
