#!/bin/sh
# Trains on several ranks of this machine: torchtitan's habit. It only calls mpirun.
#
#   NGPU=4 CONFIG_FILE=configs/debug.toml ./run_train.sh --train.mixed_precision=fp8
#
# NGPU: ranks (8). LOG_RANK: the rank whose lines are shown (0; -1: all). OTTAVA: the program.
set -eu
here=$(dirname "$0")
if [ -z "${OTTAVA:-}" ]; then
    OTTAVA=$here/build/release/ottava
    [ -x "$OTTAVA" ] || OTTAVA=ottava
fi
: "${CONFIG_FILE:=$here/configs/debug.toml}"
export CONFIG_FILE
exec mpirun -np "${NGPU:-8}" --bind-to none "$OTTAVA" train --metrics.log_rank="${LOG_RANK:-0}" "$@"
