#!/bin/sh
# Trains with tensor and context parallelism, also with sharded parameters, and compares the losses with one
# rank's.
. "$(dirname "$0")/checks.sh"
ranks_can_run

yes 'In the beginning God created the heaven and the earth.' | head -c 20000 >text.txt
run="$small --data.dataset_path=text.txt --metrics.log_interval=1 --model.n_heads=4 \
--train.mixed_precision=fp32"
fp8="--train.mixed_precision=fp8 --float8.recipe_name=tensorwise --float8.tensor_parallel=true"

# on RANKS ARGUMENT...: trains on this number of ranks.
on() {
    ranks=$1
    shift
    timeout 120 mpirun -np "$ranks" --bind-to none "$program" train $run "$@" >out 2>err </dev/null
    code=$?
}

# losses FILE: prints the losses of a run, rounded to three digits.
losses() {
    sed -n 's/.*"loss":[ ]*\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | awk '{ printf "%.3f\n", $1 }'
}

# equals NAME FOLDER OTHER: two runs must have the same losses.
equals() {
    trouble=
    [ "$code" -eq 0 ] || trouble="exit code $code"
    losses "$2" >first
    losses "$3" >second
    [ -s first ] || trouble="$2 has no losses"
    cmp -s first second || trouble="losses $(tr '\n' ' ' <first) and $(tr '\n' ' ' <second)"
    report "$1" "$trouble"
}

on 1 --run.dir=one
on 2 --run.dir=tp --distributed.tp=2
equals "tp of two ranks" tp one
on 2 --run.dir=sp --distributed.tp=2 --distributed.sequence_parallel=true
equals "tp of two ranks with sequence_parallel" sp one
on 2 --run.dir=cp --distributed.cp=2
equals "cp of two ranks" cp one
on 4 --run.dir=both --distributed.tp=2 --distributed.cp=2 --distributed.sequence_parallel=true
equals "tp and cp on four ranks" both one
on 4 --run.dir=sharded --distributed.tp=2 --distributed.dp_shard=2 --train.batch_size=1
equals "tp and dp_shard on four ranks" sharded one

on 1 --run.dir=fp8-one $fp8
on 2 --run.dir=fp8-tp $fp8 --distributed.tp=2 --distributed.sequence_parallel=true
equals "tp in FP8" fp8-tp fp8-one
on 4 --run.dir=fp8-sharded $fp8 --distributed.tp=2 --distributed.dp_shard=2 --train.batch_size=1
holds "tp and dp_shard in FP8" test $code -eq 0

# ---- a checkpoint from other ranks ----
resume="--train.max_steps=6 --checkpoint.load_path=latest"
on 1 --run.dir=one $resume
on 2 --run.dir=tp --distributed.tp=2 $resume
equals "two ranks resume" tp one
on 1 --run.dir=sp $resume
equals "one rank resumes from two ranks" sp one
on 1 --run.dir=again
on 2 --run.dir=again --distributed.tp=2 $resume
equals "two ranks resume from one rank" again one

# ---- one rank uses a model that several ranks trained ----
on 1 --run.dir=fused-one --model.fused_qkv=true --model.fused_gate_up=true --model.n_kv_heads=2
on 2 --run.dir=fused --distributed.tp=2 --model.fused_qkv=true --model.fused_gate_up=true --model.n_kv_heads=2
equals "tp splits the heads of fused matrices" fused fused-one
on 4 --run.dir=copies --distributed.cp=4 --model.n_kv_heads=2
equals "cp copies keys to the ranks of their query heads" copies fused-one
works "eval of a model trained on several ranks" "passed" eval fused --against fused-one --data text.txt
call generate fused --prompt="In the" --max-tokens=8
holds "generate with a model trained on several ranks" test $code -eq 0
works "export of a model trained on several ranks" "Exported" export fused --out folder

# ---- refused settings ----
on 2 --run.dir=no --train.mixed_precision=fp8 --distributed.tp=2
trouble=$(missing err "FP8 + Tensor Parallelism is not yet supported|float8.tensor_parallel = true")
[ $code -ne 0 ] || trouble="exit code 0"
report "FP8 with tensor parallelism requires float8.tensor_parallel" "$trouble"
on 3 --run.dir=no --distributed.tp=3
trouble=$(missing err "model.n_heads (4) must be divisible by distributed.tp (3)")
[ $code -ne 0 ] || trouble="exit code 0"
report "the number of heads must be divisible by tp" "$trouble"
finish
