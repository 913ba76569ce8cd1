#!/bin/sh
# Runs the commands of docs/howto/troubleshooting.md and compares their output with the page. In a block,
# lines that begin with "$ " are commands. The other lines are the expected message, which may be wrapped
# differently. "..." marks parts that differ.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/cli/checks.sh"
page=$root/docs/howto/troubleshooting.md

# ---- files that the commands name ----
ln -s "$root/configs" configs
cp small.txt book.txt
printf 'too short' >short.txt
printf 'caf\351' >latin1.txt
printf '{"content":"a"}\n' >rows.jsonl
folder FOLDER llama LlamaForCausalLM
folder RWKV rwkv RwkvForCausalLM
ln -s FOLDER WEIGHTLESS
mkdir bin
ln -s "$program" bin/ottava
export PATH="$PWD/bin:$PATH"
unset CONFIG_FILE MODULE CONFIG

# blocks: prints each indented block as one line: number, commands and the expected text, separated by tabs.
blocks() {
    awk '
    /^### / { title = substr($0, 5) }
    /^    / {
        line = substr($0, 5)
        if (continued || sub(/^\$ /, "", line)) {
            if (!continued) commands = commands (commands == "" ? "" : "; ")
            continued = sub(/ *\\$/, " ", line)
            gsub(/^ +/, "", line)
            commands = commands line
        } else text = text " " line
        next
    }
    commands != "" { printf "%s\t%s\t%s\n", title, commands, text; commands = text = "" }' "$page"
}

# absent TEXT: prints the first part of the text, split at "...", that does not follow in the output.
absent() {
    sed 's/^\[[a-z]*\] [0-9: ,-]* - root - //' out | tr -s ' \n' ' ' >words
    TEXT=$1 awk '
    { output = output $0 }
    END {
        n = split(ENVIRON["TEXT"], part, /\.\.\./)
        for (i = 1; i <= n; i++) {
            gsub(/^ +| +$/, "", part[i])
            if (part[i] == "") continue
            at = index(output, part[i])
            if (!at) { print "\"" part[i] "\" does not follow"; exit }
            output = substr(output, at + length(part[i]))
        }
    }' words
}

blocks >list
count=0
while IFS='	' read -r title commands text <&3; do
    count=$((count + 1))
    timeout 120 sh -c "$commands" >out 2>&1 </dev/null
    shown=out report "$title: $commands" "$(absent "$text")"
done 3<list
report "at least 26 symptoms" "$([ $count -ge 26 ] || echo "only $count")"
finish
