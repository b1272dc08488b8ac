// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/stateful.hpp>

#include <algorithm>
#include <utility>

#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using SaveValues = std::function<void(Archive&, const std::string&)>;
using LoadValues = std::function<void(const Archive&, const std::string&)>;

class ValuesState : public Stateful {
 public:
  ValuesState(std::string name, SaveValues save, LoadValues load)
      : name_(std::move(name)), save_(std::move(save)), load_(std::move(load)) {}

  std::string name() const override { return "hooks/" + name_; }
  bool is_restored(const RestoreOptions& options) const override { return !options.is_partial; }

  void capture(const StateWriter& writer) override {
    if (writer.is_writer()) save_(writer.archive(), path(kHooks, name_));
  }

  void restore(const Archive& archive, const RestoreOptions&) override {
    const std::vector<std::string> stored = archive.groups_in(kHooks);
    const bool is_stored = std::find(stored.begin(), stored.end(), checkpoints::encode_name(name_)) != stored.end();
    if (is_stored) load_(archive, path(kHooks, name_));
  }

 private:
  std::string name_;
  SaveValues save_;
  LoadValues load_;
};

}  // namespace

std::shared_ptr<Stateful> hook_state(const std::string& name, SaveValues save, LoadValues load) {
  return std::make_shared<ValuesState>(name, std::move(save), std::move(load));
}

}  // namespace lockstep::engine
