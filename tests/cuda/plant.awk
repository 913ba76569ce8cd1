# `awk -f plant.awk -v out=FOLDER faults.def SOURCE...` copies the sources src/PATH to FOLDER/PATH and adds the faults of
# faults.def. Each fault is enabled by its number (planted.h). out/faults.txt lists number, name, build and
# command of each fault. The build is "missing" if the source no longer contains the line that the fault
# changes.
FILENAME ~ /faults\.def$/ {
    if (/^mistake /) {
        split($0, part, /: |, /)
        name[++faults] = substr(part[1], 9)
        build[faults] = part[2]; command[faults] = part[3]
        place[faults] = 0; seen[faults] = 1
    } else if (/^fault /) {
        split($0, part, /: |, /)
        name[++faults] = substr(part[1], 7)
        file[faults] = part[2]; build[faults] = part[3]; command[faults] = part[4]
        place[faults] = 0
    } else if (/^- /) {
        old[faults] = substr($0, 3)
        if (match(old[faults], / @[0-9]+$/)) {
            place[faults] = substr(old[faults], RSTART + 2) + 0
            old[faults] = substr(old[faults], 1, RSTART - 1)
        }
    } else if (/^\+/) new[faults] = substr($0, 3)
    next
}

FNR == 1 {
    if (to) close(to)
    source = FILENAME
    sub(/.*\/src\//, "", source)
    to = out "/" source
    printf "#line 1 \"%s\"\n", FILENAME > to
}

{
    line = $0
    original = $0
    for (f = 1; f <= faults; f++) {
        if (file[f] != source || !index(original, old[f])) continue
        seen[f]++
        if (place[f] ? seen[f] != place[f] : seen[f] > 1) continue
        at = index(line, old[f])
        statement = old[f] ~ /[;}]$/
        change = statement ? "if (planted(" f ")) { " new[f] " } else { " old[f] " }" : \
                 "(planted(" f ") ? (" new[f] ") : (" old[f] "))"
        line = substr(line, 1, at - 1) change substr(line, at + length(old[f]))
    }
    print line > to
}

END {
    for (f = 1; f <= faults; f++) {
        there = place[f] ? seen[f] >= place[f] : seen[f] == 1
        printf "%d %s %s %s\n", f, name[f], there ? build[f] : "missing", command[f] > (out "/faults.txt")
    }
}
