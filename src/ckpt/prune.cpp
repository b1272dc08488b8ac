// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/retention.hpp>

#include <filesystem>

#include "commands.hpp"
#include "listing.hpp"
#include "locate.hpp"
#include "text.hpp"

namespace lockstep::ckpt {

Exit prune(const Request& request) {
  const std::string directory = checkpoint_folder(request.paths[0]);
  const std::int64_t keep = request.integer("keep", 3, 1);
  Json root = {{"directory", escaped(directory)}, {"deleted", request.has("yes")}, {"checkpoints", Json::array()}};
  Table table({Align::left, Align::left, Align::right, Align::left});
  std::uint64_t freed = 0;
  const checkpoints::RetentionRule rule{.keep_last = keep};
  for (const auto& verdict : checkpoints::plan_retention(directory, rule)) {
    const std::uint64_t bytes = bytes_of(verdict.path);
    const std::string name = std::filesystem::path(verdict.path).filename().string();
    if (!verdict.is_kept) freed += bytes;
    table.add({verdict.is_kept ? "keep" : "delete", name, human_bytes(bytes), verdict.reason});
    root["checkpoints"].push_back(
        {{"name", name}, {"keep", verdict.is_kept}, {"bytes", bytes}, {"reason", verdict.reason}});
  }
  root["bytes"] = freed;
  if (request.has("yes")) checkpoints::retain(directory, rule);
  const std::string end = request.has("yes") ? exact_bytes(freed) + " deleted\n"
                                             : exact_bytes(freed) + " would be deleted; --yes does it\n";
  request.wants_json() ? print(root) : print(table.text() + end);
  return Exit::ok;
}

}  // namespace lockstep::ckpt
