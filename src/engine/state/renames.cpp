// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/renames.hpp"

#include "core/keys/renames.hpp"
#include "core/text/text.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

bool names_parameters(const std::string& group) {
  return group == kParameters || group == kBuffers || group == kAverageParameters || group == kAverageBuffers ||
         (group.starts_with(kOptimizers + "/") && group.find("/state/") != std::string::npos);
}

/// The lists of the parameters of an optimizer, and of those in buckets.
bool lists_parameters(const std::string& path) {
  const bool is_of_optimizer = path.starts_with(kOptimizers + "/") && path.find("/state/") == std::string::npos;
  return (is_of_optimizer && path.ends_with("/param_names")) || path == kBuckets + "/param_names";
}

std::string new_path(const std::string& array_path, const Renames& renames) {
  const auto slash = array_path.rfind('/');
  const std::string group = array_path.substr(0, slash);
  return names_parameters(group)
             ? path(group, new_name(checkpoints::decode_name(array_path.substr(slash + 1)), renames))
             : array_path;
}

/// A text with one name per line.
checkpoints::Array with_new_names(const checkpoints::Array& lines, const Renames& renames) {
  std::vector<std::string> names = lines_in(checkpoints::text_of(lines));
  for (std::string& name : names) name = new_name(name, renames);
  return checkpoints::text_array(as_lines(names));
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
  for (const std::string& array_path : archive.array_paths()) {
    const std::string& first = archive.first_path_of(array_path);
    if (lists_parameters(array_path)) {
      result.put(array_path, with_new_names(archive.array(array_path), renames));
    } else if (first.empty()) {
      result.put(new_path(array_path, renames), archive.array(array_path));
    } else {
      result.link(new_path(array_path, renames), new_path(first, renames));
    }
  }
  return result;
}

}  // namespace lockstep::engine
