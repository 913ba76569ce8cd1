#!/bin/sh
# Compares the start of a fine-tune of a Hugging Face folder in each precision, with and without
# train.master_dither. Prints two tables (Markdown): the first losses on one repeated row, and validation
# losses of a short run.
#
#   tools/first_steps.sh FOLDER
#
# Environment: TEXT       a text, the demo's unless given (`make demo` writes it)
#              RATES      learning rates, "2e-5"
#              SEEDS      seeds of data order and dither, "1"
#              AT         steps of the second table's validation losses, "4 8 16 24"; "": no second table
#              WARMUP     warmup steps of the second table, 6
#              SEQ_LEN    tokens of a row, 256
#              ROWS       rows of a step of the second table, 2
#              EVAL_STEPS batches of two rows of each validation, 8
#              PRECISIONS "fp32 bf16 tensorwise rowwise"
# FP8 runs leave the head in bf16. The runs stay in runs/first_steps. A finished run is not repeated, so an
# interrupted comparison can be continued. Remove the folder before you change TEXT, SEQ_LEN, AT, WARMUP, ROWS
# or EVAL_STEPS.
set -eu
cd "$(dirname "$0")/.."

[ $# = 1 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2; exit 2; }
model=$1
ottava=${OTTAVA:-build/release/ottava}
text=${TEXT:-build/demo/bible.txt}
rates=${RATES:-2e-5}
seeds=${SEEDS:-1}
at=${AT-4 8 16 24}
seq_len=${SEQ_LEN:-256}
out=runs/first_steps
[ -r "$text" ] || { echo \
    "tools/first_steps.sh: no text $text: run 'make demo' first, or give one with TEXT=file" >&2; exit 1; }
mkdir -p "$out"

# train NAME PRECISION DITHER OVERRIDE...: trains a run and prints its folder.
train() {
    folder=$out/$1
    case $2 in
    fp32 | bf16) precision=--train.mixed_precision=$2 ;;
    *) precision="--train.mixed_precision=fp8 --float8.recipe_name=$2 --float8.filter_fqns=lm_head" ;;
    esac
    dither=$3
    shift 3
    if [ -e "$folder/summary.json" ]; then
        echo "$folder"
        return
    fi
    rm -rf "$folder"
    # shellcheck disable=SC2086 # precision is several options
    "$ottava" train --model.hf_path="$model" --train.seq_len="$seq_len" --scheduler.name=constant \
        --checkpoint.interval=0 --run.dir="$folder" --train.master_dither="$dither" $precision "$@" \
        >"$folder.log" 2>&1 ||
        { cat "$folder.log" >&2; exit 1; }
    echo "$folder"
}
# losses FOLDER KEY STEPS: prints the values of KEY at these steps, as cells of a table; "-" if a value is
# missing.
losses() {
    for step in $3; do
        sed -n "s/^{\"step\":$step,.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$1/metrics.jsonl" | head -n 1 |
            awk 'END { if (NR) printf " %.3f |", $1; else printf " - |" }'
    done
    echo
}
# row PRECISION DITHER CELLS: prints a row of a table.
row() {
    [ "$2" = true ] && label=", dithered" || label=
    printf '| %s%s |%s\n' "$1" "$label" "$3"
}
# heading FIRST STEPS: prints the heading of a table.
heading() {
    printf '| %s |' "$1"
    for step in $2; do printf ' %s |' "$step"; done
    printf '\n|---|'
    for step in $2; do printf -- '---|'; done
    echo
}

# The end of the text is for validation, its middle for training. A row of data has just enough bytes for more
# than SEQ_LEN tokens.
size=$(wc -c <"$text")
tail -c $((size / 5)) "$text" >"$out/validation.txt"
tail -c +$((size / 3)) "$text" | head -c $((size / 3)) >"$out/training.txt"
bytes=200
tokens=0
while [ "$tokens" -le "$seq_len" ]; do
    bytes=$((bytes + 50))
    head -c $bytes "$out/training.txt" | tr '\n' ' ' >"$out/row.txt"
    tokens=$("$ottava" tokenize --tokenizer "$model" <"$out/row.txt" | wc -w)
done

# table NAME STEPS KEY OVERRIDE...: trains in each precision with and without dither, and prints the values of
# KEY at these steps.
table() {
    name=$1 steps=$2 key=$3
    shift 3
    heading "" "$steps"
    for precision in ${PRECISIONS:-fp32 bf16 tensorwise rowwise}; do
        for dither in false true; do
            folder=$(train "$name-$precision-$dither" "$precision" "$dither" "$@")
            row "$precision" "$dither" "$(losses "$folder" "$key" "$steps")"
        done
    done
    echo
}

for step in $at; do last=$step; done
for rate in $rates; do
    echo "One row of $seq_len tokens repeated, learning rate $rate, loss at step:"
    echo
    table "row-$rate" "1 2 3 4 5 6" loss --data.dataset_path="$out/row.txt" --train.max_steps=6 \
        --train.batch_size=1 --scheduler.warmup_steps=0 --optimizer.lr="$rate"
    [ -n "$at" ] || continue
    for seed in $seeds; do
        echo "Validation loss, learning rate $rate, $((${ROWS:-2} * seq_len)) tokens a step, seed $seed, \
after step:"
        echo
        table "run-$rate-$seed" "$at" val_loss --data.dataset_path="$out/training.txt" \
            --eval.dataset_path="$out/validation.txt" --eval.enabled=true --eval.interval="${at%% *}" \
            --eval.steps="${EVAL_STEPS:-8}" --eval.batch_size=2 --train.max_steps="$last" \
            --train.batch_size="${ROWS:-2}" --scheduler.warmup_steps="${WARMUP:-6}" --optimizer.lr="$rate" \
            --train.seed="$seed"
    done
done
