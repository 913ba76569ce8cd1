#!/bin/sh
# Runs benchmarks through the program. Tests tables, JSON, loading a folder, and refused options.
. "$(dirname "$0")/checks.sh"

quick="--threads=1 --repeats=1"
configs=$(dirname "$0")/../../configs

works "a table of GEMMs" "GFLOP/s|grad_weight|geometric mean|e4m3 x e4m3|bf16|fp32" \
    bench gemm --shapes=tiny $quick
works "GEMMs of given shapes" "64 x 96 x 32 |5 x 7 x 3 |times bf16" \
    bench gemm --shapes="64,32,96 5,3,7" $quick
works "JSON has FP8's speed relative to bf16" '"times_bf16":' bench gemm --shapes="64,32,96" --json $quick
works "quantization of a given shape" "16 x 48" bench quantize --shapes=16,48,8 $quick
fails "a GEMM shape with two sizes" 2 "a product is M,K,N" bench gemm --shapes=64,32
fails "a GEMM shape with size 0" 2 "a product is M,K,N" bench gemm --shapes=64,0,32
fails "a GEMM shape larger than any memory" 2 "a product is M,K,N" \
    bench gemm --shapes=64,99999999999999999999,32
fails "a GEMM shape with a letter" 2 "a product is M,K,N" bench gemm --shapes=64,32,96x
works "JSON" '{"bench":"quantize"|"variant":"bf16"|"of_peak":' bench quantize --shapes tiny --json $quick
holds "JSON is one line" test "$(wc -l <out)" -eq 1
works "the time of a step by kind of op" "demo, 1 x 32|tokens/s|quantize|between ops" \
    bench step --preset=demo --batch=1 --seq-len=32 $quick
works "GEMMs of a configuration" "attention_backward|in a step: 72 calls" \
    bench products "$configs/demo.toml" $quick
works "a step of a configuration with a recipe" "x 32|times bf16's speed" \
    bench step "$configs/demo.toml" --recipe=rowwise --batch=1 --seq-len=32 $quick
works "generation" "tokens/s|times bf16's speed" bench generate --preset=demo $quick

call train $small --run.dir=run
works "prepare a folder to load" "Exported run" export run --out folder
works "load of a folder" "read alone|loaded|1 files|), parameters" bench load folder $quick
works "load of a folder as JSON" '"bench":"load"|"load_gbytes_per_second":|"peak_bytes":' \
    bench load folder --json $quick

fails "load without a folder" 2 "load: path is missing" bench load
fails "load of a missing folder" 2 "absent" bench load absent
fails "gemm with a path" 2 "gemm: does not take the option path" bench gemm folder
fails "an option of another benchmark" 2 "gemm: does not take the option preset" bench gemm --preset=42M
fails "unknown shapes" 2 'shapes = "big"|small, square' bench gemm --shapes=big
fails "unknown preset" 2 '--model.preset=43M is not one of|"42M"' bench step --preset=43M
fails "unknown recipe" 2 'columnwise|rowwise' bench step --recipe=columnwise
fails "unknown precision" 2 'precision "fp4"|fp8, bf16 and fp32' bench step --precision=fp8,fp4
fails "a sequence longer than the model" 2 "train.seq_len (4096)|model.max_seq_len" \
    bench step --preset=demo --seq-len=4096
finish
