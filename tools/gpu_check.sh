#!/usr/bin/env bash
# tools/gpu_check.sh OUT [--stages=A,B | --group=N] [--build=FOLDER | --bundled=FOLDER] [--emulated]
# tools/gpu_check.sh --list
# tools/gpu_check.sh --bundle=FOLDER
#
# Checks and measures a machine with a GPU. Needs the driver, CUDA 13 with cuBLASLt, and cuDNN. Installs the
# packages of tools/setup.sh (SETUP=: skips this). Searches NVIDIA's libraries in LD_LIBRARY_PATH, then in the
# Python environment, then in the toolkit.
#
# Each stage has a time limit, and runs even if others failed. A table comes last; the exit status is 0 if all
# stages that ran passed. Groups of stages take less than 9.5 minutes each and can be run one by one. OUT gets
# results.jsonl (one measurement a line, appended), log.txt, and the files of stages.
#
# --bundle builds on a machine with a toolkit and no GPU, and copies the programs into FOLDER. --bundled runs
# them on a machine without compilers and packages. --emulated rehearses the stages on the tests' emulated
# GPU, in tiny sizes: its figures are no measurements.
set -uo pipefail
here=$PWD self=$(realpath "$0") arguments=("$@")
cd "$(dirname "$0")/.." || exit 2

recipes='tensorwise rowwise delayed'
# Sizes for measurements on a GPU, and for a rehearsal (--emulated).
parity_recipes="bf16 $recipes block" parity_steps=20 ceiling=8192,8192,8192 copy=16384,16384,16384 op=
shapes='8192,4096,4096 8192,14336,4096' kernels='quantize norm optimizer attention' \
    product_recipes="bf16 $recipes block"
repeated='--model.dim=512 --model.n_heads=8 --model.n_kv_heads=2 --train.seq_len=512 --train.batch_size=4'
rehearse() {
    recipes=tensorwise parity_recipes="bf16 tensorwise" parity_steps=3 ceiling=32,32,32 copy=32,32,32 op=add
    shapes=16,64,16 kernels='quantize norm' product_recipes=tensorwise
    tiny=--repeats=1 repeated=
}
tiny=

# Writes the configuration of a model that the emulated GPU trains in seconds.
write_tiny() {
    printf '[model]\ndim = 64\nn_layers = 1\nn_heads = 2\nffn_hidden_dim = 96\nvocab_size = '\
'256\nmax_seq_len = 64\n'
    printf '[train]\nseq_len = 32\nbatch_size = 1\n'
}

# The stages: name, group, time limit in seconds, purpose. The limits are for 4 cores, which draw the weights
# of 8B in about a minute (220 s on one core).
stages() {
    cat <<'STAGES'
environment      1  30 the machine, its driver and libraries
build            1 540 the plugin, the program and the tests build
doctor           2  30 nothing that a GPU needs is missing
ceilings         2  60 copies, and products of 8192 x 8192 x 8192
ops              2 260 every operation on the GPU against the reference: bits, or within 1%
parity           2 120 a small model's losses on the GPU and on the CPU
graphs           2  90 losses of steps that are recorded as CUDA graphs and replayed
repeat           8  60 three steps, twice: the same bits
two_ranks        8  80 losses of two ranks on two GPUs and on the CPU
products         3 300 products and attention of every configuration: what cuBLASLt refuses, times
accumulation     3 100 products of 8B with fast and with full accumulation
kernels          3 150 casts, norms, SwiGLU, optimizer, attention, of the copy bandwidth
memcheck         4 180 compute-sanitizer: memory
racecheck        4 180 compute-sanitizer: races in shared memory
synccheck        4 180 compute-sanitizer: barriers
step_1b          5 480 training steps of 1B in bf16 and FP8, in turns
step_8b_bf16     6 270 training steps of 8B, 8192 tokens
step_8b_tensorwise 6 270 the same in FP8
step_8b_rowwise  7 270 the same
step_8b_delayed  7 270 the same
tensor_core      8  60 what the tensor cores compute, against src/fp8/tensorcore.c
fp8_bits         8  30 what cuBLASLt computes along K, against the same
torch_gemm       8 120 PyTorch's products
torch_1b         9 420 PyTorch's training step of 1B, and torchao's FP8
torch_8b        10 560 the same of 8B
STAGES
}

usage() {
    sed -n '2,4s/^# //p' "$0" >&2
    echo "stages: $(stages | awk '{ printf "%s ", $1 }')" >&2
    exit 2
}

out='' wanted='' group='' build=build/release bundled='' bundle='' emulated=''
for argument; do
    case $argument in
    --list) stages; exit ;;
    --stages=*) wanted=${argument#*=} ;;
    --group=*) group=${argument#*=} ;;
    --build=*) build=${argument#*=} ;;
    --bundled=*) bundled=${argument#*=} ;;
    --bundle=*) bundle=${argument#*=} ;;
    --emulated) emulated=1 && rehearse ;;
    -*) usage ;;
    *) [ -z "$out" ] || usage; out=$argument ;;
    esac
done
absolute() {
    case $1 in /* | '') echo "$1" ;; *) echo "$here/$1" ;; esac
}
out=$(absolute "$out") bundled=$(absolute "$bundled") bundle=$(absolute "$bundle")
[ "$build" = build/release ] && build=$PWD/$build || build=$(absolute "$build")

# ---- folders and libraries ----

# NVIDIA's libraries may be in the toolkit or in a Python environment.
export CUDA_HOME=${CUDA_HOME:-$(dirname "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")}
python_folders=$(python3 - 2>/dev/null <<'PYTHON'
import glob, site, sys
folders = [path + "/nvidia/*" for path in site.getsitepackages() + sys.path if path]
print(";".join(sorted({f for pattern in folders for f in glob.glob(pattern)})))
PYTHON
)
own_libraries=${bundled:+$bundled/lib}
for folder in ${python_folders//;/ } "$CUDA_HOME"; do
    for lib in "$folder/lib64" "$folder/lib"; do
        [ -d "$lib" ] && own_libraries=${own_libraries:+$own_libraries:}$lib
    done
done

program=$build/ottava ops=$build/tests/backend_test_ops probes=$build/probes tensor_core=$probes/tensor_core \
    fp8_bits=$probes/fp8_bits
if [ -n "$bundled" ]; then
    program=$bundled/ottava ops=$bundled/backend_test_ops tensor_core=$bundled/tensor_core \
        fp8_bits=$bundled/fp8_bits
fi
[ -z "$emulated" ] || export OTTAVA_CUDA_PATH=$build/tests/emulated

# ours COMMAND...: runs a program of this project with NVIDIA's libraries. (PyTorch has copies of these
# libraries.)
ours() {
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$own_libraries "$@"
}

# found PART: prints what `ottava doctor` found of a part, for example of cuda:0.
found() {
    ours "$program" doctor 2>/dev/null | sed -n "s/^[a-z]*  *$1  *//p" | head -n 1
}

# usable RECIPE...: prints the recipes that the GPU's tensor cores support.
usable() {
    local recipe gpu
    gpu=$(found cuda:0)
    for recipe; do
        case "$gpu," in
        *'; recipes: '*" $recipe,"*) echo "$recipe" ;;
        *'; recipes: '*) echo "this GPU has no $recipe" >&2 ;;
        *) echo "$recipe" ;;
        esac
    done
}

# need RECIPE: skips a stage whose recipe the GPU does not have.
need() {
    [ -n "$(usable "$1")" ] || skip "this GPU has no $1"
}

# note TEXT: sets the text of this stage in the table.
note() {
    echo "$*" >"$out/note.txt"
}

# skip TEXT: ends a stage that cannot run on this machine. This is no failure.
skip() {
    note "skipped: $*"
    exit 77
}

# record STAGE [MEMBERS]: appends the JSON object on standard input to results.jsonl. The stage and MEMBERS
# are added as its first members.
record() {
    sed "s|^{|{\"stage\":\"$1\",${2:+$2,}|" | tee -a "$out/results.jsonl"
}

# bench STAGE MEMBERS ARGUMENT...: runs a benchmark and records its JSON object.
bench() {
    local stage=$1 members=$2
    shift 2
    ours "$program" bench "$@" --device=cuda --json >"$out/bench.json" || return 1
    record "$stage" "$members" <"$out/bench.json"
}

# member NAME: prints the first number with this name in the object on standard input.
member() {
    grep -o "\"$1\":[-+.0-9e]*" | head -n 1 | cut -d : -f 2
}

# ---- stages ----

fact() {
    printf '{"key":"%s","value":"%s"}\n' "$1" "$(printf %s "$2" | tr -d '\\"' | tr '\n' ' ')" | record \
        environment
}

stage_environment() {
    local gpu=none
    ! command -v nvidia-smi >/dev/null || gpu=$(timeout 20 nvidia-smi \
        --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2>&1)
    fact date "$(date -u +%Y-%m-%dT%H:%MZ)"
    fact commit "$(git rev-parse HEAD 2>/dev/null || echo unknown)"
    fact kernel "$(uname -sr)"
    fact processor "$(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo), $(nproc) cores"
    fact gpu "$gpu"
    fact nvcc "$("$CUDA_HOME/bin/nvcc" --version 2>&1 | sed -n 's/.*\(release.*\)/\1/p')"
    fact torch "$(python3 -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null \
        || echo none)"
    note "${emulated:+a rehearsal; }GPU: $(echo "$gpu" | head -n 1)"
}

compile() {
    local generator= architectures=
    nvidia-smi >/dev/null 2>&1 && architectures=-DCMAKE_CUDA_ARCHITECTURES=native # else Hopper's
    [ -d "$build" ] || ! command -v ninja >/dev/null || generator=-GNinja
    ${SETUP:-tools/setup.sh} build test &&
        cmake $generator --preset cuda -B "$build" -DOTTAVA_CUDA_HINTS="$python_folders" $architectures &&
        cmake --build "$build" --parallel "$(nproc)" --target ottava_plugin ottava_cli backend_test_ops &&
        cmake $generator -S bench/gpu -B "$probes" -DOTTAVA_CUDA_HINTS="$python_folders" &&
        cmake --build "$probes" --parallel "$(nproc)" --target tensor_core fp8_bits
}

stage_build() {
    [ -z "$bundled$emulated" ] || skip "it is built"
    compile
}

# With --emulated the stage does not check the machine.
stage_doctor() {
    note "cuDNN $(found cuDNN)"
    ours "$program" doctor || [ -n "$emulated" ]
}

stage_ceilings() {
    bench ceilings '"case":"product"' gemm --shapes=$ceiling &&
        note "bf16 $(grep -o '"variant":"bf16"[^}]*' "$out/bench.json" | member gflops) GFLOP/s" &&
        bench ceilings '"case":"copy"' quantize --shapes=$copy
}

# on_gpu COMMAND...: runs a test program on the GPU.
on_gpu() {
    OTTAVA_CUDA_PATH=${OTTAVA_CUDA_PATH:-$(dirname "$program")} OTTAVA_TEST_DEVICE=cuda ours "$@"
}

stage_ops() {
    on_gpu "$ops" $op
}

# losses DEVICE FOLDER ARGUMENT...: trains, and prints the loss of each step on a line.
losses() {
    local device=$1 folder=$2
    shift 2
    rm -rf "$folder"
    ours ${launch:-} "$program" train --data.format=synthetic --model.dim=64 --model.n_layers=2 \
        --model.n_heads=2 --model.vocab_size=256 --model.ffn_hidden_dim=192 --train.seq_len=64 \
        --train.batch_size=2 \
        --train.max_steps=$parity_steps --scheduler.warmup_steps=1 --run.dir="$folder" \
        --train.device="$device" "$@" >&2 &&
        grep -o '"loss":[-+.0-9e]*' "$folder/metrics.jsonl" | cut -d : -f 2
}

# compare ARGUMENT...: prints the largest relative difference of the losses on the CPU and on the GPU.
compare() {
    losses cpu "$out/run_cpu" "$@" >"$out/losses_cpu.txt" &&
        losses cuda "$out/run_cuda" "$@" >"$out/losses_cuda.txt" || return 1
    paste "$out/losses_cpu.txt" "$out/losses_cuda.txt" |
        awk 'NF != 2 || $1 <= 0 { bad = 1 } { d = ($1 - $2) / $1; if (d < 0) d = -d;
            if (d > far) far = d } END { print bad || !NR ? 1 : far + 0 }'
}

stage_parity() {
    local recipe arguments far worst=0
    for recipe in $(usable $parity_recipes); do
        arguments="--train.mixed_precision=fp8 --float8.recipe_name=$recipe"
        [ $recipe != bf16 ] || arguments=--train.mixed_precision=bf16
        far=$(compare $arguments) || return 1
        echo "{\"recipe\":\"$recipe\",\"largest_difference\":$far}" | record parity
        worst=$(echo "$far $worst" | awk '{ print ($1 > $2 ? $1 : $2) }')
    done
    note "losses differ by at most $worst"
    awk -v far="$worst" 'BEGIN { exit !(far < 0.01) }'
}

# Losses with and without CUDA graphs must have the same digits.
stage_graphs() {
    local fp8='--train.mixed_precision=fp8 --float8.recipe_name=delayed'
    need delayed
    losses cuda "$out/run_cuda" $fp8 >"$out/losses_cuda.txt" &&
        losses cuda "$out/run_graphs" $fp8 --train.compile_mode=reduce-overhead >"$out/losses_graphs.txt" &&
        cmp "$out/losses_cuda.txt" "$out/losses_graphs.txt" && note "equal to losses without graphs"
}

# Two equal runs must have the same losses, weights and moments.
stage_repeat() {
    local run file fp8='--train.mixed_precision=fp8 --float8.recipe_name=tensorwise'
    need tensorwise
    for run in first second; do
        losses cuda "$out/run_$run" $fp8 $repeated --train.max_steps=3 >"$out/losses_$run.txt" || return 1
    done
    cmp "$out/losses_first.txt" "$out/losses_second.txt" || return 1
    for file in model optimizer; do
        cmp "$out"/run_{first,second}/checkpoints/step-3/$file.safetensors || return 1
    done
    note "the same bits"
}

stage_two_ranks() {
    local far launch='mpirun -np 2 --bind-to none --oversubscribe'
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    [ -z "$emulated" ] || export CUDART_DEVICES=2
    [ -n "$(found cuda:1)" ] || skip "one GPU"
    command -v mpirun >/dev/null || skip "no mpirun"
    far=$(compare --train.mixed_precision=bf16 --distributed.dp_shard=2) || return 1
    note "losses differ by at most $far"
    awk -v far="$far" 'BEGIN { exit !(far < 0.01) }'
}

# Model sizes for benchmarks: the sizes of Hugging Face folders with head_dim 128.
models() {
    cat <<'MODELS'
mistral_7b      4096 32 32 8 14336 32768
mistral_nemo    5120 40 32 8 14336 131072
phi_4           5120 40 40 10 17920 100352
qwen2_5_7b      3584 28 28 4 18944 152064
MODELS
}

write_models() {
    local name dim layers heads kv hidden vocabulary
    while read -r name dim layers heads kv hidden vocabulary; do
        printf '[model]\ndim = %d\nn_layers = %d\nn_heads = %d\nn_kv_heads = %d\nhead_dim = '\
'128\nffn_hidden_dim = %d\nvocab_size = %d\n' \
            "$dim" "$layers" "$heads" "$kv" "$hidden" "$vocabulary" >"$out/$name.toml"
        printf 'max_seq_len = 4096\n[train]\nbatch_size = 2\nseq_len = 2048\nactivation_checkpointing = '\
'"full"\n' >>"$out/$name.toml"
    done < <(models)
}

stage_products() {
    local file recipe arguments failed=0 \
        files="configs/*.toml $out/mistral*.toml $out/phi*.toml $out/qwen*.toml"
    write_models
    [ -z "$emulated" ] || files=$out/tiny.toml
    for file in $files; do
        for recipe in $(usable $product_recipes); do
            arguments="--precision=fp8 --recipe=$recipe"
            [ $recipe != bf16 ] || arguments=--precision=bf16
            bench products "\"file\":\"$(basename "$file")\",\"recipe\":\"$recipe\"" products "$file" \
                $arguments --repeats=3 || failed=1
        done
    done 2>"$out/products.txt"
    cat "$out/products.txt"
    note "$(grep -c 'cuBLASLt has no product' "$out/products.txt") products refused by cuBLASLt"
    ! grep -q 'cuBLASLt has no product' "$out/products.txt" && [ $failed = 0 ]
}

stage_accumulation() {
    local recipe fast seconds ratios='' file=$out/accumulation.toml
    need tensorwise
    for recipe in $(usable $recipes); do
        seconds=
        for fast in true false; do
            if [ -n "$emulated" ]; then write_tiny; else
                printf '[model]\npreset = "8B"\n[train]\nbatch_size = 1\nseq_len = 8192\n'
            fi >"$file"
            printf '[float8]\n' >>"$file"
            printf 'fast_accum_%s = "%s"\n' output $fast grad_input $fast grad_weight $fast >>"$file"
            bench accumulation "\"recipe\":\"$recipe\",\"fast\":$fast" products "$file" --precision=fp8 \
                --recipe="$recipe" --repeats=3 || return 1
            seconds+=" $(grep -o '"step":{.*' "$out/bench.json" | member seconds)"
        done
        ratios+=$(echo "$recipe$seconds" | awk '{ printf "%s %.2fx, ", $1, $3 / $2 }')
    done
    note "fast against full: ${ratios%, }"
}

stage_kernels() {
    local what failed=0
    for what in $kernels; do
        case $what in
        quantize | norm) bench kernels '' $what --shapes="$shapes" ;;
        *) bench kernels '' $what ;;
        esac || failed=1
    done
    return $failed
}

sanitize() {
    local tool=$CUDA_HOME/bin/compute-sanitizer
    [ -x "$tool" ] || tool=$(command -v compute-sanitizer) || skip "compute-sanitizer is not installed"
    [ -z "$emulated" ] || skip "a GPU's tool"
    for op in quantize gemm attention_forward attention_backward rmsnorm_backward cross_entropy \
        embedding_backward adamw; do
        on_gpu "$tool" --tool "$1" --error-exitcode 1 "$ops" $op || return 1
    done
}
stage_memcheck() { sanitize memcheck; }
stage_racecheck() { sanitize racecheck; }
stage_synccheck() { sanitize synccheck; }

# step_note PRECISION: prints tokens per second and memory of the last benchmark, for the table.
step_note() {
    grep -o "\"$1\":{\"tokens_per_second\"[^}]*" "$out/bench.json" |
        sed -E 's/.*"tokens_per_second":([0-9.]+).*"memory_bytes":([0-9]+).*/\1 \2/' |
        awk -v p="$1" '{ printf "%s %.0f tokens/s, %.1f GiB", p, $1, $2 / 1073741824 }'
}

stage_step_1b() {
    local recipe ratios='' file=$out/1b.toml
    printf '[model]\npreset = "1B"\n[train]\nbatch_size = 4\nseq_len = 2048\nloss_fn = '\
'"chunked_cross_entropy"\nce_chunk_size = 2048\n[float8]\nfilter_fqns = ["output"]\n' >"$file"
    [ -z "$emulated" ] || file=$out/tiny.toml
    need tensorwise
    for recipe in $(usable $recipes); do
        bench step_1b "\"recipe\":\"$recipe\"" step "$file" --recipe="$recipe" $tiny || return 1
        ratios+="$recipe $(grep -o '"fp8":{"tokens.*' "$out/bench.json" | member ratio_to_bf16)x, "
    done
    note "$(step_note bf16); ${ratios%, }"
}

# Prints the memory of the GPU, or of the MIG instance, in GiB. (nvidia-smi prints the memory of the GPU.)
memory() {
    found cuda:0 | sed -E 's/.*, ([0-9]+)\.[0-9] GiB.*/\1/'
}

# Parameters, gradients and moments in bf16: 8 bytes a parameter. If memory is small, backward recomputes
# activations. The head is in bf16, as in torch_step.py.
step_8b() {
    local file=$out/8b.toml memory
    need "$1"
    memory=$(memory)
    [ -n "$emulated" ] || [ "${memory:-0}" -ge 75 ] || skip "8B needs 75 GiB"
    {
        printf '[model]\npreset = "8B"\n[train]\nbatch_size = 1\nseq_len = 8192\nloss_fn = '\
'"chunked_cross_entropy"\nce_chunk_size = 2048\n'
        printf 'master_dtype = "bf16"\ngrad_dtype = "bf16"\n'
        [ "${memory:-0}" -gt 107 ] || printf 'activation_checkpointing = "full"\n'
        printf '[optimizer]\nstate_dtype = "bf16"\n'
        printf '[float8]\nfilter_fqns = ["output"]\n'
    } >"$file"
    [ -z "$emulated" ] || file=$out/tiny.toml
    local precision=fp8 recipe=--recipe=$1
    [ "$1" != bf16 ] || precision=bf16 recipe=
    bench "step_8b" "\"recipe\":\"$1\"" step "$file" --precision=$precision $recipe $tiny || return 1
    note "$(step_note $precision)"
}
stage_step_8b_bf16() { step_8b bf16; }
stage_step_8b_tensorwise() { step_8b tensorwise; }
stage_step_8b_rowwise() { step_8b rowwise; }
stage_step_8b_delayed() { step_8b delayed; }

probe() {
    [ -z "$emulated" ] || skip "its own tests are gpu.*"
    case $(found cuda:0) in *'compute capability 9.0'*) ;; *) skip "for Hopper only" ;; esac
    ours "$1" --out "$out/results.jsonl"
}
stage_tensor_core() { probe "$tensor_core"; }
stage_fp8_bits() { probe "$fp8_bits"; }

torch() {
    local script=$1
    shift
    python3 -c 'import torch' 2>/dev/null || skip "no PyTorch"
    [ -z "$emulated" ] || skip "a GPU's"
    python3 "bench/gpu/$script" --out "$out/results.jsonl" "$@"
}
stage_torch_gemm() { torch torch_gemm.py --seconds 110; }
stage_torch_1b() { torch torch_step.py --preset 1b --state fp32 --batch 4 --seq-len 2048 --seconds 400; }
stage_torch_8b() {
    local checkpoint=
    # parameters, gradients and moments need 60 GiB; if the GPU has at most 107 GiB, activations are
    # recomputed
    [ "$(memory)" -gt 107 ] 2>/dev/null || checkpoint=--checkpoint
    torch torch_step.py --preset 8b --state bf16 --batch 1 --seq-len 8192 --seconds 540 $checkpoint
}

# ---- bundle ----

if [ -n "$bundle" ]; then
    compile || exit 1
    mkdir -p "$bundle/lib"
    cp "$program" "$build/libottava_cuda.so" "$ops" "$tensor_core" "$fp8_bits" "$bundle" || exit 1
    [ ! -f "$build/libottava_mpi.so" ] || cp "$build/libottava_mpi.so" "$bundle"
    # Copies all libraries except the C library and NVIDIA's, which the other machine must have.
    ldd "$program" "$ops" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
        grep -vE '/(ld-|libc\.|libm\.|libdl|libpthread|librt|libcuda|libcublas|libnv)' |
        xargs -r cp -Lt "$bundle/lib"
    echo "$bundle: copy the source tree and this folder to the other machine, and run there: \
tools/gpu_check.sh OUT --bundled=$(basename "$bundle")"
    exit
fi

# ---- running ----

[ -n "$out" ] || usage
mkdir -p "$out" || exit 2
[ -z "$emulated" ] || write_tiny >"$out/tiny.toml"

# A stage runs in another process of this script, so that its time limit applies to all processes that it
# starts.
if [ -n "${GPU_CHECK_STAGE:-}" ]; then
    "stage_$GPU_CHECK_STAGE"
    exit
fi

for stage in ${wanted//,/ }; do
    stages | awk -v s="$stage" '$1 == s { found = 1 } END { exit !found }' || { echo \
        "unknown stage '$stage'" >&2; usage; }
done

table='' failed=0 running='' stopped=''
# A stage has its own process group, which Ctrl-C does not reach. So the script passes the signal to the
# stage, and starts no further stage.
stop() {
    stopped=1
    [ -z "$running" ] || kill "$running" 2>/dev/null
}
trap stop INT TERM HUP

# `timeout` passes a signal to the stage's process group, and kills processes that ignore it.
run_stage() {
    local name=$1 limit=$2 since=$SECONDS rc verdict note
    echo "=== $name" | tee -a "$out/log.txt"
    rm -f "$out/note.txt"
    GPU_CHECK_STAGE=$name timeout --kill-after=5 "$limit" "$BASH" "$self" "${arguments[@]}" \
        >"$out/stage.txt" 2>&1 </dev/null &
    running=$!
    wait "$running"
    rc=$?
    while kill -0 "$running" 2>/dev/null; do wait "$running"; done # a signal ends the first wait
    running=
    cat "$out/stage.txt" >>"$out/log.txt"
    [ -z "$stopped" ] || rc=stopped
    case $rc in
    stopped) verdict=stopped failed=1 ;;
    0) verdict=ok ;;
    77) verdict=skipped ;;
    124 | 137) verdict='too long' failed=1 ;;
    *) verdict=FAILED failed=1 ;;
    esac
    [ $rc = 0 ] || [ $rc = 77 ] || tail -n 30 "$out/stage.txt"
    # A stopped stage may have left half a line, which is invalid JSON.
    [ ! -s "$out/results.jsonl" ] || [ -z "$(tail -c 1 "$out/results.jsonl")" ] || sed -i '$d' \
        "$out/results.jsonl"
    note=$(cat "$out/note.txt" 2>/dev/null)
    table+=$(printf '%-20s %-9s %4d s  %s' "$name" "$verdict" $((SECONDS - since)) "$note")$'\n'
    printf '{"stage":"run","name":"%s","verdict":"%s","seconds":%d}\n' "$name" "$verdict" \
        $((SECONDS - since)) >>"$out/results.jsonl"
}

# Checks once, before the first stage that needs one, whether the program can use a GPU.
require_gpu() {
    [ -z "$emulated" ] && [ -x "$program" ] || return 0
    local why
    why=$(ours timeout --kill-after=5 60 "$program" \
        bench gemm --shapes=16,16,16 --repeats=1 --device=cuda 2>&1 >/dev/null) && return 0
    why=${why:-the program does not return from the GPU within 60 s (nvidia-smi shows its state)}
    echo "$why" | tee -a "$out/log.txt"
    table+="${why##*ottava: }; no further stage is run"$'\n' failed=1
    return 1
}

asked=
while read -r name number limit _; do
    if [ -n "$wanted" ]; then
        case ",$wanted," in *",$name,"*) ;; *) continue ;; esac
    fi
    [ -z "$group" ] || [ "$group" = "$number" ] || continue
    [ -n "$wanted$group" ] || case $name in torch_[18]b) continue ;; esac
    case $name in
    environment | build | doctor) ;;
    *) [ -n "$asked" ] || require_gpu || break; asked=1 ;;
    esac
    [ -z "$stopped" ] || break
    run_stage "$name" "$limit"
done < <(stages)

# Compares the recipes with bf16 for 8B, from the results of all runs of this script.
ratios=$(grep '"stage":"step_8b"' "$out/results.jsonl" 2>/dev/null | awk '
    match($0, /"recipe":"[a-z0-9_]*"/) { recipe = substr($0, RSTART + 10, RLENGTH - 11) }
    match($0, /"tokens_per_second":[0-9.]+/) { speed[recipe] = substr($0, RSTART + 20, RLENGTH - 20) }
    END { for (r in speed) if (r != "bf16" && speed["bf16"] > 0) printf "  %s %.2fx", r,
        speed[r] / speed["bf16"] }')
rm -f "$out"/{note,stage}.txt "$out/bench.json"
printf '\n%s' "$table"
[ -z "$ratios" ] || echo "8B relative to bf16:$ratios"
exit $failed
