#!/usr/bin/env python3
"""Writes tests/golden/sentencepiece/: small models (NAME.model), and goldens.json with the ids and texts that
SentencePiece's library gives for a few texts. Also writes llama.tiktoken, a vocabulary of tiktoken, with ids
of tiktoken's library.

    {"strings": [text], "cases": [{"file", "name", "ids": [[id]], "texts": [decoded text]}]}

"name" is the file's name in a model's folder.

    pip install sentencepiece tiktoken
    python tools/goldens/make_sentencepiece_goldens.py tests/golden
"""

import base64
import json
import os
import pathlib
import shutil
import sys
import tempfile

import sentencepiece
import tiktoken
from make_tokenizer_goldens import LLAMA3, STRINGS, TEXT

TEXTS = STRINGS + ["", "  ", " a  b ", "\n\n a\t b\n", "the\u3000earth ＡＢＣ ① ﬁn x\u00adz",
                   "<u>light<u>the▁u<u2> <u2>", "zz\U0001F600\U0001F601zz qq", "x" * 40 + " " * 9 + "7" * 9,
                   "▁", "and<pad>the<mask>"]
# A few rules like those of nmt_nfkc, which has 240 kB: white space, full width, ligatures, deletions.
RULES = "".join(
    " ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
    for a, b in [("\t", " "), ("\n", " "), ("\u3000", " "), ("\u00a0", " "), ("\u00ad", ""), ("\u200b", " "),
                 ("Ａ", "A"), ("Ｂ", "B"), ("ﬁ", "fi"), ("①", "1"), ("e\u0301", "é"),
                 ("½", "1\u20442"), ("…", " ... "), ("ab", "ba"), ("abc", "x")])
MODELS = {
    "llama": dict(model_type="bpe", vocab_size=480, byte_fallback=True, normalization_rule_name="identity",
                  remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True),
    "gemma": dict(model_type="bpe", vocab_size=500, byte_fallback=True, normalization_rule_name="identity",
                  add_dummy_prefix=False, remove_extra_whitespaces=False, pad_id=0, eos_id=1, bos_id=2,
                  unk_id=3, user_defined_symbols=["<u>", "<u2>", "▁▁", "▁▁▁", "\n\n", "light"],
                  control_symbols=["<mask>"]),
    "rules": dict(model_type="bpe", vocab_size=200, rules=RULES, character_coverage=0.98),
    "t5": dict(model_type="unigram", vocab_size=180, rules=RULES, pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "users": dict(model_type="unigram", vocab_size=420, normalization_rule_name="identity",
                  byte_fallback=True, split_by_whitespace=False, user_defined_symbols=["<u>", "the", " a"],
                  control_symbols=["<mask>"]),
    "plain": dict(model_type="unigram", vocab_size=150, normalization_rule_name="identity",
                  remove_extra_whitespaces=False, character_coverage=0.98, add_dummy_prefix=False),
}


def train(folder, name, rules=None, **options):
    """Trains in a temporary folder with relative paths, because the model stores them."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        pathlib.Path("text").write_text(TEXT + "\n" + "\n".join(STRINGS) + "\n")
        if rules:
            pathlib.Path("rules.tsv").write_text(rules)
            options["normalization_rule_tsv"] = "rules.tsv"
        sentencepiece.SentencePieceTrainer.train(
            input="text", model_prefix=name, minloglevel=2, num_threads=1, hard_vocab_limit=False, **options)
        os.chdir(before)
        shutil.copy(pathlib.Path(scratch, f"{name}.model"), folder)


def sentencepiece_case(folder, name, options):
    train(folder, name, **options)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.model"))
    ids = [model.encode(text) for text in TEXTS]
    texts = [model.decode(i) for i in ids]
    return {"file": f"{name}.model", "name": "tokenizer.model", "ids": ids, "texts": texts}


def tiktoken_case(folder):
    ranks = {bytes([i]): i for i in range(256)}
    words = [piece.encode() for piece in sorted(set(TEXT.replace("\n", " ").split(" ")))]
    for word in sorted(words + [b" " + w for w in words] + [b"   ", b"aaa"], key=lambda w: (len(w), w)):
        for end in range(2, len(word) + 1):  # each prefix is a token, so that merges make the word
            ranks.setdefault(word[:end], len(ranks))
    (folder / "llama.tiktoken").write_bytes(
        b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    model = tiktoken.Encoding("llama", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
    ids = [model.encode(text, disallowed_special=()) for text in TEXTS]
    return {"file": "llama.tiktoken", "name": "tokenizer.model", "ids": ids, "texts": TEXTS}


def main():
    folder = pathlib.Path(sys.argv[1], "sentencepiece")
    folder.mkdir(exist_ok=True)
    cases = [sentencepiece_case(folder, name, options) for name, options in MODELS.items()]
    cases.append(tiktoken_case(folder))
    text = json.dumps({"strings": TEXTS, "cases": cases}, ensure_ascii=True, separators=(",", ":"))
    (folder / "goldens.json").write_text(text.replace('{"file"', '\n{"file"') + "\n")


main()
