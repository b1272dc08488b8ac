// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/published_task.hpp"

#include <filesystem>

#include "checkpoints/interop/timm_config.hpp"

namespace lockstep::engine {

namespace fs = std::filesystem;

std::optional<Task> published_task(const mpi::Communicator& world, const Sections& sections) {
  std::optional<Task> task;
  world.all_or_throw([&] {
    for (const std::string& from : {sections.at("model").text("from"), sections.at("init").text("from")}) {
      std::error_code unreadable;
      if (from.empty() || !fs::exists(fs::path(from) / checkpoints::kConfigFile, unreadable)) continue;
      const checkpoints::TimmConfig config = checkpoints::read_timm_config(from);
      task = Task{.classes = config.num_classes, .class_names = config.label_names};
      return;
    }
  });
  return task;
}

}  // namespace lockstep::engine
