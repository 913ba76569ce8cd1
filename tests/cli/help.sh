#!/bin/sh
# Help texts of the program, and errors for unknown names.
. "$(dirname "$0")/checks.sh"

call --version
holds "version is a name and three numbers" grep -Eqx 'ottava [0-9]+\.[0-9]+\.[0-9]+' out
works "help lists the verbs" "train|generate|report|plan|bench|recipes|--version" --help
works "help of train has every section" \
    "Usage: ottava train|--train.seq_len|--float8.recipe_name|--checkpoint.load_path|--metrics.log_style" train --help
works "help of train, wherever it is asked for" "Usage: ottava train" train x.toml --train.seq_len=1 --help
works "help of a verb" "Usage: ottava train|--train.seq_len" help train
works "help of another" "--prompt TEXT" help generate
works "help of nothing in particular" "Verbs:" help
fails "help of no verb" 2 'no verb "trian"|did you mean train?' help trian
works "help of one section" "[float8]|--float8.recipe_name" train --help float8
holds "and of no other" sh -c '! grep -q -e "^  --train.seq_len" out'
works "the same by help" "--float8.recipe_name" help train float8
works "help of a section of another tool" "--train.seq_len|--train.max_steps|training.steps" train --help=training
works "help of one key" "--optimizer.lr  number" train --help optimizer.lr
holds "and of that alone" test "$(grep -c -e '^  --' out)" -eq 1
fails "help of no section" 2 "--help: unknown section [flot8]|[float8]" train --help flot8
fails "a GPU" 2 "--device=cuda: cuda: no CUDA backend is here|make cuda|ottava doctor" train --device=cuda
fails "a GPU for another verb" 2 "no CUDA backend is here" bench gemm --device=cuda:0
works "help of generate" "--prompt TEXT|--temperature X|--seed N" generate --help
works "help of report" "--out FILE|--no-plot" report -h
works "help of doctor" "Usage: ottava doctor" doctor --help
holds "no GPU" sh -c "! $program doctor > out"
holds "and what brings one" grep -q -e "-> make cuda" out
works "help of bench" "--repeats N|--json" bench --help

fails "no verb" 2 "the verb is missing: train, | or doctor (ottava --help)"
fails "unknown verb" 2 'no verb "trian"|did you mean train?' trian
fails "unknown verb, nothing near" 2 "no verb|ottava --help" frobnicate
fails "unknown option of the program" 2 "did you mean --version?" --verison
fails "unknown option of a verb" 2 "generate|no option --promt|did you mean --prompt?" generate r --promt=x
fails "an option without its value" 2 "--prompt needs a value" generate r --prompt --seed=1
fails "a flag with a value" 2 "--no-plot|no value" report r --no-plot=1
fails "a number that is none" 2 '--max-tokens is "1e3"|whole number' generate r --prompt=x --max-tokens=1e3
fails "a number that is too large" 2 "--threads" generate r --prompt=x --threads=99999999999
fails "a negative seed" 2 "--seed" generate r --prompt=x --seed=-1
fails "no prompt" 2 "--prompt is missing" generate r
fails "an empty prompt" 2 "the prompt is empty" generate r --prompt=
fails "an empty prompt from standard input" 2 "the prompt is empty" generate r --prompt -
fails "a probability out of range" 2 "top_p = 1.5" generate r --prompt=x --top-p 1.5
fails "no run folder" 2 "RUN_DIR is missing" report --no-plot
fails "too many operands" 2 "takes 1 MODEL, 2 are given" generate a b --prompt=x
fails "a run that is not there" 2 "absent" generate absent --prompt=x
fails "a report of nothing" 2 "absent" report absent
fails "unknown benchmark" 2 'no benchmark "gem"|gemm' bench gem
fails "a line break in an argument makes no second line" 2 "no verb" "a
b"

"$program" --help >/dev/full 2>err
code=$?
cp /dev/null out
trouble=$(missing err "standard output|No space left")
[ $code -eq 1 ] || trouble="exit code $code"
report "a full disk under standard output is an error" "$trouble"

"$program" --version >&- 2>err
code=$?
trouble=$(missing err "standard output")
[ $code -eq 2 ] || trouble="exit code $code"
report "a closed standard output is an error" "$trouble"

{
    "$program" train --help 2>err
    echo $? >code
} | true
trouble=
[ -s err ] && trouble="something is on standard error"
[ "$(cat code)" -eq 0 ] || trouble="exit code $(cat code)"
report "a reader that went away ends it quietly" "$trouble"
finish
