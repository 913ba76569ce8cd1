#!/bin/sh
# Prints the loss that each FP8 recipe adds to a model without training, and the loss that each kind of layer
# adds if only this kind is converted: the tables of docs/reference/recipes.md (Markdown).
#
#   tools/recipe_losses.sh FOLDER TEXT
#
# FOLDER is a Hugging Face folder, a run or a checkpoint; TEXT is any file that `ottava eval --task
# perplexity` reads. The first WINDOWS (8) windows of LENGTH (512) tokens are evaluated, one in a forward
# pass. KINDS names the kinds of layers, as filter_fqns writes them; the first is the head, which stays in
# bf16 in the first table. The default fits Llama, Mistral and Qwen.
set -eu

[ $# -eq 2 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2; exit 2; }
folder=$1
text=$2
ottava=${OTTAVA:-$(dirname "$0")/../build/release/ottava}
kinds=${KINDS:-lm_head q_proj k_proj v_proj o_proj gate_proj up_proj down_proj}
head=${kinds%% *}
scales=--float8.round_scales_to_power_of_2

# loss OPTION...: prints the mean loss of a token with these options of `ottava eval`.
loss() {
    "$ottava" \
        eval "$folder" --task perplexity --data "$text" --limit "${WINDOWS:-8}" --seq-len "${LENGTH:-512}" \
        --train.batch_size=1 --json "$@" | sed -n 's/.*"loss": \([0-9.]*\),.*/\1/p' | grep . || exit 1
}
# row LABEL SCALES LOSS: prints a row of the first table.
row() {
    awk -v label="$1" -v scales="$2" -v loss="$3" -v base="$fp32" 'BEGIN {
        printf "| %s | %s | %.4f | %+.2f%% |\n", label, scales, loss, 100 * (loss / base - 1) }'
}
# recipe NAME SCALES OPTION...: evaluates a recipe and prints its row of the first table.
recipe() {
    name=$1 label=$2
    shift 2
    row "\`$name\`" "$label" "$(loss --precision "$name" --float8.filter_fqns="$head" "$@")"
}
# others KIND: prints all kinds of layers except KIND, separated by commas.
others() {
    for other in $kinds; do [ "$other" = "$1" ] || printf '%s,' "$other"; done | sed 's/,$//'
}
# added KIND RECIPE OPTION...: prints the loss that FP8 layers of this kind add to the loss of bf16, in
# thousandths.
added() {
    kind=$1 name=$2
    shift 2
    awk -v loss="$(loss --precision "$name" --float8.filter_fqns="$(others "$kind")" "$@")" -v base="$bf16" \
        'BEGIN { printf "%.2f", 1000 * (loss - base) }'
}

fp32=$(loss --precision fp32)
bf16=$(loss --precision bf16)
echo "| recipe, head in bf16 | scales | loss | to fp32 |"
echo "|---|---|---|---|"
row '`fp32`' - "$fp32"
row '`bf16`' - "$bf16"
recipe tensorwise fp32
recipe tensorwise 'powers of two' $scales=true
recipe rowwise 'powers of two'
recipe rowwise fp32 $scales=false
recipe rowwise_with_gw_hp 'powers of two'
recipe rowwise_with_gw_hp fp32 $scales=false
recipe block 'powers of two'
recipe block fp32 $scales=false
recipe mxfp8 'powers of two'
echo
echo "| only this kind in FP8 | added by \`tensorwise\`, 1e-3 | added by \`rowwise\`, 1e-3 | by \
\`rowwise\` with fp32 scales, 1e-3 |"
echo "|---|---|---|---|"
for kind in $kinds; do
    echo "| \`$kind\` | $(added "$kind" tensorwise) | $(added "$kind" rowwise) | $(added "$kind" rowwise \
        $scales=false) |"
done
