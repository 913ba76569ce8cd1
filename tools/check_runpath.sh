#!/bin/sh
# The program and the libraries of a build or an installation name no folder relative to the current one in RUNPATH or RPATH: the
# dynamic linker reads an empty element as the current folder, and would load a library from there.
#
#   tools/check_runpath.sh FOLDER
set -eu
folder=${1:?usage: tools/check_runpath.sh FOLDER}

files=$(find "$folder" -path "$folder/tests" -prune -o -type f \( -name ottava -o -name 'libottava*.so*' \) -print)
[ -n "$files" ] || { echo "$folder has neither the program nor the library" >&2; exit 1; }
for file in $files; do
    path=$(readelf -d "$file" | sed -n 's/.*(R[UN]*PATH).*\[\(.*\)\]$/\1:/p') # a colon after each element
    if printf %s "$path" | tr : '\n' | grep -qv '^[/$]'; then
        echo "$file: an element of RUNPATH is empty or relative: ${path%:}" >&2
        exit 1
    fi
    echo "$file: RUNPATH ${path:-none}"
done
