// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/renames.hpp"

#include "core/renames.hpp"
#include "core/text_stream.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

bool names_parameters(const std::string& group) {
  return group == kParameters || group == kBuffers || group == kAverageParameters || group == kAverageBuffers ||
         (group.starts_with(kOptimizers + "/") && group.find("/state/") != std::string::npos);
}

/// The lists of the parameters of an optimizer, and of those in buckets.
bool lists_parameters(const std::string& at) {
  const bool is_of_optimizer = at.starts_with(kOptimizers + "/") && at.find("/state/") == std::string::npos;
  return (is_of_optimizer && at.ends_with("/param_names")) || at == kBuckets + "/param_names";
}

std::string new_path(const std::string& at, const Renames& renames) {
  const auto slash = at.rfind('/');
  const std::string group = at.substr(0, slash);
  return names_parameters(group) ? path(group, new_name(checkpoints::decode_name(at.substr(slash + 1)), renames)) : at;
}

/// A text with one name per line.
checkpoints::Array with_new_names(const checkpoints::Array& lines, const Renames& renames) {
  TextReader names(checkpoints::text_of(lines));
  std::string text;
  for (std::string name; std::getline(names, name);) text += new_name(name, renames) + "\n";
  return checkpoints::text_array(text);
}

}  // namespace

Renames renames_of(const Section& section) { return parse_renames(section.texts("rename"), section.cite("rename")); }

Archive renamed(const Archive& archive, const Renames& renames) {
  if (renames.empty()) return archive;
  Archive result;
  result.set_origin(archive.origin());
  for (const auto& [name, value] : archive.attributes_of("/")) result.set("/", name, value);
  for (const std::string& group : archive.group_paths()) {
    result.add_group(group);
    for (const auto& [name, value] : archive.attributes_of(group)) result.set(group, name, value);
  }
  for (const std::string& at : archive.array_paths()) {
    const std::string& first = archive.first_path_of(at);
    if (lists_parameters(at)) {
      result.put(at, with_new_names(archive.array(at), renames));
    } else if (first.empty()) {
      result.put(new_path(at, renames), archive.array(at));
    } else {
      result.link(new_path(at, renames), new_path(first, renames));
    }
  }
  return result;
}

}  // namespace lockstep::engine
