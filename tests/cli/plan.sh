#!/bin/sh
# Tests how the program prints plans, and refused options. tests/plan checks the numbers of a plan.
. "$(dirname "$0")/checks.sh"

model="--model.preset=debug --train.seq_len=64 --train.batch_size=2"

works "a plan for another device" "Plan for 1 x h100|by the dry run|Expected:|Is FP8 faster|Assumed" \
    plan $model --device h100
works "a plan for several ranks" "Mesh: dp_shard 8|gathered parameters|reduced gradients" \
    plan $model --device=h200 --ranks 8
works "dp_replicate" "dp_replicate 2 x dp_shard 4|of replicas" \
    plan $model --device=h200 --ranks 8 --distributed.dp_replicate=2
works "tp" "Mesh: dp_shard 4 x tp 2|inside of layers" plan $model --device=h200 --ranks 8 --distributed.tp=2
works "pp" "Mesh: pp 2 x dp_shard 4|between stages|waiting for other stages" \
    plan $model --device=h200 --ranks 8 --distributed.pp=2 --train.grad_accum_steps=4
works "cp" "Mesh: dp_shard 4 x cp 2|heads and tokens" plan $model --device=h200 --ranks 8 --distributed.cp=2
works "ep" "Mesh: dp_shard 4 x ep 2|rows for experts (ep)" \
    plan $model --device=h200 --ranks 8 --distributed.ep=2 --model.num_experts=8
works "JSON" '"device":|"memory_bytes":|"tokens_per_second":|"layers":' plan $model --device h100 --json
holds "JSON is one line" test "$(wc -l <out)" -eq 1
works "a sweep" "Other settings|--distributed.dp_shard=" plan $model --device h100 --ranks 4 --sweep
printf '[model]\npreset = "debug"\n[train]\nseq_len = 64\n' >run.toml
works "a configuration file without data" "Expected:" plan run.toml --device h100
fails "a run that does not fit in memory" 1 "plan: the run does not fit in memory" \
    plan --model.preset=70B --device h100 --train.seq_len=4096
holds "the plan prints the missing memory" grep -q 'does not fit: .* are left' out
holds "the plan says that no batch size fits" grep -q '^Not even train.batch_size = 1 fits' out
holds "the plan suggests settings" grep -q '^What would help most: ' out
works "more memory in FP8 than in bf16" "more than bf16|MiB with float8.filter_fqns = \"output_head\"" \
    plan $model --model.vocab_size=128000 --device h100 --train.batch_size=8 --train.mixed_precision=fp8 \
    --train.activation_checkpointing=full
works "help" "--ranks N|--sweep|--device cpu|a100" plan --help

fails "an unknown device" 2 "--device \"h10\" is unknown|did you mean \"h100\"" plan $model --device h10
fails "an unknown rate" 2 "bf16_tflops" plan $model --device h100 --rates speed=1
fails "a negative rate" 2 "give a number from" plan $model --device h100 --rates memory_gbs=-1
fails "an impossible memory size" 2 "gib=1e308|give a number from 0.001 to 1000000" \
    plan $model --device h100 --rates gib=1e308
fails "0 ranks" 2 "ranks 0: give 1 to" plan $model --device h100 --ranks 0
fails "ep without experts" 2 "ep > 1 requires an MoE model" \
    plan $model --device h100 --ranks 2 --distributed.ep=2
fails "FP8 with tp requires float8.tensor_parallel" 2 "float8.tensor_parallel = true" \
    plan $model --device h100 --ranks 2 --distributed.tp=2 --train.mixed_precision=fp8
fails "the mesh does not match the ranks" 2 "do not match" \
    plan $model --device h100 --ranks 8 --distributed.dp_shard=3
fails "an unknown key" 2 "train.batch_sise" plan --train.batch_sise=2 --device h100
fails "no model" 2 "no model is given" plan --device h100
finish
