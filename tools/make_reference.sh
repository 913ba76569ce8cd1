#!/bin/sh
# make_reference.sh [PROGRAM [FOLDER]]: writes the reference pages keys.md (configuration keys), commands.md
# (help of the verbs) and messages.md (error messages) from the program's help and from the source. Default:
# build/release/ottava, docs/reference. The test cli.reference checks that the pages are current.
set -eu
cd "$(dirname "$0")/.."
program=${1:-build/release/ottava}
out=${2:-docs/reference}

# Characters that Markdown reads as a table's border or as HTML are escaped.
{
    cat <<'PAGE'
# Configuration keys

Which keys does a configuration have, what does each mean, and which values may it have?

`tools/make_reference.sh` makes this page from `ottava train --help`. A key is written `--section.key=value`
on the command line, and `key = value` in the section `[section]` of a file. "Also" are the names that other
tools use for the key.
PAGE
    "$program" train --help | awk '
    function escape(s) { gsub(/\|/, "\\|", s); gsub(/</, "\\&lt;", s); gsub(/\*/, "\\*", s); return s }
    function flush() {
        if (key != "") printf "| `%s` | %s | %s |\n", key, escape(type), escape(text) also
        key = text = also = ""
    }
    /^\[/ {
        flush()
        name = $1
        sub(/^\[[a-z0-9_]*\] */, "")
        printf "\n## %s\n\n%s%s.\n\n| key | values | meaning |\n|---|---|---|\n", name,
            toupper(substr($0, 1, 1)), substr($0, 2)
        next
    }
    /^  --/ { flush(); key = substr($1, 3); type = $0; sub(/^ *[^ ]+ */, "", type); next }
    key != "" && /^      also: / { also = ". Also `" substr($0, 13) "`"; gsub(/, /, "`, `", also); next }
    key != "" && /^      / { text = text (text == "" ? "" : " ") substr($0, 7) }
    END { flush() }'
} >"$out/keys.md"

{
    cat <<'PAGE'
# Command line

Which verbs and options does the program have?

`tools/make_reference.sh` makes this page from the help texts of the program.

## Exit codes

| code | meaning |
|---|---|
| 0 | done; of `ottava train`: the last step is done |
| 1 | the run or the check failed: divergence, full memory or disk, failed device, folder in use |
| 2 | bad input: configuration, files, paths, options |
| 128 + N | signal N ended the run after it saved: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP, 138 SIGUSR1 |
| 141 | the same, because the reader of its output closed the pipe |

`mpirun` ends with the exit code of the rank that reported the error.

PAGE
    echo '## ottava'
    printf '\n```text\n'
    "$program" --help
    echo '```'
    for verb in $("$program" --help | sed -n '/^Verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        printf '\n## ottava %s\n\n```text\n' "$verb"
        "$program" "$verb" --help | sed '/^\[run\]/,$d'
        echo '```'
        [ "$verb" != train ] || printf '\n[Configuration keys](keys.md) has the keys.\n'
    done
} >"$out/commands.md"

{
    cat <<'PAGE'
# Index of error messages

Which part of Ottava makes a message?

`tools/make_reference.sh` makes this page from the source. `...` is a value. A message names what failed, the
value and the remedy. [Troubleshooting](../howto/troubleshooting.md) explains the most frequent ones.
PAGE
    find cli src -name '*.c' -o -name '*.cpp' | xargs awk -f tools/messages.awk | LC_ALL=C sort -u |
        sed 's/|/\\|/g; s/</\&lt;/g; s/\*/\\*/g' | awk -F '\t' '
    {
        split($1, part, "/")
        folder = part[1] == "cli" ? "cli" : part[1] "/" part[2]
        if (folder != before) printf "\n## %s\n\n| file | message |\n|---|---|\n", folder
        before = folder
        printf "| `%s` | %s |\n", substr($1, length(folder) + 2), $2
    }'
} >"$out/messages.md"
