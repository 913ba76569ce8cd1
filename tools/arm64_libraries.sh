#!/bin/sh
# Unpacks the libraries of tools/setup.sh for aarch64 into a folder, for cmake/aarch64.cmake: tools/arm64_libraries.sh FOLDER.
# apt-get downloads them from this system's own sources, with a state of its own: nothing is installed, and root is not
# needed. Debian's sources have aarch64; Ubuntu has it at ports.ubuntu.com.
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
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root -o Debug::NoLocking=1 \
        -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" \
        -o Dir::Cache="$state/cache" -o APT::Install-Recommends=0 "$@" </dev/null
}
apt update
apt --yes --download-only install $packages
for package in "$state"/cache/archives/*.deb; do dpkg-deb -x "$package" "$folder"; done
echo "$packages" >"$folder/unpacked"
