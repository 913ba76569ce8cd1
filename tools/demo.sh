#!/bin/sh
# The demo (`make demo`): trains a small Llama on a real text in bf16 and with two FP8 recipes, with the same
# seed and data order. Compares the three, and generates text with an FP8 model.
#
#   TEXT=file       train on this text instead of the King James Bible
#   OTTAVA=program  another ottava than build/release/ottava
set -eu

started=${STARTED:-$(date +%s)} # `make demo` sets STARTED to the time when its build started
text=${TEXT:-}
case $text in '' | /*) ;; *) text=$PWD/$text ;; esac
cd "$(dirname "$0")/.."
ottava=${OTTAVA:-build/release/ottava}

fail() {
    echo "tools/demo.sh: $*" >&2
    exit 1
}
# Prints a command as a user can type it, then runs it.
run() {
    printf '\n$'
    for word in "$@"; do
        case $word in *' '*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    "$@"
}
# train NAME OVERRIDE...: trains the run NAME with these settings.
train() {
    name=$1
    shift
    run "$ottava" train configs/demo.toml "$@" --data.dataset_path="$text" --run.dir="runs/demo/$name"
}

command -v "$ottava" >/dev/null || fail "no program $ottava: run 'make build' first"
if [ -n "$text" ]; then
    [ -r "$text" ] || fail "cannot read TEXT=$text"
else
    command -v bible >/dev/null || fail \
        "the package bible-kjv is missing: run tools/setup.sh demo, or give a text with TEXT=file"
    text=build/demo/bible.txt
    mkdir -p build/demo
    bible -f gen1:1-rev22:21 </dev/null | sed 's/^[^ ]* //' >"$text" # one verse per line, without its number
fi

rm -rf runs/demo
train bf16 --train.mixed_precision=bf16
# The output head stays in bf16, as in other configurations (docs/reference/recipes.md).
train tensorwise --train.mixed_precision=fp8 --float8.recipe_name=tensorwise --float8.filter_fqns=lm_head
train rowwise --train.mixed_precision=fp8 --float8.recipe_name=rowwise --float8.filter_fqns=lm_head

run "$ottava" report runs/demo/bf16 runs/demo/tensorwise runs/demo/rowwise --out runs/demo/report.html
run "$ottava" generate runs/demo/tensorwise --prompt 'In the beginning' --max-tokens 300 --temperature 0.6

seconds=$(($(date +%s) - started))
printf '\nDone in %d min %02d s. The curves: runs/demo/report.html\n' $((seconds / 60)) $((seconds % 60))
