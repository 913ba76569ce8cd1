#!/bin/sh
# Trains on several ranks, which mpirun starts. They must compute the results of one rank with as many
# micro-batches. Any number of ranks can resume from a checkpoint. If a rank fails, dies or hangs, all ranks
# end with one message.
. "$(dirname "$0")/checks.sh"
ranks_can_run

# curve FOLDER: prints the losses and norms of a run.
curve() {
    sed -n 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2/p; s/.*"val_loss":\([^,}]*\).*/\1/p' \
        "$1/metrics.jsonl"
}

# near: a filter that rounds the norms of a curve to five digits, because the order of sums differs.
near() {
    awk 'NF == 2 { printf "%s %.5g\n", $1, $2 } NF == 1'
}

# same NAME A B [FILTER]: two runs must have the same curve, after the filter if there is one.
same() {
    curve "$2" | ${4:-cat} >a
    curve "$3" | ${4:-cat} >b
    trouble=
    { [ -s a ] && cmp -s a b; } || trouble="losses or norms differ"
    shown="a b out" report "$1" "$trouble"
}

small="$small --eval.enabled=true --eval.dataset_path=$folder/small.txt --eval.steps=3"
for precision in bf16 fp8; do
    for count in 2 3; do
        "$program" train $small --train.mixed_precision=$precision --train.grad_accum_steps=$count \
            --run.dir=one-$precision-$count >one 2>&1
        ranks $count --train.mixed_precision=$precision --run.dir=shard-$precision-$count
        same "$count sharded ranks, $precision" one-$precision-$count shard-$precision-$count
    done
    prints "$count ranks use the same GEMMs as one rank" "$(grep -o 'GEMMs run.*' one)" \
        # With 3 ranks, each rank evaluates the same number of batches.
    ranks 2 --train.mixed_precision=$precision --run.dir=copy-$precision \
        --distributed.dp_shard=1 --distributed.dp_replicate=2
    same "2 copies, $precision" one-$precision-2 copy-$precision
done
ranks 4 --train.max_steps=2 --scheduler.decay_steps=3 --eval.interval=2 --run.dir=again \
    --train.global_batch_size=8 --train.grad_clip_norm=0
ranks 2 --train.max_steps=4 --eval.interval=2 --run.dir=again --train.global_batch_size=8 \
    --train.grad_clip_norm=0 --checkpoint.load_path=latest
prints "2 ranks resume from a checkpoint of 4 ranks" "Resumed from|step-2"
"$program" train $small --eval.interval=2 --run.dir=steps --train.global_batch_size=8 \
    --train.grad_clip_norm=0 >/dev/null 2>&1
same "resuming with 2 ranks reads the same rows" steps again near

# Resuming with another number of ranks keeps the global batch if it is divisible, and warns otherwise. The
# epochs still contain all rows.
head -c 1300 "$folder/small.txt" >epochs.txt
epochs="--data.dataset_path=epochs.txt --eval.enabled=false --train.num_epochs=2 --checkpoint.interval=3"
all=$("$program" train ${small%--train.max_steps*} --train.threads=1 --scheduler.warmup_steps=1 $epochs \
    --run.dir=epochs-1 2>&1 |
    sed -n 's/.*Training complete: .* steps, \(.*\) tokens.*/\1/p')
for other in 1 3; do
    ranks 2 $epochs --train.max_steps=3 --run.dir=epochs-2-$other
    timeout 120 mpirun -np $other --bind-to none "$program" \
        train ${small%--train.max_steps*} --train.threads=1 \
        --scheduler.warmup_steps=1 $epochs --run.dir=epochs-2-$other --checkpoint.load_path=latest >out 2>&1
    prints "$other ranks read the rest of the epochs that 2 ranks began" "tokens|Training complete"
    read=$(sed -n 's/.*Training complete: .* steps, \(.*\) tokens.*/\1/p' out)
    holds "the ranks read all rows of the epochs" awk -v a="$all" -v b="$read" \
        'BEGIN { gsub(",", "", a); gsub(",", "", b); d = a - b
        exit !(a > 0 && d * d <= (6 * 32) ^ 2) }' # the runs do not read the rows of an incomplete last step
    if [ $other = 1 ]; then
        prints "one rank keeps the global batch with more micro-batches" \
            "A step has 4 rows as before, with train.grad_accum_steps = 2"
    else
        prints "three ranks change the global batch, with a warning" \
            "A step has 6 rows from now on; earlier steps had 4"
    fi
done

experts="--model.num_experts=4 --model.n_layers=2 --train.global_batch_size=4
         --train.mixed_precision=fp8 --float8.recipe_name=rowwise --float8.moe_experts=true"
ranks 2 $experts --distributed.ep=2 --train.max_steps=2 --scheduler.decay_steps=3 --eval.interval=2 \
    --run.dir=experts
"$program" train $small $experts --eval.interval=2 --run.dir=experts --checkpoint.load_path=latest >out 2>&1
prints "one rank resumes with the experts of two ranks" "Resumed from|step-2"
"$program" train $small $experts --eval.interval=2 --run.dir=all-experts >/dev/null 2>&1
same "the resumed run equals a run of one rank" all-experts experts

for mesh in dp_replicate tp cp pp; do
    ranks 2 --run.dir=all-$mesh --distributed.$mesh=2 --distributed.dp_shard=1 --model.n_layers=2 \
        --train.grad_accum_steps=2 --train.mixed_precision=fp8 --float8.tensor_parallel=true \
        --metrics.log_rank=-1 --metrics.save_for_all_ranks=true --float8.health_interval=1 \
        --float8.fallback_sqnr_db=60 --float8.fallback_window=2 --profiling.enable=true \
        --profiling.start_step=1 --profiling.end_step=2
    prints "$mesh: all ranks write to the log" "[rank0]:[ottava]|[rank1]:[ottava]"
    holds "$mesh: all ranks log the layers that fall back" grep -q \
        'rank0.*Float8 fallback: model.layers.1.mlp.up_proj' out
    holds "$mesh: each rank writes its metrics" test -s all-$mesh/metrics-rank1.jsonl
    holds "$mesh: the profile has the communication" \
        sh -c 'grep -q "^Communication: [1-9].* collectives, " "$1" &&
        grep -q "^| communication that operations wait for | [0-9]" "$1"' - \
            all-$mesh/profiler_traces/iteration_1/summary.md
done
ranks 2 --run.dir=second --metrics.log_rank=1
prints "the rank of metrics.log_rank writes the log" "step:  4|Training complete"

# The memory plan of a run includes the memory of process groups. A plan of `ottava plan` for other numbers of
# ranks includes it too.
taken=$(sed -n 's/.*Collectives: \([0-9.]*\) MiB.*/\1/p;T;q' out)
holds "the allocated memory is close to the planned memory" awk '/Peak memory:/ {
    sub(/.*planned /, ""); planned = $1; sub(/.*allocated /, ""); close_by = $1 > 0.95 * planned &&
        $1 < 1.05 * planned
} END { exit !close_by }' out
"$program" plan $small --ranks 2 >out 2>&1
holds "plan has the communication memory of a run" test "${taken:-none}" = "$(awk \
    '$1 == "communication" { print $2 }' out)"

# ---- failures that end a run ----
ranks 2 --run.dir=bad --distributed.dp_replicate=3
prints "a mesh that does not fit" \
    "Parallelism dimensions (1 × 3 × 1 × 1 × 1 × 1 = 3) do not match world_size (2)"
timeout 120 mpirun -np 1 --bind-to none "$program" train $small --run.dir=bad : \
    -np 1 "$program" train $small --run.dir=bad --train.seed=43 >out 2>&1
prints "ranks with different settings are refused" "rank 1: train.seed = 43, and on rank 0 train.seed = 42"
long=$(printf '%0300d' 0)
timeout 120 mpirun -np 1 --bind-to none "$program" train $small --run.dir=bad --run.description="${long}1" : \
    -np 1 "$program" train $small --run.dir=bad --run.description="${long}2" >out 2>&1
prints "also if long settings differ only at their end" \
    "rank 1: run.description = \"${long}2\", and on rank 0"
for arguments in "train --foo=1" "plan --foo=1" "eval --foo"; do
    timeout 60 mpirun -np 3 --bind-to none "$program" $arguments >out 2>&1
    holds "one rank prints the error of $arguments" test "$(grep -c '^ottava:' out)" = 1
done
ranks 2 --run.dir=bad --data.dataset_path=nothing.txt
prints "a missing data file is reported" "ottava: rank 0: nothing.txt"
holds "a missing data file ends several ranks with the exit code of one rank" test $code = 2
holds "one rank reports the missing file" test "$(grep -c '^ottava:' out)" = 1


# differ: trains on two ranks. Each reads the small.txt in its own folder.
differ() {
    set -- "$program" train $small --data.dataset_path=small.txt --run.dir="$folder/differ"
    timeout 120 mpirun -np 1 --bind-to none --wdir "$folder" "$@" : -np 1 --wdir "$folder/aside" "$@" >out \
        2>&1
}
mkdir aside
head -c 3000 small.txt >aside/small.txt
differ
prints "ranks that read different files are refused" \
    "ottava: rank 1 reads small.txt of 3000 bytes, hash |, and rank 0 reads small.txt of 4000 bytes, hash "
holds "one rank reports the different files" test "$(grep -c '^ottava:' out)" = 1
holds "ranks that read different files make no run folder" test ! -e differ
cp small.txt aside
differ
prints "the same command works with equal files" "Training complete"

strike KILL --checkpoint.interval=20
prints "a killed rank ends all ranks" "process rank 1 with|signal 9"
strike STOP --checkpoint.interval=20
prints "a rank that hangs ends all ranks" "on rank 0: rank 1 did not join in time (2 s)"
"$program" train $small --run.dir=long --checkpoint.load_path=latest --train.max_steps=1 >out 2>&1
prints "the last checkpoint before the hang is valid" "Resumed from"
strike USR1 --checkpoint.interval=20
prints "one rank receives a request to stop" "Shutdown requested at step"
prints "the request stops all ranks" \
    "Resume with: mpirun -np 2 --bind-to none $program train long/config.toml"
mkdir here there
timeout 120 mpirun -np 1 --bind-to none --wdir here "$program" train $small --run.dir=unshared : \
    -np 1 --wdir there "$program" train $small --run.dir=unshared >out 2>&1
prints "ranks that do not share the run folder are refused" \
    "rank 1 does not see the folder \"unshared\" of rank 0|set run.dir"
holds "ranks that do not share the run folder start no training" test "$(grep -c 'Starting training' out)" = 0
holds "one rank reports the missing folder" test "$(grep -c '^ottava:' out)" = 1
holds "no rank leaves a marker file" test -z "$(find here -name '.ranks-*')"
finish
