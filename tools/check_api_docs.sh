#!/bin/sh
# The reference in docs/reference/api.md must list every public function of include/ottava/, and no function
# that does not exist.
#
#   tools/check_api_docs.sh [FOLDER]
set -eu
cd "${1:-$(dirname "$0")/..}"
page=docs/reference/api.md
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# A declaration may span several lines. The name is the last ott_ word before its first parenthesis.
cat include/ottava/*.h | awk '
/^OTT_API/ { text = ""; inside = 1 }
inside {
    text = text " " $0
    if (index($0, "(")) {
        sub(/\(.*/, "", text)
        sub(/.*[ *]/, "", text)
        print text
        inside = 0
    }
}' | sort -u >"$tmp/declared"
[ -s "$tmp/declared" ] || { echo "no OTT_API function in include/ottava" >&2; exit 1; }

# Functions in the reference, after its heading, are written `ott_name`.
sed -n '/^## Reference/,$p' "$page" | grep -o '`ott_[a-z0-9_]*`' | tr -d '`' | sort >"$tmp/listed"
# Elsewhere on the page, a function is any ott_ word before a parenthesis.
grep -o 'ott_[a-z0-9_]*(' "$page" | tr -d '(' | sort -u >"$tmp/mentioned"

bad=0
complain() {
    [ ! -s "$tmp/found" ] || { sed "s/^/docs\/reference\/api.md: $1: /" "$tmp/found" >&2; bad=1; }
}
sort -u "$tmp/listed" | comm -23 "$tmp/declared" - >"$tmp/found"
complain "not in the reference"
sort -u "$tmp/listed" "$tmp/mentioned" | comm -13 "$tmp/declared" - >"$tmp/found"
complain "no such function"
uniq -d "$tmp/listed" >"$tmp/found"
complain "twice in the reference"
[ $bad = 0 ] && echo "$(wc -l <"$tmp/declared") public functions, all in docs/reference/api.md"
exit $bad
