#!/bin/sh
# Trains on several ranks of this machine, with the variables of torchtitan's script. Calls mpirun.
#
#   NGPU=4 CONFIG_FILE=configs/debug.toml ./run_train.sh --train.mixed_precision=fp8
#   NGPU=2 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.dataset_path=corpus.jsonl --model.hf_assets_path=FOLDER
#
# NGPU: number of ranks (8). CONFIG_FILE: a configuration file. MODULE and CONFIG: one of torchtitan's configurations of
# 2026, from configs/titan. Default: configs/debug.toml. LOG_RANK: print the lines of this rank (0; -1: all ranks).
# OTTAVA: the program.
set -eu
here=$(dirname "$0")
if [ -z "${OTTAVA:-}" ]; then
    OTTAVA=$here/build/release/ottava
    [ -x "$OTTAVA" ] || OTTAVA=ottava
fi

fail() {
    echo "run_train.sh: $1" >&2
    exit 2
}

# find_preset: the file of MODULE and CONFIG.
find_preset() {
    names=$(cd "$here/configs/titan" && ls ./*.toml | sed 's|^\./||; s|\.toml$||' | tr '\n' ' ')
    for name in $names; do
        [ "$name" = "$1" ] || continue
        [ "${1%%_*}" = "$2" ] || fail "CONFIG=$1 is not a configuration of MODULE=$2; MODULE=${1%%_*} has it"
        CONFIG_FILE=$here/configs/titan/$1.toml
        return
    done
    fail "MODULE=$2 CONFIG=$1 is not known here; CONFIG may be: $names(CONFIG_FILE names any other file)"
}

if [ -n "${MODULE:-}${CONFIG:-}" ]; then
    [ -z "${CONFIG_FILE:-}" ] || fail "CONFIG_FILE=$CONFIG_FILE and MODULE or CONFIG name two configurations: give one of them"
    find_preset "${CONFIG:-llama3_debugmodel}" "${MODULE:-llama3}"
fi
[ -z "${COMM_MODE:-}" ] || fail "COMM_MODE=$COMM_MODE: a run without communication is: ottava plan FILE --ranks ${NGPU:-8}"
: "${CONFIG_FILE:=$here/configs/debug.toml}"
export CONFIG_FILE
exec mpirun -np "${NGPU:-8}" --bind-to none "$OTTAVA" train --metrics.log_rank="${LOG_RANK:-0}" "$@"
