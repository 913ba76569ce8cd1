#!/bin/sh
# Checks that the program and the libraries of a build or installation are hardened and safe to start in any
# folder:
# - RUNPATH has no empty or relative element, which the dynamic linker would read as the current folder;
# - the program and libottava.so need only the C and C++ libraries and the parsers of files;
# - with --hardened (release builds): full RELRO, position independent, with stack protector and FORTIFY,
#   no memory that is writable and executable.
#
#   tools/check_binaries.sh [--hardened] FOLDER
set -eu
hardened=
[ "${1:-}" != --hardened ] || { hardened=1; shift; }
folder=${1:?usage: tools/check_binaries.sh [--hardened] FOLDER}

fail() {
    echo "$1" >&2
    exit 1
}

check_hardened() {
    readelf -lW "$1" | grep -q GNU_RELRO || fail "$1: has no RELRO segment"
    readelf -dW "$1" | grep -q 'FLAGS.*NOW' || fail "$1: binds symbols late, so its RELRO is partial"
    ! readelf -lW "$1" | grep -q ' RWE ' || fail "$1: has a segment that is writable and executable"
    readelf -hW "$1" | grep -q 'Type:.*DYN' || fail "$1: is not position independent"
    readelf -W --dyn-syms "$1" | grep -q '__stack_chk_fail' || fail "$1: has no stack protector"
    readelf -W --dyn-syms "$1" | grep -q '__[a-z]*printf_chk' || fail "$1: was not built with FORTIFY"
}

system='ld-linux.*|libc|libm|libdl|libpthread|libstdc\+\+|libgcc_s|libasan|libubsan|libtsan'
parsers='libjansson|libyaml-0|libpcre2-8|libutf8proc|libz|libzstd'
check_needed() {
    more=
    [ "${1##*/}" != ottava ] || more='|libcurl|libcrypto' # the library does not download
    readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' |
        grep -vE "^($system|$parsers$more)(-[0-9.]+)?\.so" |
        while read -r name; do fail "$1: needs $name"; done
}

files=$(find "$folder" \( -path "$folder/tests" -o -name bash-completion \) -prune -o \
    -type f \( -name ottava -o -name 'libottava*.so*' \) -print)
[ -n "$files" ] || fail "$folder has neither the program nor the library"
for file in $files; do
    path=$(readelf -dW "$file" | sed -n 's/.*(R[UN]*PATH).*\[\(.*\)\]$/\1:/p') # a colon ends each element
    if printf %s "$path" | tr : '\n' | grep -qv '^[/$]'; then
        fail "$file: an element of RUNPATH is empty or relative: ${path%:}"
    fi
    case $file in *_mpi.so* | *_cuda.so*) ;; *) check_needed "$file" ;; esac
    [ -z "$hardened" ] || check_hardened "$file"
    echo "$file: RUNPATH ${path:-none}${hardened:+, hardened}"
done
