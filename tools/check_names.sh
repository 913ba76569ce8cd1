#!/bin/sh
# Checks that a name with external linkage begins with the name of its file or folder: src/fp8/scale.c defines
# scale_... or fp8_.... Reads functions and tables in src/**/*.c and inline functions in headers. The first
# word of a file's name is enough (run_record.c: run_...), and its singular (ops.c: op_...). Exceptions: the
# public API's names (ott_), and the headers of src/cpu, which are templates for each ISA. Prints file:line of
# each wrong name and exits 1.
set -eu
cd "${1:-$(dirname "$0")/..}"

find src -type f -name '*.[ch]' ! -path 'src/cpu/*.h' | LC_ALL=C sort | tr '\n' '\0' | xargs -0 awk '
FNR == 1 {
    n = split(FILENAME, part, "/")
    file = part[n]
    sub(/\..*/, "", file)
    words = " " file " "
    if (file ~ /s$/) words = words substr(file, 1, length(file) - 1) " "
    while (sub(/_[^_]*$/, "", file)) words = words file " "
    for (i = 2; i < n; i++) words = words part[i] " "
    header = FILENAME ~ /h$/
}
function check(name,    begin) {
    total++
    if (name ~ /^(ott_|ISA$)/) return
    for (begin = name; ; ) {
        if (index(words, " " begin " ")) return
        if (!sub(/_[^_]*$/, "", begin)) break
    }
    printf "%s:%d: %s: begins with none of:%s\n", FILENAME, FNR, name, words
    failed = 1
}
# Definitions begin in the first column, are not static (inline in a header), and are functions or have an
# initializer.
/^[a-z]/ && !/^(typedef|extern|else|out:|struct [a-z_0-9]+ {|enum|union)/ &&
    (header ? /^static inline/ : !/^static/) {
    head = $0
    if (!sub(/\(.*/, "", head) && !(!header && sub(/ *(\[[^=]*)?= .*/, "", head))) next
    if (match(head, /[A-Za-z_0-9]+$/) && RSTART > 1) check(substr(head, RSTART))
}
END {
    if (total < 500) { print "only " total + 0 " names found: does the pattern still fit?"; failed = 1 }
    if (!failed) printf "%d names: each begins with its file or its folder\n", total
    exit failed
}'
