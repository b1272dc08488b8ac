// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

namespace {

struct VerifyResult {
  std::string file;
  Exit code = Exit::ok;
  std::string words = {};  ///< words: what was checked, or what is wrong
};

/// The message without the file's name, which a message begins with.
std::string message_without(const std::string& file, const std::string& message) {
  return message.starts_with(file + ": ") ? message.substr(file.size() + 2) : message;
}

VerifyResult check(const std::string& file) {
  VerifyResult verdict{.file = file};
  try {
    const InspectedFile source = InspectedFile::open(file);
    if (source.is_own()) checkpoints::verify(file);
    verdict.words = fmt::format("complete: {} arrays, {}", source.arrays().size(), exact_bytes(source.file_bytes()));
    if (!source.is_own()) return verdict;
    verdict.words += "; envelope, digests and tree agree";
    if (const std::string nonfinite = checkpoints::nonfinite_in(file, "/model/params"); !nonfinite.empty()) {
      verdict.code = Exit::incompatible;
      verdict.words += "; but " + nonfinite + ", and no run resumes from it without resume.allow_nonfinite=true";
    }
  } catch (const std::exception& error) {
    verdict.code = exit_code_of(error);
    if (verdict.code == Exit::internal) throw;
    verdict.words = message_without(file, error.what());
  }
  return verdict;
}

std::vector<std::string> files_of(const Request& request) {
  std::vector<std::string> files;
  for (const std::string& path : request.paths) {
    if (!request.has("all")) {
      const Located located = locate(path);
      if (!located.inside.empty()) throw usage_error(escaped(path) + ": verify checks complete files");
      files.push_back(located.file);
      continue;
    }
    const std::string directory = checkpoint_folder(path);
    for (const Saved& saved : saved_in(directory)) files.push_back(saved.path);
    if (files.empty()) throw Failure(Exit::not_found, escaped(directory) + ": it does not contain a checkpoint");
  }
  return files;
}

}  // namespace

Exit verify(const Request& request) {
  Exit worst = Exit::ok;
  OrderedJson root = {{"files", OrderedJson::array()}};
  TextTable table({Align::left, Align::left, Align::left});
  for (const std::string& file : files_of(request)) {
    const VerifyResult verdict = check(file);
    if (worst == Exit::ok) worst = verdict.code;
    root["files"].push_back({{"file", escaped(file)},
                             {"ok", verdict.code == Exit::ok},
                             {"code", static_cast<int>(verdict.code)},
                             {"message", escaped(verdict.words)}});
    table.add({verdict.code == Exit::ok ? "ok" : "BAD", escaped(file), escaped(verdict.words)});
  }
  root["ok"] = worst == Exit::ok;
  request.wants_json() ? print(root) : print(table.text());
  return worst;
}

}  // namespace lockstep::ckpt
