#!/bin/sh
# No two files of a folder of src/ may call each other in a cycle, directly or through other files. Reads the
# symbols of the folders' static libraries, and prints the files of each cycle.
#
#   tools/check_cycles.sh BUILD_FOLDER LEVEL...
set -eu
build=${1:?usage: tools/check_cycles.sh BUILD_FOLDER LEVEL...}
shift

bad=0
for level in "$@"; do
    library=$build/libottava_$level.a
    [ -r "$library" ] || { echo "$library: is not built" >&2; exit 1; }
    # "report.c.o curve.c.o": the first uses a symbol of the second.
    cycles=$(nm -A "$library" | awk '
        { n = split($1, part, ":"); file = part[2]; name = $NF; kind = $(NF - 1) }
        kind ~ /^[TDRB]$/ { owner[name] = file }
        kind == "U" { use[++uses] = file " " name }
        END {
            for (i = 1; i <= uses; i++) {
                split(use[i], pair, " ")
                if (pair[2] in owner && owner[pair[2]] != pair[1]) print pair[1], owner[pair[2]]
            }
        }' | sort -u | tsort 2>&1 >/dev/null) || true
    [ -z "$cycles" ] && continue
    echo "src/$level: these files call each other in a cycle:" >&2
    echo "$cycles" | sed -n 's/^tsort: \(.*\)\.o$/    \1/p' >&2
    bad=1
done
exit $bad
