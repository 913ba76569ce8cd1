#!/bin/sh
# Tests the help texts of the program, and errors for unknown names.
. "$(dirname "$0")/checks.sh"

call --version
holds "the version is a name and three numbers" grep -Eqx 'ottava [0-9]+\.[0-9]+\.[0-9]+' out
works "help lists the verbs" "train|generate|report|plan|bench|recipes|--version" --help
works "help of train has every section" \
    "Usage: ottava train|--train.seq_len|--float8.recipe_name|--checkpoint.load_path|--metrics.log_style" \
    train --help
works "--help after other options" "Usage: ottava train" train x.toml --train.seq_len=1 --help
works "help of a verb" "Usage: ottava train|--train.seq_len" help train
works "help of another verb" "--prompt TEXT" help generate
works "help without a verb" "Verbs:" help
fails "help of an unknown verb" 2 'no verb "trian"|did you mean train?' help trian
works "help of one section" "[float8]|--float8.recipe_name" train --help float8
holds "help of one section has no other section" sh -c '! grep -q -e "^  --train.seq_len" out'
works "help VERB SECTION" "--float8.recipe_name" help train float8
works "help of a section of another tool" "--train.seq_len|--train.max_steps|training.steps" \
    train --help=training
works "help of one key" "--optimizer.lr  number" train --help optimizer.lr
holds "help of one key has no other key" test "$(grep -c -e '^  --' out)" -eq 1
fails "help of an unknown section" 2 "--help: unknown section [flot8]|[float8]" train --help flot8
fails "a GPU" 2 "--device=cuda: cuda: no CUDA backend was found|make cuda|ottava doctor" train --device=cuda
fails "a GPU for another verb" 2 "no CUDA backend was found" bench gemm --device=cuda:0
works "help of generate" "--prompt TEXT|--temperature X|--seed N" generate --help
works "help of report" "--out FILE|--no-plot" report -h
works "help of doctor" "Usage: ottava doctor" doctor --help
holds "doctor reports a missing GPU" sh -c "! $program doctor > out"
holds "doctor names the command that builds the CUDA backend" grep -q -e "-> make cuda" out
works "help of bench" "--repeats N|--json" bench --help

fails "no verb" 2 "the verb is missing: train, | or doctor (ottava --help)"
fails "unknown verb" 2 'no verb "trian"|did you mean train?' trian
fails "an unknown verb without a similar name" 2 "no verb|ottava --help" frobnicate
fails "unknown option of the program" 2 "did you mean --version?" --verison
fails "unknown option of a verb" 2 "generate|no option --promt|did you mean --prompt?" generate r --promt=x
fails "an option without its value" 2 "--prompt needs a value" generate r --prompt --seed=1
fails "a flag with a value" 2 "--no-plot|no value" report r --no-plot=1
fails "a number that is not a whole number" 2 '--max-tokens is "1e3"|whole number' \
    generate r --prompt=x --max-tokens=1e3
fails "a number that is too large" 2 "--threads" generate r --prompt=x --threads=99999999999
fails "a negative seed" 2 "--seed" generate r --prompt=x --seed=-1
fails "no prompt" 2 "--prompt is missing" generate r
fails "an empty prompt" 2 "the prompt is empty" generate r --prompt=
fails "an empty prompt from standard input" 2 "the prompt is empty" generate r --prompt -
fails "a probability out of range" 2 "top_p = 1.5" generate r --prompt=x --top-p 1.5
fails "no run folder" 2 "RUN_DIR is missing" report --no-plot
fails "too many operands" 2 "takes 1 MODEL, 2 are given" generate a b --prompt=x
fails "a missing run" 2 "absent" generate absent --prompt=x
fails "a report of a missing run" 2 "absent" report absent
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
[ -s err ] && trouble="standard error is not empty"
[ "$(cat code)" -eq 0 ] || trouble="exit code $(cat code)"
report "the program ends without an error if the reader of its output ends" "$trouble"
finish
