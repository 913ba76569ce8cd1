#!/bin/sh
# Checks that includes point downwards. A file of src/ may include its own level and the levels in its list of
# cmake/levels.cmake. Every level may include ottava/types.h; api, and the levels whose structures the public
# API shows, may include all of ottava/. cli may include itself, bench, plan and ottava/. Only mpi may
# include <mpi.h>. Tests may include everything. Prints file:line of each other include and exits 1.
set -eu
cd "${1:-$(dirname "$0")/..}"

find src cli -type f \( -name '*.[ch]' -o -name '*.cpp' -o -name '*.hpp' -o -name '*.def' -o -name '*.cu' \) |
    LC_ALL=C sort | tr '\n' '\0' | xargs -0 awk '
# Levels that may include all of ottava/.
BEGIN { public = " cli api resolve data train monitor run export eval generate bench plan " }
function bad(why) { printf "%s:%d: %s\n", FILENAME, FNR, why; failed = 1 }

# The table of levels: set(OTTAVA_LEVELS base fp8 ...), set(nn_uses base fp8 ...), set(model_uses nn
# ${nn_uses}).
FILENAME == "cmake/levels.cmake" {
    if (!sub(/^set\(/, "")) next
    gsub(/[()]/, " ")
    n = split($0, word, " ")
    if (word[1] == "OTTAVA_LEVELS") {
        for (i = 2; i <= n; i++) known[word[i]] = 1
    } else if (sub(/_uses$/, "", word[1])) {
        known[word[1]] = 1
        for (i = 2; i <= n; i++) {
            more = word[i]
            if (gsub(/[${}]|_uses/, "", more)) uses[word[1]] = uses[word[1]] uses[more]
            else uses[word[1]] = uses[word[1]] " " more
        }
        uses[word[1]] = uses[word[1]] " "
    }
    next
}

FNR == 1 {
    files++
    n = split(FILENAME, part, "/")
    level = part[1] == "cli" ? "cli" : part[2]
    if (level != "cli" && !(level in known)) bad("src/" level " is not in cmake/levels.cmake")
}

/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    match($0, /["<][^">]*/)
    quoted = substr($0, RSTART, 1) == "\""
    name = substr($0, RSTART + 1, RLENGTH - 1)
    head = name
    sub(/\/.*/, "", head)
    if (name == "mpi.h" && level != "mpi") bad("<mpi.h>: only the plugin src/mpi knows MPI")
    if (!quoted && head != "ottava" && !(head in known)) next # a header of a library is allowed
    includes++
    if (name ~ /(^|\/)\.\.?\//) bad("\"" name "\": write the path from src/")
    else if (head == name) {
        path = FILENAME
        sub(/[^\/]*$/, name, path)
        if ((getline line < path) < 0) bad("\"" name "\" is not in this folder")
        close(path)
    } else if (head == "ottava") {
        if (index(public, " " level " ") == 0 && name != "ottava/types.h")
            bad("\"" name "\": of ottava/ this level knows only ottava/types.h")
    } else if (head != level && index(uses[level], " " head " ") == 0)
        bad("\"" name "\": " level " may include only:" (level == "cli" ? " ottava" : "") \
            uses[level] "and itself")
}

END {
    if (!("base" in known)) { print "no levels found in cmake/levels.cmake"; failed = 1 }
    if (!failed) printf "%d files, %d includes of our own: none is of a higher level\n", files, includes
    exit failed
}' cmake/levels.cmake || exit 1
