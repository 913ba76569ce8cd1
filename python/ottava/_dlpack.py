"""DLPack (https://dmlc.github.io/dlpack): reads tensors of other packages without a copy, and lets them read
tensors of Ottava. Needed because NumPy has no bf16."""

import ctypes
from ctypes import (CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_int64, c_uint8,
                    c_uint16, c_uint64, c_void_p, py_object)

import numpy

CPU, PINNED = 1, 3  # DLDeviceType: host memory
# DLDataType codes and bits of the formats that ott_tensor_wrap accepts, and the NumPy format of their bits.
FORMATS = {"fp32": (2, 32, numpy.float32), "bf16": (4, 16, numpy.uint16), "fp16": (2, 16, numpy.float16)}


class DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class DLManagedTensor(Structure):
    pass


Deleter = CFUNCTYPE(None, POINTER(DLManagedTensor))
DLManagedTensor._fields_ = [("tensor", DLTensor), ("manager", c_void_p), ("deleter", Deleter)]

_api = ctypes.pythonapi
_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", _api))
_is_valid = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _api))
_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _api))
_rename = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_SetName", _api))
_NEW, _USED = b"dltensor", b"used_dltensor"  # the names of a capsule before and after a consumer took it


class _Import:
    """Owns a tensor that another package exported; it is the base object of the NumPy view."""

    def __init__(self, capsule):
        address = _pointer(id(capsule), _NEW)
        _rename(id(capsule), _USED)
        self.managed = DLManagedTensor.from_address(address)

    def __del__(self):
        if self.managed.deleter:
            self.managed.deleter(ctypes.byref(self.managed))


def view(address, shape, strides, dtype, owner):
    """A NumPy array of memory that `owner` keeps. strides: in bytes; None: contiguous."""
    itemsize = numpy.dtype(dtype).itemsize
    if 0 in shape:
        return numpy.zeros(shape, dtype)
    if strides is None:
        strides = [itemsize * int(numpy.prod(shape[i + 1:])) for i in range(len(shape))]
    steps = [(n - 1) * step for n, step in zip(shape, strides)]
    before = -sum(step for step in steps if step < 0)  # bytes before the first element
    memory = (c_uint8 * (itemsize + sum(map(abs, steps)))).from_address(address - before)
    memory.owner = owner  # NumPy keeps `memory`, and so `owner`
    array = numpy.ndarray(shape, dtype, memory, before, strides)
    # reshape gives sizes of 1 their usual strides, which torch requires
    return array.reshape(-1).reshape(shape) if array.flags.c_contiguous else array


def import_tensor(x):
    """Returns the format ("bf16") of a tensor with __dlpack__, and a NumPy view of its bits."""
    device, _ = x.__dlpack_device__()
    if device not in (CPU, PINNED):
        raise ValueError(f"the tensor has DLPack's device type {int(device)}, so it is not in host memory; "
                         "move it to the CPU")
    owner = _Import(x.__dlpack__())
    t = owner.managed.tensor
    for name, (code, bits, dtype) in FORMATS.items():
        if (t.code, t.bits, t.lanes) == (code, bits, 1):
            break
    else:
        raise TypeError(f"the tensor has DLPack's type code {t.code} with {t.bits} bits; "
                        "it must be fp32, bf16 or fp16")
    shape = t.shape[:t.ndim]
    strides = [step * bits // 8 for step in t.strides[:t.ndim]] if t.strides else None
    return name, view((t.data or 0) + t.byte_offset, shape, strides, dtype, owner)


_exports = {}  # address of a DLManagedTensor: the objects that it needs until its deleter is called


@Deleter
def _delete(managed):
    _exports.pop(ctypes.addressof(managed.contents), None)


@CFUNCTYPE(None, c_void_p)
def _end_capsule(capsule):
    if _is_valid(capsule, _NEW):  # nobody took the tensor
        _exports.pop(_pointer(capsule, _NEW), None)


_api.Py_IncRef(py_object(_delete))  # other packages may call them until the process ends
_api.Py_IncRef(py_object(_end_capsule))


def export_tensor(address, shape, name, owner):
    """Returns a capsule for a contiguous matrix of the format `name` in memory that `owner` keeps."""
    code, bits, _ = FORMATS[name]
    sizes = (c_int64 * 4)(*shape, shape[1], 1)
    steps = ctypes.cast(ctypes.addressof(sizes) + 16, POINTER(c_int64))
    managed = DLManagedTensor(DLTensor(address, CPU, 0, 2, code, bits, 1, sizes, steps, 0), None, _delete)
    _exports[ctypes.addressof(managed)] = (managed, sizes, owner)
    return _new(ctypes.addressof(managed), _NEW, ctypes.cast(_end_capsule, c_void_p))
