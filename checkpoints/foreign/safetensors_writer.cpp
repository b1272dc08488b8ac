// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>

#include "checkpoints/foreign/safetensors.hpp"
#include "checkpoints/foreign/safetensors_dtypes.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::size_t kHeaderAlignment = 8;  // the header is padded with blanks to align the data

std::vector<const NamedArray*> in_file_order(const std::vector<NamedArray>& arrays) {
  std::vector<const NamedArray*> order;
  for (const NamedArray& one : arrays) order.push_back(&one);
  // Larger elements first: then every tensor starts on a multiple of its element.
  std::sort(order.begin(), order.end(), [](const NamedArray* a, const NamedArray* b) {
    return std::pair(size_of(b->array.dtype), std::string_view(a->name)) <
           std::pair(size_of(a->array.dtype), std::string_view(b->name));
  });
  return order;
}

}  // namespace

std::string safetensors_header(const std::vector<NamedArray>& arrays,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  auto& texts = header["__metadata__"] = {{"format", "pt"}};  // which loaders of Hugging Face look for
  for (const auto& [name, text] : metadata) texts[name] = text;
  std::uint64_t end = 0;
  std::string text = header.dump();
  text.pop_back();
  for (const NamedArray* one : in_file_order(arrays)) {
    const auto dtype = safetensors_name_of(one->array.dtype);
    if (one->name == "__metadata__") throw CheckpointError("safetensors reserves the name __metadata__");
    if (!dtype) {
      throw CheckpointError("tensor '" + one->name + "': safetensors has no " + std::string(name_of(one->array.dtype)));
    }
    const std::uint64_t begin = std::exchange(end, end + one->array.bytes.size());
    const nlohmann::ordered_json entry = {
        {"dtype", *dtype}, {"shape", one->array.shape}, {"data_offsets", {begin, end}}};
    text += "," + nlohmann::ordered_json(one->name).dump() + ":" + entry.dump();
  }
  text += "}";
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

void write_safetensors(NewFile& file, const std::vector<NamedArray>& arrays,
                       const std::map<std::string, std::string>& metadata) {
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
