// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <bit>
#include <string_view>
#include <variant>

#include "checkpoints/foreign/pickle.hpp"
#include "checkpoints/foreign/pytorch.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr const char* kFolder = "archive";

/// Writes the few opcodes that values need, in protocol 2.
class Pickler {
 public:
  /// @param value  outlives the pickler
  std::string pickle(const PythonValue& value) {
    text_ = "\x80\x02";
    put(value);
    text_ += '.';
    return std::move(text_);
  }
  /// The arrays of the value; the record data/<i> has the bytes of number i.
  const std::vector<const Array*>& arrays() const noexcept { return arrays_; }

 private:
  void put(const PythonValue& value) {
    std::visit([this](const auto& one) { put_one(one); }, value.value);
  }
  void put_one(std::monostate) { text_ += 'N'; }
  void put_one(bool value) { text_ += value ? '\x88' : '\x89'; }
  void put_one(std::int64_t value) { put_integer(value); }
  void put_one(double value) {
    text_ += 'G';  // the highest byte comes first
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int shift = 56; shift >= 0; shift -= 8) text_ += static_cast<char>(bits >> shift);
  }
  void put_one(const std::string& value) { put_text(value); }
  void put_one(const Array& value) {
    put_tensor(value, std::to_string(arrays_.size()));
    arrays_.push_back(&value);
  }
  void put_one(const PythonValue::List& list) {
    if (list.is_tuple && list.items.empty()) {
      text_ += ')';
      return;
    }
    if (!list.is_tuple) text_ += ']';
    if (!list.items.empty()) text_ += '(';
    for (const PythonValue& item : list.items) put(item);
    if (list.is_tuple) text_ += 't';
    if (!list.is_tuple && !list.items.empty()) text_ += 'e';
  }
  void put_one(const PythonValue::Map& map) {
    text_ += '}';
    if (map.items.empty()) return;
    text_ += '(';
    for (const auto& [key, value] : map.items) {
      std::visit([this](const auto& one) { put_one(one); }, key);
      put(value);
    }
    text_ += 'u';
  }

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
  std::vector<const Array*> arrays_;
};

}  // namespace

void write_pytorch(NewFile& file, const std::vector<NamedArray>& arrays, const ForeignMetadata& metadata) {
  PythonValue::Map map;
  for (const auto& [name, array] : arrays) map.items.push_back({name, PythonValue{array}});
  write_pytorch(file, PythonValue{std::move(map)}, metadata);
}

void write_pytorch(NewFile& file, const PythonValue& value, const ForeignMetadata& metadata) {
  const std::string folder = std::string(kFolder) + "/";
  ZipWriter zip(file);
  Pickler pickler;
  zip.add(folder + "data.pkl", pickler.pickle(value));
  zip.add(folder + "byteorder", "little");
  for (std::size_t i = 0; i < pickler.arrays().size(); ++i) {
    zip.add(folder + "data/" + std::to_string(i), pickler.arrays()[i]->bytes);
  }
  zip.add(folder + "version", "3\n");
  if (!metadata.empty()) zip.add(folder + "extra/metadata.json", metadata_json(metadata));
  zip.finish();
}

}  // namespace lockstep::checkpoints
