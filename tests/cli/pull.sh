#!/bin/sh
# Downloads a model and a dataset from a hub on the loopback address. Then names the model where its folder is
# expected.
. "$(dirname "$0")/checks.sh"

[ -n "${HUB_SERVER:-}" ] || { echo "SKIPPED: HUB_SERVER is not set: run this test with ctest"; exit 0; }
unset HF_HUB_OFFLINE HF_TOKEN HF_TOKEN_PATH HF_HUB_CACHE HUGGINGFACE_HUB_CACHE
export HF_HOME="$folder/home" no_proxy='*'
cache=home/hub/models--org--tiny
commit=0123456789abcdef0123456789abcdef01234567
snapshot=$folder/$cache/snapshots/$commit

hellaswag rows.jsonl
folder base llama LlamaForCausalLM
works "make a model" "Training complete: 4 steps" train $small --model.vocab_size=272 --run.dir=run \
    --data.tokenizer_path=base
works "export the model" "Exported" export run --out repo --from base
: >repo/merges.txt

# serve [FAULT TIMES PART]: starts the hub, in place of the one before.
serve() {
    hush
    mkfifo end
    "$HUB_SERVER" repo rows.jsonl "$@" >address 2>requests <end &
    server=$!
    exec 3>end
    while ! [ -s address ]; do sleep 0.05; done
    HF_ENDPOINT=$(cat address)
    export HF_ENDPOINT
}
# hush: stops the hub. The file requests then has the number of requests.
hush() {
    [ -n "${server:-}" ] || return 0
    exec 3>&-
    wait $server
    rm -f end address
    server=
}

# ---- pull ----
works "pull --help" "pull NAME [--revision R]|HF_TOKEN" pull --help
fails "pull without a name" 2 "pull: NAME is missing" pull
fails "pull with a bad name" 2 '"x" is not a name of the hub: give ORGANIZATION/MODEL' pull x
fails "pull a dataset without a file" 2 "pull: --out is missing" pull --dataset org/rows
serve break 1 /content/
call pull org/tiny
report "pull prints the folder" "$(grep -qxF "$snapshot" out || echo "out is not $snapshot")"
report "a broken download is resumed" "$(missing err "model.safetensors: |trying again in 1 s")"
holds "the exit code is 0" test $code = 0
for file in config.json tokenizer.json merges.txt model.safetensors; do
    holds "$file is downloaded" cmp "repo/$file" "$snapshot/$file"
done
fails "an unknown model" 2 "org/none: $HF_ENDPOINT has no such model or revision, or it is private" \
    pull org/none
serve gated 99 /resolve/
mv home kept
fails "a model with a license" 2 "accept its license at $HF_ENDPOINT/org/tiny, then set HF_TOKEN" \
    pull org/tiny

# Ctrl-C ends a stalled download. The next pull resumes it.
serve stall 1 /content/
timeout -s INT 2 "$program" pull org/tiny >out 2>err
code=$?
holds "Ctrl-C stops a download" test $code = 124
holds "an incomplete file is kept" ls $cache/blobs/*.incomplete
holds "nothing is in the snapshot" test ! -e $cache/snapshots
"$program" pull org/tiny >out1 2>err1 &
first=$!
call pull org/tiny
wait $first
holds "both processes find the model" cmp out out1
holds "the resumed model is right" cmp repo/model.safetensors "$snapshot/model.safetensors"

# ---- names in place of folders ----
rm -rf home
tiny="--data.dataset_path=rows.jsonl --data.format=hellaswag --train.seq_len=64 --train.batch_size=2
      --train.max_steps=2 --train.threads=1 --scheduler.warmup_steps=1"
serve
works "plan with a name" "Plan|Memory" plan --model.hf_path=org/tiny $tiny
holds "plan downloads no weights" test ! -e "$snapshot/model.safetensors"
works "train downloads a model by its name" "model.hf_path = org/tiny: $snapshot|Training complete: 2 steps" \
    train --model.hf_path=org/tiny $tiny --run.dir=named --peft.enabled=true --peft.dim=4
hush
export HF_ENDPOINT=http://127.0.0.1:1
works "resume with a name, without a network" "Training complete: 3 steps" train --model.hf_path=org/tiny \
    $tiny --train.max_steps=3 --run.dir=named --checkpoint.load_path=latest --peft.enabled=true --peft.dim=4
works "generate with a name" "" generate org/tiny --prompt "A man" --max-tokens=4 --temperature=0
works "generate with a run and --base NAME" "" generate named --base org/tiny --prompt A --max-tokens=4
works "eval with a name" "acc_norm" eval org/tiny --task hellaswag --data rows.jsonl --limit 2
works "inspect with a name" "model.embed_tokens.weight" inspect org/tiny
works "tokenize with a name" "" tokenize rows.jsonl --tokenizer org/tiny --out tokens.bin \
    --text-field ctx --no-special
works "export adapters" "" export named --format=peft --out=adapters
holds "the adapters name the model" grep -q '"base_model_name_or_path": "org/tiny"' \
    adapters/adapter_config.json
works "generate with adapters whose base is a name" "" generate adapters --prompt A --max-tokens=4
fails "a name that is not in the cache" 1 \
    "there is no folder org/none|org/none: $HF_ENDPOINT/api/|check the network" \
    generate org/none --prompt A
export HF_HUB_OFFLINE=1
fails "a name that is not in the cache, offline" 2 "HF_HUB_OFFLINE forbids it" \
    train $small --model.hf_path=org/none --run.dir=none
unset HF_HUB_OFFLINE

# ---- datasets ----
serve
works "pull a dataset" "pulled.jsonl" pull --dataset org/rows --split validation --out pulled.jsonl
holds "all rows are written" cmp rows.jsonl pulled.jsonl
works "eval with the dataset" "acc_norm" eval org/tiny --task hellaswag --data pulled.jsonl --limit 2
fails "an unknown split" 2 "org/rows: give one of its splits; --config default --split train;" \
    pull --dataset org/rows --split x --out y.jsonl
hush
finish
