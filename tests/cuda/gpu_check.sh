#!/usr/bin/env bash
# gpu_check.sh TOOL BUILD: runs tools/gpu_check.sh on the emulated GPU, and tests how it handles failures.
set -uo pipefail
tool=$1 build=$2
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
bad=0

# expect NAME COMMAND...: the command must succeed.
expect() {
    local name=$1
    shift
    if "$@"; then echo "ok      $name"; else
        echo "FAILED  $name"
        bad=1
    fi
}
holds() { grep -qE -e "$1" "$2"; }

"$tool" "$out/full" --emulated --build="$build" >"$out/log" 2>&1
expect "an emulated check passes" test $? = 0
for stage in doctor ceilings ops parity graphs repeat products accumulation kernels step_1b step_8b_bf16 \
    step_8b_delayed; do
    expect "the table has $stage" holds "^$stage +ok " "$out/log"
done
expect "the table has the stages that the emulated GPU skips" holds "^memcheck +skipped .*: " "$out/log"
expect "two ranks train, or the table has the reason" holds \
    '^two_ranks +(ok .* differ by at most 0|skipped .*: no mpirun)$' "$out/log"
expect "losses equal the CPU's losses" holds 'differ by at most 0$' "$out/log"
expect "the table has speeds relative to bf16" holds '^8B relative to bf16:.* tensorwise [0-9.]+x' "$out/log"
expect "results.jsonl has a line per measurement" holds '^\{"stage":"products","file":"tiny.toml","recipe":'\
'"tensorwise".*"step":\{"calls":[0-9]+' "$out/full/results.jsonl"
expect "results.jsonl has no other lines" test "$(grep -cvE '^\{"stage":"[a-z0-9_]+",.*\}$' \
    "$out/full/results.jsonl")" = 0

"$tool" "$out/broken" --emulated --build="$out/nowhere" --stages=doctor,ceilings,kernels >"$out/log" 2>&1
expect "a failed stage makes the exit status 1" test $? = 1
expect "the stages after a failed stage run" test "$(grep -cE '^(ceilings|kernels) +FAILED' "$out/log")" = 2

# Another GPU lacks recipes: the stages run the others.
CUDART_CAPABILITY=80 "$tool" "$out/ampere" --emulated --build="$build" \
    --stages=step_8b_rowwise,step_8b_bf16 >"$out/log" 2>&1
expect "a check of another GPU passes" test $? = 0
expect "a recipe that the GPU lacks is skipped" holds \
    '^step_8b_rowwise +skipped .*: this GPU has no rowwise$' "$out/log"
expect "a recipe that the GPU has runs" holds '^step_8b_bf16 +ok ' "$out/log"

# Tests where cuDNN is searched: in LD_LIBRARY_PATH, in the Python environment, in the toolkit. The program
# runs without the system's cache of libraries, which may list a cuDNN.
mkdir -p "$out/bin" "$out/uncached"
printf '#!/bin/sh\necho "$PYTHON_FOLDERS"\n' >"$out/bin/python3"
loader=$(ldd "$build/ottava" | awk '$1 ~ "/ld-" { print $1 }')
printf '#!/bin/sh\nexec %s --inhibit-cache %s "$@"\n' "$loader" "$build/ottava" >"$out/uncached/ottava"
ln -s "$build/tests" "$out/uncached/tests"
chmod +x "$out/bin/python3" "$out/uncached/ottava"
make_cudnn() {
    mkdir -p "$out/$1/lib"
    echo "unsigned long cudnnGetVersion(void) { return $2; }" |
        cc -shared -fPIC -o "$out/$1/lib/libcudnn.so.9" -xc -
}
# finds_cudnn NAME LD_LIBRARY_PATH PYTHON_FOLDERS TABLE DOCTOR: checks what the table and the doctor print.
finds_cudnn() {
    env PATH="$out/bin:$PATH" CUDA_HOME="$out/toolkit" LD_LIBRARY_PATH="$2" PYTHON_FOLDERS="$3" "$tool" \
        "$out/cudnn" --emulated --build="$out/uncached" --stages=doctor >"$out/log" 2>&1
    expect "$1: the check passes" test $? = 0
    expect "$1: the table has the version and the file" holds "^doctor +ok .* s  cuDNN $4" "$out/log"
    expect "$1: doctor's answer" holds "$5" "$out/cudnn/log.txt"
    rm -rf "$out/cudnn"
}
finds_cudnn "no cuDNN" '' '' 'libcudnn.so.9: cannot open' \
    '-> python3 -m venv .* install -U nvidia-cudnn-cu1.* LD_LIBRARY_PATH=.*/nvidia/cudnn/lib'
make_cudnn toolkit 91900
make_cudnn pip/nvidia/cudnn 92600
make_cudnn user 92701
finds_cudnn "the toolkit's old cuDNN" '' '' "9.19.0, $out/toolkit/lib/libcudnn.so.9, older than 9.25.0" \
    '-> python3 -m venv .* install -U nvidia-cudnn-cu1'
finds_cudnn "pip's cuDNN" '' "$out/pip/nvidia/cudnn" "9.26.0, $out/pip/nvidia/cudnn/lib/libcudnn.so.9" \
    '^ok +cuDNN +9.26.0'
finds_cudnn "the user's cuDNN" "$out/user/lib" "$out/pip/nvidia/cudnn" "9.27.1, $out/user/lib/libcudnn.so.9" \
    '^ok +cuDNN +9.27.1'

# Tests a program that hangs, and a check that is stopped. The processes of the stage must end too, and the
# finished stages must be reported.
mkdir "$out/slow"
cat >"$out/slow/ottava" <<END
#!/bin/sh
printf '{"half' >>"$out/stopped/results.jsonl"
echo \$\$ >"$out/slow/pid"
exec sleep 300
END
chmod +x "$out/slow/ottava"
"$tool" "$out/stopped" --emulated --build="$out/slow" --stages=ceilings,kernels >"$out/log" 2>&1 &
check=$!
for _ in $(seq 300); do
    [ ! -s "$out/slow/pid" ] || break
    sleep 0.1
done
kill "$check"
wait "$check"
expect "a stopped check has exit status 1" test $? = 1
expect "a stopped check reports the stopped stage" holds '^ceilings +stopped' "$out/log"
expect "a stopped check starts no further stage" test "$(grep -c '^kernels' "$out/log")" = 0
expect "a stopped check leaves no process running" \
    sh -c "! grep -qs '^State:[[:space:]]*[RSD]' /proc/$(cat "$out/slow/pid")/status"
expect "results.jsonl reports the stopped run" holds \
    '^\{"stage":"run","name":"ceilings","verdict":"stopped",.*}$' "$out/stopped/results.jsonl"
expect "results.jsonl has no partial line" test "$(wc -l <"$out/stopped/results.jsonl")" = 1
"$tool" "$out/unknown" --stages=doktor >"$out/log" 2>&1
expect "an unknown stage is refused" test $? = 2
"$tool" --list >"$out/list"
expect "each group of stages takes less than 9.5 minutes" awk \
    '{ sum[$2] += $3 } END { for (g in sum) if (sum[g] > 570) exit 1 }' "$out/list"
[ $bad = 0 ] || cat "$out/full/log.txt"
exit $bad
