// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>

#include "engine/resume/components.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

class HooksState : public Stateful {
 public:
  HooksState(Run& run, std::string omitted) : run_(&run), omitted_(std::move(omitted)) {}

  std::string name() const override { return "hooks"; }
  bool is_restored(const RestoreOptions& options) const override { return !options.is_partial; }

  void capture(const StateWriter& writer) override {
    for (const auto& [priority, hook] : run_->hooks) {
      const std::string name = hook->state_name();
      if (writer.is_writer() && !name.empty() && name != omitted_)
        hook->save_state(writer.archive(), path(kHooks, name));
    }
  }

  void restore(const Archive& archive, const RestoreOptions&) override {
    const std::vector<std::string> stored = archive.groups_in(kHooks);
    run_->view.world.all_or_throw([&] {
      for (const auto& [priority, hook] : run_->hooks) {
        const std::string name = checkpoints::encode_name(hook->state_name());
        const bool is_stored = std::find(stored.begin(), stored.end(), name) != stored.end();
        if (!name.empty() && is_stored) hook->load_state(archive, kHooks + "/" + name);
      }
    });
  }

 private:
  Run* run_;
  std::string omitted_;
};

}  // namespace

std::shared_ptr<Stateful> hooks_state(Run& run, std::string omitted) {
  return std::make_shared<HooksState>(run, std::move(omitted));
}

}  // namespace lockstep::engine
