#!/bin/sh
# A name that other files see begins with the word of its file or of its folder: src/fp8/scale.c defines scale_... or fp8_...
# Looks at functions and tables with external linkage in src/**/*.c, and at inline functions in headers; of a file's name its
# first word is enough (run_record.c: run_...), and its singular (ops.c: op_...). Names of the public API (ott_) are the API's
# own, and headers of src/cpu are templates, compiled for each instruction set.
# Prints file:line of each name that does not, and exits 1.
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
# What begins in the first column, is not static (in a header: is inline), and is a function or has a value.
/^[a-z]/ && !/^(typedef|extern|else|out:|struct [a-z_0-9]+ {|enum|union)/ && (header ? /^static inline/ : !/^static/) {
    head = $0
    if (!sub(/\(.*/, "", head) && !(!header && sub(/ *(\[[^=]*)?= .*/, "", head))) next
    if (match(head, /[A-Za-z_0-9]+$/) && RSTART > 1) check(substr(head, RSTART))
}
END {
    if (total < 500) { print "only " total + 0 " names found: does the pattern still fit?"; failed = 1 }
    if (!failed) printf "%d names: each begins with its file or its folder\n", total
    exit failed
}'
