// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cstring>

#include "checkpoints/foreign/npz.hpp"
#include "checkpoints/foreign/pytorch.hpp"

namespace lockstep::checkpoints {

namespace {

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

std::string metadata_json(const std::map<std::string, std::string>& metadata) {
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

void write_npz(NewFile& file, const std::vector<NamedArray>& arrays,
               const std::map<std::string, std::string>& metadata) {
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
