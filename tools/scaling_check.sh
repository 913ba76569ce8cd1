#!/usr/bin/env bash
# scaling_check.sh ROUNDS [PROGRAM]: runs a step of the same 8 rows on 1, 2, 4 and 8 ranks of one
# thread each, in turn, ROUNDS times. Prints medians: time of a step, processor time of all ranks
# including communication, and bytes that a rank moves. Not one of the tests: it measures this machine.
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
rounds=$1
program=$(realpath "${2:-build/release/ottava}")
configs=$(cd "$(dirname "$0")/../configs" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
few=4 many=16 # steps of a short and a long run; the difference of their times leaves out the start
folder=$(mktemp -d /tmp/scaling-check-XXXXXX)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
ln -s "$configs" configs

# train RANKS STEPS: trains in the folder `run`. Writes the processor seconds of all ranks to the file `cpu`.
train() {
    rm -rf run
    TIMEFORMAT='%U %S'
    { time mpirun -np "$1" --bind-to none "$program" \
        train configs/debug.toml --train.max_steps="$2" --train.threads=1 \
        --train.mixed_precision=fp8 --train.batch_size=1 --train.global_batch_size=8 --train.seq_len=256 \
        --model.dim=256 --model.n_layers=4 --model.ffn_hidden_dim=768 --checkpoint.interval=0 \
        --eval.enabled=false --metrics.peak_tflops=1 --metrics.log_interval=1 --run.dir=run >log 2>&1; } \
        2>cpu ||
        { tail -n 5 log >&2; exit 1; }
}

median() {
    sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

for round in $(seq "$rounds"); do
    for ranks in 1 2 4 8; do
        train "$ranks" "$few"
        before=$(awk '{ print $1 + $2 }' cpu)
        train "$ranks" "$many"
        awk -v before="$before" -v steps=$((many - few)) '{ print ($1 + $2 - before) / steps }' cpu \
            >>"cpu-$ranks"
        sed -n 's/.*"tps":\([0-9.e+]*\),.*/\1/p' run/metrics.jsonl | tail -n +3 |
            awk '{ print 2048 / $1 }' | median >>"step-$ranks"
        awk -v steps="$many" '/Gathered from ranks:/ {
            sub(/.*ranks: /, ""); gsub(/[^0-9. ]/, ""); print ($1 + $2 + $3 + $4 + $5 + $6) / steps }' log \
                >"moved-$ranks"
    done
done

echo "$(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), medians of $rounds rounds"
echo
echo "| ranks | a step, ms | of one rank's speed | computed by all ranks, ms | gathered and reduced by a \
rank, MiB a step |"
echo "|---|---|---|---|---|"
one=$(median <step-1)
for ranks in 1 2 4 8; do
    moved=$(cat "moved-$ranks")
    awk -v n="$ranks" -v one="$one" -v step="$(median <"step-$ranks")" -v cpu="$(median <"cpu-$ranks")" -v \
        moved="${moved:-0}" \
        'BEGIN { printf "| %d | %.0f | %.2f | %.0f | %.1f |\n", n, 1000 * step, one / step, 1000 * cpu,
            moved }'
done
