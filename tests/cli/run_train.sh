#!/bin/sh
# Tests two ways to start ranks: run_train.sh, which has the interface of torchtitan's launcher, and the
# option --nproc-per-node. Checks the processes that they start, and their errors. A stub replaces mpirun.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/cli/checks.sh"
mkdir stub
printf '#!/bin/sh\necho "CONFIG_FILE=$CONFIG_FILE mpirun $*"\n' >stub/mpirun
chmod +x stub/mpirun
PATH=$PWD/stub:$PATH
unset CONFIG_FILE MODULE CONFIG COMM_MODE NGPU LOG_RANK

# starts NAME PARTS [VARIABLE=VALUE]...: run_train.sh, with these variables, must call mpirun with the parts.
starts() {
    name=$1 parts=$2
    shift 2
    env OTTAVA="$program" "$@" "$root/run_train.sh" --train.seed=3 >out 2>err
    code=$?
    trouble=$(missing out "$parts")
    [ $code -eq 0 ] || trouble="exit code $code"
    report "$name" "$trouble"
}

# refuses NAME PARTS [VARIABLE=VALUE]...: run_train.sh, with these variables, must fail with an error that
# contains the parts.
refuses() {
    name=$1 parts=$2
    shift 2
    env OTTAVA="$program" "$@" "$root/run_train.sh" >out 2>err
    code=$?
    trouble=$(missing err "$parts")
    [ $code -eq 2 ] || trouble="exit code $code"
    [ -s out ] && trouble="a program was started"
    report "$name" "$trouble"
}

starts "the default configuration" "CONFIG_FILE=$root/configs/debug.toml|mpirun -np 8 --bind-to none \
$program train --metrics.log_rank=0 --train.seed=3"
starts "CONFIG_FILE and NGPU" "CONFIG_FILE=x.toml|-np 4" CONFIG_FILE=x.toml NGPU=4
starts "torchtitan's command of 2026" "CONFIG_FILE=$root/configs/titan/llama3_8b.toml|-np 2" MODULE=llama3 \
    CONFIG=llama3_8b NGPU=2
starts "MODULE without CONFIG" "configs/titan/llama3_debugmodel.toml" MODULE=llama3
starts "CONFIG of another module" "configs/titan/qwen3_0_6b.toml" MODULE=qwen3 CONFIG=qwen3_0_6b
refuses "an unknown CONFIG" "MODULE=llama4 CONFIG=llama4_17bx16e|llama3_405b llama3_70b llama3_8b" \
    MODULE=llama4 CONFIG=llama4_17bx16e
refuses "CONFIG does not belong to MODULE" "CONFIG=llama3_8b is not a configuration of MODULE=qwen3" \
    MODULE=qwen3 CONFIG=llama3_8b
refuses "a path" "CONFIG=../debug is not known" CONFIG=../debug
refuses "CONFIG_FILE and CONFIG" "CONFIG_FILE=x.toml and MODULE or CONFIG name two" CONFIG_FILE=x.toml \
    CONFIG=llama3_8b
refuses "a run without communication" "ottava plan FILE --ranks 2" NGPU=2 COMM_MODE=fake_backend \
    CONFIG=llama3_8b

# ---- the option of AutoModel and torchrun ----
for arguments in "--nproc-per-node=2 run.yaml" "run.yaml --nproc-per-node 2" "--nproc_per_node=2 run.yaml"; do
    works "train $arguments" "mpirun -np 2 --bind-to none $(readlink -f \
        "$program") train run.yaml --train.seed=3" train $arguments --train.seed=3
done
works "one process needs no mpirun" "Training complete" train --nproc-per-node 1 $small --run.dir=alone
fails "the number of processes is not a number" 2 "--nproc-per-node=many" train --nproc-per-node=many $small
PATH=/nowhere "$program" train --nproc-per-node=2 run.yaml >out 2>err
code=$?
report "mpirun is missing" "$(missing err "cannot start mpirun|openmpi-bin")$([ $code -eq 1 ] || echo \
    "exit code $code")"

for file in "$root"/configs/titan/*.toml; do
    works "a plan of $(basename "$file")" "Model: " \
        plan "$file" --device=h100 --ranks=8 --model.hf_assets_path=none \
        --training.dataset_path=small.txt --model.reduce=64 --train.seq_len=64 --distributed.tp=1
done
call train "$root/configs/titan/llama3_8b.toml"
report "named datasets are not downloaded" "$(missing err \
    'training.dataset = "c4": named datasets are not downloaded')"
finish
