#!/bin/sh
# Checks docs/explanation/tour.md: each path in it exists; each function, struct and member in it occurs in
# the sources; in its table of levels each folder has a higher level than the folders that it uses
# (cmake/levels.cmake); in its table of calls each function is defined in its file, and the file of the row
# before names the function, or calls it through a table of functions.
set -eu
cd "$(dirname "$0")/.."
page=docs/explanation/tour.md
failed=0
checked=0
bad() {
    echo "$page: $*" >&2
    failed=1
}

words=$(mktemp)
trap 'rm -f "$words"' EXIT
find src cli include tests \( -name '*.[ch]' -o -name '*.cu' -o -name '*.def' \) -exec cat {} + |
    tr -c 'A-Za-z0-9_' '\n' | LC_ALL=C sort -u >"$words"

for token in $(grep -o '`[^` ]*`' "$page" | grep -v '^`\.' | tr -d '`' | LC_ALL=C sort -u); do
    case $token in
    -* | *[!a-z0-9_./A-Z]* | libottava* | *.toml) continue ;;
    src/* | cli/* | tests/* | tools/* | docs/* | bench/* | cmake/* | include/* | configs/*)
        [ -e "$token" ] || bad "$token does not exist" ;;
    */ | *.[ch] | *.cu | *.def | *.sh | *.html)
        find src cli tests tools -path "*/${token%/}" | grep -q . || bad "no file is called $token" ;;
    *_*)
        for word in $(echo "$token" | tr './' '  '); do
            grep -qxF "$word" "$words" || bad "no source has the name $word (of $token)"
        done ;;
    *) continue ;;
    esac
    checked=$((checked + 1))
done
for token in $(sed -n 's/.*class="n">\([^<,]*\).*/\1/p' docs/explanation/step.svg); do
    [ -e "$token" ] || bad "step.svg: $token does not exist"
done
[ $checked -ge 100 ] || bad "only $checked names found: does the pattern still fit?"

awk -v page="$page" '
FILENAME == page && /^\| *[0-9]+ *\| *`/ {
    split($0, cell, "|")
    for (rest = cell[3]; match(rest, /`(src\/)?[a-z0-9]+\/`/); rest = substr(rest, RSTART + RLENGTH)) {
        folder = substr(rest, RSTART + 1, RLENGTH - 3)
        sub(/.*\//, "", folder)
        level[folder] = cell[2] + 0
    }
}
FILENAME == "cmake/levels.cmake" && sub(/^set\(/, "") {
    gsub(/[()]|#.*/, " ")
    n = split($0, word, " ")
    if (!sub(/_uses$/, "", word[1]) || word[1] == "mpi" || word[1] == "cuda") next
    if (!(word[1] in level)) { print page ": " word[1] " has no level"; failed = 1 }
    for (i = 2; i <= n; i++)
        if (word[i] !~ /\$/ && level[word[i]] >= level[word[1]]) {
            print page ": " word[1] " uses " word[i] ", which has no lower level"; failed = 1
        }
}
END { exit failed }' "$page" cmake/levels.cmake >&2 || failed=1

# The table of calls: | function | file |.
calls=$(sed -n 's/^| `\([a-z_0-9A-Z]*\)` | `\([a-z_0-9/.]*\)` |.*/\1 \2/p' "$page")
before=
files=
count=0
while read -r function file; do
    count=$((count + 1))
    files="$files $file"
    # op_gemm and dispatch_op are made by macros from tensor/ops.def.
    grep -qE "(^|[ *(])$function\)?\(|op_##name|dispatch_op" "$file" || bad "$file does not define $function"
    named="(^|[^a-z_])$function([^a-z_]|$)|gemm_kernel|table->name|mixer->forward|task\("
    [ -z "$before" ] || grep -qE "$named" "$before" || bad "$before does not name $function"
    before=$file
done <<EOF
$calls
EOF
stated="$count calls in $(echo "$files" | tr ' ' '\n' | sed '/^$/d' | sort -u | grep -c .) files"
tr '\n' ' ' <"$page" | grep -q "$stated" || bad "the table has $stated, the text has not"
[ $failed = 0 ] && echo "$checked names, and $stated"
exit $failed
