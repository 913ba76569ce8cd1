#!/bin/sh
# Writes the manual pages ottava.1 and ottava-VERB.1 into FOLDER. Their text is what `ottava --help` and
# `ottava VERB --help` print.
#
#   tools/make_man.sh PROGRAM FOLDER
set -eu
program=$1 folder=$2
mkdir -p "$folder"

# page NAME ABOUT SEE_ALSO: turns a help text from standard input into a manual page.
page() {
    awk -v name="$1" -v about="$2" -v see="$3" -v version="$version" '
    function escape(text) {
        gsub(/\\/, "\\e", text)
        gsub(/-/, "\\-", text)
        gsub(/\^/, "\\(ha", text)
        gsub(/~/, "\\(ti", text)
        gsub(/`/, "\\(ga", text)
        gsub(/\047/, "\\(aq", text)
        return text ~ /^\./ ? "\\&" text : text
    }
    function write(text) {
        if (text != "") print escape(text)
    }
    function section(title) {
        print ".SH " title
        gap = item = 0
    }
    # An entry of a list: a name, two or more spaces, and the explanation.
    function entry(line, text) {
        sub(/^ +/, "", line)
        text = match(line, /  +/) ? substr(line, RSTART + RLENGTH) : ""
        if (text != "") line = substr(line, 1, RSTART - 1)
        print ".TP"
        print "\\fB" escape(line) "\\fP"
        write(text)
        gap = 0
        item = 1
    }
    BEGIN {
        print ".TH " toupper(name) " 1 \"\" \"" version "\" \"User Commands\""
        print ".nh\n.ad l"
        section("NAME")
        print escape(name) " \\- " escape(about)
    }
    sub(/^Usage: /, "") { section("SYNOPSIS"); write($0); usage = 1; next }
    usage && sub(/^       /, "") { print ".br"; write($0); next }
    usage { section("DESCRIPTION"); usage = 0; next }
    /^$/ { gap = 1; next }
    sub(/^Options:/, "") { section("OPTIONS"); sub(/^ /, ""); write($0); next }
    /^Verbs:$/ { section("VERBS"); next }
    /^\[/ { print ".SS " escape($0); gap = 0; next }
    /^      [^ ]/ && item { print ".br" }
    /^      / && item { sub(/^ +/, ""); write($0); next }
    /^  / || /[^ ]  +[^ ]/ { entry($0); next }
    {
        if (gap || item) print ".PP"
        gap = item = 0
        write($0)
    }
    END {
        section("SEE ALSO")
        write(see)
    }' >"$folder/$1.1"
}

version=$("$program" --version)
version=O${version#o}
verbs=$("$program" --help | sed -n "/^Verbs:$/,/^$/s/^  \([a-z]*\)  *\(.*\)/\1 \2/p")
[ -n "$verbs" ] || { echo "tools/make_man.sh: $program --help lists no verb" >&2; exit 1; }
"$program" --help | page ottava "train language models in 8-bit floating point" \
    "$(echo "$verbs" | awk '{ printf "%sottava-%s(1)", (NR > 1 ? ", " : ""), $1 }')"
echo "$verbs" | while read -r verb about; do
    "$program" "$verb" --help | page "ottava-$verb" "$about" "ottava(1)"
done
