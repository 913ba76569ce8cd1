"""Casts, scales, quantized tensors and matrix products in FP8, on NumPy arrays and DLPack tensors of the CPU.

A linear layer computes Y[M,N] = X[M,K] W[N,K]^T. A recipe says how its three tensors (input X, weight W,
grad_output G) are quantized. Each tensor is used twice: rowwise, by a product that contracts along its rows,
and columnwise, by a product that contracts down its columns. docs/explanation/numerics.md defines the
arithmetic.

Arrays: a NumPy array of fp32, fp16 or ml_dtypes' bfloat16, or any object with __dlpack__ in host memory, such
as a torch tensor of fp32, bf16 or fp16. Contiguous arrays are read in place. Other arrays are copied.
"""

import functools
import json

import numpy

from . import _dlpack
from ._library import DTYPES, Operand, QData, Statistics, default_context, lib

ROLES = ("input", "weight", "grad_output")
USES = ("rowwise", "columnwise")
_GEMMS = {"output": ("input", "weight"), "grad_input": ("grad_output", "weight"),
          "grad_weight": ("grad_output", "input")}
_NUMPY = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def _index(words, word, what):
    if word not in words:
        raise ValueError(f"{what} is {word!r}; it must be one of {', '.join(words)}")
    return list(words).index(word)


def _read(x):
    """The format of an array or a DLPack tensor, and a NumPy view of its bits."""
    if isinstance(x, numpy.ndarray) or not hasattr(x, "__dlpack__"):
        x = numpy.asarray(x)
        name = _NUMPY.get(x.dtype.name)
        if not name:
            raise TypeError(f"the array has the type {x.dtype}; it must be float32, float16 or bfloat16")
        return name, x.view(numpy.uint16) if name == "bf16" else x
    return _dlpack.import_tensor(x)


class Tensor:
    """A row-major matrix [rows, columns] of the format `dtype`: "fp32", "bf16" or "fp16".

    t.numpy() and numpy.asarray(t) return a view for fp32 and fp16, and a copy in fp32 for bf16, which NumPy
    does not have. torch.from_dlpack(t) returns a view in every format."""

    def __init__(self, dtype, bits, context=None):
        self.context, self.dtype, self.shape = context or default_context(), dtype, bits.shape
        self._bits = bits  # contiguous; the library reads and writes it in place
        address = bits.ctypes.data if bits.size else None
        self.handle = self.context.open(self, lib.ott_tensor_wrap, lib.ott_tensor_close, self.context.handle,
                                        address, DTYPES.index(dtype), *bits.shape)

    def numpy(self):
        return self.convert("fp32")._bits if self.dtype == "bf16" else self._bits

    def __array__(self, dtype=None, copy=None):
        return numpy.array(self.numpy(), dtype, copy=copy) if dtype or copy else self.numpy()

    def __dlpack__(self, **_):
        return _dlpack.export_tensor(self._bits.ctypes.data, self.shape, self.dtype, self)

    def __dlpack_device__(self):
        return _dlpack.CPU, 0

    def __repr__(self):
        return f"ottava.Tensor({self.numpy()!r}, dtype={self.dtype!r})"

    def convert(self, dtype):
        """Returns the matrix in another format, rounded to nearest even; itself if it has the format."""
        if dtype == self.dtype:
            return self
        out = empty(self.shape, dtype, self.context)
        self.context.call(lib.ott_tensor_convert, self.handle, out.handle)
        return out


def tensor(x, context=None):
    """Returns an array [rows, columns] as a Tensor, without a copy if it is contiguous."""
    if isinstance(x, Tensor):
        return x
    dtype, bits = _read(x)
    if bits.ndim != 2:
        raise ValueError(f"the array has the shape {bits.shape}; it must be a matrix [rows, columns]")
    return Tensor(dtype, numpy.require(bits, requirements=("C", "A")), context)


def empty(shape, dtype="fp32", context=None):
    """Returns a Tensor [rows, columns] of zeros."""
    _index(_dlpack.FORMATS, dtype, "dtype")
    return Tensor(dtype, numpy.zeros(shape, _dlpack.FORMATS[dtype][2]), context)


class Recipe:
    """How the tensors and products of a linear layer use FP8.

    name: a row of ottava.recipes(), or "custom". keys: keys of the configuration section [float8], such as
    accumulate="hopper_fast" or amax_history_len=16; `ottava train --help float8` lists them."""

    def __init__(self, name, context=None, **keys):
        self.name, self.keys, self.context = name, keys, context or default_context()
        self.handle = self.context.open(self, lib.ott_recipe_open, lib.ott_recipe_close, self.context.handle,
                                        name.encode())
        for key, value in keys.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            self.context.call(lib.ott_recipe_set, self.handle, key.encode(), text.encode())

    def __repr__(self):
        return f"ottava.Recipe({', '.join([repr(self.name)] + [f'{k}={v!r}' for k, v in self.keys.items()])})"

    def describe(self):
        """Returns the recipe as text: the rowwise and columnwise copies and the three products."""
        return self.context.text(lib.ott_recipe_describe, self.handle)


def recipes():
    """Returns all recipes as the list of objects that `ottava recipes --json` prints."""
    context = default_context()
    return json.loads(context.text(lib.ott_recipe_table, context.handle, 1))["recipes"]


class Copy:
    """The rowwise or columnwise copy of a quantized tensor [rows, columns]. The arrays have the orientation
    of the tensor. They are views of the library's memory: they change when the tensor is quantized again.

    format: "e4m3" or "e5m2"; if the product reads the tensor in high precision, "bf16", "fp16" or "fp32", and
        codes, scale, scale_inv and amax are None.
    codes: uint8 [rows, columns].
    block: (rows, columns) of a scale group.
    scale, amax: float32 [ceil(rows / block[0]), ceil(columns / block[1])]: the factor from values to codes,
        and the largest magnitude of the group.
    scale_inv: the factor from codes to values, in the shape of scale. float32, or for MXFP8 uint8: byte b is
        the factor 2^(b-127) (E8M0). For MXFP8 this array is a copy.
    scale_inv_stored: for MXFP8 the bytes of scale_inv in the order in which cuBLAS reads them, in tiles of
        128 x 4; else None."""

    def __init__(self, quantized, use):
        self.codes = self.scale = self.scale_inv = self.scale_inv_stored = self.amax = self.block = None
        data = QData()
        quantized.context.call(lib.ott_qtensor_data, quantized.handle, USES.index(use), data)
        self.format = DTYPES[data.format]
        if data.codes:
            self._view(data, quantized, use == "columnwise")

    def _view(self, data, owner, columnwise):
        # Sizes along (MN, K), the operand's rows and the contraction. A columnwise operand is the transpose.
        mn, k = owner.shape[::-1] if columnwise else owner.shape
        block = min(data.block_mn, mn), min(data.block_depth, k)
        groups = -(-mn // block[0]), -(-k // block[1])
        strides = data.row_step, data.column_step
        self.block = block[::-1] if columnwise else block
        self.codes = _dlpack.view(data.codes, owner.shape, strides, numpy.uint8, owner)

        def view(address):
            shape, strides = groups, (4 * data.mn_step, 4 * data.k_step)
            if columnwise:
                shape, strides = shape[::-1], strides[::-1]
            return _dlpack.view(address, shape, strides, numpy.float32, owner)

        self.scale, self.amax = view(data.scale), view(data.amax)
        if DTYPES[data.scale_inv_format] == "fp32":
            self.scale_inv = view(data.scale_inv)
            return
        size = -(-groups[0] // 128) * data.tiles_along_k * 512
        self.scale_inv_stored = _dlpack.view(data.scale_inv, (size,), None, numpy.uint8, owner)
        array = self.scale_inv_stored[_tile_index(groups, data.tiles_along_k)]
        self.scale_inv = array.T if columnwise else array


def _tile_index(groups, tiles_along_k):
    """The index of each scale [MN, K] in the order that ott_qdata in include/ottava/fp8.h defines."""
    mn, k = numpy.ogrid[:groups[0], :groups[1]]
    tile = mn // 128 * tiles_along_k + k // 4
    return tile * 512 + mn % 32 * 16 + mn % 128 // 32 * 4 + k % 4


class Quantized:
    """A tensor [rows, columns] that is quantized for its two uses; see ottava.quantize.

    rowwise, columnwise: the two copies (Copy)."""

    def __init__(self, shape, recipe, role):
        self.shape, self.recipe, self.role, self.context = tuple(shape), recipe, role, recipe.context
        arguments = (*self.shape, recipe.handle, _index(ROLES, role, "role"))
        self.handle = self.context.open(self, lib.ott_qtensor_open, lib.ott_qtensor_close,
                                        self.context.handle, *arguments)

    def quantize(self, x):
        """Quantizes another array of the same shape. Delayed scaling uses its current scale and records the
        amax for the next update_scale()."""
        self._source = tensor(x, self.context)
        self.context.call(lib.ott_quantize, self.handle, self._source.handle)
        return self

    def update_scale(self):
        """Updates the scale of delayed scaling, once a step. Does nothing for other recipes."""
        self.context.call(lib.ott_qtensor_update_scale, self.handle, None)

    @property
    def rowwise(self):
        return Copy(self, "rowwise")

    @property
    def columnwise(self):
        return Copy(self, "columnwise")

    def dequantize(self, use="rowwise", dtype="fp32"):
        """Returns code * scale_inv of a copy as a Tensor, rounded to nearest even to `dtype`."""
        out = empty(self.shape, dtype, self.context)
        self.context.call(lib.ott_dequantize, self.handle, _index(USES, use, "use"), out.handle)
        return out

    def statistics(self, use="rowwise"):
        """Returns the error of a copy as a dict: saturated and underflowed (fractions of the elements),
        sqnr_db (signal to quantization noise ratio in dB), amax, scale_min, scale_max."""
        out = Statistics()
        self.context.call(lib.ott_quantize_statistics, self.handle, self._source.handle,
                          _index(USES, use, "use"), out)
        return {name: getattr(out, name) for name, _ in Statistics._fields_[1:]}


@functools.lru_cache(maxsize=64)  # a context keeps the memory of closed recipes, 20 KiB each
def _open_recipe(name, context, keys):
    return Recipe(name, context, **dict(keys))


def _recipe(recipe, **keys):
    if not isinstance(recipe, Recipe):
        return _open_recipe(recipe, default_context(), tuple(keys.items()))
    if not keys:
        return recipe
    return _open_recipe(recipe.name, recipe.context, tuple({**recipe.keys, **keys}.items()))


def quantize(x, recipe="tensorwise", role="input"):
    """Quantizes an array [rows, columns] as a recipe (a name or a Recipe) quantizes the input, the weight or
    the grad_output of a linear layer. Returns a Quantized.

        q = ottava.quantize(x, "rowwise")
        q.rowwise.codes, q.rowwise.scale"""
    recipe = _recipe(recipe)
    x = tensor(x, recipe.context)
    return Quantized(x.shape, recipe, role).quantize(x)


def cast(x, words="e4m3"):
    """Quantizes an array with any cast, in the words of the configuration key float8.input: a format, what
    shares a scale, and the scale's rule, such as "e4m3 row pow2", "e5m2 1x128 te" or "e4m3 unit" (no scale;
    infinities and too large values saturate). Returns the Copy."""
    first, *rest = words.split() or [""]
    if first not in ("e4m3", "e5m2"):
        raise ValueError(f"the cast {words!r} must begin with e4m3 or e5m2")
    # The operands of a product need blocks of one length. Only one may be E5M2 or have blocks of 128 x 128.
    other = " ".join(["e4m3", *rest]).replace("128x128", "1x128")
    recipe = _recipe("custom", input=other, weight=other, grad_output=words)
    return quantize(x, recipe, "grad_output").rowwise


def _operand(x, recipe, role):
    """The operand of a product. A product in high precision reads the tensor itself."""
    q = x if isinstance(x, Quantized) else quantize(x, recipe, role)
    high = {q.rowwise.format, q.columnwise.format}.intersection(_dlpack.FORMATS)
    source = q._source.convert(high.pop()) if high else q._source
    operand = Operand(source.handle, q.handle)
    operand.shape, operand.owners = q.shape, (q, source)  # the operand keeps the objects of its handles
    return operand


def _result(out, shape, dtype, context):
    """The Tensor that a product writes: a new one, or one that shares the memory of `out`."""
    if out is None:
        return empty(shape, dtype, context)
    result = tensor(out, context)
    in_place = isinstance(out, Tensor) or _read(out)[1].ctypes.data == result._bits.ctypes.data
    if not (in_place and result._bits.flags.writeable):
        raise ValueError("out must be a contiguous array that can be written")
    return result


def product(a, b, recipe=None, gemm="output", accumulate=None, dtype="bf16", bias=None, out=None, add=False):
    """Computes one of the three matrix products of a linear layer.

        gemm          computes      shape    a            b
        output        Y  = X W^T    [M, N]   X [M, K]     W [N, K]
        grad_input    dX = G W      [M, K]   G [M, N]     W [N, K]
        grad_weight   dW = G^T X    [N, K]   G [M, N]     X [M, K]

    a, b: arrays, which are quantized with the recipe (a name or a Recipe), or Quantized (recipe None: a's).
    accumulate: how the sums are computed: "fp32" (one chain of fp32 additions), "tile32" (tiles of 32 terms,
        as AMX computes them), "hopper_fast" or "hopper_split" (the accumulator of Hopper's tensor cores, for
        all terms or for each 128 terms); None: the recipe's.
    dtype: the format of the result. bias: fp32 [N], added to each row. out: a contiguous array for the
        result; with add=True the product is added to it. Returns the result as a Tensor."""
    which = _index(_GEMMS, gemm, "gemm")
    if recipe is None:
        recipe = a.recipe if isinstance(a, Quantized) else "tensorwise"
    recipe = _recipe(recipe, **({"accumulate": accumulate} if accumulate else {}))
    left, right = (_operand(x, recipe, role) for x, role in zip((a, b), _GEMMS[gemm]))
    rows = left.shape[1 if gemm == "grad_weight" else 0]
    columns = right.shape[0 if gemm == "output" else 1]
    result = _result(out, (rows, columns), dtype, recipe.context)
    row = None
    if bias is not None:
        row = tensor(numpy.asarray(bias, numpy.float32).reshape(1, -1), recipe.context)
    recipe.context.call(lib.ott_gemm, recipe.handle, which, left, right, row.handle if row else None,
                        int(add), result.handle)
    return result
