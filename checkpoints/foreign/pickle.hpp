// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
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

}  // namespace lockstep::checkpoints
