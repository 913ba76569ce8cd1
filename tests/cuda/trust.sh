#!/usr/bin/env bash
# Runs what tests/cuda/trust.cmake has built, in its folder:
#   trust.sh order     races within blocks, between blocks and between streams
#   trust.sh memory    accesses outside of allocations, unaligned addresses
#   trust.sh faults    each planted fault must be found by its test; prints the message
# If the thread sanitizer does not start on the machine, skips its tests with a message (exit status 77).
set -uo pipefail
export TSAN_OPTIONS="halt_on_error=1 history_size=2 ${TSAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_leaks=0 ${ASAN_OPTIONS:-}"

# in_build BUILD [own] PROGRAM ARGUMENT...: runs the build's program. own: with the exact kernels of products.
# Address randomization is off, because the thread sanitizer does not support it.
in_build() {
    local build=$1 program=$2
    shift 2
    [ "$program" != own ] || {
        local -x OTTAVA_CUDA_GEMM=own
        program=$1
        shift
    }
    if [ "$build" = order ]; then setarch -R "./order/$program" "$@"; else "./$build/$program" "$@"; fi
}

require_order() {
    in_build order copies >copies.log 2>&1 && return
    grep -q 'FATAL: ThreadSanitizer\|setarch:' copies.log || return 0
    echo "SKIPPED: the thread sanitizer does not start on this machine: $(grep -m1 'FATAL\|setarch:' \
        copies.log)"
    exit 77
}

# run_all BUILD STEPS...: runs all programs of a build. Races do not depend on the formats of a product, so
# with `order` only one test of products runs.
run_all() {
    local build=$1 product=
    shift
    [ "$build" != order ] || product=mx_goes_to_the_library_on_blackwell
    in_build "$build" mistakes && in_build "$build" small && in_build "$build" copies &&
        in_build "$build" own small gemm grouped_gemm grouped_gemm_weight && in_build "$build" \
        products $product && in_build "$build" attention test_tensor_cores &&
        in_build "$build" attention test_a_token_with_a_cache &&
        in_build "$build" steps "$@"
}

# found FILE: prints the line with the reason why the program ended.
found() {
    grep -m1 -oE 'ThreadSanitizer: .*|AddressSanitizer: [a-z-]+|[a-z_./]+:[0-9:]+ runtime error: .*|small: '\
'.*|copies: .*|steps: .*|(emulated kernel|CUDA stand-in).*' "$1" ||
        grep -m1 -E ' --- .*(x|!=|error)|\[  ERROR' "$1" || echo "the program crashed"
}

run_faults() {
    local survivors=0 count=0 number name build program result status
    while read -r number name build program; do
        count=$((count + 1))
        if [ "$build" = missing ]; then
            result="SURVIVES: the source no longer contains the line that the fault changes \
(tests/cuda/faults.def)"
            survivors=$((survivors + 1))
        elif OTTAVA_FAULT=$number timeout 120 bash -c "$(declare -f in_build); in_build $build $program" \
            >fault.log 2>&1; then
            result="SURVIVES: $program finds nothing"
            survivors=$((survivors + 1))
        else
            status=$?
            result=$(found fault.log)
            [ $status != 124 ] || result="the program does not end"
        fi
        printf '%-34s %-6s %-22s %.110s\n' "$name" "$build" "$program" "$result"
    done <faults.txt
    echo "$count faults planted, $survivors not found"
    [ $survivors = 0 ]
}

case $1 in
order) require_order && run_all order delayed dp_shard ;;
memory) run_all memory ;;
faults) require_order && run_faults ;;
esac
