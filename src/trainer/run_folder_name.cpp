// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/run_folder_name.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>
#include <vector>

#include "core/text/text.hpp"
#include "mpi/process/launch.hpp"

namespace lockstep::trainer {

namespace {

/// Words in braces, and their values; "" = there is none here.
using FolderWords = std::vector<std::pair<std::string, std::string>>;

std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return {text.data(), length};
}

std::string value_of(const std::string& word, const FolderWords& words, const std::string& cite) {
  const auto found = std::ranges::find(words, word, &FolderWords::value_type::first);
  if (found == words.end()) {
    std::vector<std::string> names;
    for (const auto& [name, value] : words) names.push_back(name);
    throw ConfigError(cite + ": '" + word + "' is unknown; the words in braces are " + joined(names));
  }
  if (!found->second.empty()) return found->second;
  throw ConfigError(cite + ": " + word + " has no value, because this is no " +
                    (word == "{array}" ? "task of a Slurm job array" : "Slurm job"));
}

std::string with_values(const std::string& text, const FolderWords& words, const std::string& cite) {
  std::string made;
  std::size_t begin = 0;
  for (std::size_t brace = 0; (brace = text.find_first_of("{}", begin)) != std::string::npos;) {
    const std::size_t end = std::min(text.find('}', brace), text.size() - 1) + 1;
    made += text.substr(begin, brace - begin) + value_of(text.substr(brace, end - brace), words, cite);
    begin = end;
  }
  return made + text.substr(begin);
}

/// The name with the values of this process.
RunFolderName name_here(const Section& run) {
  const mpi::SlurmJob job = mpi::slurm_job().value_or(mpi::SlurmJob{.id = ""});
  const std::string time = time_stamp();
  FolderWords words = {
      {"{job}", job.array_id.empty() ? job.id : job.array_id}, {"{array}", job.array_task}, {"{time}", time}};
  const std::string& name = run.text("name");
  const std::string& dir = run.text("dir");
  RunFolderName made{.name = name.empty() ? time : with_values(name, words, run.cite("name")),
                     .dir = "",
                     .names_time = (name + dir).find("{time}") != std::string::npos || (name + dir).empty()};
  if (made.name.find('/') != std::string::npos || made.name == "." || made.name == "..") {
    throw ConfigError(run.cite("name") + ": '" + made.name + "' is a path; set run.dir instead");
  }
  words.emplace_back("{name}", made.name);
  made.dir = with_values(dir, words, run.cite("dir"));
  if (made.dir.empty() && !name.empty()) made.dir = "runs/" + made.name;
  return made;
}

}  // namespace

RunFolderName run_folder_name(const mpi::Communicator& world, const Section& run) {
  RunFolderName made;
  std::string fault;
  if (world.is_root()) {
    try {
      made = name_here(run);
    } catch (const ConfigError& error) {
      fault = error.what();
    }
  }
  fault = world.broadcast(fault);
  if (!fault.empty()) throw_agreed(ExitCode::configuration, fault);
  made.name = world.broadcast(made.name);
  made.dir = world.broadcast(made.dir);
  made.names_time = world.broadcast(made.names_time ? "yes" : "no") == "yes";
  return made;
}

}  // namespace lockstep::trainer
