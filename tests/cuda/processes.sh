#!/bin/sh
# processes.sh PROGRAM PLUGINS: tests the program on emulated GPUs, one process per GPU, started by mpirun.
# PLUGINS is the folder of the emulated plugin. Training matches as many CPU ranks bit for bit, and each
# device resumes the other's checkpoints. Tests the messages of failures, then the verbs that take a device,
# on one GPU.
. "$(dirname "$0")/../cli/checks.sh"
ranks_can_run
export OTTAVA_CUDA_PATH="$2" CUDART_DEVICES=4
small="$small --model.dim=64 --model.n_heads=4 --model.n_layers=2 --train.batch_size=1 --train.max_steps=2 \
--train.mixed_precision=fp8"

# same NAME A B: two runs must have the same losses and norms. Their last checkpoints must have the same
# weights, moments and histories.
same() {
    trouble=
    for run in "$2" "$3"; do
        sed -n 's/.*"step":\([0-9]*\).*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2 \3/p' \
            "$run/metrics.jsonl" >"$run.curve"
        [ -s "$run.curve" ] || trouble="no losses"
    done
    cmp "$2.curve" "$3.curve" || trouble="losses or norms differ"
    for file in model optimizer float8; do
        cmp "$2/checkpoints/step-2/$file.safetensors" "$3/checkpoints/step-2/$file.safetensors" || \
            trouble="$file.safetensors differs"
    done
    shown=out report "$1" "$trouble"
}

# as_on_cpu NAME N ARGUMENT...: trains on N GPUs and on N CPU ranks. The two runs must be the same.
as_on_cpu() {
    name=$1 number=$2
    shift 2
    for device in cpu cuda; do ranks "$number" --run.dir=$device --train.device=$device "$@"; done
    same "$name" cpu cuda
}

as_on_cpu "dp_shard x tp" 4 --distributed.dp_shard=2 --distributed.tp=2 --float8.tensor_parallel=true
rm -rf cpu cuda
as_on_cpu "dp_shard x pp" 4 --distributed.dp_shard=2 --distributed.pp=2 --train.grad_accum_steps=2 \
    --float8.recipe_name=rowwise
rm -rf cpu cuda
as_on_cpu "2 sharded ranks" 2 --checkpoint.interval=1
holds "FP8 weights travel as codes" grep -q 'Gathered from ranks: 0.[1-9] MiB in FP8' out
cp out out.gpus
prints "rank 0 names all GPUs" "rank 0 cuda:0 CPU shim, rank 1 cuda:1 CPU shim"

# ---- resuming on the other device ----
for first in cpu cuda; do
    second=$([ $first = cpu ] && echo cuda || echo cpu)
    cp -r $first then-$second && rm -r then-$second/checkpoints/step-2
    ranks 2 --run.dir=then-$second --train.device=$second --checkpoint.load_path=latest \
        --checkpoint.interval=1
    prints "$second resumes from $first" "Resumed from|step-1"
    same "the resumed run equals the uninterrupted run" $first then-$second
done

# The memory plan of the run includes the memory of GPU groups.
holds "the allocated memory is close to the planned memory" awk '/Peak memory:/ {
    sub(/.*planned /, ""); planned = $1; sub(/.*allocated /, ""); close_by = $1 > 0.9 * planned &&
        $1 < 1.1 * planned
} END { exit !close_by }' out.gpus

# ---- failures ----
# two NAME PARTS VARIABLE=VALUE DEVICE: runs two ranks, the second with that variable. They must fail with one
# message that contains the parts.
two() {
    rm -rf bad
    timeout 60 mpirun --bind-to none -np 1 "$program" train $small --run.dir=bad --train.device="$4" : \
        -np 1 env "$3" "$program" train $small --run.dir=bad --train.device="$4" >out 2>&1
    code=$?
    trouble=$(missing out "$2")
    [ $code -ne 0 ] && [ $code -ne 124 ] || trouble="exit code $code"
    [ "$(grep -c '^ottava:' out)" -eq 1 ] || trouble="not one message"
    shown=out report "$1" "$trouble"
}
two "one rank has no GPU" "rank 1: --train.device=cuda: cuda: no GPU can be used" CUDART_DEVICES=0 cuda
two "one rank has no GPU and uses the CPU" "rank 1 (|computes on cpu|rank 0 (|on cuda:0" CUDART_DEVICES=0 auto
two "two ranks use the same GPU" "ranks 0 and 1 have the same GPU, cuda:0" OMPI_COMM_WORLD_LOCAL_RANK=0 cuda
two "two ranks have different versions of NCCL" "NCCL 2.23.0, and rank 0|NCCL 2.22.0: install the same" \
    NCCL_STAND_IN_VERSION=22300 cuda

# struck NAME SIGNAL PARTS: one of two ranks gets the signal. Both ranks must end, with a message that
# contains the parts.
struck() {
    strike "$2" --train.device=cuda --checkpoint.interval=3
    trouble=$(missing out "$3")
    [ $code -ne 0 ] && [ $code -ne 124 ] || trouble="exit code $code"
    shown=out report "$1" "$trouble"
}
struck "a rank that is killed" KILL "process rank 1 with|signal 9"
struck "a rank that hangs" STOP "on rank 0: |did not join in time"

# ---- the verbs that take a device (bench: gpu_check.sh) ----
for device in cpu cuda; do
    call eval cuda --task=perplexity --data=small.txt --limit=4 --json --device=$device
    grep -o '"loss":[^,]*' out >$device.loss
    call generate cuda --prompt='In the' --max-tokens=8 --temperature=0 --device=$device
    cp out $device.text
    call export cuda --out=hf-$device --format=hf-fp8 --granularity=as-trained --device=$device
done
export CUDART_CAPABILITY=80
call eval cuda --task=perplexity --data=small.txt --limit=1 --device=auto
unset CUDART_CAPABILITY
cat out >>err
shown=err report "eval uses the CPU if the GPU has no FP8" "$(missing err \
    "Device auto: the CPU, though there is a GPU: recipe tensorwise")"
holds "eval has the same loss on both devices" cmp cpu.loss cuda.loss
holds "eval prints a loss" test -s cuda.loss
holds "generate has the same text on both devices" cmp cpu.text cuda.text
holds "generate prints a text" test -s cuda.text
holds "export writes the same folder on both devices" diff -r hf-cpu hf-cuda
finish
