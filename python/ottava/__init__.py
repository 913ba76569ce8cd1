"""FP8 numerics and FP8 training from Python: the C API of Ottava on NumPy arrays and DLPack tensors.

    q = ottava.quantize(x, "rowwise")            # q.rowwise.codes, .scale, .amax; q.columnwise
    y = ottava.product(x, w, "rowwise", accumulate="hopper_fast")
    run = ottava.train("configs/debug.toml", {"train.max_steps": 20}, on_step=print)
"""

from ._library import Context, Error, lib as _lib
from ._paths import copy_configs
from .fp8 import Copy, Quantized, Recipe, Tensor, cast, empty, product, quantize, recipes, tensor
from .training import LossBatch, Run, Step, train

__version__ = _lib.ott_version().decode()
__all__ = ["Context", "Copy", "Error", "LossBatch", "Quantized", "Recipe", "Run", "Step", "Tensor", "cast",
           "copy_configs", "empty", "product", "quantize", "recipes", "tensor", "train"]
