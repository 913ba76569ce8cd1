#!/bin/sh
# Checks that programs outside of the project build against the installed library and run: a small program and
# every example. Each is built with pkg-config, for libottava.so and for libottava.a, and with CMake.
#
#   tools/check_install.sh BUILD_FOLDER
set -eu
build=${1:?usage: tools/check_install.sh BUILD_FOLDER}
root=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/prefix

cmake --install "$build" --prefix "$prefix" >/dev/null
libdir=$(dirname "$(find "$prefix" -name libottava.so)")
"$prefix/bin/ottava" --version
"$root/tools/check_binaries.sh" "$prefix"

mkdir "$tmp/outside"
cd "$tmp/outside"
cat >version.c <<'END'
#include <ottava/ottava.h>
#include <stdio.h>
int main(void) { return puts(ott_version()) < 0; }
END
cp "$root"/examples/*.c .
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES C)
find_package(ottava 0.1 REQUIRED)
file(GLOB sources *.c)
foreach(source IN LISTS sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ottava::ottava m)
endforeach()
END

export PKG_CONFIG_PATH="$libdir/pkgconfig"
version=$(pkg-config --modversion ottava)
mkdir by_pkg_config by_archive
for source in *.c; do
    # shellcheck disable=SC2046 # flags are words
    ${CC:-cc} "$source" $(pkg-config --cflags --libs ottava) -lm -o "by_pkg_config/${source%.c}"
    # shellcheck disable=SC2046
    ${CC:-cc} "$source" $(pkg-config --cflags --static --libs ottava | sed 's/-lottava/-l:libottava.a/') \
        -o "by_archive/${source%.c}"
    ! readelf -d "by_archive/${source%.c}" | grep libottava || exit 1
done
cmake -S . -B by_cmake -DCMAKE_PREFIX_PATH="$prefix" >cmake.log && cmake --build by_cmake >>cmake.log || {
    cat cmake.log >&2
    exit 1
}
for way in by_pkg_config by_archive by_cmake; do
    for source in *.c; do
        program=$way/${source%.c}
        LD_LIBRARY_PATH=$libdir "./$program" >log 2>&1 || { cat log; echo "$program failed" >&2; exit 1; }
        [ "$source" != version.c ] || [ "$(cat log)" = "$version" ] || {
            echo "$program prints version '$(cat log)', ottava.pc '$version'" >&2
            exit 1
        }
        echo "$program: $(tail -1 log)"
    done
done
