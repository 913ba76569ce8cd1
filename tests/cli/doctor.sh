#!/bin/sh
# Tests the output of `ottava doctor` on a machine without the CUDA backend, and with files that are not a
# CUDA backend. tools/gpu_check.sh --emulated tests it with the backend.
. "$(dirname "$0")/checks.sh"

# reports NAME PARTS VARIABLE=VALUE...: the doctor must find something missing and print all the parts.
reports() {
    name=$1 parts=$2
    shift 2
    env "$@" "$program" doctor >out 2>err
    code=$?
    trouble=$(missing out "$parts")
    [ -s err ] && trouble="standard error is not empty"
    [ $code -eq 1 ] || trouble="exit code $code instead of 1"
    report "$name" "$trouble"
}

reports "the CPU is found and the CUDA backend is missing" \
    "ok        cpu|missing   CUDA backend|/nowhere is not there|-> make cuda"
reports "the CUDA toolkit is missing" "missing   CUDA toolkit|no nvcc in CUDA_HOME|-> install CUDA 13" \
    CUDA_HOME=/nowhere PATH=/nowhere
mkdir bin
printf '#!/bin/sh\n' >bin/nvcc
chmod +x bin/nvcc
reports "a toolkit in CUDA_HOME" "ok        CUDA toolkit  $folder/bin/nvcc" CUDA_HOME="$folder"
reports "a toolkit in PATH" "ok        CUDA toolkit  $folder/bin/nvcc" CUDA_HOME=/nowhere \
    PATH="/nowhere:$folder/bin"
echo 'no library' >libottava_cuda.so
reports "the CUDA backend's file is not a library" "missing   CUDA backend|libottava_cuda.so" \
    OTTAVA_CUDA_PATH="$folder"
finish
