#!/bin/sh
# Counts phrases that make a reader look back for what they refer to ("those of", "what it has"), and literary
# words that have a plain one ("beside", "anew"). Reads the comments of C, CUDA, shell, Python and CMake
# files, the docstrings of Python files, the messages of C and CUDA files (string literals of more than five
# words), and Markdown text without code blocks, tables and headings. Prints, for each kind of text, the
# phrases per 1,000 words, the words per sentence, and the share of sentences over 25 words. Also counts the
# private words of tools/private_words.txt in text, identifiers of C and CUDA files, and file names. Exits
# 1 if the phrases are more than the kind's limit, or a private word is left that is no exception.
#
#   tools/check_prose.sh [--list] [PATH...]
#
# --list prints the private words and each passage that has such a phrase instead, the worst first. Paths are
# tracked files or folders; default: all. Text in `backquotes` is not read.
set -eu
cd "$(dirname "$0")/.."

list=0
[ "${1:-}" != --list ] || { list=1; shift; }

files=$(git ls-files -- "$@" |
    grep -E '\.(c|h|cu|cuh|cpp|hpp|def|md|sh|py|cmake)$|(^|/)CMakeLists\.txt$|^\.ci/run$' |
    grep -vE '(^|/)(golden|corpus)/|^docs/reference/plans/|^bench/results/|^tools/check_prose\.sh$')

# A regular expression of the private words.
private=$(awk -F '  +' '/^[a-z]/ { print $1 }' tools/private_words.txt | sed 's/ /[ _]/g' | paste -sd '|')
private="(^|[^a-zA-Z])($private)([^a-zA-Z]|$)"

# Prints a line for each passage: kind, file:line, text. Passages of few words have the kind "short". File
# names, and identifiers in lines with a private word, have the kind "names".
passages() {
    LC_ALL=C grep -HniE "$private" "$@" | cut -d: -f1,2 | awk '
function passage(kind, line, text, least,    count) {
    gsub(/`[^`]*`/, "X", text)
    count = gsub(/[A-Za-z][A-Za-z\047-]*/, "&", text)
    if (count > least) printf "%s\t%s:%d\t%s\n", kind, name, line, text
    else if (count > 1) printf "short\t%s:%d\t%s\n", name, line, text
}
function names(code,    word, n, i) {
    if (!((name ":" FNR) in private)) return
    n = split(code, word, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= n; i++) if (word[i] != "") printf "names\t%s:%d\t%s\n", name, FNR, word[i]
}
function read_c(line,    end, token, string) {
    while (1) {
        if (open) {
            end = index(line, "*/")
            if (!end) { sub(/^[ \t]*\*/, "", line); text = text " " line; return }
            passage("comments", began, text " " substr(line, 1, end - 1), 3)
            open = 0
            line = substr(line, end + 2)
        }
        if (!match(line, /\/\*|\/\/|"|\047/)) { names(line); return }
        names(substr(line, 1, RSTART - 1))
        token = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (token == "/*") {
            open = 1; text = ""; began = FNR
        } else if (token == "//") {
            passage("comments", FNR, line, 3)
            return
        } else if (match(line, token == "\"" ? "^([^\"\\\\]|\\\\.)*\"" : "^([^\047\\\\]|\\\\.)*\047")) {
            string = substr(line, 1, RLENGTH - 1)
            line = substr(line, RSTART + RLENGTH)
            gsub(/%[-+ 0#]*[0-9*.]*[a-zA-Z]+|\\./, " X ", string)
            if (token == "\"") passage("messages", FNR, string, 5)
        }
    }
}
function read_hash(line,    quotes) {
    if (docstring || (name ~ /\.py$/ && line ~ /^[ \t]*"""[A-Za-z{(]/)) {
        quotes = gsub(/"""/, "", line)
        if (!docstring) { finish(); open = 1; text = ""; began = FNR }
        text = text " " line
        if (quotes % 2) docstring = !docstring
        if (!docstring) finish()
        return
    }
    if (line !~ /^[ \t]*#[^!]/) {
        finish()
        if (name ~ /\.sh$/) passage("short", FNR, line, 1e6)
        return
    }
    if (!open) { open = 1; text = ""; began = FNR }
    sub(/^[ \t]*#+/, "", line)
    text = text " " line
}
function read_markdown(line) {
    if (line ~ /^[ \t]*```/) { fenced = !fenced; finish(); return }
    if (!fenced && line ~ /^(\||#)/) passage("short", FNR, line, 1e6)
    if (fenced || line ~ /^(    |\||#)/ || line ~ /^[ \t]*$/) { finish(); return }
    if (line ~ /^[ \t]*([-*]|[0-9]+\.) /) finish()
    if (!open) { open = 1; text = ""; began = FNR }
    text = text " " line
}
function finish() {
    if (open) passage(reads == "markdown" ? "docs" : "comments", began, text, 3)
    open = 0
}
FILENAME == "-" { private[$0]; next }
FNR == 1 {
    finish()
    name = FILENAME
    printf "names\t%s:1\t%s\n", name, name
    fenced = 0
    reads = name ~ /\.md$/ ? "markdown" : name ~ /\.(c|h|cu|cuh|cpp|hpp|def)$/ ? "c" : "hash"
}
reads == "c" { read_c($0) }
reads == "hash" { read_hash($0) }
reads == "markdown" { read_markdown($0) }
END { finish() }' - "$@"
}

# shellcheck disable=SC2086 # names of files of this project have no spaces
passages $files | awk -F '\t' -v list="$list" -v any="$private" '
# Returns the first private word of a passage or name that is no exception; "" if there is none.
function private_word(kind, text, place,    i, j) {
    text = " " tolower(text) " "
    gsub(/[^a-z\047]+/, " ", text)
    if (text !~ any) return ""
    for (i = 1; i <= private; i++) {
        if (text !~ " (" word[i] ") " || (where[i] != "both" && (where[i] == "names") != (kind == "names")))
            continue
        for (j = 1; j <= exceptions[i] && place !~ exception[i, j]; j++) ;
        if (j > exceptions[i]) return word[i] ": " instead[i]
    }
    return ""
}
FILENAME != "-" {
    split($0, column, /  +/)
    if (/^[a-z]/) { word[++private] = column[1]; where[private] = column[2]; instead[private] = column[3] }
    if (/^ /) exception[private, ++exceptions[private]] = column[2]
    next
}
{
    found = private_word($1, $3, $2 ": " $3)
    left += found != ""
    if (list && found != "") printf "private %s: %s (%s)\n", $2, $3, found | "sort"
}
$1 == "names" || $1 == "short" { next }
BEGIN {
    limit["comments"] = 2; limit["messages"] = 0.5; limit["docs"] = 1
    n = split("those of|those that|those which|those who|that of|what it|what they|what is|what has|" \
        "what of|what that|what each|what a|" \
        "what the|of it|of which|of them|of these|of those|of whom|whose|whoever|nobody|somebody|beside|" \
        "beneath|anew|is told|are told|" \
        "was told|be told|tell|tells|hear|hears|heard|look on|looks on|stand|stands|lie|lies|lay|beget|" \
        "begets|behind|thereof|" \
        "meanwhile|go on|goes on|went on|bring|brings|by itself|as it is|as it was|as they are|" \
        "as they were|the other one|" \
        "the other ones|so many|say|says|said|no more|want|wants|at once|by hand", phrase, "|")
    for (i = 1; i <= n; i++) gsub(/ /, "  ", phrase[i])
}
{
    # Each word gets two spaces before and after it, so that phrases can follow each other.
    text = " " tolower($3) " "
    gsub(/[^a-z\047-]+/, "  ", text)
    found = 0
    for (i = 1; i <= n; i++) found += gsub(" " phrase[i] " ", "&", text)
    w = gsub(/[a-z][a-z\047-]*/, "&", text)
    words[$1] += w
    phrases[$1] += found
    m = split($3, sentence, /[.;:!?][ \t]+/)
    for (j = 1; j <= m; j++) {
        length_of = gsub(/[A-Za-z][A-Za-z\047-]*/, "&", sentence[j])
        if (length_of > 2) { sentences[$1]++; long[$1] += length_of > 25 }
    }
    if (list && found) printf "%06.1f %s: %s\n", 1000 * found / (w + 10), $2, $3 | "sort -rn"
}
END {
    for (kind in words) {
        per = 1000 * phrases[kind] / words[kind]
        if (!list)
            printf "%-8s %6d words, %4.1f a sentence, %4.1f%% of sentences over 25 words, " \
                "%4.1f phrases per 1,000 words (limit %s)\n",
                kind, words[kind], words[kind] / sentences[kind], 100 * long[kind] / sentences[kind], per,
                limit[kind]
        if (per > limit[kind]) failed = 1
    }
    if (!list) printf "%d private words of tools/private_words.txt (limit 0)\n", left
    if (left) failed = 1
    if (failed && !list) print "Read the passages that `tools/check_prose.sh --list` prints aloud, " \
        "and say them in plain sentences."
    exit list ? 0 : failed
}' tools/private_words.txt -
