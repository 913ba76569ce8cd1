#!/bin/sh
# Trains through the program. Tests the log, stopping, resuming, and the other commands on the run.
. "$(dirname "$0")/checks.sh"

yes 'In the beginning God created the heaven and the earth.' | head -c 20000 >text.txt
run="$small --data.dataset_path=text.txt --metrics.log_interval=1"

works "a run" "step:  1|Training complete: 4 steps" train $run --run.dir=r
cp out lines
holds "every line has the prefix" sh -c '! grep -Evq "^\[ottava\] [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:'\
'[0-9]{2}:[0-9]{2},[0-9]{3} - root - (INFO|WARNING) - " lines'
holds "the log in a pipe has no control characters" sh -c '! grep -q "$(printf "[\r\033]")" lines'
holds "the run folder" ls r/config.toml r/metrics.jsonl r/summary.json r/checkpoints/step-4/state.json

works "the log names the FP8 recipe" "Applied Float8 training: recipe=ROWWISE" \
    train $run --run.dir=f --train.mixed_precision=fp8 --float8.recipe_name=rowwise
holds "the log warns that the output head is in FP8" grep -q \
    'output head runs in FP8.*"lm_head" in float8.filter_fqns' out
holds "MFU uses the peak of the instructions of the GEMMs" \
    sh -c 'case $(grep -o "Device: cpu [a-z0-9]*" out) in
    *avx512bf16 | *amx) grep -q "(speed of bf16 dot products, measured" out ;;
    *) grep -q "(speed of fp32 multiply-adds, measured" out ;;
    esac'
works "fp32 scales and an output head in bf16" \
    "recipe=ROWWISE, fsdp_float8_all_gather=False, round_scales_to_power_of_2=False" \
    train $run --run.dir=scales --train.mixed_precision=fp8 --float8.recipe_name=rowwise \
    --float8.round_scales_to_power_of_2=false --float8.filter_fqns=lm_head
holds "an output head in bf16 gives no warning" sh -c '! grep -q "output head runs" out'

# A resumed run keeps the order of sums, also with another instruction set.
works "a run that sums in tiles of 32" "Training complete: 4 steps" \
    train $run --run.dir=tiles --train.mixed_precision=fp8 --float8.accumulate=tile32
works "a run that sums in chains" "Training complete: 4 steps" \
    train $run --run.dir=chains --train.mixed_precision=fp8
holds "the two orders of sums give different weights" \
    sh -c '! cmp -s tiles/checkpoints/step-4/model.safetensors chains/checkpoints/step-4/model.safetensors'
holds "the order is stored" grep -q '^accumulate = "tile32"' tiles/config.toml \
    tiles/checkpoints/step-2/config.toml
mv tiles/checkpoints/step-4 uninterrupted
level=${OTTAVA_ISA-}
export OTTAVA_ISA=scalar
works "a run resumes with another ISA" "Resumed from tiles/checkpoints/step-2" \
    train tiles/config.toml --checkpoint.load_path=latest
OTTAVA_ISA=$level
holds "the resumed run has the same weights" cmp uninterrupted/model.safetensors \
    tiles/checkpoints/step-4/model.safetensors

works "a bf16 run that sums in tiles" "Training complete: 4 steps" \
    train $run --run.dir=bf16 --train.bf16_accumulate=tile32
holds "differs from one that sums in chains" \
    sh -c '! cmp -s bf16/checkpoints/step-4/model.safetensors r/checkpoints/step-4/model.safetensors'

# ---- stopping ----
# stop SIGNAL...: starts a long run, sends it the signals, and waits for its end.
stop() {
    rm -rf ./$home out
    "$program" train $run --train.max_steps=1000000 --run.dir=$home >out 2>err &
    process=$!
    tries=0
    until grep -qs "step:  3" out || [ $tries -ge 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    for signal; do kill -s "$signal" $process; done
    wait $process
    code=$?
}
for signal in INT:130 TERM:143 HUP:129; do
    expected=${signal#*:} signal=${signal%:*} home=s
    [ $signal != HUP ] || home=-s # a path that begins with "-", like an option
    stop $signal
    trouble=$(missing err "saving and ending")
    ls ./$home/checkpoints/step-*/state.json >/dev/null || trouble="no checkpoint"
    [ $code -eq $expected ] || trouble="exit code $code"
    report "SIG$signal saves and ends" "$trouble"
done
step=$(ls ./$home/checkpoints | sed 's/step-//' | sort -n | tail -1)
# The run printed a command, which must resume the run.
command=$(sed -n 's/.*Resume with: [^ ]*ottava //p' out)
works "the printed command resumes the stopped run" "Resumed from $home/checkpoints/step-$step" $command \
    --train.max_steps=$((step + 2))
holds "no temporary checkpoint is left" sh -c '! ls ./-s/checkpoints | grep -q tmp'

# ---- closed output ----
if command -v mkfifo >/dev/null 2>&1 && mkfifo pipe; then
    sleep 300 <>pipe & # this process keeps the pipe open and does not read it
    holder=$!
    "$program" train $run --train.max_steps=1000000 --run.dir=b >pipe 2>&1 &
    process=$!
    tries=0
    until [ $tries -ge 600 ] || { [ "$size" = "$(cat b/metrics.jsonl 2>/dev/null | wc -c)" ] && [ \
        "${size:-0}" -gt 0 ]; }; do
        size=$(cat b/metrics.jsonl 2>/dev/null | wc -c)
        sleep 0.3
        tries=$((tries + 1))
    done
    kill -s TERM $process
    (sleep 30; kill -s KILL $process) 2>/dev/null & # kills a run that does not end
    guard=$!
    wait $process
    code=$?
    kill $guard $holder
    trouble=
    [ $tries -lt 600 ] || trouble="the full pipe did not block the run"
    [ $code -eq 143 ] || trouble="exit code $code"
    ls b/checkpoints/step-*/state.json >/dev/null || trouble="no checkpoint"
    shown=/dev/null report "SIGTERM acts while the output is blocked" "$trouble"
fi
("$program" train $run --train.max_steps=1000000 --run.dir=e 2>err; echo $? >code ) | head -3 >out
trouble=
[ "$(cat code)" -eq 141 ] || trouble="exit code $(cat code)"
ls e/checkpoints/step-*/state.json >/dev/null || trouble="no checkpoint"
report "a run ends with 141 if the reader of its output ends" "$trouble"

# ---- on a terminal, if the machine can make a pseudo-terminal ----
if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    TERM=xterm script -qec "'$program' train $(echo $run) --run.dir=t" /dev/null >out 2>err </dev/null
    code=$?
    trouble=$(missing out "step 4/4 100%|ETA 0:00:00|Training complete")
    [ "$(tail -c 3 out)" = "$(printf '\033[K')" ] || trouble="the progress line is not cleared at the end"
    [ $code -eq 0 ] || trouble="exit code $code"
    report "a progress line on a terminal" "$trouble"
    TERM=xterm script -qec "'$program' train $(echo $run) --train.grad_accum_steps=3 --run.dir=micro" \
        /dev/null >out 2>err </dev/null
    report "the progress line has micro-batches" "$(missing out \
        "first step: micro-batch 1/3 done|Training complete")"
    yellow=$(printf '\033[33m')
    shown() { # shown ARGUMENTS: prints "yellow" if warnings of a run on a terminal are yellow
        TERM=xterm script -qec "'$program' train $(echo $run) --optimizer.lr=1e30 --run.dir=c $*" /dev/null \
            >out 2>err </dev/null
        rm -rf c
        grep -qF "WARNING" out || echo "no warning"
        grep -qF "$yellow" out && echo yellow
    }
    report "warnings are yellow on a terminal" "$([ "$(shown)" = yellow ] || echo "they are not")"
    report "metrics.color = false turns colors off" "$(shown --metrics.color=false)"
    report "NO_COLOR turns colors off" "$(NO_COLOR=1; export NO_COLOR; shown)"
else
    echo "SKIPPED a progress line on a terminal: this machine cannot make a pseudo-terminal"
fi

# ---- the other commands ----
works "generate continues the prompt" "In the" generate r --prompt="In the" --max-tokens=20 --seed=1
cp out first
works "generate with the same seed" "In the" \
    generate r/checkpoints/step-4 --prompt="In the" --max-tokens 20 --seed 1
holds "the same seed gives the same text" cmp out first
echo "In the" | "$program" generate r --prompt - --max-tokens=20 --seed=1 >second 2>err
holds "a prompt from standard input gives the same text" cmp first second
holds "generate ends if the reader of its output ends" \
    timeout 60 sh -c "'$program' generate r --prompt=a --max-tokens=1000000000 | head -c 5"

works "report compares two runs" "gap to first|BF16|training loss by step" \
    report r f --out=page.html --title="Two runs"
holds "report writes a page" grep -q "Two runs" page.html
works "report without a plot" "tokens/s" report r --no-plot
finish
