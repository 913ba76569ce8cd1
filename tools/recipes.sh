#!/bin/sh
# Trains the demo model under every FP8 recipe and prints the table of docs/reference/recipes.md (Markdown).
#
#   tools/recipes.sh [STEPS]       500 by default; the variable STEPS works too
#
# The text is the demo's (`make demo` writes it; TEXT=file sets another one). The runs stay in runs/recipes.
# Speed is measured separately, in short alternating runs of all recipes: the median over the steps of all
# these runs. A last run uses E4M3 with all scales 1, to show FP8 without scaling.
set -eu
cd "$(dirname "$0")/.."

steps=${1:-${STEPS:-500}}
ottava=${OTTAVA:-build/release/ottava}
text=${TEXT:-build/demo/bible.txt}
out=runs/recipes
unscaled='e4m3 tensor unit'
[ -r "$text" ] || { echo \
    "tools/recipes.sh: no text $text: run 'make demo' first, or give one with TEXT=file" >&2; exit 1; }

# train FOLDER STEPS OVERRIDE...: trains the demo model in this folder.
train() {
    folder=$out/$1
    count=$2
    shift 2
    "$ottava" train configs/demo.toml --train.max_steps="$count" --data.dataset_path="$text" \
        --checkpoint.interval=0 --run.dir="$folder" "$@" >"$out/log.txt" 2>&1 || { cat "$out/log.txt" >&2; \
        exit 1; }
}
# precision NAME: prints the options that select a recipe, or bf16.
precision() {
    if [ "$1" = bf16 ]; then echo --train.mixed_precision=bf16; else echo --train.mixed_precision=fp8 \
        --float8.recipe_name="$1"; fi
}

recipes='tensorwise rowwise rowwise_with_gw_hp delayed current block mxfp8'
health=$((steps / 5))
rm -rf $out
mkdir -p $out
# shellcheck disable=SC2046 # options are words
for recipe in bf16 $recipes; do
    train "$recipe" "$steps" $(precision "$recipe") --float8.health_interval=$health
done
train unscaled "$steps" --train.mixed_precision=fp8 --float8.recipe_name=custom --float8.input="$unscaled" \
    --float8.weight="$unscaled" --float8.grad_output="$unscaled" --float8.health_interval=$health
for round in 1 2 3 4 5; do
    # shellcheck disable=SC2046
    for recipe in bf16 $recipes; do
        train "speed-$round-$recipe" 30 $(precision "$recipe") --eval.enabled=false --scheduler.warmup_steps=1
    done
done

# number FILE KEY: prints the number KEY of a JSON object.
number() {
    sed -n "s/.*\"$2\": *\([-0-9.e+]*\).*/\1/p" "$1" | head -n 1
}
# speed NAME: prints the median tokens/s of the steps of all rounds; "-" if it was not measured.
speed() {
    [ -d "$out/speed-1-$1" ] || { echo -; return; }
    sed -n 's/.*"loss":.*"tps":\([0-9.e+]*\),.*/\1/p' $out/speed-*-"$1"/metrics.jsonl | sort -g |
        awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
# sqnr NAME TENSOR: prints the mean SQNR of the layers at the last measurement, in dB.
sqnr() {
    awk -v tensor="\"tensor\":\"$2\"" '
        index($0, tensor) && match($0, /"sqnr_db":[-0-9.e+]+/) {
            db = substr($0, RSTART + 10, RLENGTH - 10)
            match($0, /"step":[0-9]+/)
            step = substr($0, RSTART + 7, RLENGTH - 7)
            if (step != last) { last = step; sum = n = 0 }
            sum += db; n++
        }
        END { if (n) printf "%.1f", sum / n; else printf "-" }' "$out/$1/metrics.jsonl"
}
# row NAME LABEL: prints the row of a recipe.
row() {
    awk -v label="$2" -v loss="$(number $out/"$1"/summary.json val_loss)" -v base="$base_loss" \
        -v speed="$(speed "$1")" -v base_speed="$base_speed" \
        -v memory="$(number $out/"$1"/summary.json peak_memory_bytes)" -v base_memory="$base_memory" \
        -v x="$(sqnr "$1" input)" -v w="$(sqnr "$1" weight)" -v g="$(sqnr "$1" grad_output)" 'BEGIN {
            printf "| %s | %.4f | %+.2f%% | %s | %s | %s | %s | %.2f |\n", label, loss,
                100 * (loss / base - 1), x, w, g,
                speed == "-" ? "-" : sprintf("%.2f", speed / base_speed), memory / base_memory
        }'
}

base_loss=$(number $out/bf16/summary.json val_loss)
base_speed=$(speed bf16)
base_memory=$(number $out/bf16/summary.json peak_memory_bytes)
echo '| recipe | validation loss | to bf16 | SQNR X, dB | SQNR W, dB | SQNR G, dB | speed / bf16 '\
'| memory / bf16 |'
echo '|---|---|---|---|---|---|---|---|'
row bf16 '`bf16`'
for recipe in $recipes; do row "$recipe" "\`$recipe\`"; done
row unscaled 'E4M3, every scale 1'
