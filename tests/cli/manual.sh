#!/bin/sh
# Tests the manual pages that tools/make_man.sh writes: there is one for each verb, with every option of the
# verb's help, and groff formats them without warnings.
. "$(dirname "$0")/checks.sh"

root=$(cd "$(dirname "$0")/../.." && pwd)
holds "make_man.sh writes pages" "$root/tools/make_man.sh" "$program" man
verbs=$("$program" completion words "" | awk -F'\t' '{ print $1 }' | grep -v -e -- -e help)
for verb in "" $verbs; do
    page=man/ottava${verb:+-$verb}.1
    holds "$page exists" test -s "$page"
    "$program" $verb --help | grep -oE -e '--[a-z][a-zA-Z0-9_.-]*[a-zA-Z0-9]' | sort -u >options
    sed 's/\\-/-/g' "$page" >plain
    shown=/dev/null report "$page has every option of the help" \
        "$(while read -r option; do grep -qF -e "$option" plain || echo "not $option"; done <options)"
    if command -v groff >/dev/null; then
        groff -man -Tutf8 -ww -z "$page" >warnings 2>&1
        shown=/dev/null report "groff formats $page" "$(cat warnings)"
    fi
done
holds "the main page names every verb" sh -c \
    'for verb; do
        grep -q "^.fB$verb.fP\$" man/ottava.1 && grep -q "ottava.-$verb(1)" man/ottava.1 || exit 1
    done' \
    sh $verbs
command -v groff >/dev/null || echo "SKIPPED: groff is missing: the pages' format is not checked"
finish
