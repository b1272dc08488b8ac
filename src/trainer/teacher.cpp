// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/teacher.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <filesystem>

#include "checkpoints/foreign/foreign.hpp"
#include "engine/session.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/setup/teacher.hpp"

namespace lockstep::trainer {

namespace {

bool is_default(const KeyValue& value) {
  return value.texts.empty() || value.texts.front() == value.spec.default_value;
}

/// "resnet18,width=32", as distill.model accepts it.
std::string model_text(const Section& model) {
  std::string text = model.text("name");
  for (const auto& [key, value] : model.values()) {
    if (key == "name" || key == "recompute" || is_default(value)) continue;
    std::string written = value.texts.front();
    const bool is_list = value.spec.type == KeyType::integers || value.spec.type == KeyType::reals;
    if (is_list) std::replace(written.begin(), written.end(), ',', '/');
    if (written.find(',') != std::string::npos) {
      throw ConfigError("distill.from: the value '" + written + "' of " + model.full_name(key) +
                        " of the teacher contains a comma; set distill.model");
    }
    text += "," + key + "=" + written;
  }
  return text;
}

bool is_run(const std::string& from) {
  if (!std::filesystem::exists(from)) throw CheckpointError(from, "does not exist");
  return std::filesystem::is_directory(from) || checkpoints::kind_of(from) == checkpoints::FileKind::lockstep;
}

}  // namespace

void settle_teacher(const CommandJob& job, config::Config& config) {
  const std::string from = config.section("distill").text("from");
  const bool has_configuration =
      engine::agreed(job.world, [&] { return engine::has_teacher(config.sections()) && is_run(from); });
  if (!job.world.agree(has_configuration)) return;
  const engine::StoredConfig stored = engine::stored_config(job.world, from);
  job.world.all_or_throw([&] {
    config.set("distill.from", stored.checkpoint, std::string(config.value("distill.from").origin));
    if (!config.section("distill").is_default("model")) return;
    config::Config of_run(job.keys);
    of_run.read_ini(stored.config_ini, stored.checkpoint, config::OldNames::translated);
    config.set("distill.model", model_text(of_run.section("model")), stored.checkpoint);
  });
}

}  // namespace lockstep::trainer
