// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/components.hpp"
#include "engine/state/paths.hpp"
#include "engine/state/stored_task.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

class OriginState : public Stateful {
 public:
  OriginState(Run& run, std::string config_ini) : run_(&run), config_ini_(std::move(config_ini)) {}

  std::string name() const override { return "origin"; }

  void capture(const StateWriter& writer) override {
    const RunOrigin& origin = run_->origin;
    writer.set("/", "parent_digest", origin.parent_digest);
    writer.set("/", "run_id", origin.run_id);
    writer.put("/meta/config_ini", checkpoints::text_array(config_ini_));
    writer.put("/meta/env_json", checkpoints::text_array(origin.environment_json));
    writer.put("/meta/lineage", checkpoints::text_array(origin.lineage));
    writer.put(kStoredTask, checkpoints::text_array(task_json(run_->data.splits().train->task())));
    for (const auto& [name, value] : run_->extra) writer.set(kExtra, name, value);
  }

  /// The names that this start sets keep their values.
  void restore(const Archive& archive, const RestoreOptions&) override {
    for (const auto& [name, value] : archive.attributes_of(kExtra)) {
      if (const auto* const text = std::get_if<std::string>(&value)) run_->extra.emplace(name, *text);
    }
  }

 private:
  Run* run_;
  std::string config_ini_;
};

}  // namespace

std::shared_ptr<Stateful> origin_state(Run& run, std::string config_ini) {
  return std::make_shared<OriginState>(run, std::move(config_ini));
}

}  // namespace lockstep::engine
