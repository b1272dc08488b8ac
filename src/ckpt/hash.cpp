// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string_view>

#include "checkpoints/store/checkpoint_index.hpp"
#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/selection.hpp"
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

bool contains(const auto& names, std::string_view name) { return std::ranges::find(names, name) != names.end(); }

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

/// Whether what stands at `path` is part of the state: model, optimizer, schedulers, scaler, averages, sampler
/// position. Configuration, lineage, generators of single ranks and the layout of buckets are not. In a file of another
/// program everything is.
bool is_state(const InspectedFile& source, const std::string& path) {
  return !source.is_own() || contains(kGroups, first_part(path));
}

/// One line of `ckpt hash`.
struct ArrayDigest {
  std::string label;
  std::string digest;  ///< digest of type, shape and bytes
};

/// The arrays of the state, by label.
std::vector<ArrayDigest> array_digests(const InspectedFile& source) {
  std::vector<ArrayDigest> digests;
  for (const FileArray& info : source.arrays()) {
    if (!is_state(source, info.path)) continue;
    const std::string record = std::string(name_of(info.dtype)) + shape_text(info.shape) + source.digest(info);
    digests.push_back({info.label, digest_of(record)});
  }
  std::ranges::sort(digests, [](const ArrayDigest& a, const ArrayDigest& b) { return a.label < b.label; });
  return digests;
}

/// One digest over names and digests of all of `arrays`, and the attributes of the state: equal runs have equal ones,
/// whatever wrote the file, in which order, and on how many ranks.
std::string state_digest(const InspectedFile& source, const std::vector<ArrayDigest>& arrays) {
  std::vector<std::string> records;
  for (const ArrayDigest& array : arrays) records.push_back("array" + field(array.label) + field(array.digest));
  for (const std::string& group : source.is_own() ? source.groups() : std::vector<std::string>{}) {
    for (const auto& [name, value] : source.attributes(group)) {
      const bool counts = group == "/" ? contains(kCounters, name) : is_state(source, group);
      if (counts) records.push_back("attribute" + field(group) + field(name) + value_field(value));
    }
  }
  std::ranges::sort(records);
  std::string all;
  for (const std::string& record : records) all += record;
  return digest_of(all);
}

}  // namespace

Exit hash(const Request& request) {
  const InspectedFile source = open_source(request.paths[0]);
  const Filter filter(request.texts("filter"));
  std::vector<ArrayDigest> arrays = array_digests(source);
  const std::string state = state_digest(source, arrays);  // digest of all arrays; --filter only selects lines
  std::erase_if(arrays, [&filter](const ArrayDigest& array) { return !filter.matches(array.label); });
  arrays.resize(std::min(arrays.size(), limit_of(request, arrays.size())));
  OrderedJson root = {{"file", escaped(source.path())}, {"arrays", OrderedJson::array()}};
  std::string text;
  for (const ArrayDigest& array : arrays) {
    root["arrays"].push_back({{"name", escaped(array.label)}, {"digest", array.digest}});
    text += array.digest + "  " + escaped(array.label) + "\n";
  }
  root["state"] = state;
  request.wants_json() ? print(root) : print(text + "state " + state + "\n");
  return Exit::ok;
}

}  // namespace lockstep::ckpt
