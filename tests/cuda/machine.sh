#!/usr/bin/env bash
# machine.sh FOLDER: prints each kernel's registers, shared memory, stack and occupancy (resident warps, of 64
# per SM; sm_90: 65,536 registers, 227 KiB of shared memory), from the ptxas logs that tools/keep_ptxas.sh
# left in the folder. Exits with 1 if a kernel spills registers or uses a stack.
set -euo pipefail
logs=$(find "$1" -name '*.ptxas')
[ -n "$logs" ] || { echo "SKIPPED: no kernel was built for a GPU in $1 (nvcc)"; exit 77; }

# shellcheck disable=SC2086
cat $logs | c++filt | sed 's/(ott_dtype)//g; s/(update_formats)//g' | awk '
function threads_of(kernel) {
    if (kernel ~ /^attention_/) return 64
    if (kernel ~ /^amax_update_kernel/) return 32
    if (kernel ~ /^amax_record_kernel/) return 1
    return 256
}
function least(a, b) { return a < b ? a : b }
function warps_at_once(threads, registers, shared,   warps, of_warp, blocks) {
    warps = int((threads + 31) / 32)
    of_warp = int((registers * 32 + 255) / 256) * 256
    blocks = least(32, int(64 / warps))
    blocks = least(blocks, int(int(65536 / of_warp) / warps))
    return warps * least(blocks, int(233472 / (shared + 1024)))
}
/Compiling entry function/ {
    kernel = $0
    sub(/.*entry function ./, "", kernel); sub(/. for .sm_.*/, "", kernel); sub(/^void /, "", kernel);
        sub(/\(.*/, "", kernel)
}
/bytes stack frame/ { stack = $1; spilled = $5 + $9 }
/Used [0-9]+ registers/ {
    registers = $5; shared = 0
    for (i = 1; i < NF; i++) if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
    count++
    warps = warps_at_once(threads_of(kernel), registers, shared)
    wrong = spilled > 0 || stack > 0
    bad += wrong
    printf "%-76.76s %4d registers %6d shared %4d stack %2d warps of 64%s\n", kernel, registers, shared,
        stack, warps, \
           wrong ? "  SPILLS OR USES A STACK" : ""
}
END {
    print count + 0 " kernels, " bad + 0 " that spill or use a stack"
    exit bad > 0 || count == 0
}'
