// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "components.hpp"
#include "paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

class HooksState : public Stateful {
 public:
  explicit HooksState(Trainer& trainer) : trainer_(&trainer) {}

  std::string name() const override { return "hooks"; }
  bool is_restored(const RestoreOptions& options) const override { return !options.is_partial; }

  void capture(const StateWriter& writer) override {
    for (const auto& [priority, hook] : trainer_->hooks()) hook->before_save(*trainer_);
    for (const auto& [priority, hook] : trainer_->hooks()) {
      const std::string name = hook->state_name();
      if (writer.is_writer() && !name.empty()) hook->save_state(writer.archive(), path(kHooks, name));
    }
  }

  void restore(const Archive& archive, const RestoreOptions&) override {
    const std::vector<std::string> stored = archive.groups_in(kHooks);
    trainer_->strategy().world().together([&] {
      for (const auto& [priority, hook] : trainer_->hooks()) {
        const std::string name = checkpoints::encode_name(hook->state_name());
        const bool is_stored = std::find(stored.begin(), stored.end(), name) != stored.end();
        if (!name.empty() && is_stored) hook->load_state(archive, kHooks + "/" + name);
      }
    });
  }

 private:
  Trainer* trainer_;
};

}  // namespace

std::shared_ptr<Stateful> hooks_state(Trainer& trainer) { return std::make_shared<HooksState>(trainer); }

}  // namespace lockstep::engine
