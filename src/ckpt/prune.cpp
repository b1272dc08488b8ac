// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/store.hpp>

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
  for (const auto& decision : checkpoints::plan_retention(directory, keep)) {
    const std::uint64_t bytes = bytes_of(directory + "/" + decision.name);
    if (!decision.is_kept) freed += bytes;
    table.add({decision.is_kept ? "keep" : "delete", decision.name, human_bytes(bytes), decision.reason});
    root["checkpoints"].push_back(
        {{"name", decision.name}, {"keep", decision.is_kept}, {"bytes", bytes}, {"reason", decision.reason}});
  }
  root["bytes"] = freed;
  if (request.has("yes")) checkpoints::retain(directory, keep);
  const std::string end = request.has("yes") ? exact_bytes(freed) + " deleted\n"
                                             : exact_bytes(freed) + " would be deleted; --yes does it\n";
  request.wants_json() ? print(root) : print(table.text() + end);
  return Exit::ok;
}

}  // namespace lockstep::ckpt
