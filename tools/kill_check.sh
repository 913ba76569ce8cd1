#!/usr/bin/env bash
# kill_check.sh ROUNDS RANKS [--stop] [PROGRAM]: trains a small model on RANKS ranks, and ROUNDS times kills a
# random rank at a random moment of training, saving or loading, by SIGKILL (--stop: SIGSTOP). Each time all
# ranks must end in time and report why, and the run resumes from its last checkpoint. Finally the weights and
# optimizer state must equal those of an undisturbed run bit for bit. Not one of the tests: it takes minutes.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
rounds=$1 ranks=$2
shift 2
signal=KILL
[ "${1:-}" != --stop ] || { signal=STOP; shift; }
program=$(realpath "${1:-build/release/ottava}")
configs=$(cd "$(dirname "$0")/../configs" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
RANDOM=${SEED:-1}
timeout=10 # seconds that a rank waits for another rank
folder=$(mktemp -d /tmp/kill-check-XXXXXX)
[ -n "${KEEP:-}" ] || trap 'rm -rf "$folder"' EXIT
cd "$folder"
for run in whole broken; do mkdir "$run" && ln -s "$configs" "$run/configs"; done

# train NAME STEPS: trains in the folder NAME, from its newest checkpoint if there is one.
train() {
    cd "$1"
    exec mpirun -np "$ranks" "$program" train configs/debug.toml --train.max_steps="$2" \
        --train.mixed_precision=fp8 --train.batch_size=1 --train.seq_len=32 --model.dim=64 --model.n_heads=4 \
        --model.n_kv_heads=4 --model.ffn_hidden_dim=128 --train.threads=1 --checkpoint.interval=3 \
        --checkpoint.keep_last_n=2 --checkpoint.load_path=auto --eval.enabled=false --metrics.peak_tflops=1 \
        --distributed.nccl_timeout_sec="$timeout"
}

steps=$((30 + 50 * rounds))
echo "undisturbed: $steps steps on $ranks ranks"
started=$(date +%s%N)
(train whole "$steps") >whole.log 2>&1 || { tail -n 5 whole.log; exit 1; }
lasts=$((($(date +%s%N) - started) / 1000000))

# ranks_of PARENT: prints the processes that mpirun started.
ranks_of() {
    pgrep -P "$1" -f "$program" || true
}

disturbed=0
for round in $(seq "$rounds"); do
    (train broken "$steps") >"log-$round" 2>&1 &
    launcher=$!
    sleep "$(awk -v r="$RANDOM" -v most="$lasts" \
        'BEGIN { most = most / 3000; print 0.5 + r / 32768 * (most < 2.5 ? most : 2.5) }')"
    mapfile -t all < <(ranks_of "$launcher")
    if [ ${#all[@]} -gt 0 ]; then
        victim=${all[RANDOM % ${#all[@]}]}
        kill -"$signal" "$victim" 2>/dev/null && disturbed=$((disturbed + 1))
    fi
    since=$SECONDS
    while kill -0 "$launcher" 2>/dev/null; do
        if [ $((SECONDS - since)) -gt $((timeout + 30)) ]; then
            echo "round $round: still running $((SECONDS - since)) s after SIG$signal"
            tail -n 5 "log-$round"
            exit 1
        fi
        sleep 0.05
    done
    code=0
    wait "$launcher" || code=$?
    for process in "${all[@]}"; do
        for _ in $(seq 100); do kill -0 "$process" 2>/dev/null && sleep 0.05 || break; done
        ! kill -0 "$process" 2>/dev/null || { echo "round $round: rank's process $process is still there"; \
            exit 1; }
    done
    steps_kept=$(ls broken/runs/debug/checkpoints 2>/dev/null | grep -c '^step-' || true)
    printf 'round %d: SIG%s, %d s, exit %d, %s checkpoints: %s\n' "$round" "$signal" $((SECONDS - since)) \
        "$code" "$steps_kept" \
        "$(grep -aE 'rank [0-9]+|signal' "log-$round" | grep -av 'Training complete' | tail -n 1 | cut \
        -c1-140)"
    grep -aqE 'Training complete' "log-$round" && break
done
(train broken "$steps") >last.log 2>&1 || { echo "the last run failed"; tail -n 5 last.log; exit 1; }
for file in model optimizer; do
    cmp "whole/runs/debug/checkpoints/step-$steps/$file.safetensors" \
        "broken/runs/debug/checkpoints/step-$steps/$file.safetensors"
done
echo "disturbed $disturbed times: weights and optimizer state after $steps steps are the undisturbed \
run's, bit for bit"
