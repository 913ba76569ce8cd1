#!/usr/bin/env bash
# make_plan_pages.sh [PROGRAM]: writes docs/reference/plans: the plans of Llama 8B and 70B on H100s, each
# with 8, 64 and 512 devices, a plan of 8B with bf16 state on one device, and scaling.md, a table of several
# meshes of up to 1,024 devices. Takes ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/release/ottava}
out=docs/reference/plans
gather="--float8.enable_fsdp_float8_all_gather=true --float8.precompute_float8_dynamic_scale_for_fsdp=true"
tensorwise="--train.mixed_precision=fp8 --float8.recipe_name=tensorwise $gather"
model_8B="configs/titan_llama3_8b.toml $tensorwise"
model_70B="--model.preset=70B --train.batch_size=1 --train.seq_len=8192 --train.activation_checkpointing=full
    --train.loss_fn=chunked_cross_entropy --train.ce_chunk_size=2048 --float8.filter_fqns=output $tensorwise"
mkdir -p "$out"

# Writes a plan. A plan that does not fit in memory is written too, although the program then fails with 1.
plan() {
    "$program" plan "$@" 2>"$out/error" || [ $? -eq 1 ] || { cat "$out/error" >&2 && return 1; }
    rm -f "$out/error"
}

for ranks in 8 64 512; do
    # shellcheck disable=SC2086
    for model in 8B 70B; do
        arguments=model_$model
        plan ${!arguments} --device h100 --ranks $ranks >"$out/llama_${model}_h100_$ranks.txt"
    done
done

# With 8 bytes per parameter and a bf16 head, 8B fits on one GPU.
state="--float8.filter_fqns=output --train.master_dtype=bf16 --train.grad_dtype=bf16 \
--optimizer.state_dtype=bf16"
# shellcheck disable=SC2086
plan configs/llama3_1_8b.toml --train.mixed_precision=fp8 --train.batch_size=1 --train.seq_len=8192 \
    --train.activation_checkpointing=full $state --device h100 >"$out/llama_8B_h100_1.txt"

# Prints a row of the table, in milliseconds of a step: computing, waiting for ranks of the same stage,
# waiting for other stages, moving data (partly at the same time as computing).
row() { # arguments: MODEL RANKS MESH OPTIONS...
    local model=$1 ranks=$2 mesh=$3 arguments=model_$1
    shift 3
    # shellcheck disable=SC2086
    plan ${!arguments} --device h100 --ranks "$ranks" "$@" --json | python3 -c '
import json, os, sys
p, (model, ranks, mesh, path) = json.load(sys.stdin), sys.argv[1:]
traffic = ("gathered", "reduced", "tensor", "context", "stages", "between_copies", "exchanged")
speed, waits, bubble = p["tokens_per_second"] / int(ranks), p["waiting_seconds"], p["bubble_seconds"]
if not os.path.getsize(path): open(path, "w").write(str(speed))
seconds = [p["step_seconds"], p["step_seconds"] - waits - bubble, sum(p[name]["seconds"] for name in traffic),
    waits, bubble]
gib = p["memory_bytes"]["all"] / 2**30
cells = [model, ranks, mesh, f"{gib:.1f}" + ("" if p["fits"] else ", does not fit"),
    *(f"{1e3 * s:.0f}" for s in seconds)]
cells += [f"{speed:.0f}", format(p["mfu"], ".1%"), format(speed / float(open(path).read()), ".0%")]
print("|", " | ".join(cells), "|")
' "$model" "$ranks" "$mesh" "$first"
}

{
    echo "| model | ranks | mesh | GiB of a rank | step ms | at work | moving bytes | waiting | pipeline | \
tokens/s a device | MFU | of 8 |"
    echo "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for model in 8B 70B; do
        first=$(mktemp)
        for ranks in 8 16 64 256 512 1024; do
            row $model $ranks "dp_shard"
            [ $ranks -eq 8 ] && continue
            row $model $ranks "dp_shard 8, copies" --distributed.dp_shard=8 \
                --distributed.dp_replicate=$((ranks / 8))
            [ $ranks -eq 16 ] && continue
            row $model $ranks "tp 8, dp_shard" --distributed.tp=8 --float8.tensor_parallel=true \
                --train.batch_size=8
            row $model $ranks "pp 4, dp_shard, interleaved" --distributed.pp=4 --train.grad_accum_steps=16 \
                --train.batch_size=1 --distributed.pp_schedule=interleaved_1f1b
        done
        rm "$first"
    done
} >"$out/scaling.md"
