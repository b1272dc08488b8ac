// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/state_digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string_view>

#include "checkpoints/store/checkpoint_index.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

namespace {

constexpr std::array<std::string_view, 9> kGroups = {"model", "master", "ema",    "swa",    "averages",
                                                     "optim", "sched",  "scaler", "sampler"};
/// Attributes of "/" that count; all others state where and how the run was started.
constexpr std::array<std::string_view, 3> kCounters = {"step", "epoch", "samples_seen"};

std::string_view first_part(std::string_view path) {
  path.remove_prefix(1);
  return path.substr(0, path.find('/'));
}

bool contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A field of a record: its length in front, so that no two lists of fields make the same record.
std::string field(std::string_view text) { return fmt::format("{}:{}", text.size(), text); }

std::string digest_of(const std::string& text) { return checkpoints::array_digest(std::as_bytes(std::span(text))); }

std::string value_field(const checkpoints::Attribute& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return "s" + field(*text);
  if (const auto* const real = std::get_if<double>(&value)) {
    return "f" + field(fmt::format("{:016x}", std::bit_cast<std::uint64_t>(*real)));
  }
  return "i" + field(std::to_string(std::get<std::int64_t>(value)));
}

}  // namespace

bool is_state(const InspectedFile& source, const std::string& path) {
  return !source.is_own() || contains(kGroups, first_part(path));
}

std::vector<ArrayDigest> array_digests(const InspectedFile& source) {
  std::vector<ArrayDigest> digests;
  for (const FileArray& info : source.arrays()) {
    if (!is_state(source, info.path)) continue;
    const std::string record = std::string(name_of(info.dtype)) + shape_text(info.shape) + source.digest(info);
    digests.push_back({info.label, digest_of(record)});
  }
  std::sort(digests.begin(), digests.end(),
            [](const ArrayDigest& a, const ArrayDigest& b) { return a.label < b.label; });
  return digests;
}

std::string state_digest(const InspectedFile& source, const std::vector<ArrayDigest>& arrays) {
  std::vector<std::string> records;
  for (const ArrayDigest& array : arrays) records.push_back("array" + field(array.label) + field(array.digest));
  for (const std::string& group : source.is_own() ? source.groups() : std::vector<std::string>{}) {
    for (const auto& [name, value] : source.attributes(group)) {
      const bool counts = group == "/" ? contains(kCounters, name) : is_state(source, group);
      if (counts) records.push_back("attribute" + field(group) + field(name) + value_field(value));
    }
  }
  std::sort(records.begin(), records.end());
  std::string all;
  for (const std::string& record : records) all += record;
  return digest_of(all);
}

}  // namespace lockstep::ckpt
