#!/usr/bin/env bash
# vectors.sh FOLDER: counts the wide loads and stores of each memory-bound kernel in the machine code of the
# objects in the folder's subfolders. Aligned matrices are accessed 16 bytes (src/cuda/view.h), or eight
# codes, at a time; the compiler may silently split such accesses. Exits with 1 if a kernel has fewer wide
# accesses than matrices.
set -euo pipefail
folder=$1
packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null || true)
for bin in "${CUDA_HOME:-/usr/local/cuda}/bin" "$packages"/nvidia/*/bin; do PATH=$PATH:$bin; done
if ! command -v cuobjdump >/dev/null || ! command -v nvdisasm >/dev/null; then
    echo "SKIPPED: cuobjdump or nvdisasm is missing: THE WIDTH OF THE KERNELS' LOADS AND STORES IS NOT TESTED"
    echo "(install the CUDA toolkit, or pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm and add \
their bin folder to PATH)"
    exit 77
fi
ls "$folder"/kernels/elementwise.cu.o >/dev/null ||
    { echo "SKIPPED: no kernel was built for a GPU in $folder (nvcc)"; exit 77; }

# The columns: kernel : matrices that it loads : matrices that it stores : number of stores of eight codes.
# A letter a or b is a matrix in the format of the first or second template argument (0: fp32, which takes two
# loads for eight values). f: a matrix in fp32. h: in bf16. r: a matrix in fp32 or bf16, selected at run time.
# N: the second argument is a number of pieces, by which the loads and stores are multiplied.
table='
convert_kernel<                 : a       : b     : 0
add_kernel<                     : a b     : a     : 0
rope_kernel<                    : a a f f : a a   : 0
swiglu_kernel<swiglu_forward<   : a a     : a     : 0
swiglu_kernel<swiglu_backward<  : a a a   : a a   : 0
tile_kernel<swiglu_forward<     : a a     : a     : 9
tile_kernel<swiglu_backward<    : a a a   : a a   : 9
quantize_kernel<                : a       :       : 9
transpose_kernel                :         :       : 1
dequantize_kernel<              :         : a     : 0
norm_forward_wide_kernel<       : N a a f : N a a : 2
norm_backward_wide_kernel<      : N a a f : N a   : 2
cross_entropy_kernel<           : a a a   : a     : 0
embedding_forward_kernel<       : a       : b     : 0
embedding_backward_kernel<      : a b     : b     : 0
rule_kernel<adamw_rule, 0       : f f f f : f f f : 0
rule_kernel<adamw_rule, 1       : h h h h : h h h : 0
rule_kernel<adamw_rule, 2       : r r r r : r r r : 0
rule_kernel<lion_rule, 0        : f f f   : f f   : 0
rule_kernel<lion_rule, 1        : h h h   : h h   : 0
rule_kernel<lion_rule, 2        : r r r   : r r   : 0
rule_kernel<schedule_free_rule, 0 : f f f f f : f f f f : 0
rule_kernel<schedule_free_rule, 1 : h h h h h : h h h h : 0
rule_kernel<schedule_free_rule, 2 : r r r r r : r r r r : 0
adamw_fp8_kernel<0              : f f     : f     : 2
adamw_fp8_kernel<1              : h h     : h     : 2
adamw_fp8_kernel<2              : r r     : r     : 2
adamw_tile_kernel<0, 0          : f f f f : f f f : 9
adamw_tile_kernel<0, 2          : f r r r : f r r : 9
adamw_tile_kernel<1, 1          : h h h h : h h h : 9
adamw_tile_kernel<1, 2          : a r r r : a r r : 9
ranks_kernel<                   : a       : a     : 0
'
for source in elementwise embedding loss norm optimizer optimizer_fp8 optimizer_rules quantize ranks swiglu
do
    cuobjdump -sass "$folder"/*/"$source.cu.o"
done | awk '
/Function :/ { kernel = $3; print kernel, "-" }
/ LDG\.[A-Z0-9.]*128/ { print kernel, "loads" }
/ STG\.[A-Z0-9.]*128/ { print kernel, "stores" }
/ STG\.[A-Z0-9.]*64/ { print kernel, "codes" }' | c++filt -p | sed 's/(ott_dtype)//g; s/(update_formats)//g' |
    awk -v table="$table" '
function wanted(matrices, name,   part, n, i, sum, times, number, rest) {
    n = split(matrices, part, " ")
    rest = substr(name, index(name, "<"))
    for (i = 0; match(rest, /[<, ][0-9]+/); rest = substr(rest, RSTART + RLENGTH))
        number[substr("abcd", ++i, 1)] = substr(rest, RSTART + 1, RLENGTH - 1) + 0
    times = 1
    for (i = 1; i <= n; i++)
        if (part[i] == "N") times = number["b"]
        else if (part[i] == "r") sum += 3
        else if (part[i] == "h") sum += 1
        else sum += part[i] == "f" || number[part[i]] == 0 ? 2 : 1
    return times * sum
}
BEGIN {
    rows = split(table, line, "\n")
    for (r = 1; r <= rows; r++) {
        n = split(line[r], column, / *: */)
        if (n == 4) {
            pattern[++patterns] = column[1]; of[patterns, "loads"] = column[2]
            of[patterns, "stores"] = column[3]; codes[patterns] = column[4]
        }
    }
}
{ what = $NF; sub(/ [a-z-]+$/, ""); seen[$0] = 1; count[$0, what]++ }
END {
    for (name in seen) for (p = 1; p <= patterns; p++) {
        if (index(name, pattern[p]) != 1) continue
        met[p] = 1
        loads = wanted(of[p, "loads"], name); stores = wanted(of[p, "stores"], name)
        wrong = count[name, "loads"] < loads || count[name, "stores"] < stores ||
            count[name, "codes"] < codes[p]
        bad += wrong; kernels++
        printf "%-60.60s loads of 16 bytes %2d of %2d, stores %2d of %2d, of 8 codes %2d of %2d%s\n", name,
            count[name, "loads"], loads, \
               count[name, "stores"], stores, count[name, "codes"], codes[p], wrong ? "  SPLIT" : ""
    }
    for (p = 1; p <= patterns; p++)
        if (!met[p]) { print "no kernel " pattern[p] " was found: correct the table"; bad++ }
    print kernels + 0 " kernels, " bad + 0 " with split loads or stores"
    exit bad > 0
}' | sort
