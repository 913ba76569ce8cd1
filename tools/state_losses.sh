#!/bin/sh
# Trains a configuration with several formats of its state, from several seeds, and prints a table of
# validation losses (Markdown).
#
#   tools/state_losses.sh CONFIG OVERRIDE...
#
# SEEDS: "1 2 3" by default. The text is the demo's (`make demo` writes it; TEXT=file sets another one). The
# runs stay in runs/states. CONTROL: a program that rounds masters to nearest; adds a column that should
# differ clearly.
set -eu
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2; exit 2; }
config=$1
shift
ottava=${OTTAVA:-build/release/ottava}
text=${TEXT:-build/demo/bible.txt}
seeds=${SEEDS:-1 2 3}
out=runs/states/$(basename "$config" .toml)
narrow='--train.master_dtype=bf16 --train.grad_dtype=bf16'
[ -r "$text" ] || { echo \
    "tools/state_losses.sh: no text $text: run 'make demo' first, or give one with TEXT=file" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out"

# loss PROGRAM NAME OVERRIDE...: trains a run and prints its last validation loss.
loss() {
    program=$1
    folder=$out/$2
    shift 2
    "$program" train "$config" --data.dataset_path="$text" --checkpoint.interval=0 --run.dir="$folder" "$@" \
        >"$folder.log" 2>&1 || { cat "$folder.log" >&2; exit 1; }
    sed -n 's/.*"val_loss": *\([-0-9.e+]*\).*/\1/p' "$folder/summary.json"
}
# cell LOSS WIDE: prints the loss, and its difference to WIDE, the loss with fp32 state.
cell() {
    awk -v x="$1" -v wide="$2" 'BEGIN { printf " %.4f, %+.2f%% |", x, 100 * (x / wide - 1) }'
}

echo "| seed | 16 bytes | 8 bytes (bf16) | 6.125 bytes (moments in FP8) |${CONTROL:+ 8 bytes, masters \
rounded to nearest |}"
echo "|---|---|---|---|${CONTROL:+---|}"
# shellcheck disable=SC2086 # options are words
for seed in $seeds; do
    wide=$(loss "$ottava" "wide-$seed" --train.seed="$seed" "$@")
    printf '| %s | %.4f |' "$seed" "$wide"
    cell "$(loss "$ottava" "bf16-$seed" --train.seed="$seed" $narrow --optimizer.state_dtype=bf16 "$@")" \
        "$wide"
    cell "$(loss "$ottava" "fp8-$seed" --train.seed="$seed" $narrow --optimizer.state_dtype=fp8 "$@")" "$wide"
    [ -z "${CONTROL:-}" ] ||
        cell "$(loss "$CONTROL" "nearest-$seed" --train.seed="$seed" $narrow --optimizer.state_dtype=bf16 \
            "$@")" "$wide"
    echo
done
