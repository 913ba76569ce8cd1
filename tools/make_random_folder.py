#!/usr/bin/env python3
"""Makes a Hugging Face folder with a Llama's real shapes and random FP8 weights, to test models of that size.

    tools/make_random_folder.py FOLDER [--dim 4096 --layers 32 --heads 32 --kv-heads 8 --hidden 14336
                                        --vocab 128256]

Matrices inside blocks are E4M3 codes with one scale per row (compressed-tensors, strategy channel); other
tensors are bf16. The defaults are Llama 3.1 8B's shapes: 9 GB, written in pieces. Needs only Python. Values
are approximately normal: a random byte selects one of 256 quantiles.
"""
import argparse
import json
import os
import statistics
import struct

PIECE = 1 << 24
FILE_BYTES = 4 << 30  # approximate size of a file


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    value = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if code & 128 else value


def nearest_codes(deviation):
    """Returns the code nearest to each of 256 quantiles of a normal distribution."""
    normal = statistics.NormalDist(0, deviation)
    codes = [c for c in range(256) if c & 127 != 127]
    return bytes(min(codes, key=lambda c: abs(e4m3(c) - normal.inv_cdf((i + 0.5) / 256))) for i in range(256))


CODES = nearest_codes(110)  # the largest code is near 448 / 1.5
# The high bytes of normally distributed bf16 values; the low bytes are random.
HIGH = bytes(struct.pack(">f", statistics.NormalDist(0, 0.02).inv_cdf((i + 0.5) / 256))[0]
             for i in range(256))


def random_codes(count):
    return os.urandom(count).translate(CODES)


def random_bf16(count):
    piece = bytearray(os.urandom(2 * count))
    piece[1::2] = bytes(piece[1::2]).translate(HIGH)
    return bytes(piece)


def constant(code, value):
    one = struct.pack(code, value)
    return lambda count: one * count


FORMATS = {"F8_E4M3": 1, "BF16": 2, "F32": 4}
ONE = constant("<H", 0x3F80)


def tensors(o):
    """Yields (name, format, shape, maker) of every tensor."""
    head = o.dim // o.heads
    q, kv = o.heads * head, o.kv_heads * head
    yield "model.embed_tokens.weight", "BF16", [o.vocab, o.dim], random_bf16
    for i in range(o.layers):
        at = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", "BF16", [o.dim], ONE
        for name, rows, columns in (
            ("self_attn.q_proj", q, o.dim), ("self_attn.k_proj", kv, o.dim), ("self_attn.v_proj", kv, o.dim),
            ("self_attn.o_proj", o.dim, q), ("mlp.gate_proj", o.hidden, o.dim), ("mlp.up_proj", o.hidden,
                                                                                 o.dim),
            ("mlp.down_proj", o.dim, o.hidden)):
            yield f"{at}{name}.weight", "F8_E4M3", [rows, columns], random_codes
            yield f"{at}{name}.weight_scale", "F32", [rows, 1], constant("<f", 2.0**-13)
    yield "model.norm.weight", "BF16", [o.dim], ONE
    yield "lm_head.weight", "BF16", [o.vocab, o.dim], random_bf16


def elements(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def split(all_tensors):
    """Splits the tensors into lists, one for each file."""
    files, size = [[]], 0
    for t in all_tensors:
        size += elements(t[2]) * FORMATS[t[1]]
        if size > FILE_BYTES and files[-1]:
            files.append([])
            size = 0
        files[-1].append(t)
    return files


def write_file(path, members):
    header, end = {}, 0
    for name, dtype, shape, _ in members:
        begin, end = end, end + elements(shape) * FORMATS[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, shape, make in members:
            for at in range(0, elements(shape), PIECE):
                file.write(make(min(PIECE, elements(shape) - at)))
    return end


def write_config(folder, o):
    number = {"num_bits": 8, "type": "float", "symmetric": True}
    group = {"targets": ["Linear"], "weights": {**number, "dynamic": False, "strategy": "channel"},
             "input_activations": {**number, "dynamic": True, "strategy": "token"}}
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": o.dim,
        "intermediate_size": o.hidden, "num_hidden_layers": o.layers, "num_attention_heads": o.heads,
        "num_key_value_heads": o.kv_heads, "vocab_size": o.vocab, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
                                "ignore": ["lm_head"], "config_groups": {"group_0": group}}}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    for key, value in (("dim", 4096), ("layers", 32), ("heads", 32), ("kv-heads", 8), ("hidden", 14336),
                       ("vocab", 128256)):
        parser.add_argument("--" + key, type=int, default=value)
    o = parser.parse_args()
    os.mkdir(o.folder)
    files, places, total = split(tensors(o)), {}, 0
    for i, members in enumerate(files):
        name = f"model-{i + 1:05}-of-{len(files):05}.safetensors"
        total += write_file(os.path.join(o.folder, name), members)
        places.update({t[0]: name for t in members})
    with open(os.path.join(o.folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": places}, file)
    write_config(o.folder, o)


main()
