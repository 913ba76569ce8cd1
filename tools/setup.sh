#!/bin/sh
# Installs the packages of Debian, Ubuntu or Homebrew that Ottava needs and this machine lacks, and prints
# what each is for. If nothing is missing it needs neither network nor root.
#
# First it prints the packages and the commands. On Debian and Ubuntu it runs the commands with sudo if it is
# not root; nothing else runs as root. `make ... SETUP=:` skips it.
#
#   tools/setup.sh [--names] [build] [deb] [test] [demo] [ci] [docs] [arm64]
#                                                           nothing named: build test demo
#
#   --names   only prints the names of the packages, one a line
set -eu

# The packages, one on each line: group, package of Debian and Ubuntu, formula of Homebrew, purpose. `-`: part
# of Xcode's Command Line Tools. `none`: Homebrew lacks it, or only continuous integration on Linux needs it.
packages='
build  cmake                  cmake         the build system
build  make                   -             runs the build
build  gcc                    -             C compiler
build  g++                    -             C++ compiler, for the TOML reader
build  pkg-config             pkgconf       finds the libraries below
build  libyaml-dev            libyaml       reads YAML configurations
build  libtomlplusplus-dev    tomlplusplus  reads TOML configurations
build  libjansson-dev         jansson       reads and writes JSON
build  libpcre2-dev           pcre2         patterns of tokenizers
build  libutf8proc-dev        utf8proc      Unicode forms, for tokenizers
build  zlib1g-dev             zlib          reads gzip files
build  libzstd-dev            zstd          reads Zstandard files
build  libcurl4-openssl-dev   curl          downloads models and datasets
build  libssl-dev             openssl@3     checksums of downloads
build  libopenmpi-dev         open-mpi      joins ranks
deb    dpkg-dev               none          finds the packages that the Debian package needs
deb    file                   none          finds the programs in the package
test   openmpi-bin            open-mpi      starts them (mpirun)
test   libcmocka-dev          cmocka        the test library
demo   bible-kjv              none          the text the demo trains on
ci     clang-14               none          the second compiler
ci     libclang-rt-14-dev     none          its sanitizers and libFuzzer
ci     llvm-14                none          names the places in their reports
ci     clang-format-14        none          checks the layout of the source
ci     lld                    none          links the many test programs in a third of the time
ci     groff-base             none          checks the format of the manual pages
ci     zsh                    none          tests the completion in zsh
ci     fish                   none          tests the completion in fish
ci     python3-numpy          none          tests the Python module
ci     python3-venv           none          installs programs that read GPU machine code
docs   python3-venv           python        builds the site of the documentation
arm64  gcc-aarch64-linux-gnu  none          compiles C for aarch64
arm64  g++-aarch64-linux-gnu  none          and C++
arm64  qemu-user-static       none          runs what they make
'

fail() {
    echo "tools/setup.sh: $*" >&2
    exit 1
}

only_names=''
if [ "${1:-}" = --names ]; then
    only_names=yes
    shift
fi
groups=${*:-build test demo}
wanted=''
for group in $groups; do
    found=$(echo "$packages" | awk -v group="$group" '$1 == group { print $2 }')
    [ -n "$found" ] || fail "unknown group '$group' (there are: build, deb, test, demo, ci, docs, arm64)"
    wanted="$wanted $found"
done
if [ -n "$only_names" ]; then
    printf '%s\n' $wanted
    exit 0
fi
# explain COLUMN PACKAGE...: prints "package  purpose" for each package. COLUMN of the list has its name: 2
# (Debian) or 3 (Homebrew).
explain() {
    column=$1
    shift
    for package in "$@"; do
        echo "$packages" | awk -v package="$package" -v column="$column" '$column == package {
            why = $4
            for (i = 5; i <= NF; i++) why = why " " $i
            printf "  %-19s %s\n", package, why
            exit
        }'
    done
}

# install_formulas PACKAGE...: installs Homebrew's formulas that this machine lacks.
install_formulas() {
    formulas=''
    for package in "$@"; do
        formula=$(echo "$packages" | awk -v package="$package" '$2 == package { print $3 }')
        case "$formula $formulas " in
        '- '*) command -v cc >/dev/null || fail "there is no C compiler; run: xcode-select --install" ;;
        'none '*) echo "tools/setup.sh: Homebrew does not have $package; it is left out" >&2 ;;
        *" $formula "*) ;;
        *) brew list --versions "$formula" >/dev/null 2>&1 || formulas="$formulas $formula" ;;
        esac
    done
    [ -n "$formulas" ] || exit 0
    printf 'Missing packages:\n%s\nTo install them this runs:\n  brew install%s\n' "$(explain 3 $formulas)" \
        "$formulas"
    exec brew install $formulas
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    if command -v brew >/dev/null; then
        install_formulas $wanted
    fi
    echo "tools/setup.sh: this is not Debian, Ubuntu or a system with Homebrew. Install what these \
packages hold, then add SETUP=: to the make command:" >&2
    explain 2 $wanted >&2
    exit 1
fi

# Ubuntu 22.04 has CMake 3.22.
check_cmake() {
    case " $(echo $wanted) " in *' cmake '*) ;; *) return ;; esac
    version=$(cmake --version | awk 'NR == 1 { print $3 }')
    echo "$version" | awk -F. '{ exit !($1 > 3 || ($1 == 3 && $2 >= 25)) }' || fail "cmake $version is older \
than 3.25: run 'python3 -m venv ~/cmake && ~/cmake/bin/pip install cmake && export PATH=~/cmake/bin:\$PATH'"
}

missing=''
for package in $wanted; do
    case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
    *' installed') ;;
    *) missing="$missing $package" ;;
    esac
done
if [ -z "$missing" ]; then
    check_cmake
    exit
fi

as_root=''
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || fail "not root and no sudo; as root, run: apt-get install$missing"
    as_root=sudo
fi

# Prints all commands that need root before it runs them.
cat <<END
Missing packages:
$(explain 2 $missing)
To install them this runs${as_root:+, as root through sudo, which may ask for your password}:
  ${as_root:+$as_root }apt-get update
  ${as_root:+$as_root }apt-get install --yes --no-install-recommends$missing
(Ctrl-C stops it; 'make ... SETUP=:' never installs anything.)
END
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# apt ARGUMENT...: runs apt-get. Prints its output only if it fails.
apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 "$@" </dev/null >"$log" \
        2>&1
}
# A failed update is no error, because perhaps only one of several sources is dead. If the source is needed,
# the installation fails.
apt update || { echo "tools/setup.sh: apt-get update complains:" >&2; grep -E '^[EW]:' "$log" >&2 || true; }
if ! apt install --yes --no-install-recommends $missing; then
    tail -n 15 "$log" >&2
    fail "apt-get could not install:$missing (above: its messages; on Ubuntu, 'universe' must be among the \
sources)"
fi
check_cmake
echo "Installed."
