#!/usr/bin/env python3
"""Counts the instructions per element in the machine code of the training kernels.

    tools/count_sass.py [FOLDER] [--gbs 3792] [--instructions 33.5]

FOLDER has the objects of the CUDA plugin (default: build/release/CMakeFiles/ottava_plugin.dir). Needs
cuobjdump and nvdisasm, from the CUDA toolkit or from PyPI (nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm).
Prints the table of docs/explanation/gpu.md. These are counts: nothing runs on a GPU. The exit code is 1 if
ROWS does not fit the kernels, and 77 if a tool or an object is missing.

A row counts the instructions of one thread on one path through the kernel: the shortest path with the
accesses that the row names. The search in a list of tensors counts as SEARCH rounds. What few threads of a
block do (sums of 16 lanes, amaxes of a row) is not on the path.

An element's memory time is the bytes that it moves / (--gbs GB/s that a copy reaches). Its issue time is its
instructions / (--instructions 10^12 instructions/s of all threads: 128 for each multiprocessor and cycle,
half of the fp32 peak). The share of bandwidth that issue allows is memory time / the longer of both. The
defaults are an H200 SXM's. The warps that fit on a multiprocessor (of 64) follow from registers and shared
memory.
"""
import argparse
import collections
import glob
import os
import re
import subprocess
import sys
import sysconfig

SEARCH = 6  # rounds of a binary search in a list of 64 tensors

# needs: accesses on the path. l, n: loads of 16 bytes, narrower loads; s, c, o: stores of 16 bytes, of 8
# bytes, narrower ones; p: blocks of Philox's random numbers; m: reductions of amaxes over a warp. A path has
# exactly these numbers, and any number of accesses that are not named. A loop counts as one iteration.
# "longest": the longest such path without subroutines, which rare values need. elements: of a thread; step:
# of an iteration of the loops that load elements; outputs: iterations of a loop that finds amaxes. moved:
# bytes of memory that an element moves; least: if each tensor moved once.
Row = collections.namedtuple("Row", "file kernel text needs elements step outputs moved least reason")
ROWS = [
    Row("norm", "norm_forward_wide_kernel<1, 2>", "RMSNorm with residual", "l8 s4", 16, 16, 1, 8, 8, ""),
    Row("norm", "norm_backward_wide_kernel<1, 2>", "RMSNorm backward", "l14 s2", 16, 16, 1, 8, 8, ""),
    Row("norm", "chain_kernel<weight_gradient<1>", "RMSNorm backward, weight", "n40", 1024, 8, 1, 4, 0, ""),
    Row("elementwise", "rope_kernel<1>", "rotation", "l6 s2", 16, 16, 1, 4, 4, ""),
    Row("elementwise", "add_kernel<1, 1>", "sum of two tensors", "l2 s1", 8, 8, 1, 6, 6, ""),
    Row("swiglu", "swiglu_kernel<swiglu_forward<1>", "SwiGLU", "l2 s1", 8, 8, 1, 6, 6, ""),
    Row("swiglu", "swiglu_kernel<swiglu_backward<1>", "SwiGLU backward", "l3 s2", 8, 8, 1, 10, 10, ""),
    Row("swiglu", "tile_kernel<swiglu_forward<1>", "SwiGLU, amax", "l16 s8 c0 m1", 64, 64, 1, 6, 6, ""),
    Row("swiglu", "tile_kernel<swiglu_backward<1>", "SwiGLU backward, amaxes", "l14 s4 m1 c0", 64, 16, 2, 10,
        10, ""),
    Row("quantize", "quantize_kernel<1>", "amax", "l8 c0 m1", 64, 64, 1, 2, 2, ""),
    Row("quantize", "quantize_kernel<1>", "cast, codes of rows", "l8 c8 m0", 64, 64, 1, 3, 3, ""),
    Row("loss", "cross_entropy_kernel<1>", "cross entropy, 128,256 columns", "l3 s1", 501, 8, 1, 8, 4, ""),
    Row("embedding", "embedding_forward_kernel<1, 1>", "embedding", "l1 s1", 8, 8, 1, 4, 4, ""),
    Row("reduce", "row_sums_kernel<1, true>", "sum of squares, bf16", "l4", 2048, 32, 1, 2, 2, ""),
    Row("elementwise", "dropout_kernel<1>", "dropout", "l1 s1 p2", 8, 8, 1, 4, 4, ""),
    Row("optimizer", "rule_kernel<adamw_rule, 0>", "AdamW, fp32", "l8 s6", 8, 8, 1, 28, 28, ""),
    Row("optimizer", "rule_kernel<adamw_rule, 1>", "AdamW, bf16", "l4 s3", 128, 8, 1, 14, 14, ""),
    Row("optimizer", "adamw_tile_kernel<1, 1>", "AdamW, bf16, amax", "l12 s3 c0 m1", 64, 8, 1,
        14, 14, ""),
    Row("optimizer_rules", "rule_kernel<lion_rule, 1>", "Lion, bf16", "l3 s2", 128, 8, 1, 10,
        10, ""),
    Row("optimizer_rules", "rule_kernel<sgd_rule, 1>", "SGD, bf16", "l3 s2", 128, 8, 1, 10, 10,
        ""),
    Row("optimizer_rules", "rule_kernel<schedule_free_rule, 1>", "schedule-free AdamW, bf16",
        "l5 s4", 128, 8, 1, 18, 18, ""),
    Row("optimizer_rules", "rule_kernel<muon_momentum_rule, 1>", "Muon, momentum, bf16",
        "l2 s1", 128, 8, 1, 6, 6, ""),
    Row("optimizer_rules", "muon_kernel<1>", "Muon, update, bf16", "l2 s1 p1", 8, 8, 1, 6, 6, ""),
    Row("optimizer_fp8", "adamw_fp8_kernel<1>", "AdamW, FP8 moments", "longest l2 s1 c2 n12 o0", 8, 8, 1,
        10, 10, "a logarithm and an exponential for each moment and direction"),
]

Instruction = collections.namedtuple("Instruction", "at when code operands")
LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
PHILOX = re.compile("0x2daee0ad|0x326172a9|0xd2511f53|0xcd9e8d57")  # its multipliers, or their negatives


def skip(reason):
    print(f"SKIPPED: {reason}: THE KERNELS' INSTRUCTIONS ARE NOT COUNTED")
    sys.exit(77)


def output_of(*arguments):
    try:
        return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        skip(f"{arguments[0]} is missing (install the CUDA toolkit, or pip install nvidia-cuda-cuobjdump "
             "nvidia-cuda-nvdisasm and add their bin folder to PATH)")
    except subprocess.CalledProcessError as e:
        sys.exit(f"count_sass.py: {' '.join(arguments)[:200]}: {e.stderr.strip()}")


def readable(names):
    """Returns the kernels' names as C++ prints them, without their result and the type of their formats."""
    text = output_of("c++filt", *names).replace("(ott_dtype)", "").replace("(update_formats)", "")
    return [re.sub(r"^void ", "", line) for line in text.splitlines()]


def kernels_of(path):
    """Returns the instructions of each kernel of an object, by its name."""
    text = output_of("cuobjdump", "-sass", path)
    return {name: [Instruction(int(at, 16), when, code, rest) for at, when, code, rest in LINE.findall(body)]
            for name, body in zip(readable(re.findall(r"Function : (\S+)", text)),
                                  re.split(r"Function : \S+", text)[1:])}


def resources_of(path):
    """Returns registers and bytes of shared memory of each kernel of an object, by its name."""
    text = output_of("cuobjdump", "-res-usage", path)
    found = re.findall(r"Function (\S+):\n\s*REG:(\d+) STACK:\d+ SHARED:(\d+)", text)
    return {name: (int(f[1]), int(f[2])) for name, f in zip(readable([f[0] for f in found]), found)}


def accesses(block):
    found = collections.Counter()
    for x in block:
        if x.code.startswith("LDG"):
            found["l" if ".128" in x.code else "n"] += 1
        elif x.code.startswith("STG"):
            found["s" if ".128" in x.code else "c" if ".64" in x.code else "o"] += 1
    found["p"] = int(sum(bool(PHILOX.search(x.operands)) for x in block) >= 10)
    found["m"] = int(sum(x.code.startswith("SHFL") for x in block) >= 10)
    return found


def target_of(branch):
    return int(branch.operands.split(",")[-1].strip("` ()"), 16)


class Graph:
    """The basic blocks and the loops of a kernel. A block's key is its address."""

    def __init__(self, code):
        self.blocks, self.next = {}, {}
        starts = {code[0].at} | {target_of(x) for x in code if x.code == "BRA"}
        ends = ("BRA", "EXIT", "RET")
        starts |= {x.at + 16 for x in code if x.code.split(".")[0] in ends}
        for x in code:
            if x.at in starts:
                block = self.blocks[x.at] = []
            block.append(x)
        for at, block in self.blocks.items():
            last, after = block[-1], block[-1].at + 16
            op = last.code.split(".")[0]
            self.next[at] = [target_of(last)] if op == "BRA" else []
            falls = op not in ends or last.when or (op == "BRA" and "," in last.operands)
            if falls and after in self.blocks:
                self.next[at].append(after)
        self.order_blocks(code[0].at)
        self.loops = [self.loop_of(latch, head) for latch, head in self.back]

    def order_blocks(self, entry):
        """Sets order, in which each block follows its predecessors, and back, the edges that close loops."""
        self.order, self.back, ended = [], [], {entry: False}
        stack = [(entry, iter(self.next[entry]))]
        while stack:
            at, rest = stack[-1]
            to = next(rest, None)
            if to is None:
                ended[at] = True
                self.order.insert(0, at)
                stack.pop()
            elif to not in ended:
                ended[to] = False
                stack.append((to, iter(self.next[to])))
            elif not ended[to]:
                self.back.append((at, to))

    def loop_of(self, latch, head):
        body, todo = {head, latch}, [latch]
        while todo:
            at = todo.pop()
            before = [b for b in self.order if at in self.next[b]] if at != head else []
            todo += [b for b in before if b not in body]
            body.update(before)
        return body

    def times(self, at, row):
        """How often a thread runs a block: by the outermost loop with loads, else by a search in a list."""
        result = 1
        for body in self.loops:
            codes = [x.code for b in body for x in self.blocks[b]]
            if at not in body:
                continue
            if any(c.startswith("LDG") for c in codes):
                return row.outputs if any(c.startswith("SHFL") for c in codes) else row.elements / row.step
            if not any(c.startswith(("LDS", "STS", "STG")) for c in codes):
                result = SEARCH
        return result

    def count(self, row):
        """Returns the instructions of a thread on the row's path; None if there is no such path."""
        words = row.needs.split()
        longest = words[0] == "longest"
        better = max if longest else min
        needs = {w[0]: int(w[1:]) for w in words[longest:]}
        goal = tuple(needs.values())
        best, result = collections.defaultdict(dict), None
        best[self.order[0]][(0,) * len(goal)] = 0
        for at in self.order:
            block, times, found = self.blocks[at], self.times(at, row), accesses(self.blocks[at])
            reached = best.pop(at, {})
            if longest and any(x.code.startswith("CALL") for x in block):
                continue
            for done, count in reached.items():
                done = tuple(n + found[kind] for n, kind in zip(done, needs))
                count += times * len(block)
                if any(n > g for n, g in zip(done, goal)):
                    continue
                if block[-1].code.startswith("EXIT") and done == goal:
                    result = better(count, result or count)
                for to in self.next[at]:
                    if (at, to) not in self.back:
                        best[to][done] = better(count, best[to].get(done, count))
        return result


def warps(registers, shared, threads=256):
    """Warps that fit on a multiprocessor with 65,536 registers and 228 KiB of shared memory."""
    of_block = threads // 32
    of_warp = -(-registers * 32 // 256) * 256
    return of_block * min(64 // of_block, 65536 // of_warp // of_block, 233472 // (shared + 1024))


def find(kernels, prefix, path):
    names = [name for name in kernels if name.startswith(prefix)]
    if len(names) != 1:
        sys.exit(f"count_sass.py: {path} has {len(names)} kernels {prefix}: correct the table ROWS")
    return names[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="build/release/CMakeFiles/ottava_plugin.dir")
    parser.add_argument("--gbs", type=float, default=3792)
    parser.add_argument("--instructions", type=float, default=33.5)
    options = parser.parse_args()
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin"
    packages = glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/bin")
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], toolkit, *packages])
    print("| kernel | bytes, least | instructions | registers | warps | share | reason if below 70% |")
    print("|---|---|---:|---:|---:|---:|---|")
    opened, missing = {}, 0
    for row in ROWS:
        path = f"{options.folder}/src/cuda/kernels/{row.file}.cu.o"
        if not os.path.exists(path):
            skip(f"{path} is missing (build the plugin)")
        if path not in opened:
            opened[path] = kernels_of(path), resources_of(path)
        kernels, resources = opened[path]
        name = find(kernels, row.kernel, path)
        count = Graph(kernels[name]).count(row)
        if count is None:
            print(f"count_sass.py: no path of {name} has {row.needs}: correct ROWS", file=sys.stderr)
            missing += 1
            continue
        each, (registers, shared) = count / row.elements, resources[name]
        memory, issue = row.moved / options.gbs / 1e9, each / options.instructions / 1e12
        share = memory / max(memory, issue)
        reason = (row.reason or "not known") if share < 0.7 else ""
        print(f"| {row.text} | {row.moved}, {row.least} | {each:.0f} | {registers} | "
              f"{warps(registers, shared)} | {share:.0%} | {reason} |")
    return missing > 0


if __name__ == "__main__":
    sys.exit(main())
