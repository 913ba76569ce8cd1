#!/bin/sh
# Checks the packages of `make deb` on a fresh Debian 12: apt installs them, the program trains, the manual
# pages and the completion work, programs link the library, apt removes everything. Needs root, debootstrap
# and the network. debootstrap makes the system in FOLDER, which is kept: a second check takes a minute.
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
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
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
trap 'umount "$system/proc" "$system/dev"' EXIT

inside 'apt-get update -q'
# An earlier check may have failed before it removed these.
inside 'apt-get purge -qy --auto-remove $(dpkg-query -W -f "\${Package} " "*ottava*" "*openmpi*") \
    >/dev/null 2>&1 || true'
inside 'apt-get install -qy --no-install-recommends ./packages/ottava_*.deb'
inside '! dpkg -l libopenmpi3 2>/dev/null | grep ^ii'
inside 'ottava --version && ottava recipes | head -3'
inside 'cd /root && rm -rf runs && ottava train /usr/share/ottava/configs/debug.toml --train.max_steps=10 \
    --train.mixed_precision=fp8 --float8.recipe_name=rowwise | tail -2'
inside 'cd /root && ottava generate runs/debug --prompt "In the beginning" --max-tokens=20'

inside 'apt-get install -qy --no-install-recommends man-db bash-completion gcc libc6-dev g++ pkg-config \
    libjansson-dev libpcre2-dev libutf8proc-dev libyaml-dev >/dev/null'
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
inside 'cd /root && mpirun -np 2 --bind-to none ottava train /usr/share/ottava/configs/debug.toml \
    --train.max_steps=3 --run.dir=runs/two --train.threads=1 | tail -1'

inside 'apt-get purge -qy --auto-remove ottava ottava-mpi openmpi-bin >/dev/null'
inside 'left=$(find /usr /etc /var/lib/dpkg/info -name "*ottava*"); echo "$left"; [ -z "$left" ]'
echo "the packages work on a fresh Debian $(cat "$system/etc/debian_version")"
