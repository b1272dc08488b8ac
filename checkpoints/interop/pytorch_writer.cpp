// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <string_view>

#include "checkpoints/interop/pickle_names.hpp"
#include "checkpoints/interop/pytorch.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr const char* kFolder = "archive";

/// Writes the few opcodes that a map from names to tensors needs.
class Pickler {
 public:
  std::string pickle(const std::vector<NamedArray>& arrays) {
    text_ = "\x80\x02}";  // protocol 2, an empty map
    if (!arrays.empty()) text_ += '(';
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      put_text(arrays[i].name);
      put_tensor(arrays[i].array, std::to_string(i));
    }
    text_ += arrays.empty() ? "." : "u.";
    return std::move(text_);
  }

 private:
  /// _rebuild_tensor_v2(storage, 0, shape, strides, requires_grad=False, OrderedDict())
  void put_tensor(const Array& array, const std::string& key) {
    const std::int64_t count = static_cast<std::int64_t>(array.bytes.size() / size_of(array.dtype));
    text_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
    put_text("storage");
    text_ += "ctorch\n" + storage_class(array.dtype) + "\n";
    put_text(key);
    put_text("cpu");
    put_integer(count);
    text_ += "tQ";
    put_integer(0);
    put_tuple(array.shape);
    put_tuple(strides_of(array.shape));
    text_ +=
        "\x89"
        "ccollections\nOrderedDict\n)RtR";
  }

  static std::string storage_class(DType dtype) {
    for (const AllowedName& row : kAllowedNames) {
      if (row.kind == Named::storage && row.dtype == dtype) return std::string(row.name.substr(6));  // less "torch."
    }
    throw CheckpointError("PyTorch has no storage of " + std::string(name_of(dtype)));
  }

  static std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i > 1; --i)
      strides[i - 2] = strides[i - 1] * std::max<std::int64_t>(shape[i - 1], 1);
    return strides;
  }

  void put_text(std::string_view text) {
    text_ += 'X';
    put_bytes(static_cast<std::int64_t>(text.size()), 4);
    text_ += text;
  }
  void put_integer(std::int64_t value) {
    const bool is_short = value >= 0 && value <= 0x7FFFFFFF;
    text_ += is_short ? "J" : "\x8A\x08";
    put_bytes(value, is_short ? 4 : 8);
  }
  void put_tuple(const std::vector<std::int64_t>& numbers) {
    if (numbers.empty()) {
      text_ += ')';
      return;
    }
    text_ += '(';
    for (const std::int64_t number : numbers) put_integer(number);
    text_ += 't';
  }
  void put_bytes(std::int64_t value, int count) {
    for (int i = 0; i < count; ++i) text_ += static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
  }

  std::string text_;
};

}  // namespace

void write_pytorch(NewFile& file, const std::vector<NamedArray>& arrays,
                   const std::map<std::string, std::string>& metadata) {
  const std::string folder = std::string(kFolder) + "/";
  ZipWriter zip(file);
  zip.add(folder + "data.pkl", Pickler().pickle(arrays));
  zip.add(folder + "byteorder", "little");
  for (std::size_t i = 0; i < arrays.size(); ++i) zip.add(folder + "data/" + std::to_string(i), arrays[i].array.bytes);
  zip.add(folder + "version", "3\n");
  if (!metadata.empty()) zip.add(folder + "extra/metadata.json", metadata_json(metadata));
  zip.finish();
}

}  // namespace lockstep::checkpoints
