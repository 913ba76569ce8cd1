#!/usr/bin/env python3
"""Writes tests/golden/te_rules.safetensors: results of TransformerEngine's published rules, transcribed for
numpy from their text.

- history.<length>.<algorithm>.<margin>.<format>: `seen`, the largest magnitude of each step (0: the tensor
  was not used), and `scale`, the scale after that step's update (the fused update of DelayedScaling);
- current.<format>.<eps>.<pow2>: `amax` and `scale` (compute_scale_from_amax);
- block.<granularity>.<side>, mx.<rule>.<side>: `codes` [rows, columns] of the bf16 tensor `x`, in the layout
  of x, and `inverse`, the inverse scales [block of the contraction, group of rows]. The side "row" is
  contracted along rows, "column" along columns;
- gemm.<recipe>.<gemm>: every seventh row of the three products of x, w, g, summed in float64, with a separate
  scale for each block of the contraction; and `bound`, the sum of the magnitudes of the products.

    python tools/goldens/make_te_goldens.py tests/golden
"""

import pathlib
import sys

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

F = np.float32
FORMATS = {"e4m3": (ml_dtypes.float8_e4m3fn, F(448)), "e5m2": (ml_dtypes.float8_e5m2, F(57344))}
FLT_MAX = np.finfo(F).max
BF16_MAX = F(float(ml_dtypes.finfo(ml_dtypes.bfloat16).max))
rng = np.random.default_rng(2026)


def fused_update(history, scale, fp8_max, margin, algorithm):
    """Does one step of the fused delayed-scaling update; history[0] is the staging row. Returns (history,
    scale)."""
    last = history[0]
    if last == 0:
        return history, scale
    window = np.concatenate([history[1:], [last]])
    amax = np.fmax.reduce(window) if algorithm == "max" else last
    rolled = np.zeros_like(history)
    if len(history) > 1:
        rolled[1:-1] = history[2:]
        rolled[-1] = last
    if np.isfinite(amax) and amax > 0:
        with np.errstate(over="ignore"):
            scale = F(F(fp8_max * F(2.0**-margin)) / amax)
        if np.isinf(scale):
            scale = FLT_MAX
    return rolled, scale


def make_histories(out):
    for length in (1, 2, 4, 31):
        for algorithm in ("max", "most_recent"):
            for margin in (0, 2):
                for name, (_, fp8_max) in FORMATS.items():
                    seen = np.exp2(rng.uniform(-30, 20, 80)).astype(F)
                    seen[rng.random(80) < 0.2] = 0
                    seen[[7, 30]] = [np.inf, 1e-45]
                    history, scale, scales = np.zeros(length, F), F(1), []
                    for amax in seen:
                        history = history.copy()
                        history[0] = amax
                        history, scale = fused_update(history, scale, fp8_max, margin, algorithm)
                        scales.append(scale)
                    key = f"history.{length}.{algorithm}.{margin}.{name}"
                    out[f"{key}.seen"], out[f"{key}.scale"] = seen, np.array(scales, F)


def current_scale(amax, fp8_max, pow2, eps, infinite):
    amax = F(max(amax, eps)) if not np.isnan(amax) else amax
    if amax == 0 or not np.isfinite(amax):
        return F(1)
    with np.errstate(over="ignore"):
        scale = F(fp8_max / amax)
    if np.isinf(scale):
        scale = F(infinite)
    if pow2:
        scale = (scale.view(np.uint32) & np.uint32(0xFF800000)).view(F)
    return scale


def make_currents(out):
    amax = np.concatenate([np.exp2(rng.uniform(-149, 128, 200)), [0, 1e-45, 1e-12, 1, 448, np.inf, np.nan,
                                                                  3.4e38]])
    amax = amax.astype(F)
    for name, (_, fp8_max) in FORMATS.items():
        for eps in (0.0, 1e-4):
            for pow2 in (0, 1):
                scales = [current_scale(a, fp8_max, pow2, F(eps), FLT_MAX) for a in amax]
                key = f"current.{name}.{eps:g}.{pow2}"
                out[f"{key}.amax"], out[f"{key}.scale"] = amax, np.array(scales, F)


def e8m0_roundup(amax):
    """TransformerEngine: the biased exponent of amax * fl(1 / 448), plus one if the mantissa is not zero."""
    if np.isnan(amax):
        return 255
    if np.isinf(amax):
        return 254
    bits = int(F(amax * F(F(1) / F(448))).view(np.uint32))
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    if exponent == 0:
        return int(mantissa > 0x400000)
    return exponent + int(mantissa > 0)


def e8m0_floor(amax):
    """OCP MX v1.0: floor(log2(amax)) - 8, the largest exponent of E4M3."""
    return max(0, int(np.floor(np.log2(float(amax)))) + 127 - 8) if amax > 0 else 0


def quantize(x, rows, depth, side, scale_of):
    """Quantizes x [rows, columns] (float32); `scale_of(amax)` -> (scale, inverse). Returns the codes in the
    layout of x, and the inverse scales [depth blocks, row groups]."""
    t = x if side == "row" else x.T
    n, k = t.shape
    codes = np.zeros((n, k), np.uint8)
    inverse = np.zeros((-(-k // depth), -(-n // rows)), F)
    for b in range(inverse.shape[0]):
        for g in range(inverse.shape[1]):
            part = np.s_[g * rows : (g + 1) * rows, b * depth : (b + 1) * depth]
            scale, inverse[b, g] = scale_of(F(np.abs(t[part]).max()))
            scaled = np.clip((t[part] * scale).astype(F), F(-448), F(448))
            codes[part] = scaled.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return (codes if side == "row" else np.ascontiguousarray(codes.T)), inverse


def block_scale(amax):
    scale = current_scale(amax, F(448), 1, F(0), BF16_MAX)
    return scale, F(F(1) / scale)


def mx_scale(rule):
    def scale_of(amax):
        code = e8m0_roundup(amax) if rule == "roundup" else e8m0_floor(amax)
        return F(2.0 ** (127 - code)), F(2.0 ** (code - 127))

    return scale_of


def decoded(codes, inverse, rows, depth, side):
    """Returns the float64 values of a quantized tensor, in the layout of x."""
    t = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    t = t if side == "row" else t.T
    per_element = np.repeat(np.repeat(inverse.T.astype(np.float64), rows, 0), depth, 1)
    t = t * per_element[: t.shape[0], : t.shape[1]]
    return t if side == "row" else t.T


def make_tensors(out):
    m, k, n = 144, 160, 136  # none is a multiple of 128; only k is a multiple of 32

    def some(rows, columns):
        x = rng.standard_normal((rows, columns)) * np.exp2(rng.integers(-12, 4, (rows, 1)))
        x[rng.random(x.shape) < 0.05] = 0
        x[3] = 0
        x[:, 7] *= 1000
        return x.astype(ml_dtypes.bfloat16).astype(F)

    x, w, g = some(m, k), some(n, k), some(m, n)
    for name, t in (("x", x), ("w", w), ("g", g)):
        out[f"tensor.{name}"] = t
    for side in ("row", "column"):
        for name, rows, depth in (("1x128", 1, 128), ("128x128", 128, 128)):
            codes, inverse = quantize(x, rows, depth, side, block_scale)
            out[f"block.{name}.{side}.codes"], out[f"block.{name}.{side}.inverse"] = codes, inverse
        for rule in ("roundup", "floor"):
            codes, inverse = quantize(x, 1, 32, side, mx_scale(rule))
            out[f"mx.{rule}.{side}.codes"], out[f"mx.{rule}.{side}.inverse"] = codes, inverse
    for recipe, one, two in (("block", (1, 128, block_scale), (128, 128, block_scale)),
                             ("mxfp8", (1, 32, mx_scale("roundup")), (1, 32, mx_scale("roundup")))):
        def value(t, side, rule):
            rows, depth, scale_of = rule
            return decoded(*quantize(t, rows, depth, side, scale_of), rows, depth, side)

        products = {
            "output": (value(x, "row", one), value(w, "row", two).T),
            "grad_input": (value(g, "row", one), value(w, "column", two)),
            "grad_weight": (value(g, "column", one).T, value(x, "column", one)),
        }
        for gemm, (a, b) in products.items():
            out[f"gemm.{recipe}.{gemm}"] = (a @ b)[::7].astype(F)
            out[f"gemm.{recipe}.{gemm}.bound"] = (np.abs(a) @ np.abs(b))[::7].astype(F)


def main():
    folder = pathlib.Path(sys.argv[1])
    out = {}
    make_histories(out)
    make_currents(out)
    make_tensors(out)
    save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, folder / "te_rules.safetensors")


if __name__ == "__main__":
    main()
