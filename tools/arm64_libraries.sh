#!/bin/sh
# tools/arm64_libraries.sh FOLDER: unpacks the aarch64 packages of tools/setup.sh into FOLDER, for
# cmake/aarch64.cmake. apt-get downloads them from this system's sources, with a separate state: nothing is
# installed and root is not needed. Debian's sources have aarch64; Ubuntu has it at ports.ubuntu.com.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
packages=$("$here/setup.sh" --names build test | grep -e '-dev$')
[ "$(cat "$folder/unpacked" 2>/dev/null)" != "$packages" ] || exit 0

state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
: >"$state/status"
apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o \
        Debug::NoLocking=1 \
        -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" \
        -o Dir::Cache="$state/cache" -o APT::Install-Recommends=0 "$@" </dev/null
}
apt update
apt --yes --download-only install $packages
for package in "$state"/cache/archives/*.deb; do dpkg-deb -x "$package" "$folder"; done
# libzstd.pc names /usr/lib, which has no library of Debian's aarch64.
libraries=usr/lib/aarch64-linux-gnu
sed -i "s|^libdir=.*|libdir=/$libraries|" "$folder/$libraries/pkgconfig/libzstd.pc"
echo "$packages" >"$folder/unpacked"
