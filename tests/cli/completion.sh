#!/bin/sh
# Tests the completion scripts: bash's and fish's by their results, zsh's syntax.
. "$(dirname "$0")/checks.sh"

works "completion prints a script" "complete -o default -F _ottava ottava" completion bash
works "completion of verbs" "train|export|help|--version" completion words ""
works "completion of options" "--format=|--out=|--help" completion words export --
works "completion of an option's value" "hf-fp8|gguf" completion words export --format=
works "completion of configuration keys" "--float8.recipe_name=|--config=" completion words train --
works "completion of a key's value" "tensorwise|rowwise" completion words plan x.toml --float8.recipe_name ""
works "completion of a truth value" "true|false" completion words train --train.master_dither=
works "completion of an operand" "gemm|step" completion words bench ""
call completion words trian --
holds "no completion of an unknown verb" test "$code" = 0 -a ! -s out
fails "an unknown shell" 2 'no script for "ksh"|bash, zsh or fish' completion ksh

# Every option of a help text is a candidate.
for verb in $("$program" completion words "" | awk -F'\t' '{ print $1 }' | grep -v -e -- -e help); do
    "$program" "$verb" --help | sed -n 's/^  \(--[^ ]*\).*/\1/p' | grep -vx -e --section.key |
        sort -u >listed
    call completion words "$verb" -
    awk -F'\t' '{ print $1 }' out | sed 's/=$//' | sort -u >candidates
    refused=$("$program" "$verb" --help | grep -c -e '^      refused:' -e '^      controls PyTorch' -e \
        '^      has an effect only with')
    holds "all options of $verb are candidates" \
        test "$(comm -23 listed candidates | wc -l)" -eq "$refused"
    if [ "$verb" = export ]; then
        for word in $("$program" completion words export --format=); do
            call export absent --out=x --format="$word"
            holds "export takes the candidate $word" sh -c '! grep "it takes" err'
        done
    fi
done

mkdir bin
ln -s "$program" bin/ottava
export PATH="$PWD/bin:$PATH"
if command -v bash >/dev/null; then
    cat >ask.bash <<'BASH'
source <(ottava completion bash)
compopt() { :; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_ottava ottava
echo "${COMPREPLY[*]}"
BASH
    # bash RESULT WORD...: the candidates for the last of readline's words must be RESULT.
    bash_gives() {
        result=$1
        shift
        call=$(bash ask.bash "$@" 2>&1)
        trouble=
        [ "$call" = "$result" ] || trouble="\"$call\" instead of \"$result\""
        shown=/dev/null report "bash: $*" "$trouble"
    }
    bash_gives "tokenize" ottava to
    bash_gives "report" ottava help rep
    bash_gives "--granularity=" ottava export --gran
    bash_gives "hf hf-fp8" ottava export --format = hf
    bash_gives "hf hf-fp8" ottava export --format hf
    bash_gives "bf16 fp32 fp16" ottava export x --dtype =
    bash_gives "--float8.recipe_name=" ottava train a.toml --float8.recipe_n
    bash_gives "bf16" ottava train --train.mixed_precision = b
    bash_gives "1" ottava generate x --device = cuda :
    bash_gives "" ottava train conf
    bash_gives "" ottava report --out = pa
else
    echo "SKIPPED: bash is missing: its completion is not tested"
fi
if command -v zsh >/dev/null; then
    call completion zsh
    holds "the syntax of zsh's script" zsh -n out
else
    echo "SKIPPED: zsh is missing: the syntax of its completion is not checked"
fi
if command -v fish >/dev/null; then
    # fish_gives RESULT LINE: the candidates for the end of the line must be RESULT.
    fish_gives() {
        call=$(HOME=$PWD fish -c "ottava completion fish | source; complete -C '$2'" 2>&1 |
            awk -F'\t' '{ printf "%s ", $1 }')
        trouble=
        [ "$call" = "$1" ] || trouble="\"$call\" instead of \"$1\""
        shown=/dev/null report "fish: $2" "$trouble"
    }
    fish_gives "tokenize " "ottava to"
    fish_gives "--granularity= " "ottava export --gran"
    fish_gives "--format=hf --format=hf-fp8 " "ottava export --format=hf"
    fish_gives "--float8.recipe_name= " "ottava train a.toml --float8.recipe_n"
else
    echo "SKIPPED: fish is missing: its completion is not tested"
fi
finish
