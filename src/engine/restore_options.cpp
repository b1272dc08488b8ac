// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_state.hpp>

#include <map>
#include <sstream>

#include "state_names.hpp"

namespace lockstep::engine {

namespace {

/// "optim,rng" and "optim" followed by "rng" are the same.
std::vector<std::string> words_of(const std::vector<std::string>& lists) {
  std::vector<std::string> words;
  for (const std::string& list : lists) {
    std::istringstream text(list);
    for (std::string word; std::getline(text, word, ',');) {
      std::erase(word, ' ');
      words.push_back(word);
    }
  }
  return words;
}

}  // namespace

RestoreOptions restore_options(const Section& resume) {
  RestoreOptions options;
  const std::string partial = resume.text("partial");
  if (!partial.empty() && partial != "model") {
    throw ConfigError(resume.cite("partial") + ": '" + partial + "' is not known; it takes: model");
  }
  options.is_partial = partial == "model";
  const std::map<std::string, bool*> parts = {{"optim", &options.resets_optim},
                                              {"sched", &options.resets_sched},
                                              {"sampler", &options.resets_sampler},
                                              {"rng", &options.resets_rng}};
  for (const std::string& part : words_of(resume.texts("reset"))) {
    const auto known = parts.find(part);
    if (known == parts.end()) {
      throw ConfigError(resume.cite("reset") + ": '" + part + "' is not known; it takes: optim, sched, sampler, rng");
    }
    *known->second = true;
  }
  if (options.resets_sched && resume.text("schedule") == "checkpoint") {
    throw ConfigError(resume.cite("schedule") +
                      ": checkpoint has no place beside resume.reset=sched, which begins the "
                      "configured schedule anew");
  }
  options.renames = renames_of(resume);
  return options;
}

Renames renames_of(const Section& section) {
  Renames renames;
  for (const std::string& rename : section.texts("rename")) {
    const auto equals = rename.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw ConfigError(section.cite("rename") + ": '" + rename + "' is not of the form FROM=TO");
    }
    renames.emplace_back(rename.substr(0, equals), rename.substr(equals + 1));
  }
  return renames;
}

std::string new_name(const std::string& name, const Renames& renames) {
  for (const auto& [from, to] : renames) {
    if (name.starts_with(from)) return to + name.substr(from.size());
  }
  return name;
}

checkpoints::Archive renamed(const checkpoints::Archive& archive, const Renames& renames) {
  if (renames.empty()) return archive;
  const auto new_path = [&](const std::string& at) {
    const auto slash = at.rfind('/');
    const std::string group = at.substr(0, slash);
    const bool is_named = group == kParameters || group == kBuffers || group.starts_with(kOptimizer + "/state/");
    return is_named ? path(group, new_name(checkpoints::decode_name(at.substr(slash + 1)), renames)) : at;
  };
  checkpoints::Archive result;
  result.set_origin(archive.origin());
  for (const auto& [name, value] : archive.attributes_of("/")) result.set("/", name, value);
  for (const std::string& group : archive.group_paths()) {
    result.add_group(group);
    for (const auto& [name, value] : archive.attributes_of(group)) result.set(group, name, value);
  }
  for (const std::string& at : archive.array_paths()) {
    const std::string& first = archive.first_path_of(at);
    if (at == kOptimizer + "/param_names" || at == kBuckets + "/param_names") {
      std::istringstream names(checkpoints::text_of(archive.array(at)));
      std::string text;
      for (std::string name; std::getline(names, name);) text += new_name(name, renames) + "\n";
      result.put(at, checkpoints::text_array(text));
    } else if (first.empty()) {
      result.put(new_path(at), archive.array(at));
    } else {
      result.link(new_path(at), new_path(first));
    }
  }
  return result;
}

}  // namespace lockstep::engine
