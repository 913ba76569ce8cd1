#!/usr/bin/env bash
# slurm_check.sh COMMAND...: runs COMMAND under a temporary Slurm on this machine: munged,
# slurmctld and slurmd in a temporary folder. Removes all its processes and files at the
# end. The node claims 16 processors, so that up to 16 ranks can run at once. For example
#
#     tools/slurm_check.sh srun --mpi=pmix -n 4 build/release/ottava train configs/debug.toml
#
# Needs root (slurmd), and Debian's slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libpmix2.
set -euo pipefail

[ $# -gt 0 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
for program in munged slurmctld slurmd srun; do
    PATH=$PATH:/usr/sbin command -v $program >/dev/null || {
        echo "slurm_check.sh: no $program: apt-get install --no-install-recommends slurmctld slurmd \
slurm-client slurm-wlm-basic-plugins munge libpmix2" >&2
        exit 2
    }
done
PATH=$PATH:/usr/sbin
[ "$(id -u)" = 0 ] || { echo "slurm_check.sh: slurmd needs root" >&2; exit 2; }

folder=$(mktemp -d /tmp/slurm-check-XXXXXX)
started=()
# Stops only processes that this script started, by their ids.
stop() {
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    for process in "${started[@]}"; do wait "$process" 2>/dev/null || true; done
    rm -rf "$folder"
}
trap stop EXIT

host=$(hostname -s)
mkdir "$folder/state" "$folder/spool" "$folder/munge"
chmod 755 "$folder"
head -c 1024 /dev/urandom >"$folder/munge/key"
chmod 600 "$folder/munge/key"
cat >"$folder/slurm.conf" <<END
ClusterName=check
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$folder/munge/socket
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=pmix
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:16
END
export SLURM_CONF=$folder/slurm.conf

munged --foreground --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" \
    >/dev/null 2>&1 &
started+=($!)
for _ in $(seq 50); do [ -S "$folder/munge/socket" ] && break; sleep 0.1; done
slurmctld -D -i >/dev/null 2>&1 &
started+=($!)
slurmd -D -N "$host" >/dev/null 2>&1 &
started+=($!)
for _ in $(seq 100); do
    [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break
    sleep 0.2
done
if [ "$(sinfo -h -o %T 2>/dev/null)" != idle ]; then
    echo "slurm_check.sh: the node did not become idle:" >&2
    tail -n 5 "$folder"/*.log >&2
    exit 1
fi
status=0
"$@" || status=$?
for _ in $(seq 50); do [ -z "$(squeue -h 2>/dev/null)" ] && break; sleep 0.2; done \
    # otherwise the step of COMMAND would run longer than slurmd
exit $status
