#!/bin/sh
# tests/aarch64/run.sh [NATIVE_PROGRAM]: tests build/aarch64 under qemu-user. Runs its tests, then tiny
# training runs. Every weight, moment and loss must be bit-identical to the native program's (default:
# build/release/ottava).
set -eu
cd "$(dirname "$0")/../.."
native=${1:-build/release/ottava}
ctest --preset aarch64 --parallel "${JOBS:-$(nproc)}"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OTTAVA_CUDA_PATH=/nowhere
head -c 20000 docs/explanation/tour.md >"$folder/text.txt"

# train NAME COMMAND...: trains with COMMAND, and prints the checksums of the run's weights and moments, and
# its losses.
train() {
    home=$folder/$1
    shift
    "$@" train --data.dataset_path="$folder/text.txt" --run.dir="$home" --model.dim=96 --model.n_layers=2 \
        --model.n_heads=3 --model.vocab_size=272 --model.ffn_hidden_dim=160 --model.max_seq_len=128 \
        --train.seq_len=40 --train.batch_size=2 --train.max_steps=3 --train.threads=1 \
        --scheduler.warmup_steps=1 --checkpoint.interval=3 --metrics.log_interval=1 \
        $options >"$home.log" 2>&1 || { cat "$home.log" >&2; return 1; }
    (cd "$home/checkpoints/step-3" && cksum model.safetensors optimizer.safetensors)
    sed -n 's/.*step: *\([0-9]*\) *loss: *\([0-9.]*\).*/step \1 loss \2/p' "$home.log"
}

emulated="qemu-aarch64-static -L build/arm64 build/aarch64/ottava"
for way in fp32 bf16 rowwise tensorwise; do
    case $way in
    fp32 | bf16) options=--train.mixed_precision=$way ;;
    *) options="--train.mixed_precision=fp8 --float8.recipe_name=$way" ;;
    esac
    train "$way" "$native" >"$folder/expected"
    here=$(sed -n 's/.*Device: \(cpu [a-z0-9]*\).*/\1/p' "$folder/$way.log")
    for level in scalar neon; do
        OTTAVA_ISA=$level train "$way-$level" $emulated >"$folder/found"
        grep -q "cpu $level" "$folder/$way-$level.log"
        cmp "$folder/expected" "$folder/found"
        echo "$way: $level on aarch64 and $here on this machine give the same bits"
    done
done
