"""Finds and loads libottava.so, and declares its C functions (include/ottava/*.h).

The library is searched in this order: the file or folder that the environment variable OTTAVA_LIBRARY names,
the folder `lib` of this package, and the folders of the system's dynamic linker.
"""

import ctypes
import os
import threading
import weakref
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_void_p)

from ._paths import PACKAGE

NAME = "libottava.so.0"

# enum ott_dtype, enum ott_status, enum ott_log_level in include/ottava/types.h, each in its order there.
DTYPES = ("fp32", "bf16", "fp16", "e4m3", "e5m2", "e8m0", "u8", "i32", "i64")
LOG_LEVELS = ("error", "warning", "info", "debug")
OK = 0


class Error(RuntimeError):
    """A call of the library failed. The text names what failed, its value and the remedy; `status` is the
    name of the status, such as "ERR_SHAPE"."""

    def __init__(self, text, status):
        super().__init__(text)
        self.status = status


class Sized(Structure):
    """A struct that begins with struct_size, which makes it usable with a newer library. Its defaults are
    zeros, so it needs no ott_x_init."""

    def __init__(self):
        super().__init__(struct_size=ctypes.sizeof(self))


class ContextOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("log", c_void_p), ("user", c_void_p), ("log_level", c_int),
                ("threads", c_int), ("device", c_char_p)]


class QData(Sized):
    _fields_ = [("struct_size", c_size_t), ("format", c_int), ("codes", c_void_p), ("row_step", c_int64),
                ("column_step", c_int64), ("amax", c_void_p), ("scale", c_void_p), ("scale_inv", c_void_p),
                ("count", c_int64), ("mn_step", c_int64), ("k_step", c_int64), ("block_mn", c_int64),
                ("block_depth", c_int64), ("scale_inv_format", c_int), ("tiles_along_k", c_int64)]


class Statistics(Sized):
    _fields_ = [("struct_size", c_size_t)] + [(name, c_double) for name in (
        "saturated", "underflowed", "sqnr_db", "amax", "scale_min", "scale_max")]


class Operand(Structure):
    _fields_ = [("tensor", c_void_p), ("quantized", c_void_p)]


class Progress(Structure):
    _fields_ = [("step", c_int64), ("max_steps", c_int64), ("loss", c_double), ("validation_loss", c_double),
                ("learning_rate", c_double), ("grad_norm", c_double), ("tokens_per_second", c_double),
                ("seconds_left", c_double)]


class LossBatch(Structure):
    _fields_ = [("sequences", c_int64), ("length", c_int64), ("vocab", c_int64), ("token", POINTER(c_int32)),
                ("target", POINTER(c_int32)), ("position", POINTER(c_int32)), ("training", c_int),
                ("logits", POINTER(c_float)), ("loss", POINTER(c_float))]


LogFn = CFUNCTYPE(None, c_void_p, c_int, c_char_p)
TextFn = CFUNCTYPE(None, c_void_p, c_char_p)
ProgressFn = CFUNCTYPE(None, c_void_p, POINTER(Progress))
LossFn = CFUNCTYPE(c_int, c_void_p, POINTER(LossBatch))


class TrainOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("progress", ProgressFn), ("user", c_void_p), ("work", c_void_p),
                ("loss", LossFn)]


_out = POINTER(c_void_p)
# The result and the arguments of each function. c_int results are statuses.
_FUNCTIONS = {
    "ott_version": (c_char_p,),
    "ott_error_text": (c_char_p,),
    "ott_status_name": (c_char_p, c_int),
    "ott_context_open": (c_int, POINTER(ContextOptions), _out),
    "ott_context_close": (None, c_void_p),
    "ott_stop": (None, c_void_p),
    "ott_tensor_wrap": (c_int, c_void_p, c_void_p, c_int, c_int64, c_int64, _out),
    "ott_tensor_close": (None, c_void_p),
    "ott_tensor_convert": (c_int, c_void_p, c_void_p),
    "ott_recipe_open": (c_int, c_void_p, c_char_p, _out),
    "ott_recipe_close": (None, c_void_p),
    "ott_recipe_set": (c_int, c_void_p, c_char_p, c_char_p),
    "ott_recipe_describe": (c_int, c_void_p, TextFn, c_void_p),
    "ott_recipe_table": (c_int, c_void_p, c_int, TextFn, c_void_p),
    "ott_qtensor_open": (c_int, c_void_p, c_int64, c_int64, c_void_p, c_int, _out),
    "ott_qtensor_close": (None, c_void_p),
    "ott_qtensor_update_scale": (c_int, c_void_p, c_void_p),
    "ott_quantize": (c_int, c_void_p, c_void_p),
    "ott_qtensor_data": (c_int, c_void_p, c_int, POINTER(QData)),
    "ott_dequantize": (c_int, c_void_p, c_int, c_void_p),
    "ott_quantize_statistics": (c_int, c_void_p, c_void_p, c_int, POINTER(Statistics)),
    "ott_gemm": (c_int, c_void_p, c_int, POINTER(Operand), POINTER(Operand), c_void_p, c_int, c_void_p),
    "ott_config_open": (c_int, c_void_p, c_int, POINTER(c_char_p), _out),
    "ott_config_close": (None, c_void_p),
    "ott_config_get": (c_int, c_void_p, c_char_p, TextFn, c_void_p),
    "ott_train": (c_int, c_void_p, c_void_p, POINTER(TrainOptions)),
}


def _path():
    given = os.environ.get("OTTAVA_LIBRARY")
    if given:
        return os.path.join(given, NAME) if os.path.isdir(given) else given
    inside = PACKAGE / "lib" / NAME
    return str(inside) if inside.exists() else NAME


def _load():
    try:
        library = ctypes.CDLL(_path())
    except OSError as error:
        raise ImportError(f"ottava: {_path()} cannot be loaded ({error}); set the environment variable "
                          f"OTTAVA_LIBRARY to {NAME} or to its folder, or install the wheel") from None
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()


def check(status):
    """Raises Error if the status is not OK."""
    if status != OK:
        raise Error(lib.ott_error_text().decode(), lib.ott_status_name(status).decode())


def open_object(function, *arguments):
    """Calls an ott_x_open function and returns the address of the object."""
    out = c_void_p()
    check(function(*arguments, byref(out)))
    return out.value


class Context:
    """Holds the log function and the CPU threads of all objects that are made with it. One thread at a time
    may call the library with a context; a call waits until other threads' calls with this context return.

    threads: CPU threads, 0: one per core. log: called with the level ("warning") and the text of each log
    line. level: the least severe level that is logged."""

    def __init__(self, threads=0, log=None, level="info"):
        self.lock = threading.RLock()
        self._log = LogFn(lambda _, at, text: log(LOG_LEVELS[at], text.decode(errors="replace")))
        options = ContextOptions()
        options.log = ctypes.cast(self._log, c_void_p) if log else None
        options.log_level, options.threads = LOG_LEVELS.index(level), threads
        options.device = b"cpu"  # NumPy arrays and DLPack tensors of the CPU are in host memory
        self.handle = open_object(lib.ott_context_open, byref(options))
        close_with(self, lib.ott_context_close, self.handle)

    def call(self, function, *arguments):
        """Calls a function that returns a status."""
        with self.lock:
            check(function(*arguments))

    def open(self, owner, function, close, *arguments):
        """Opens an object in this context and closes it when the Python object `owner` is freed."""
        with self.lock:
            handle = open_object(function, *arguments)
        close_with(owner, self._close, close, handle)
        return handle

    def _close(self, close, handle):
        with self.lock:
            close(handle)

    def text(self, function, *arguments):
        """Calls a function whose last arguments are an ott_text_fn and `user`, and returns its text."""
        pieces = []
        write = TextFn(lambda _, text: pieces.append(text))
        self.call(function, *arguments, write, None)
        return b"".join(pieces).decode()

    def stop(self):
        """Stops the training that runs in this context. Any thread may call it."""
        lib.ott_stop(self.handle)


def close_with(owner, close, *arguments):
    """Calls close(*arguments) when `owner` is freed, but not at the end of the process: then other Python
    objects may still use the memory."""
    weakref.finalize(owner, close, *arguments).atexit = False


_contexts, _contexts_lock = {}, threading.Lock()


def default_context():
    """The context of all calls that name none. After fork the child gets its own."""
    with _contexts_lock:
        if os.getpid() not in _contexts:
            _contexts[os.getpid()] = Context()
        return _contexts[os.getpid()]
