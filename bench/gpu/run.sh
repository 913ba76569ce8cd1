#!/usr/bin/env bash
# Measures the first GPU of this machine: builds the programs of this folder and runs them, each under a time limit of
# its own, a failed one not stopping the others; a table of what happened comes last.
#
#   bench/gpu/run.sh OUT [STAGE...]      (no stage named: all but torch_1b and torch_8b)
#
# OUT gets results.jsonl (one measurement a line; appended to, so that stages can be run in several calls), log.txt, and
# what single stages write beside it. `bench/gpu/report.py OUT/results.jsonl` makes the report.
# Without a GPU, SHIM=1 runs the same programs on the CPU shim in tiny sizes: a dry run, no measurement.
set -uo pipefail
here=$PWD
cd "$(dirname "$0")/../.."

# Name, limit in seconds, command. $P: the programs' prefix. Order: what steers design first.
stages() {
    cat <<STAGES
environment  30   environment
build        240  build
ceilings     30   $P/${S}ceilings $options
fp8_gemm     200  $P/${S}fp8_gemm $options
fp8_bits     30   $P/${S}fp8_bits $options
tensor_core  60   $P/${S}tensor_core $options
attention    200  $P/${S}attention $options
elementwise  60   $P/${S}elementwise $options
torch_gemm   120  python3 bench/gpu/torch_gemm.py $torch_gemm --seconds 110
torch_1b     420  python3 bench/gpu/torch_step.py $torch_1b --seconds 400
torch_8b     560  python3 bench/gpu/torch_step.py $torch_8b --seconds 540
STAGES
}
default='environment build ceilings fp8_gemm fp8_bits tensor_core attention elementwise torch_gemm'

usage() {
    echo "usage: bench/gpu/run.sh OUT [STAGE...]; stages: $(stages | awk '{ printf "%s ", $1 }')" >&2
    exit 2
}

build=build/gpu
out=${1:-}
[ "${out#/}" != "$out" ] || [ -z "$out" ] || out=$here/$out
options="--out $out/results.jsonl"
torch_gemm=$options
torch_1b="$options --preset 1b --state fp32 --batch 4 --seq-len 2048"
torch_8b="$options --preset 8b --state bf16 --batch 1 --seq-len 8192"
# 64 GB of parameters, gradients and moments; below 110 the activations are recomputed
[ "$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null || echo 0)" -gt 110000 ] 2>/dev/null ||
    torch_8b="$torch_8b --checkpoint"
P=$build S=''
if [ -n "${SHIM:-}" ]; then
    P=$build/tests S=shim_
    torch_gemm="$options --device cpu --tiny"
    torch_1b="$options --device cpu --preset tiny --seq-len 32"
    torch_8b=$torch_1b
    options="$options --tiny"
fi
[ -n "$out" ] || usage
shift
wanted=${*:-$default}
for stage in $wanted; do
    stages | awk -v s="$stage" '$1 == s { found = 1 } END { exit !found }' || { echo "unknown stage '$stage'" >&2; usage; }
done
mkdir -p "$out" || exit 2

# NVIDIA's libraries may lie in the toolkit or in a Python environment. Only our programs look for them in all these
# folders: PyTorch has its own.
export CUDA_HOME=${CUDA_HOME:-$(dirname "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")}
python_folders=$(python3 - 2>/dev/null <<'PYTHON'
import glob, site, sys
folders = [path + "/nvidia/*" for path in site.getsitepackages() + sys.path if path]
print(";".join(sorted({f for pattern in folders for f in glob.glob(pattern)})))
PYTHON
)
libraries=${LD_LIBRARY_PATH:-}
for folder in "$CUDA_HOME" ${python_folders//;/ }; do
    for lib in "$folder/lib64" "$folder/lib"; do
        [ -d "$lib" ] && libraries=${libraries:+$libraries:}$lib
    done
done

# fact KEY VALUE: a line of the environment.
fact() {
    printf '{"stage": "environment", "key": "%s", "value": "%s"}\n' "$1" "$(printf %s "$2" | tr -d '\\"' | tr '\n' ' ')" |
        tee -a "$out/results.jsonl"
}

# The first file of that name where our programs look.
library() {
    local folders
    IFS=: read -ra folders <<<"$libraries"
    find -L "${folders[@]}" /usr/lib/x86_64-linux-gnu /usr/local/nvidia -maxdepth 2 -name "$1" 2>/dev/null | head -n 1
}

environment() {
    local name
    fact date "$(date -u +%Y-%m-%dT%H:%MZ)"
    fact commit "$(git rev-parse HEAD 2>/dev/null || echo unknown)"
    fact kernel "$(uname -sr)"
    fact processor "$(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) cores"
    fact gpu "$(timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader)"
    fact nvcc "$("$CUDA_HOME/bin/nvcc" --version | sed -n 's/.*\(release.*\)/\1/p')"
    fact torch "$(timeout 60 python3 -c 'import torch; print(torch.__version__)' 2>/dev/null || echo none)"
    for name in libcuda.so.1 libcublasLt.so.13 libcudnn.so.9 libnccl.so.2 libnvrtc.so.13; do
        fact "$name" "$(library "$name")"
    done
}

# For a GPU only what runs there is built, so that nothing else can stand in its way.
build() {
    local targets=all generator=
    [ -n "${SHIM:-}" ] || targets='ceilings fp8_gemm fp8_bits tensor_core attention elementwise'
    [ -d "$build" ] || ! command -v ninja >/dev/null || generator=-GNinja
    cmake $generator -S bench/gpu -B "$build" -DOTTAVA_CUDA_HINTS="$python_folders" &&
        cmake --build "$build" --parallel --target $targets
}

# Runs one stage with its output in the log; adds its line to the table and to the results.
table=''
run_stage() {
    local name=$1 limit=$2 since=$SECONDS rc
    shift 2
    echo "=== $name: $*" | tee -a "$out/log.txt"
    if [ "$(type -t "$1")" = function ]; then
        "$@" >"$out/stage.txt" 2>&1
        rc=$?
        cat "$out/stage.txt" >>"$out/log.txt"
        [ $rc = 0 ] || tail -n 30 "$out/stage.txt"
        rm -f "$out/stage.txt"
    elif [ "$1" = python3 ]; then
        timeout --kill-after=5 "$limit" "$@" 2>&1 | tee -a "$out/log.txt"
        rc=$?
    else
        LD_LIBRARY_PATH=$libraries timeout --kill-after=5 "$limit" "$@" 2>&1 | tee -a "$out/log.txt"
        rc=$?
    fi
    # A program that was ended may have left half a line.
    [ ! -s "$out/results.jsonl" ] || [ -z "$(tail -c 1 "$out/results.jsonl")" ] || echo >>"$out/results.jsonl"
    table+=$(printf '%-12s exit %-3d %4d s' "$name" $rc $((SECONDS - since)))$'\n'
    printf '{"stage": "run", "name": "%s", "command": "%s", "rc": %d, "seconds": %d}\n' "$name" "$*" $rc $((SECONDS - since)) \
        >>"$out/results.jsonl"
    return $rc
}

failed=0
while read -r name limit command; do
    case " $wanted " in
    *" $name "*) run_stage "$name" "$limit" $command </dev/null || failed=1 ;;
    esac
done < <(stages)
printf '\n%s' "$table"
exit $failed
