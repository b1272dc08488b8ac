// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Python's pickles as PyTorch writes them, read as data: an allow list of opcodes and of names makes values of the
/// kinds below, and nothing is ever called or looked up. Objects of other classes, such as argparse.Namespace, and
/// results of other calls remain empty values with the name of their class or function.
namespace lockstep::checkpoints {

/// One value. Values refer to others by their index, and may do so in circles.
struct PickleValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    text,   ///< str; also a torch.device and, in decimal, an integer of more than 64 bits: then `integer` is 1
    dtype,  ///< a torch dtype; `text` is its name
    bytes,  ///< bytearray, in `text`
    list,   ///< list, set, torch.Size, and complex as two numbers
    tuple,
    map,           ///< items: key, value, key, value, ...
    name,          ///< an allowed name: `integer` is its row of kAllowedNames
    unknown_name,  ///< another name, in `text`
    unknown,       ///< an object of another class, in `text`; `integer` is 1 if it is a module with parameters
    unsupported,   ///< a tensor of a type that DType lacks, described in `text`
    storage,       ///< `integer` bytes of `dtype`, under the key `text`; an item is the name of a type that we lack
    tensor,        ///< `integer` is its place in Pickle::tensors
  };
  Kind kind = Kind::none;
  DType dtype = DType::uint8;
  std::int64_t integer = 0;
  double real = 0;
  std::string text = {};
  std::vector<std::uint32_t> items = {};
};

struct PickleTensor {
  DType dtype = DType::uint8;
  std::uint32_t storage = 0;  ///< its value
  std::int64_t offset = 0;    ///< offset of the first element, in elements
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< strides in elements, as many as dimensions; none is negative
};

struct Pickle {
  std::deque<PickleValue> values;
  std::vector<PickleTensor> tensors;
  std::uint32_t root = 0;
  std::size_t size = 0;  ///< bytes that were read
};

/// The message about a class that cannot be read, without where it is.
std::string refused_class(const std::string& name, bool is_module);

/// Reads the first pickle in `bytes`; what follows its end is not looked at.
/// @throws CheckpointError  without a path, with the opcode and the byte
Pickle parse_pickle(std::span<const std::byte> bytes);

// --- names ---

/// Everything that a pickle may name, and what we make of it. Nothing is called: each stands for a kind of data.
enum class Named {
  ordered_map,
  tensor,
  tensor_v2,
  tensor_v3,
  parameter,
  rebuilt_parameter,
  rebuilt_from_type,
  size,
  device,
  dtype,
  storage,
  untyped_storage,
  complex,
  set,
  bytes,
};

struct AllowedName {
  std::string_view name;  ///< module, dot, name
  Named kind;
  DType dtype = DType::uint8;  ///< element type that a dtype or storage stands for
};

inline constexpr AllowedName kAllowedNames[] = {
    {"collections.OrderedDict", Named::ordered_map},
    {"torch._utils._rebuild_tensor", Named::tensor},
    {"torch._utils._rebuild_tensor_v2", Named::tensor_v2},
    {"torch._utils._rebuild_tensor_v3", Named::tensor_v3},
    {"torch._utils._rebuild_parameter", Named::rebuilt_parameter},
    {"torch._utils._rebuild_parameter_with_state", Named::rebuilt_parameter},
    {"torch._tensor._rebuild_from_type", Named::rebuilt_from_type},
    {"torch._tensor._rebuild_from_type_v2", Named::rebuilt_from_type},
    {"torch.nn.parameter.Parameter", Named::parameter},
    {"torch.Size", Named::size},
    {"torch.device", Named::device},
    {"builtins.complex", Named::complex},
    {"__builtin__.complex", Named::complex},
    {"builtins.set", Named::set},
    {"__builtin__.set", Named::set},
    {"builtins.bytearray", Named::bytes},
    {"__builtin__.bytearray", Named::bytes},
    {"torch.storage.UntypedStorage", Named::untyped_storage},
    {"torch.FloatStorage", Named::storage, DType::float32},
    {"torch.DoubleStorage", Named::storage, DType::float64},
    {"torch.HalfStorage", Named::storage, DType::float16},
    {"torch.BFloat16Storage", Named::storage, DType::bfloat16},
    {"torch.CharStorage", Named::storage, DType::int8},
    {"torch.ShortStorage", Named::storage, DType::int16},
    {"torch.IntStorage", Named::storage, DType::int32},
    {"torch.LongStorage", Named::storage, DType::int64},
    {"torch.ByteStorage", Named::storage, DType::uint8},
    {"torch.BoolStorage", Named::storage, DType::boolean},
    {"torch.ComplexFloatStorage", Named::storage, DType::complex64},
    {"torch.ComplexDoubleStorage", Named::storage, DType::complex128},
    {"torch.float32", Named::dtype, DType::float32},
    {"torch.float64", Named::dtype, DType::float64},
    {"torch.float16", Named::dtype, DType::float16},
    {"torch.bfloat16", Named::dtype, DType::bfloat16},
    {"torch.int8", Named::dtype, DType::int8},
    {"torch.int16", Named::dtype, DType::int16},
    {"torch.int32", Named::dtype, DType::int32},
    {"torch.int64", Named::dtype, DType::int64},
    {"torch.uint8", Named::dtype, DType::uint8},
    {"torch.bool", Named::dtype, DType::boolean},
    {"torch.complex64", Named::dtype, DType::complex64},
    {"torch.complex128", Named::dtype, DType::complex128},
};

/// Storages of tensors which no array of ours can hold.
struct UnsupportedStorage {
  std::string_view name;
  DType same_size;  ///< a type whose elements have as many bytes
};

inline constexpr UnsupportedStorage kUnsupportedStorages[] = {
    {"torch.QInt8Storage", DType::int8},     {"torch.QUInt8Storage", DType::uint8},
    {"torch.QInt32Storage", DType::int32},   {"torch.QUInt4x2Storage", DType::uint8},
    {"torch.QUInt2x4Storage", DType::uint8},
};

/// Functions that create tensors which no array of ours can hold.
struct UnsupportedTensor {
  std::string_view name;
  std::string_view description;
};

inline constexpr UnsupportedTensor kUnsupportedTensors[] = {
    {"torch._utils._rebuild_sparse_tensor", "a sparse tensor"},
    {"torch._utils._rebuild_sparse_csr_tensor", "a sparse tensor"},
    {"torch._utils._rebuild_qtensor", "a quantized tensor"},
    {"torch._utils._rebuild_nested_tensor", "a nested tensor"},
    {"torch._utils._rebuild_meta_tensor_no_storage", "a meta tensor, which has no values"},
    {"torch._utils._rebuild_wrapper_subclass", "a wrapper of tensors"},
    {"torch._utils._rebuild_device_tensor_from_numpy", "a tensor of a device that stores it as a NumPy array"},
    {"torch._utils._rebuild_device_tensor_from_cpu_tensor", "a tensor of another device"},
};

/// Calls that no program for training stores. Elsewhere the result of an unknown call is left out, but a file with one
/// of these was made to attack its readers. A module ends with a dot and stands for all its names.
inline constexpr std::string_view kRefusedCalls[] = {
    "os.",
    "posix.",
    "nt.",
    "subprocess.",
    "sys.",
    "importlib.",
    "runpy.",
    "pty.",
    "shutil.",
    "socket.",
    "ctypes.",
    "torch.hub.",
    "builtins.eval",
    "builtins.exec",
    "builtins.compile",
    "builtins.open",
    "builtins.__import__",
    "__builtin__.eval",
    "__builtin__.execfile",
    "__builtin__.compile",
    "__builtin__.open",
    "__builtin__.__import__",
};

/// Classes of plain data in these modules, which programs store to describe where a run took place.
inline constexpr std::string_view kDataClasses[] = {
    "os.stat_result",     "os.statvfs_result",           "os.terminal_size",
    "posix.uname_result", "posix.times_result",          "socket.AddressFamily",
    "socket.SocketKind",  "subprocess.CompletedProcess", "subprocess.CalledProcessError",
};

}  // namespace lockstep::checkpoints
