#!/usr/bin/env python3
"""Writes tests/golden/gguf_blocks.gguf: blocks of every supported element format, and the values that the
gguf library (gguf-python of llama.cpp) decodes from them.

For each format there are two tensors with 2 rows: "q4_k" has random codes and scales, "q4_k.values" the
values as F32.

    pip install gguf==0.19.0
    python tools/goldens/make_gguf_goldens.py tests/golden
"""

import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

# Offsets of the 16-bit numbers in a block: scale and minimum.
REALS = {Type.F16: [0], Type.BF16: [], Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0],
         Type.Q5_1: [0, 2], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}
ROWS = 2


def make_blocks(rng, kind):
    elements, size = GGML_QUANT_SIZES[kind]
    columns = max(elements, 64)
    if kind in (Type.F16, Type.BF16):
        bits = rng.normal(size=(ROWS, columns)).astype(np.float32)
        return bits.astype(np.float16) if kind == Type.F16 else (bits.view(np.uint32) >> 16).astype(np.uint16)
    blocks = rng.integers(0, 256, size=(ROWS, columns // elements, size), dtype=np.uint8)
    for at in REALS[kind]:
        scales = rng.normal(size=blocks.shape[:2]).astype(np.float16)
        blocks[:, :, at:at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(ROWS, -1)


def main(folder):
    rng = np.random.default_rng(20)
    writer = GGUFWriter(pathlib.Path(folder) / "gguf_blocks.gguf", "llama")
    for kind in REALS:
        blocks = make_blocks(rng, kind)
        values = dequantize(blocks.view(np.uint8) if kind == Type.BF16 else blocks, kind)
        name = kind.name.lower()
        writer.add_tensor(name, blocks.view(np.uint8), raw_dtype=kind)
        writer.add_tensor(name + ".values", values.astype(np.float32).reshape(ROWS, -1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
