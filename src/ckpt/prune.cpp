// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <chrono>
#include <filesystem>
#include <optional>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/lease.hpp"
#include "checkpoints/store/retention.hpp"
#include "checkpoints/store/store.hpp"
#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/locate.hpp"
#include "ckpt/reading/text.hpp"

namespace lockstep::ckpt {

namespace {

/// The steps of the best evaluations, as the newest checkpoint that can be read knows them.
std::vector<std::int64_t> best_steps(const std::string& directory) {
  const std::vector<std::int64_t> steps = checkpoints::list(directory);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      const checkpoints::Archive tree = checkpoints::read_groups(checkpoints::checkpoint_of(directory, *step));
      std::vector<std::int64_t> best;
      for (const std::string& number : tree.groups_in("/hooks/best")) {
        best.push_back(tree.integer("/hooks/best/" + number, "step"));
      }
      return best;
    } catch (const CheckpointError&) {
      // It is neither counted nor deleted, and the one before may know as much.
    }
  }
  return {};
}

/// A living run has its own rules, and may be continuing from what these would delete.
void prune_now(const std::string& directory, const checkpoints::RetentionRule& rule) {
  std::optional<checkpoints::Lease> lease;
  try {
    lease.emplace(directory, std::chrono::seconds(0));
  } catch (const CheckpointError& error) {
    if (error.fault() == CheckpointFault::io) throw;
    throw Failure(Exit::policy, escaped(error.what()));
  }
  checkpoints::retain(directory, rule);
}

}  // namespace

Exit prune(const Request& request) {
  const std::string directory = checkpoint_folder(request.paths[0]);
  const std::int64_t keep = request.integer("keep", 3, 1);
  OrderedJson root = {
      {"directory", escaped(directory)}, {"deleted", request.has("yes")}, {"checkpoints", OrderedJson::array()}};
  TextTable table({Align::left, Align::left, Align::right, Align::left});
  std::uint64_t freed = 0;
  const checkpoints::RetentionRule rule{.keep_last = keep, .best_steps = best_steps(directory)};
  for (const auto& verdict : checkpoints::plan_retention(directory, rule)) {
    const std::uint64_t bytes = bytes_of(verdict.path);
    const std::string name = std::filesystem::path(verdict.path).filename().string();
    if (!verdict.is_kept) freed += bytes;
    table.add({verdict.is_kept ? "keep" : "delete", name, human_bytes(bytes), verdict.reason});
    root["checkpoints"].push_back(
        {{"name", name}, {"keep", verdict.is_kept}, {"bytes", bytes}, {"reason", verdict.reason}});
  }
  root["bytes"] = freed;
  if (request.has("yes")) prune_now(directory, rule);
  const std::string end = request.has("yes") ? exact_bytes(freed) + " deleted\n"
                                             : exact_bytes(freed) + " would be deleted; --yes deletes them\n";
  request.wants_json() ? print(root) : print(table.text() + end);
  return Exit::ok;
}

}  // namespace lockstep::ckpt
