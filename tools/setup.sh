#!/bin/sh
# Installs the Debian or Ubuntu packages Ottava needs and this machine lacks; says which and why. Without anything
# missing it needs neither network nor root.
#
# Before it does anything it prints the packages and the two commands, which it runs through sudo when it is not root; nothing
# else runs as root. `make ... SETUP=:` leaves it out.
#
#   tools/setup.sh [build] [test] [demo] [ci]     (nothing named: build test demo)
set -eu

# Group, package, what it is for. One line each; `dpkg` decides whether it is there.
packages='
build  cmake                the build system
build  make                 runs the build
build  gcc                  C compiler
build  g++                  C++ compiler, for the TOML reader
build  pkg-config           finds the libraries below
build  libyaml-dev          reads YAML configurations
build  libtomlplusplus-dev  reads TOML configurations
build  libjansson-dev       reads and writes JSON
build  libpcre2-dev         patterns of tokenizers
build  libutf8proc-dev      Unicode forms, for tokenizers
build  libopenmpi-dev       joins ranks
test   openmpi-bin          starts them (mpirun)
test   libcmocka-dev        the test library
demo   bible-kjv            the text the demo trains on
ci     clang-14             the second compiler
ci     libclang-rt-14-dev   its sanitizers and libFuzzer
ci     llvm-14              names the places in their reports
ci     clang-format-14      checks the layout of the source
ci     lld                  links the many test programs in a third of the time
'

fail() {
    echo "tools/setup.sh: $*" >&2
    exit 1
}

groups=${*:-build test demo}
wanted=''
for group in $groups; do
    found=$(echo "$packages" | awk -v group="$group" '$1 == group { print $2 }')
    [ -n "$found" ] || fail "unknown group '$group' (there are: build, test, demo, ci)"
    wanted="$wanted $found"
done
# Prints "package  what it is for" for each package given.
explain() {
    for package in "$@"; do
        echo "$packages" | awk -v package="$package" '$2 == package { sub(/^[a-z]+ +/, "  "); print }'
    done
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "tools/setup.sh: this is not Debian or Ubuntu. Install what these packages hold, then add SETUP=: to the make command:" >&2
    explain $wanted >&2
    exit 1
fi

missing=''
for package in $wanted; do
    case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
    *' installed') ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

as_root=''
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "not root and no sudo; as root, run: apt-get install$missing"
    as_root=sudo
fi

# All that root will be asked to do, before it is.
cat <<END
Missing packages:
$(explain $missing)
To install them this runs${as_root:+, as root through sudo, which may ask for your password}:
  ${as_root:+$as_root }apt-get update
  ${as_root:+$as_root }apt-get install --yes --no-install-recommends$missing
(Ctrl-C stops it; 'make ... SETUP=:' never installs anything.)
END
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# What apt says matters only when it fails.
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 "$@" </dev/null >"$log" 2>&1
}
# A failed update (one dead source among several) need not matter: the installation decides.
apt update || { echo "tools/setup.sh: apt-get update complains:" >&2; grep -E '^[EW]:' "$log" >&2 || true; }
if ! apt install --yes --no-install-recommends $missing; then
    tail -n 15 "$log" >&2
    fail "apt-get could not install:$missing (above: what it said; on Ubuntu, 'universe' must be among the sources)"
fi
echo "Installed."
