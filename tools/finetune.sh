#!/bin/sh
# Fine-tunes a small model of a family on HellaSwag in FP8 and in BF16, and prints the difference of the final
# losses.
#
#   tools/finetune.sh CONFIGURATION FOLDER ROWS.jsonl [OVERRIDE...]
#
# CONFIGURATION: configs/mistral_7b_hellaswag_fp8.yaml or another *_hellaswag_fp8.yaml. FOLDER: a Hugging Face
# folder (config.json and tokenizer are enough). The model is reduced (REDUCE=32) and starts from random
# weights; each step has 4 rows of 512 packed tokens. The runs stay in runs/finetune.
set -eu
[ $# -ge 3 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
config=$1 folder=$2 rows=$3
shift 3
ottava=${OTTAVA:-build/release/ottava}
out=runs/finetune/$(basename "$config" .yaml)
rm -rf "$out"

# tune NAME OVERRIDE...: fine-tunes the run NAME with these settings.
tune() {
    name=$1
    shift
    "$ottava" \
        train "$config" --model.hf_path="$folder" --model.reduce="${REDUCE:-32}" --data.dataset_path="$rows" \
        --eval.enabled=false --packed_sequence.packed_sequence_size=512 --train.seq_len=512 \
        --train.batch_size=4 --train.global_batch_size=4 --train.max_steps=100 --optimizer.lr=1e-3 \
        --checkpoint.interval=0 --run.dir="$out/$name" "$@"
}
tune bf16 --fp8.enabled=false "$@"
tune fp8 "$@"
loss() {
    sed -n 's/.*"train_loss": *\([-0-9.e+]*\).*/\1/p' "$out/$1/summary.json"
}
awk -v a="$(loss bf16)" -v b="$(loss fp8)" -v name="$(basename "$config" .yaml)" \
    'BEGIN { printf "%s: mean loss of the last 50 steps: bf16 %.4f, fp8 %.4f, gap %+.2f%%\n", name, a, b,
        100 * (b / a - 1) }'
