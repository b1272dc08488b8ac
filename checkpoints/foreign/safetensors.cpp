// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/foreign/safetensors.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/tensor.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "checkpoints/format/names.hpp"

namespace lockstep::checkpoints {

namespace {

/// safetensors' names of the types that we have; it has no complex128.
using SafetensorsDType = std::pair<DType, std::string_view>;
constexpr SafetensorsDType kSafetensorsDTypes[] = {
    {DType::float32, "F32"}, {DType::float64, "F64"},  {DType::float16, "F16"},  {DType::bfloat16, "BF16"},
    {DType::int8, "I8"},     {DType::int16, "I16"},    {DType::int32, "I32"},    {DType::int64, "I64"},
    {DType::uint8, "U8"},    {DType::boolean, "BOOL"}, {DType::complex64, "C64"}};

/// "F32, F64, ...", for messages.
std::string safetensors_dtypes() {
  std::string list;
  for (const auto& [dtype, name] : kSafetensorsDTypes) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

// --- reading ---

struct Entry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;  ///< [begin, end), relative to the end of the header
};

/// Takes the events of the JSON parser, which never recurses, and accepts exactly what a header may hold.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string fault;   ///< why the header was refused
  std::string object;  ///< object: what it is about; may be ""
  CheckpointFault kind = CheckpointFault::damaged;

  bool null() override { return wrong_value("null"); }
  bool boolean(bool) override { return wrong_value("true or false"); }
  bool number_integer(number_integer_t) override { return wrong_value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return wrong_value("a number with a fraction, an exponent or more than 64 bits");
  }
  bool binary(binary_t&) override { return wrong_value("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::numbers) return wrong_value("a number");
    if (numbers_->size() >= kMaxDimensions) return refuse("it has more than 32 dimensions");
    numbers_->push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::metadata) {
      metadata.emplace_back(key_, std::move(value));
      return true;
    }
    if (state_ != State::tensor || key_ != "dtype") return wrong_value("a text");
    entries.back().dtype = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (state_ == State::start) {
      state_ = State::header;
    } else if (state_ == State::header && key_ == "__metadata__") {
      state_ = State::metadata;
    } else if (state_ == State::header) {
      if (entries.size() >= kMaxObjects) {
        kind = CheckpointFault::refused;
        return refuse("the header lists more than a million tensors");
      }
      entries.push_back({.name = key_, .dtype = {}, .shape = {}, .offsets = {}});
      state_ = State::tensor;
    } else {
      return wrong_value("an object");
    }
    return true;
  }

  bool key(string_t& name) override {
    key_ = std::move(name);
    if (state_ == State::header) {
      object = quoted("tensor", key_);
      return names_.insert(key_).second || refuse("the header lists it twice");
    }
    if (state_ == State::metadata) {
      return metadata_names_.insert(key_).second || refuse("its field '" + key_ + "' occurs twice");
    }
    if (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets") {
      return refuse("it has " + quoted("a field", key_) + ", which is not a field of safetensors");
    }
    const Entry& entry = entries.back();
    const bool is_second = key_ == "dtype" ? entry.dtype.has_value()
                                           : (key_ == "shape" ? entry.shape.has_value() : entry.offsets.has_value());
    return !is_second || refuse("its field " + key_ + " occurs twice");
  }

  bool start_array(std::size_t) override {
    if (state_ != State::tensor || key_ == "dtype") return wrong_value("a list");
    state_ = State::numbers;
    numbers_ = &(key_ == "shape" ? entries.back().shape : entries.back().offsets).emplace();
    return true;
  }

  bool end_array() override {
    state_ = State::tensor;
    return true;
  }

  bool end_object() override {
    if (state_ == State::tensor) {
      const Entry& entry = entries.back();
      if (!entry.dtype) return refuse("its field dtype is missing");
      if (!entry.shape) return refuse("its field shape is missing");
      if (!entry.offsets) return refuse("its field data_offsets is missing");
    }
    state_ = state_ == State::header ? State::done : State::header;
    object.clear();
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    object.clear();
    return refuse("it is not JSON in UTF-8 at byte " + std::to_string(8 + position));
  }

 private:
  enum class State { start, header, metadata, tensor, numbers, done };

  bool refuse(std::string message) {
    if (fault.empty()) fault = std::move(message);
    return false;
  }
  bool wrong_value(const std::string& found) {
    if (state_ == State::start) return refuse("it is " + found + ", not an object");
    if (state_ == State::metadata) return refuse("its " + quoted("entry", key_) + " is " + found + ", not a text");
    if (state_ == State::header) return refuse("it is " + found + ", not an object");
    return refuse("its field " + key_ + " holds " + found);
  }

  State state_ = State::start;
  std::string key_;
  std::vector<std::uint64_t>* numbers_ = nullptr;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_names_;
};

/// Checked against the rules that concern one tensor.
struct Tensor {
  std::string part;
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

std::uint64_t header_length(const ByteSource& source) {
  if (source.size() < 8) source.refuse("it has fewer than the 8 bytes that contain the length of a safetensors header");
  std::array<std::byte, 8> head{};
  source.read_to(0, head);
  const auto length = load<std::uint64_t>(head, 0);
  const std::string event = "its header states a size of " + std::to_string(length) + " bytes";
  if (length < 2) source.refuse(event + "; the minimum is {}");
  if (length > kMaxHeaderBytes) source.refuse(event + "; safetensors allows 100000000");
  if (length > source.size() - 8) source.refuse(event + ", but the file has " + std::to_string(source.size()));
  return length;
}

HeaderHandler parse_header(const ByteSource& source, std::uint64_t length) {
  const OwnedBytes block = source.read(8, length);
  const std::string_view text(reinterpret_cast<const char*>(block.bytes.data()), block.bytes.size());
  if (text.front() != '{') source.refuse("header", "its first byte is not {");
  if (text.find('\0') != std::string_view::npos)
    source.refuse("header", "it has a NUL; only blanks are allowed as padding");
  const std::size_t last = text.find_last_not_of(' ');
  if (text[last] != '}') source.refuse("header", "it does not end with } and blanks");
  HeaderHandler handler;
  nlohmann::json::sax_parse(text.begin(), text.end(), &handler);
  if (!handler.fault.empty())
    source.refuse(handler.object.empty() ? "header" : handler.object, handler.fault, handler.kind);
  return handler;
}

Tensor check(const ByteSource& source, const Entry& entry, std::uint64_t data_bytes) {
  const std::string object = quoted("tensor", entry.name);
  Tensor tensor{.part = part_of(source, entry.name), .dtype = {}, .shape = {}, .begin = 0, .end = 0};
  const auto* const known = std::ranges::find(kSafetensorsDTypes, *entry.dtype, &SafetensorsDType::second);
  if (known == std::end(kSafetensorsDTypes))
    source.refuse(object, quoted("its element type", *entry.dtype) + " is not one of " + safetensors_dtypes(),
                  CheckpointFault::incompatible);
  tensor.dtype = known->first;
  for (const std::uint64_t dimension : *entry.shape) {
    if (dimension > std::numeric_limits<std::int64_t>::max()) source.refuse(object, "its shape overflows 63 bits");
    tensor.shape.push_back(static_cast<std::int64_t>(dimension));
  }
  const auto nbytes = nbytes_of(tensor.dtype, tensor.shape);
  if (!nbytes) source.refuse(object, "its shape and type overflow 63 bits");
  if (entry.offsets->size() != 2) source.refuse(object, "its data_offsets are not two numbers");
  tensor.begin = entry.offsets->front();
  tensor.end = entry.offsets->back();
  if (tensor.begin > tensor.end) source.refuse(object, "it starts after its end");
  if (tensor.end > data_bytes) {
    source.refuse(object, "it ends at byte " + std::to_string(tensor.end) + " of the data, but there are " +
                              std::to_string(data_bytes) + ": the file is truncated, or its header is wrong");
  }
  if (tensor.end - tensor.begin != *nbytes) {
    source.refuse(object, "its shape and type need " + std::to_string(*nbytes) + " bytes, but its data_offsets span " +
                              std::to_string(tensor.end - tensor.begin));
  }
  return tensor;
}

/// The tensors fill the data without overlap or hole.
void check_cover(const ByteSource& source, const std::vector<Tensor>& tensors, std::uint64_t data_bytes) {
  std::vector<const Tensor*> sorted;
  for (const Tensor& tensor : tensors) sorted.push_back(&tensor);
  std::ranges::sort(sorted, [](const Tensor* a, const Tensor* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t covered = 0;
  for (const Tensor* tensor : sorted) {
    const std::string object = quoted("tensor", tensor->part);
    if (tensor->begin < covered) source.refuse(object, "its bytes overlap those of another tensor");
    if (tensor->begin > covered) {
      source.refuse(
          object, "before it there are " + std::to_string(tensor->begin - covered) + " bytes that belong to no tensor");
    }
    covered = tensor->end;
  }
  if (covered != data_bytes) {
    source.refuse("after its last tensor there are " + std::to_string(data_bytes - covered) +
                  " bytes that belong to no tensor");
  }
}

// --- writing ---

constexpr std::size_t kHeaderAlignment = 8;  // the header is padded with blanks to align the data

std::vector<const NamedArray*> in_file_order(const std::vector<NamedArray>& arrays) {
  std::vector<const NamedArray*> order;
  for (const NamedArray& one : arrays) order.push_back(&one);
  // Larger elements first: then every tensor starts on a multiple of its element.
  std::ranges::sort(order, [](const NamedArray* a, const NamedArray* b) {
    return std::pair(size_of(b->array.dtype), std::string_view(a->name)) <
           std::pair(size_of(a->array.dtype), std::string_view(b->name));
  });
  return order;
}

/// The header, with the length in front.
/// @throws CheckpointError  without a path
std::string safetensors_header(const std::vector<NamedArray>& arrays, const ForeignMetadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  auto& texts = header["__metadata__"] = {{"format", "pt"}};  // which loaders of Hugging Face look for
  for (const auto& [name, text] : metadata) texts[name] = text;
  std::uint64_t end = 0;
  std::string text = header.dump();
  text.pop_back();
  for (const NamedArray* one : in_file_order(arrays)) {
    const auto* const known = std::ranges::find(kSafetensorsDTypes, one->array.dtype, &SafetensorsDType::first);
    if (one->name == "__metadata__") throw CheckpointError("safetensors reserves the name __metadata__");
    if (known == std::end(kSafetensorsDTypes)) {
      throw CheckpointError("tensor '" + one->name + "': safetensors has no " + std::string(name_of(one->array.dtype)));
    }
    const std::uint64_t begin = std::exchange(end, end + one->array.bytes.size());
    const nlohmann::ordered_json entry = {
        {"dtype", known->second}, {"shape", one->array.shape}, {"data_offsets", {begin, end}}};
    text += "," + nlohmann::ordered_json(one->name).dump() + ":" + entry.dump();
  }
  text += "}";
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

}  // namespace

Archive read_safetensors(const ByteSource& source) {
  const std::uint64_t length = header_length(source);
  const HeaderHandler header = parse_header(source, length);
  const std::uint64_t data = 8 + length;
  std::vector<Tensor> tensors;
  for (const Entry& entry : header.entries) tensors.push_back(check(source, entry, source.size() - data));
  check_cover(source, tensors, source.size() - data);

  Archive archive;
  archive.set_origin(source.path());
  for (const auto& [name, text] : header.metadata) put_metadata(source, archive, name, text);
  for (const Tensor& tensor : tensors) {
    OwnedBytes block = source.view(data + tensor.begin, tensor.end - tensor.begin, size_of(tensor.dtype));
    put_array(source, archive, "/" + tensor.part,
              {.dtype = tensor.dtype, .shape = tensor.shape, .bytes = block.bytes, .owner = std::move(block.owner)});
  }
  return archive;
}

void write_safetensors(NewFile& file, const std::vector<NamedArray>& arrays, const ForeignMetadata& metadata) {
  const std::string header = safetensors_header(arrays, metadata);
  std::uint64_t offset = header.size();
  for (const NamedArray& one : arrays) offset += one.array.bytes.size();
  file.reserve(offset);
  file.write(0, std::as_bytes(std::span(header)));
  offset = header.size();
  for (const NamedArray* one : in_file_order(arrays)) {
    file.write(offset, one->array.bytes);
    offset += one->array.bytes.size();
  }
}

}  // namespace lockstep::checkpoints
