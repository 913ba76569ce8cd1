#!/bin/sh
# check_gguf.sh LLAMA_CPP [OTTAVA [TOKENIZERS]]: checks that llama.cpp reads the files of `ottava export
# --format gguf` and gives the same results. Trains and exports a small model of each family. Both programs
# continue it greedily in fp32, and must agree on each token, and on a text's loss to 1e-4. TOKENIZERS: a
# folder of folders with a tokenizer.json; the ids of texts must also agree.
#
# LLAMA_CPP: the sources (vendor/llama.cpp in PyPI's llama-cpp-python), built in their folder build by
#   cmake -S . -B build -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_COMMON=OFF -DGGML_OPENMP=OFF
#   cmake --build build --target llama
here=$(cd "$(dirname "$0")" && pwd)
llama=$1 ottava=${2:-$here/../build/release/ottava} tokenizers=$3
[ -n "$llama" ] || { sed -n '2,5p' "$0"; exit 2; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
g++ -O1 -std=c++17 -I"$llama/include" -I"$llama/ggml/include" "$here/gguf_check.cpp" -o "$folder/check" \
    "$llama/build/src/libllama.a" "$llama"/build/ggml/src/libggml.a "$llama"/build/ggml/src/libggml-cpu.a \
    "$llama"/build/ggml/src/libggml-base.a -lpthread -ldl || exit 1
cd "$folder" || exit 1
bad=0

# Writes words in an order that a model of this size cannot memorize.
awk 'BEGIN { srand(7)
             split("the sea a ship sails north wind over cold deep water and turns home again at night",
             w, " ")
             for (i = 0; i < 6000; i++) printf "%s%s", w[1 + int(rand() * 16)],
                 i % 11 == 10 ? ".\n" : " " }' >text.txt
printf 'the sea and the ship' >prompt.txt
head -c 97 text.txt >whole.txt # a text as long as a sequence

agree() { # arguments: NAME OURS THEIRS
    if cmp -s "$2" "$3"; then echo "same    $1"; else echo "DIFFERS $1"; head -c 300 "$2" "$3"; bad=1; fi
}

# try NAME ARGUMENT...: trains and exports a model with these keys, and compares the two programs.
try() {
    name=$1
    shift
    if ! "$ottava" train --data.dataset_path=text.txt --data.format=bytes --model.dim=64 --model.n_layers=2 \
        --model.n_heads=4 --model.n_kv_heads=2 --model.head_dim=16 --model.vocab_size=258 \
        --model.ffn_hidden_dim=96 --model.max_seq_len=256 --train.seq_len=96 --train.batch_size=4 \
        --train.max_steps=40 --train.threads=1 --train.mixed_precision=fp32 --optimizer.lr=0.01 \
        --scheduler.warmup_steps=2 --run.dir="$name" "$@" >log 2>&1 ||
        ! "$ottava" export "$name" --format=gguf --dtype=fp32 --out="$name.gguf" >>log 2>&1; then
        echo "FAILED  $name: $(tail -1 log)"
        bad=1
        return
    fi
    "$ottava" \
        generate "$name" --prompt-file=prompt.txt --max-tokens=60 --temperature=0 --threads=1 2>err >ours
    { cat prompt.txt; ./check "$name.gguf" text 60 <prompt.txt 2>log; } >theirs
    agree "$name" ours theirs
    "$ottava" eval "$name" --task=perplexity --data=whole.txt --threads=1 --json 2>err |
        sed 's/.*"loss": \([0-9.]*\).*/\1/' >ours
    awk -v name="$name" -v a="$(cat ours)" -v b="$(./check "$name.gguf" loss <whole.txt 2>log)" 'BEGIN {
        d = a - b; ok = a > 0 && b > 0 && d < 1e-4 && d > -1e-4
        printf "%-7s %s: loss %.6f, %.6f\n", ok ? "same" : "OTHER", name, a, b; exit !ok }' || bad=1
}

try llama
try mistral --model.family=mistral
try qwen2 --model.family=qwen2
try qwen3 --model.family=qwen3 --model.head_dim=32 --model.tie_embeddings=true
try phi3 --model.family=phi3
try phi3_partial --model.family=phi3 --model.partial_rotary_factor=0.5
try granite --model.family=granite --model.embedding_multiplier=3 --model.residual_multiplier=0.5 \
    --model.attention_multiplier=0.2 --model.logits_scaling=2
try glm --model.family=glm
try glm4 --model.family=glm4
try mixtral --model.family=mixtral --model.num_experts=4
try qwen3_moe --model.family=qwen3_moe --model.num_experts=4 --model.moe_expert_hidden_dim=48
try dots1 --model.family=dots1 --model.n_kv_heads=4 --model.num_experts=8 --model.moe_expert_hidden_dim=48 \
    --model.moe_router=sigmoid_topk --model.moe_shared_experts=2 --model.moe_first_dense_layers=1 \
    --model.moe_groups=4 --model.moe_top_groups=2 --model.moe_route_scale=1.5
try olmo2 --model.family=olmo2
try gemma2 --model.family=gemma2 --model.tie_embeddings=true --model.sliding_window=32 \
    --model.full_attention_every=2 --model.attention_softcap=20 --model.final_logit_softcap=10
try gemma3 --model.family=gemma3_text --model.tie_embeddings=true --model.sliding_window=32 \
    --model.n_layers=3 --model.full_attention_every=3 --model.rope_local_theta=1000 \
    --model.rope_scaling=linear --model.rope_factor=3
try cohere --model.family=cohere --model.tie_embeddings=true --model.logits_scaling=4
try cohere2 --model.family=cohere2 --model.tie_embeddings=true --model.sliding_window=32 \
    --model.full_attention_every=2
try starcoder2 --model.family=starcoder2
try gpt2 --model.family=gpt2 --model.n_kv_heads=4
try gpt2_apart --model.family=gpt2 --model.n_kv_heads=4 --model.fused_qkv=false
try adapters --peft.dim=4 --peft.alpha=32
try llama3_rope --model.rope_scaling=llama3 --model.rope_original_max_position=64
try linear_rope --model.rope_scaling=linear --model.rope_factor=4
try yarn_rope --model.rope_scaling=yarn --model.rope_factor=4 --model.rope_original_max_position=32
try yarn_scaled --model.family=qwen3 --model.rope_scaling=yarn --model.rope_factor=4 \
    --model.rope_original_max_position=32 --model.rope_attention_factor=1.3
try longrope --model.family=phi3 --model.rope_scaling=longrope --model.rope_original_max_position=64 \
    --model.rope_short_factor=1,1,1,1,1.1,1.2,1.3,1.4 --model.rope_long_factor=1,1.5,2,3,4,6,8,10

for type in "gguf --dtype=fp16" "gguf --dtype=bf16" gguf-q8_0; do
    # shellcheck disable=SC2086
    "$ottava" export llama --format=$type --out=other.gguf >log 2>&1
    "$ottava" generate llama --prompt-file=prompt.txt --max-tokens=60 --temperature=0 --threads=1 2>err >ours
    { cat prompt.txt; ./check other.gguf text 60 <prompt.txt 2>log; } >theirs
    echo "$type: loss $(./check other.gguf loss <whole.txt 2>log), $(cmp ours theirs | grep . || echo the \
        same text)"
    rm other.gguf
done

printf "It's 3 o'clock; 1234567 ships, naïve  café\n\nx  = y_1+(2)\t— 東京タワー Привет, Мир!\n" >words
for at in "$tokenizers"/*/tokenizer.json; do
    [ -f "$at" ] || continue
    from=$(dirname "$at") name=tokens_$(basename "$from")
    "$ottava" train --data.format=synthetic --model.dim=32 --model.n_layers=1 --model.n_heads=2 \
        --model.ffn_hidden_dim=32 --model.vocab_size=160000 --model.max_seq_len=64 --train.seq_len=16 \
        --train.batch_size=1 --train.max_steps=1 --train.threads=1 --scheduler.warmup_steps=0 \
        --run.dir="$name" >log 2>&1 &&
        "$ottava" export "$name" --format=gguf-q8_0 --from="$from" --out="$name.gguf" >>log 2>&1 ||
        { echo "FAILED  $name: $(tail -1 log)"; bad=1; continue; }
    "$ottava" tokenize --tokenizer="$from" <words >ours
    while IFS= read -r line; do
        printf '%s' "$line" | ./check "$name.gguf" tokens 2>log | sed 's/ *$//'
    done <words >theirs
    agree "$name" ours theirs
    rm -r "$name" "$name.gguf"
done
exit $bad
