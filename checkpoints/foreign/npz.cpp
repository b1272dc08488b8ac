// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/foreign/npz.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>

#include "checkpoints/foreign/pytorch.hpp"
#include "checkpoints/format/elements.hpp"
#include "checkpoints/format/names.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::string_view kNpySuffix = ".npy";

constexpr std::array kNumpyDTypes = {
    std::pair{std::string_view("f4"), DType::float32},    std::pair{std::string_view("f8"), DType::float64},
    std::pair{std::string_view("f2"), DType::float16},    std::pair{std::string_view("i1"), DType::int8},
    std::pair{std::string_view("i2"), DType::int16},      std::pair{std::string_view("i4"), DType::int32},
    std::pair{std::string_view("i8"), DType::int64},      std::pair{std::string_view("u1"), DType::uint8},
    std::pair{std::string_view("b1"), DType::boolean},    std::pair{std::string_view("c8"), DType::complex64},
    std::pair{std::string_view("c16"), DType::complex128}};

[[noreturn]] void fail_npz(const std::string& message, CheckpointFault fault = CheckpointFault::damaged) {
  throw CheckpointError(message).as(fault);
}

/// The line is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class LineParser {
 public:
  explicit LineParser(std::string_view line) : rest_(line) {}

  NpyLine parse() {
    NpyLine header;
    expect("{");
    bool has_dtype = false, has_order = false, has_shape = false;
    while (!accept("}")) {
      const std::string key = text();
      expect(":");
      if (key == "descr" && !std::exchange(has_dtype, true)) {
        header.descr = text();
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        header.is_column_major = boolean();
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        header.shape = shape();
      } else {
        malformed();
      }
      if (!accept(",")) {
        expect("}");
        break;
      }
    }
    skip_blanks();
    if (!rest_.empty() || !has_dtype || !has_order || !has_shape) malformed();
    return header;
  }

 private:
  [[noreturn]] static void malformed() { fail_npz("its .npy header is malformed"); }

  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
  void expect(std::string_view word) {
    if (!accept(word)) malformed();
  }
  bool accept(std::string_view word) {
    skip_blanks();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  std::string text() {
    skip_blanks();
    if (rest_.starts_with('[')) {
      fail_npz("its elements are records with several fields; a tensor cannot hold them",
               CheckpointFault::incompatible);
    }
    const char quote = rest_.empty() ? ' ' : rest_.front();
    if (quote != '\'' && quote != '"') malformed();
    const std::size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) malformed();
    const std::string found(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return found;
  }

  bool boolean() {
    if (accept("True")) return true;
    if (!accept("False")) malformed();
    return false;
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> dimensions;
    expect("(");
    while (!accept(")")) {
      skip_blanks();
      std::int64_t value = 0;
      const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (parsed.ec != std::errc() || value < 0)
        fail_npz("its shape has a dimension that is not an integer below 2^63");
      rest_.remove_prefix(static_cast<std::size_t>(parsed.ptr - rest_.data()));
      dimensions.push_back(value);
      if (dimensions.size() > kMaxDimensions) fail_npz("it has more than 32 dimensions");
      if (!accept(",")) {
        expect(")");
        break;
      }
    }
    return dimensions;
  }

  std::string_view rest_;
};

void set_dtype(NpyHeader& header, const std::string& descr) {
  const auto* const row = std::ranges::find_if(kNumpyDTypes, [&](const auto& known) {
    return descr.size() > 1 && known.first == std::string_view(descr).substr(1);
  });
  const std::size_t size = row == kNumpyDTypes.end() ? 0 : size_of(row->second);
  const bool is_known = size != 0 && (descr[0] == '<' || descr[0] == '>' || (descr[0] == '|' && size == 1));
  if (!is_known && descr.ends_with('O'))
    fail_npz("it contains pickled Python objects, which are never loaded", CheckpointFault::refused);
  if (!is_known) fail_npz(quoted("its element type", descr) + " is not supported", CheckpointFault::incompatible);
  header.dtype = row->second;
  header.is_big_endian = descr[0] == '>' && size > 1;
}

void swap_bytes(std::span<std::byte> bytes, DType dtype) {
  const std::size_t width = size_of(dtype) / (is_complex(dtype) ? 2 : 1);
  for (std::size_t i = 0; i + width <= bytes.size(); i += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
  }
}

Array array_of(const OwnedBytes& block, const NpyHeader& header) {
  const auto elements = block.bytes.subspan(header.bytes);
  const std::shared_ptr<std::byte> memory = allocate_aligned(elements.size());
  const std::span<std::byte> bytes(memory.get(), elements.size());
  if (header.is_column_major && header.shape.size() > 1 && !elements.empty()) {
    std::vector<std::int64_t> strides;
    auto stride = static_cast<std::int64_t>(size_of(header.dtype));
    for (const std::int64_t dimension : header.shape) strides.push_back(std::exchange(stride, stride * dimension));
    gather(elements, header.shape, strides, size_of(header.dtype), bytes);
  } else {
    std::copy(elements.begin(), elements.end(), bytes.begin());
  }
  if (header.is_big_endian) swap_bytes(bytes, header.dtype);
  return {.dtype = header.dtype, .shape = header.shape, .bytes = bytes, .owner = memory};
}

NpyHeader checked_header(const ByteSource& source, const std::string& object, const OwnedBytes& block) {
  try {
    NpyHeader header = parse_npy(block.bytes);
    const auto nbytes = nbytes_of(header.dtype, header.shape);
    const std::uint64_t there = block.bytes.size() - header.bytes;
    if (!nbytes) fail_npz("its shape overflows 63 bits");
    if (*nbytes != there) {
      fail_npz("its shape needs " + std::to_string(*nbytes) + " bytes, but there are " + std::to_string(there));
    }
    return header;
  } catch (const CheckpointError& error) {
    source.refuse(object, error.what(), error.fault());
  }
}

/// The message without the file and the object.
std::string reason_of(const CheckpointError& error) {
  const std::string start = error.path() + ": " + error.object() + ": ";
  const std::string message = error.what();
  return message.starts_with(start) ? message.substr(start.size()) : message;
}

// --- writing ---

/// The type without the order of its bytes, such as "f4".
/// @throws CheckpointError  NumPy does not have it
std::string_view numpy_name_of(DType dtype) {
  const auto* const row = std::ranges::find(kNumpyDTypes, dtype, &std::pair<std::string_view, DType>::second);
  if (row == kNumpyDTypes.end()) throw CheckpointError("NumPy does not have this element type");
  return row->first;
}

std::string descr_of(DType dtype) {
  const DType stored = dtype == DType::bfloat16 ? DType::float32 : dtype;
  return (size_of(stored) == 1 ? "|" : "<") + std::string(numpy_name_of(stored));
}

/// Version 1.0, padded with blanks so that the elements start on a multiple of 64.
std::string npy_header(const Array& array) {
  std::string line = "{'descr': '" + descr_of(array.dtype) + "', 'fortran_order': False, 'shape': (";
  for (const std::int64_t dimension : array.shape) line += std::to_string(dimension) + ",";
  line += "), }";
  constexpr std::size_t kNpyHeadBytes = 10, kAlignment = 64;
  line.append((kAlignment - (kNpyHeadBytes + line.size() + 1) % kAlignment) % kAlignment, ' ');
  line += '\n';
  std::string header("\x93NUMPY\x01\0", 8);
  header += static_cast<char>(line.size());
  header += static_cast<char>(line.size() >> 8);
  return header + line;
}

std::string widened(std::span<const std::byte> bytes) {
  std::string text(2 * bytes.size(), '\0');
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const float value = bfloat16_to_float(load<std::uint16_t>(bytes, i));
    std::memcpy(text.data() + 2 * i, &value, sizeof value);
  }
  return text;
}

}  // namespace

NpyLine parse_npy_line(std::span<const std::byte> record) {
  const std::string_view text(reinterpret_cast<const char*>(record.data()), record.size());
  if (text.size() < 10 || !text.starts_with(kNpyMagic)) fail_npz("it is not in .npy format");
  const int version = text[6];
  if (version < 1 || version > 3)
    fail_npz("its .npy version " + std::to_string(version) + " is not supported (1, 2, 3 are)");
  const std::size_t begin = version == 1 ? 10 : 12;
  if (text.size() < begin) fail_npz("its .npy header is truncated");
  const std::size_t length = version == 1 ? load<std::uint16_t>(record, 8) : load<std::uint32_t>(record, 8);
  if (length > text.size() - begin) fail_npz("its .npy header is truncated");
  NpyLine line = LineParser(text.substr(begin, length)).parse();
  line.bytes = begin + length;
  return line;
}

NpyHeader parse_npy(std::span<const std::byte> record) {
  NpyLine line = parse_npy_line(record);
  NpyHeader header{.is_column_major = line.is_column_major, .shape = std::move(line.shape), .bytes = line.bytes};
  set_dtype(header, line.descr);
  return header;
}

Archive read_npz(const Zip& zip, std::vector<std::string>* left_out) {
  const ByteSource& source = zip.source();
  Archive archive;
  archive.set_origin(source.path());
  Expansion expansion(source);
  std::optional<CheckpointError> other;  // that of the first array that is left out
  const auto is_ours = [](const ZipRecord& record) {
    return record.name.ends_with(kNpySuffix) || record.name == kMetadataRecord;
  };
  const auto& records = zip.records();
  if (!records.empty() && std::ranges::none_of(records, is_ours)) {
    source.refuse(
        "it is a zip archive with neither the record data.pkl of a PyTorch file nor arrays of NumPy (`unzip -l` "
        "lists it)",
        CheckpointFault::other_kind);
  }
  for (const ZipRecord& record : records) {
    if (!record.name.ends_with(kNpySuffix)) continue;
    const std::string name = record.name.substr(0, record.name.size() - kNpySuffix.size());
    const std::string object = quoted("array", name);
    const OwnedBytes block = zip.read(record, object, expansion);
    try {
      const NpyHeader header = checked_header(source, object, block);
      put_array(source, archive, "/" + part_of(source, name), array_of(block, header));
    } catch (const CheckpointError& error) {
      const bool is_other = error.fault() == CheckpointFault::incompatible || error.fault() == CheckpointFault::refused;
      if (!is_other) throw;
      if (!other) other = error;
      if (left_out != nullptr) left_out->push_back(object + ": " + reason_of(error));
    }
  }
  if (other && archive.array_paths().empty()) throw CheckpointError(*other);
  read_metadata(zip, kMetadataRecord, archive);
  return archive;
}

std::string metadata_json(const ForeignMetadata& metadata) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, text] : metadata) object[name] = text;
  return object.dump();
}

void read_metadata(const Zip& zip, const std::string& record, Archive& archive) {
  const ZipRecord* found = zip.find(record);
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 24;
  if (found == nullptr || found->is_deflated || found->bytes > kMaxBytes) return;  // another program wrote it
  Expansion expansion(zip.source());
  const OwnedBytes block = zip.read(*found, "metadata", expansion);
  const auto* text = reinterpret_cast<const char*>(block.bytes.data());
  constexpr int kMaxNesting = 2;
  const auto flat = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) { return depth < kMaxNesting; };
  const auto json = nlohmann::json::parse(text, text + block.bytes.size(), flat, false);
  if (!json.is_object()) return;
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) put_metadata(zip.source(), archive, name, value.get<std::string>());
  }
}

void write_npz(NewFile& file, const std::vector<NamedArray>& arrays, const ForeignMetadata& metadata) {
  ZipWriter zip(file);
  for (const auto& [name, array] : arrays) {
    const std::string elements = array.dtype == DType::bfloat16 ? widened(array.bytes) : "";
    const std::span<const std::byte> bytes =
        array.dtype == DType::bfloat16 ? std::as_bytes(std::span(elements)) : array.bytes;
    std::string record = npy_header(array);
    record.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    zip.add(name + ".npy", record);
  }
  if (!metadata.empty()) zip.add(kMetadataRecord, metadata_json(metadata));
  zip.finish();
}

}  // namespace lockstep::checkpoints
