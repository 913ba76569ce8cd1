#!/bin/sh
# Makes the files of the fine-tuning example, small enough for a laptop: a Hugging Face folder of the Llama
# family (config.json, model.safetensors, tokenizer.json), trained for a minute on the text in the source
# tree, and rows like HellaSwag's.
#
#   tools/make_tiny_llama.sh [FOLDER]        (build/tiny)
#
#   FOLDER/model                    1 million parameters, a token a byte
#   FOLDER/hellaswag_train.jsonl    the beginning of a verse, its ending, and the endings of three others
#   FOLDER/hellaswag_val.jsonl
#
#   OTTAVA=program   another ottava than build/release/ottava
#   STEPS=200        number of training steps
set -eu
out=${1:-build/tiny}
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$(dirname "$0")/.."
ottava=${OTTAVA:-build/release/ottava}
text=configs/text/genesis.txt
steps=${STEPS:-200}

fail() {
    echo "tools/make_tiny_llama.sh: $*" >&2
    exit 1
}
command -v "$ottava" >/dev/null || fail "no program $ottava: run 'make build' first"
[ ! -e "$out" ] || fail "$out is there already: remove it, or name another folder"
mkdir -p "$out/tokenizer"

# Makes a tokenizer like GPT-2's, without merges: token 0..255 is that byte, 256 begins a text, 257 ends it.
# llama.cpp reads such tokenizers, too.
awk 'BEGIN {
    printf "{\"version\":\"1.0\",\"added_tokens\":["
    for (i = 0; i < 2; i++)
        printf "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false," \
            "\"normalized\":false,\"special\":true}",
            i ? "," : "", 256 + i, i ? "</s>" : "<s>"
    printf "],\"normalizer\":null,\"post_processor\":null,"
    split("pre_tokenizer decoder", part, " ")
    for (i = 1; i <= 2; i++)
        printf "\"%s\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true," \
            "\"use_regex\":true},", part[i]
    printf "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":" \
        "null,"
    printf "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false," \
        "\"vocab\":{"
    # GPT-2 writes a byte that is no visible character as a character from 256 on.
    for (i = 0; i < 256; i++) {
        visible = (i > 32 && i < 127) || (i > 160 && i != 173)
        printf "\"\\u%04x\":%d,", visible ? i : 256 + hidden++, i
    }
    printf "\"<s>\":256,\"</s>\":257},\"merges\":[]}}\n"
}' >"$out/tokenizer/tokenizer.json"
printf '{"tokenizer_class":"PreTrainedTokenizerFast","bos_token":"<s>","eos_token":"</s>"}\n' \
    >"$out/tokenizer/tokenizer_config.json"

# Every fourth row is for validation. Wrong endings come from verses some lines later.
awk -v train="$out/hellaswag_train.jsonl" -v val="$out/hellaswag_val.jsonl" '
BEGIN { n = 0 }
function quoted(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return "\"" s "\"" }
{
    words = split($0, word, " ")
    if (words < 8) next
    half = int(words / 2)
    for (i = 1; i <= words; i++) if (i <= half) begin[n] = begin[n] (i > 1 ? " " : "") word[i]; else
        end[n] = end[n] (i > half + 1 ? " " : "") word[i]
    n++
}
END {
    for (i = 0; i < n; i++) {
        right = (i + int(i / 4)) % 4
        row = "{\"ind\":" i ",\"activity_label\":\"Genesis\",\"ctx_a\":" quoted(begin[i]) ",\"ctx_b\":\"\"," \
            "\"ctx\":" quoted(begin[i]) ",\"endings\":["
        for (e = 0; e < 4; e++) row = row (e ? "," : "") quoted(end[e == right ? i : (i + 11 * (e + 1)) % n])
        print row "],\"label\":\"" right "\"}" >(i % 4 == 3 ? val : train)
    }
}' "$text"

echo "Training a small model on $text ..."
"$ottava" train --model.dim=128 --model.n_layers=4 --model.n_heads=4 --model.n_kv_heads=2 \
    --model.ffn_hidden_dim=512 --model.vocab_size=272 --model.max_seq_len=512 --data.dataset_path="$text" \
    --data.tokenizer_path="$out/tokenizer" --train.batch_size=8 --train.seq_len=128 \
    --train.max_steps="$steps" --train.mixed_precision=bf16 --optimizer.lr=3e-3 \
    --scheduler.warmup_steps=$((steps / 10)) --eval.enabled=false --checkpoint.interval="$steps" \
    --metrics.log_interval=50 --run.dir="$out/run"
"$ottava" export "$out/run" --out "$out/model" --dtype bf16
rm -r "$out/tokenizer" "$out/run"
echo "$out/model, and $(grep -c . "$out/hellaswag_train.jsonl") rows to train on, $(grep -c . \
    "$out/hellaswag_val.jsonl") to validate"
