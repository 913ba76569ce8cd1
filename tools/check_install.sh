#!/bin/sh
# An outside program finds, builds against and runs with the installed library, through pkg-config and through CMake.
#
#   tools/check_install.sh BUILD_FOLDER
set -eu
build=${1:?usage: tools/check_install.sh BUILD_FOLDER}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/prefix

cmake --install "$build" --prefix "$prefix" >/dev/null
libdir=$(dirname "$(find "$prefix" -name libottava.so)")
"$prefix/bin/ottava" --version

mkdir "$tmp/outside"
cd "$tmp/outside"
cat >main.c <<'END'
#include <ottava/ottava.h>
#include <stdio.h>
int main(void) { return puts(ott_version()) < 0; }
END
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES C)
find_package(ottava 0.1 REQUIRED)
add_executable(outside main.c)
target_link_libraries(outside PRIVATE ottava::ottava)
END

export PKG_CONFIG_PATH="$libdir/pkgconfig"
version=$(pkg-config --modversion ottava)
# shellcheck disable=SC2046 # flags are words
${CC:-cc} main.c $(pkg-config --cflags --libs ottava) -o by_pkg_config
cmake -S . -B by_cmake -DCMAKE_PREFIX_PATH="$prefix" >cmake.log && cmake --build by_cmake >>cmake.log || {
    cat cmake.log >&2
    exit 1
}
for program in by_pkg_config by_cmake/outside; do
    said=$(LD_LIBRARY_PATH=$libdir ./$program)
    [ "$said" = "$version" ] || { echo "$program says version '$said', ottava.pc '$version'" >&2; exit 1; }
    echo "$program: $said"
done
