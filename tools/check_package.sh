#!/bin/sh
# Checks the packages of `make deb` on a fresh Debian 12: apt installs them, README's commands run, a model is
# pulled by its name, fine-tuned and exported, the manual pages and the completion work, programs link the
# library, apt removes everything. Needs root, debootstrap, the network, and build/release with its tests: the
# test hub_server is the hub. debootstrap makes the system in FOLDER, which is kept: a second check takes a
# minute.
#
#   tools/check_package.sh [FOLDER]          default: build/debian
set -eu
cd "$(dirname "$0")/.."
system=${1:-build/debian}
mkdir -p "$system"
system=$(cd "$system" && pwd)

fail() {
    echo "tools/check_package.sh: $*" >&2
    exit 1
}
inside() {
    echo "+ $*"
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        HF_ENDPOINT="${HF_ENDPOINT:-}" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_rmaps_base_oversubscribe=1 \
        chroot "$system" sh -euc "$*"
}

[ "$(id -u)" = 0 ] || fail "only root can make a system"
ls build/package/ottava_*.deb >/dev/null || fail "there is no package: run make deb"
if [ ! -x "$system/usr/bin/apt-get" ]; then
    debootstrap --variant=minbase bookworm "$system" "${MIRROR:-http://deb.debian.org/debian}"
fi
# minbase has neither man nor a compiler. Its dpkg may not leave out manual pages, as it does in containers.
rm -f "$system/etc/dpkg/dpkg.cfg.d/docker"
cp /etc/resolv.conf "$system/etc/"
rm -rf "$system/packages"
mkdir "$system/packages"
cp build/package/*.deb "$system/packages"
mountpoint -q "$system/proc" || mount -t proc proc "$system/proc"
mountpoint -q "$system/dev" || mount --bind /dev "$system/dev"
hub=build/release/tests/hub_server
[ -x $hub ] || fail "there is no $hub: run make test"
made=$(mktemp -d)
trap 'exec 3>&-; umount "$system/proc" "$system/dev"; rm -r "$made"' EXIT
tools/make_tiny_llama.sh "$made/tiny" >/dev/null
mkfifo "$made/end"
$hub "$made/tiny/model" "$made/tiny/hellaswag_train.jsonl" <"$made/end" >"$made/address" &
exec 3>"$made/end"
while ! [ -s "$made/address" ]; do sleep 0.1; done
HF_ENDPOINT=$(cat "$made/address")

inside 'apt-get update -q'
# An earlier check may have failed before it removed these.
inside 'apt-get purge -qy --auto-remove $(dpkg-query -W -f "\${Package} " "*ottava*" "*openmpi*") \
    >/dev/null 2>&1 || true'
inside 'apt-get install -qy --no-install-recommends ./packages/ottava_*.deb'
inside '! dpkg -l libopenmpi3 2>/dev/null | grep ^ii'
inside 'ottava --version && ottava recipes | head -3'
# README's commands. `inside` works in /root, where the folder configs is the package's.
inside 'cd /root && rm -rf * .cache && cp -r /usr/share/ottava/configs .'
inside 'cd /root && ottava train configs/debug.toml --train.mixed_precision=fp8 --float8.recipe_name=rowwise |
    tail -2'
inside 'cd /root && ottava generate runs/debug --prompt "In the beginning" &&
    ottava report runs/debug | head -3'
inside 'cd /root && ottava plan configs/llama3_1_8b.toml --ranks 64 --device h100 | head -3'
inside 'cd /root && ottava pull org/tiny && ottava pull --dataset org/rows --out rows.jsonl'
inside 'cd /root && ottava train configs/llama3_1_8b_hellaswag_fp8.yaml --model.hf_path=org/tiny \
    --run.dir=runs/tuned --data.dataset_path=rows.jsonl --eval.dataset_path=rows.jsonl \
    --packed_sequence.packed_sequence_size=512 --step_scheduler.max_steps=20 | tail -2'
inside 'cd /root && ottava eval runs/tuned --task hellaswag --data rows.jsonl'
inside 'cd /root && ottava export runs/tuned --format hf-fp8 --out model-fp8 | tail -1 &&
    ottava export runs/tuned --format gguf-q8_0 --out llama.gguf | tail -1'
inside 'cd /root && ottava train --model.hf_path=org/tiny --data.format=hellaswag \
    --data.dataset_path=rows.jsonl \
    --train.mixed_precision=fp8 --float8.filter_fqns=lm_head --train.frozen_dtype=fp8 --peft.dim=16 \
    --train.batch_size=4 --train.seq_len=256 --train.max_steps=20 --optimizer.lr=1e-3 \
    --run.dir=runs/lora | tail -3'
inside 'cd /root && ottava export runs/lora --format gguf --out lora.gguf | tail -1 &&
    ottava generate lora.gguf --prompt "In the beginning" --max-tokens=20'

inside 'apt-get install -qy --no-install-recommends man-db bash-completion gcc libc6-dev g++ pkg-config \
    libjansson-dev libpcre2-dev libutf8proc-dev libyaml-dev libzstd-dev zlib1g-dev >/dev/null'
inside 'man ottava | head -5 && man ottava-train | grep -A1 -e --float8.recipe_name'
inside 'bash -c ". /usr/share/bash-completion/bash_completion; _completion_loader ottava;
    COMP_WORDS=(ottava export --format = hf-) COMP_CWORD=4; _ottava ottava 2>/dev/null
    echo \${COMPREPLY[@]}; [ \${COMPREPLY[0]} = hf-fp8 ]"'
example=/usr/share/doc/ottava/examples/model_loop.c
inside "cd /root && cc $example \$(pkg-config --cflags --libs ottava) -lm -o shared && ./shared | tail -1"
inside "cd /root && cc -static $example \$(pkg-config --static --cflags --libs ottava) -o static 2>log \
    || { cat log; exit 1; }; ./static | tail -1 && ! ldd ./static"
inside 'cd /root && ldd ./shared | grep ottava'

inside 'apt-get install -qy --no-install-recommends ./packages/ottava-mpi_*.deb openmpi-bin >/dev/null'
inside 'cd /root && mpirun -np 2 --bind-to none ottava train configs/debug.toml --train.mixed_precision=fp8 |
    tail -1'

inside 'apt-get purge -qy --auto-remove ottava ottava-mpi openmpi-bin >/dev/null'
inside 'left=$(find /usr /etc /var/lib/dpkg/info -name "*ottava*"); echo "$left"; [ -z "$left" ]'
echo "the packages work on a fresh Debian $(cat "$system/etc/debian_version")"
