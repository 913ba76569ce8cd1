#!/bin/sh
# Checks the pages of docs/ and of the root folder: relative links name existing files and headings; each page
# of docs/ is of one kind, its first paragraph is a question, and docs/index.md and mkdocs.yml list it. Builds
# no site.
set -eu
cd "$(dirname "$0")/.."
failed=0
bad() {
    echo "$*" >&2
    failed=1
}

pages=$(find docs -name '*.md' | LC_ALL=C sort)

# Prints "heading FILE ANCHOR" and "link FILE TARGET" lines. Anchors are GitHub's and Python-Markdown's.
# shellcheck disable=SC2086 # names of pages have no spaces
awk '
FNR == 1 { fenced = 0 }
/^```/ { fenced = !fenced }
fenced || /^    / { next }
/^#+ / {
    anchor = tolower($0)
    sub(/^#+ */, "", anchor)
    gsub(/[^a-z0-9 _-]/, "", anchor)
    gsub(/ /, "-", anchor)
    print "heading", FILENAME, anchor
}
{
    for (rest = $0; match(rest, /\]\([^)]*\)/); rest = substr(rest, RSTART + RLENGTH))
        print "link", FILENAME, substr(rest, RSTART + 2, RLENGTH - 3)
}' README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md $pages >"${TMPDIR:-/tmp}/check_docs.$$"
trap 'rm -f "${TMPDIR:-/tmp}/check_docs.$$"' EXIT

links=0
while read -r kind file target; do
    case $kind$target in heading* | linkhttp* | link) continue ;; esac
    links=$((links + 1))
    path=${target%%#*}
    full=$file
    [ -z "$path" ] || full=$(dirname "$file")/$path
    [ -e "$full" ] || { bad "$file: $target: there is no such file"; continue; }
    case $target in
    *'#'*)
        full=$(realpath --relative-to=. "$full")
        grep -qx "heading $full ${target#*#}" "${TMPDIR:-/tmp}/check_docs.$$" ||
            bad "$file: $target: there is no such heading" ;;
    esac
done <"${TMPDIR:-/tmp}/check_docs.$$"

for page in $pages; do
    name=${page#docs/}
    case $name in
    index.md | */plans/*) continue ;;
    tutorials/* | howto/* | reference/* | explanation/*) ;;
    *) bad "$page: belongs into docs/tutorials, howto, reference or explanation" ;;
    esac
    awk 'NR > 2 { text = text $0 " " } NR > 2 && /^$/ { exit } END { exit text !~ /\?/ }' "$page" ||
        bad "$page: its first paragraph is no question"
    grep -q "($name)" docs/index.md || bad "$page: docs/index.md does not list it"
    grep -q ": $name\$" mkdocs.yml || bad "$page: mkdocs.yml does not list it"
done
[ $failed = 0 ] && echo "$(echo "$pages" | wc -l) pages, $links links"
exit $failed
