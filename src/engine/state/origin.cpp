// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/components.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

class OriginState : public Stateful {
 public:
  OriginState(const RunOrigin& origin, std::string config_ini) : origin_(&origin), config_ini_(std::move(config_ini)) {}

  std::string name() const override { return "origin"; }

  void capture(const StateWriter& writer) override {
    writer.set("/", "parent_digest", origin_->parent_digest);
    writer.set("/", "run_id", origin_->run_id);
    writer.put("/meta/config_ini", checkpoints::text_array(config_ini_));
    writer.put("/meta/env_json", checkpoints::text_array(origin_->environment_json));
    writer.put("/meta/lineage", checkpoints::text_array(origin_->lineage));
  }

  void restore(const Archive&, const RestoreOptions&) override {}

 private:
  const RunOrigin* origin_;
  std::string config_ini_;
};

}  // namespace

std::shared_ptr<Stateful> origin_state(const RunOrigin& origin, std::string config_ini) {
  return std::make_shared<OriginState>(origin, std::move(config_ini));
}

}  // namespace lockstep::engine
