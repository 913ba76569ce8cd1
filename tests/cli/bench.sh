#!/bin/sh
# Benchmarks through the program: tables, JSON, loading a folder, and refused options.
. "$(dirname "$0")/checks.sh"

quick="--threads=1 --repeats=1"
configs=$(dirname "$0")/../../configs

works "a table of products" "GFLOP/s|grad_weight|geometric mean|e4m3 x e4m3|bf16|fp32" bench gemm --shapes=tiny $quick
works "products of one's own" "64 x 96 x 32 |5 x 7 x 3 |times bf16" bench gemm --shapes="64,32,96 5,3,7" $quick
works "and how much faster FP8 is" '"times_bf16":' bench gemm --shapes="64,32,96" --json $quick
works "tensors of one's own" "16 x 48" bench quantize --shapes=16,48,8 $quick
fails "two sizes of a product" 2 "a product is M,K,N" bench gemm --shapes=64,32
fails "a size of 0" 2 "a product is M,K,N" bench gemm --shapes=64,0,32
fails "a size no memory has" 2 "a product is M,K,N" bench gemm --shapes=64,99999999999999999999,32
fails "products without an end" 2 "a product is M,K,N" bench gemm --shapes=64,32,96x
works "JSON" '{"bench":"quantize"|"variant":"bf16"|"of_peak":' bench quantize --shapes tiny --json $quick
holds "it is one line" test "$(wc -l <out)" -eq 1
works "a step, where its time goes" "demo, 1 x 32|tokens/s|quantize|between ops" \
    bench step --preset=demo --batch=1 --seq-len=32 $quick
works "products of a configuration" "attention_backward|in a step: 72 calls" bench products "$configs/demo.toml" $quick
works "a step of it, in a recipe" "x 32|times bf16's speed" \
    bench step "$configs/demo.toml" --recipe=rowwise --batch=1 --seq-len=32 $quick
works "generation" "tokens/s|times bf16's speed" bench generate --preset=demo $quick

call train $small --run.dir=run
works "a folder to load" "Exported run" export run --out folder
works "loading it" "read alone|loaded|1 files|of it the parameters" bench load folder $quick
works "loading it, as JSON" '"bench":"load"|"load_gbytes_per_second":|"peak_bytes":' bench load folder --json $quick

fails "nothing to load" 2 "load: path is missing" bench load
fails "no folder" 2 "absent" bench load absent
fails "a path where none belongs" 2 "gemm: does not take the option path" bench gemm folder
fails "an option of another benchmark" 2 "gemm: does not take the option preset" bench gemm --preset=42M
fails "unknown shapes" 2 'shapes = "big"|small, square' bench gemm --shapes=big
fails "unknown preset" 2 '--model.preset=43M is not one of|"42M"' bench step --preset=43M
fails "unknown recipe" 2 'columnwise|rowwise' bench step --recipe=columnwise
fails "unknown precision" 2 'precision "fp4"|fp8, bf16 and fp32' bench step --precision=fp8,fp4
fails "a sequence longer than the model" 2 "train.seq_len (4096)|model.max_seq_len" bench step --preset=demo --seq-len=4096
finish
