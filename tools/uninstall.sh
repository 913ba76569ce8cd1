#!/bin/sh
# Removes an installation (`make uninstall`): the files in LIST, below DESTDIR if it is set, and Ottava's
# folders if they are empty then. Touches nothing else in PREFIX.
#
#   tools/uninstall.sh LIST PREFIX
set -eu
list=$1 prefix=$2

fail() {
    echo "tools/uninstall.sh: $*" >&2
    exit 1
}
[ -r "$list" ] || fail \
    "there is no list $list of what was installed into $prefix: run 'make install PREFIX=$prefix' first," \
    "or give the PREFIX that it had"
while IFS= read -r file || [ -n "$file" ]; do
    rm -f "${DESTDIR:-}$file" || fail "cannot remove ${DESTDIR:-}$file"
done <"$list"
# Folders named ottava and their subfolders, below the prefix; the deepest first.
awk -v prefix="$prefix/" '
{
    while (sub(/\/[^\/]*$/, "") && length($0) > length(prefix))
        if (substr($0 "/", length(prefix)) ~ /\/ottava\//) print
}' "$list" | LC_ALL=C sort -ru | while IFS= read -r folder; do
    rmdir "${DESTDIR:-}$folder" 2>/dev/null || true
done
echo "Removed $(grep -c . "$list") files from ${DESTDIR:-}$prefix"
rm -f "$list"
