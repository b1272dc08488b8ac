// SPDX-License-Identifier: BSD-3-Clause
#include "embed/settings.hpp"

#include <lockstep/core/error.hpp>

#include <mpi.h>

#include <algorithm>

#include "checkpoints/store/store.hpp"
#include "core/text/text.hpp"
#include "data/source/given_arrays.hpp"
#include "engine/session.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/state/stored_model.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/derived_keys.hpp"

namespace lockstep::embed {

namespace {

constexpr const char* kOrigin = "a setting of the program";

struct Setting {
  std::string key;
  std::string value;
};

Setting parse(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::size_t begin = text.starts_with("--") ? 2 : 0;
  if (equals == std::string::npos || equals == begin) {
    throw ConfigError("the setting '" + text + "' is not key=value, such as model.name=mlp");
  }
  return {text.substr(begin, equals - begin), text.substr(equals + 1)};
}

bool is_prediction(const std::string& purpose) {
  if (purpose == "train" || purpose == "predict") return purpose == "predict";
  throw ConfigError("the setting purpose=" + purpose + " is neither train nor predict");
}

bool is_role_of_producer(const std::string& role) {
  if (role == "trainer" || role == "producer") return role == "producer";
  throw ConfigError("the setting embed.role=" + role + " is neither trainer nor producer");
}

/// Producers and ranks that train must mean the same run.
void require_same_settings(const mpi::Communicator& world, const SessionConfig& made) {
  const std::vector<std::string> all = world.all_gather(made.config.to_ini() + (made.predicts_only ? "predict" : ""));
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each != all.front(); });
  if (other == all.end()) return;
  throw_agreed(ExitCode::configuration, "rank 0 and rank " + std::to_string(other - all.begin()) +
                                            " have different settings; with producers, only embed.role may differ");
}

std::string comma_list(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> texts;
  for (const std::int64_t number : numbers) texts.push_back(std::to_string(number));
  return joined(texts, ",");
}

/// The shapes of the samples of a run, for a run whose samples came from somewhere else.
void take_shapes(config::Config& config, const Task& task, const std::string& origin) {
  const Section& data = config.section("data");
  if (data.text("name") == "arrays" && !data.integers("input_shape").empty()) return;
  config.set("data.kind", data::name_of_kind(task.kind), origin);
  config.set("data.input_shape", comma_list(task.sample_shape), origin);
  if (task.kind != TaskKind::regression) return config.set("data.classes", std::to_string(task.classes), origin);
  if (task.fields.channels.empty()) return config.set("data.target_shape", std::to_string(task.classes), origin);
  std::vector<std::int64_t> shape = task.sample_shape;
  shape.front() = static_cast<std::int64_t>(task.fields.channels.size()) * task.fields.scaling.target_steps;
  config.set("data.target_shape", comma_list(shape), origin);
}

void set_if_default(config::Config& config, const std::string& key, const std::string& value) {
  if (config.section(config::section_of(key)).is_default(config::key_of(key))) config.set(key, value, "derived");
}

}  // namespace

SessionConfig read_settings(const mpi::Communicator& world, const std::vector<std::string>& settings,
                            const engine::Registry& registry) {
  const KeySpecs keys = trainer::trainer_keys(world, registry);
  const std::vector<Setting> parsed = engine::agreed(world, [&] {
    std::vector<Setting> all;
    for (const std::string& text : settings) all.push_back(parse(text));
    return all;
  });
  std::string from;
  for (const Setting& setting : parsed) {
    if (setting.key == "from") from = setting.value;
  }
  from = world.broadcast(from);
  SessionConfig made{.config = config::Config(keys)};
  config::Config& config = made.config;
  if (!from.empty()) {
    const engine::StoredConfig stored = engine::stored_config(world, from);
    made.checkpoint = stored.checkpoint;
    world.all_or_throw([&] {
      config.read_ini(stored.config_ini, stored.checkpoint, config::OldNames::translated);
      const auto task = engine::stored_task(checkpoints::read(stored.checkpoint));
      if (task) take_shapes(config, *task, stored.checkpoint);
      for (const char* const of_run : {"run.dir", "run.name"}) config.set(of_run, "", "derived");
      config.set("resume", "none", "derived");
    });
  }
  world.all_or_throw([&] {
    for (const auto& [key, value] : parsed) {
      if (key == "from") continue;
      if (key == "purpose") {
        made.predicts_only = is_prediction(value);
      } else if (key == "embed.role") {
        made.is_producer = is_role_of_producer(value);
      } else if (key == "config") {
        config.read_file(value);
      } else {
        config.set(key, value, kOrigin, config::Author::user);
      }
    }
  });
  const trainer::CommandJob job{world, settings, registry, keys, {}};
  trainer::expand_model_from(job, config);
  world.all_or_throw([&] {
    config.set("data.name", "arrays", "derived");
    set_if_default(config, "eval.every", "never");
    set_if_default(config, "run.peak_flops", "0");
    const bool normalizes = config.section("buffer").text("statistics") != "none";
    if (normalizes) config.set("data.normalizes", "true", "derived from buffer.statistics");
    const bool has_numbers = config.section("data").text("kind") == "regression";
    if (has_numbers && config.section("loss").text("name") == "auto") set_if_default(config, "loss.name", "mse");
    if (!config.section("train").texts("mix").empty()) {
      throw ConfigError(config.section("train").cite("mix") + ": samples of a program are not mixed; remove the key");
    }
    config.require_read();
    if (made.is_producer && made.predicts_only) {
      throw ConfigError("embed.role=producer: a run that only predicts (purpose=predict) has no producers");
    }
  });
  if (world.agree(!made.is_producer)) return made;
  require_same_settings(world, made);
  if (!made.is_producer) return made;
  config.set("run.dir", "", "derived from embed.role");  // the files of the run are those of the ranks that train
  config.set("resume", "none", "derived from embed.role");
  return made;
}

void require_mpi() {
  int is_running = 0;
  MPI_Initialized(&is_running);
  if (is_running == 0) {
    throw ConfigError("MPI is not initialized; call MPI_Init first, or open the run for this process alone");
  }
  const std::string used = mpi::library_version();
#if defined(OMPI_MAJOR_VERSION)
  const std::string mine = "Open MPI v" + std::to_string(OMPI_MAJOR_VERSION) + ".";
#elif defined(MPICH_NAME)
  const std::string mine = "MPICH";
#else
  const std::string mine;
#endif
  if (used.find(mine) != std::string::npos) return;
  throw ConfigError("this build of Lockstep uses " + mine + (mine.ends_with('.') ? "x" : "") +
                    ", but the program runs with " + used +
                    ", and it cannot read the communicators of that library; use a build of Lockstep for it");
}

}  // namespace lockstep::embed
