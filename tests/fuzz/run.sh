#!/usr/bin/env bash
# Runs the fuzzing programs: tests/fuzz/run.sh [BUILD] [TARGET...], all of BUILD (build/fuzz) by default, two
# at a time, FUZZ_SECONDS (60) each. Findings are stored in BUILD/findings; repeat one with
# BUILD/tests/fuzz/fuzz_TARGET FILE. Inputs that reach new code are kept in BUILD/corpus, and the next run
# starts with them.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/fuzz}
shift $(($# > 0))
seconds=${FUZZ_SECONDS:-60}
all='tokenizer sentencepiece tiktoken jinja yaml toml safetensors shards gguf hf_config tokens jsonl state
    metrics summary float8 words command eval_row adapter'

# The programs write their inputs to memory, not to a disk.
[ -w /dev/shm ] && shared=/dev/shm || shared=${TMPDIR:-/tmp}
TMPDIR=$(mktemp -d "$shared/ottava-fuzz.XXXXXX") || exit 1
export TMPDIR root build seconds
trap 'rm -rf "$TMPDIR"' EXIT
export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1

# words TARGET: prints a dictionary for the fuzzer: the words that the parser's source knows.
words() {
    case $1 in
    yaml | toml) grep -ohE '\b[a-z][a-z_0-9]{2,30}\b' "$root"/src/config/*.def \
        "$root"/src/config/compat/*.def ;;
    words | command)
        grep -ohE '\b[a-z][a-z_0-9]{2,30}\b' "$root"/src/config/*.def "$root"/src/config/compat/*.def
        grep -ohE '"[a-z0-9_=]{3,30}"' "$root"/src/fp8/recipe*.c "$root"/src/train/precision.c | tr -d '"'
        ;;
    state) grep -ohE '"[A-Za-z_0-9]{3,30}"|[X]\([a-z_]+' \
        "$root"/src/checkpoint/{state,run_history,run_sources}.c | tr -d '"X(' ;;
    metrics | summary) grep -ohE '"[A-Za-z_0-9]{3,30}"' "$root"/src/formats/metrics*.c \
        "$root/src/report/report.c" | tr -d '"' ;;
    float8) grep -ohE '"[A-Za-z_0-9.]{3,30}"' "$root"/src/checkpoint/float8.c \
        "$root"/src/formats/safetensors/safetensors.c | tr -d '"' ;;
    adapter) grep -ohE '"[A-Za-z_]{1,30}"' "$root"/src/folders/peft.c | tr -d '"' ;;
    eval_row) grep -ohE '"[A-Za-z_]{3,30}"' "$root"/src/eval/row.c | tr -d '"' ;;
    tokens | jsonl) grep -ohE '"[A-Za-z_]{3,30}"' "$root"/src/data/dataset*.c | tr -d '"' ;;
    jinja) grep -ohE '"[A-Za-z_]{2,30}"' "$root"/src/tokenizer/jinja/*.c | tr -d '"' ;;
    tokenizer | sentencepiece | tiktoken)
        grep -ohE '"[A-Za-z_0-9]{2,30}"' "$root"/src/tokenizer/*.[ch] | tr -d '"'
        ;;
    gguf) grep -ohE '"[A-Za-z_0-9.]{2,40}"' "$root"/src/formats/gguf/*.c "$root"/src/tokenizer/gguf_tokens.c |
        tr -d '"' ;;
    *) find "$root"/src/formats -name "*${1#hf_}*.[ch]" -exec grep -ohE '"[A-Za-z_0-9]{2,30}"' {} + |
        tr -d '"' ;;
    esac | sort -u | sed 's/.*/"&"/'
}

seeds() {
    case $1 in jinja | sentencepiece | tiktoken) ;; *) cp "$root/tests/fuzz/corpus/$1"/* "$2" ;; esac
    case $1 in
    sentencepiece) cp "$root"/tests/golden/sentencepiece/*.model "$2" ;;
    tiktoken) head -c 2600 "$root"/tests/golden/sentencepiece/llama.tiktoken >"$2/llama" ;;
    jinja) cp "$root"/tests/golden/chat/*.jinja "$2" ;;
    yaml | toml) cp "$root"/configs/*."$1" "$2" ;;
    esac
}

# Runs one target. Prints a line about it, and its findings.
fuzz() {
    local target=$1 log="$build/findings/$1.log"
    mkdir -p "$build/corpus/$target" "$TMPDIR/$target"
    seeds "$target" "$TMPDIR/$target"
    words "$target" >"$TMPDIR/$target.dict"
    "$build/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=2048 -timeout=10 \
        -print_final_stats=1 -dict="$TMPDIR/$target.dict" -artifact_prefix="$build/findings/$target-" \
        "$build/corpus/$target" "$TMPDIR/$target" >"$log" 2>&1
    local status=$?
    awk -v target="$target" '/ cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") coverage = $(i + 1) }
        /number_of_executed_units/ { runs = $2 } /average_exec_per_sec/ { speed = $2 }
        END { printf "%-12s %9d executions, %6d a second, coverage %5d\n", target, runs, speed, coverage }' \
            "$log"
    [ $status = 0 ] && return
    grep -m1 -E 'ERROR: |runtime error|violated guarantee|leaked' "$log"
    sed -n 's/.*Test unit written to /    input: /p' "$log"
    echo "    log:   $log"
    return 1
}
export -f fuzz seeds words

mkdir -p "$build/findings"
printf '%s\n' ${*:-$all} | xargs -P 2 -I{} bash -c 'fuzz {}' || {
    echo "tests/fuzz/run.sh: there are findings in $build/findings" >&2
    exit 1
}
