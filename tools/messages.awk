# Reads C files. For each call of a function that makes an error, prints the file and the message, separated
# by a tab. The message is the call's first string literals, joined, with "..." for values.
# tools/make_reference.sh uses this file.
FNR == 1 { inside = 0 }
{
    line = $0
    if (!inside) {
        if (!match(line, /(^|[^a-z_])([a-z_]*_fail|fail|FAIL)\(/)) next
        line = substr(line, RSTART + RLENGTH)
        inside = 1
        text = ""
        started = 0
    }
    literal = "(PRI[a-zA-Z0-9]+)?[ \t]*\"([^\"\\\\]|\\\\.)*\""
    while (match(line, (started ? "^[ \t]*" : "") literal)) {
        part = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        sub(/^[^"]*"/, "", part)
        text = text substr(part, 1, length(part) - 1)
        started = 1
    }
    if (line ~ /^[ \t]*(PRI[a-zA-Z0-9]+)?[ \t]*$/ && (started || $0 !~ /;/)) next
    inside = !started && line !~ /;/
    if (!started) next
    gsub(/%%/, "\001", text)
    gsub(/%[-+ 0#]*[0-9.*]*(l|ll|z|h)*[a-zA-Z]?/, "...", text)
    gsub(/\001/, "%", text)
    gsub(/\\"/, "\"", text)
    words = split(text, word, " ")
    if (words > 2) print FILENAME "\t" text
}
