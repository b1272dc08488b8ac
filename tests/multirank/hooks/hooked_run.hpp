// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/models/layers.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "small_run.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {

/// A small run with the hooks that it names.
struct HookedRun : SmallRun {
  HookedRun(const mpi::Communicator& world, const Settings& settings, const Registry& registry = builtin_registry())
      : SmallRun(world, settings, registry) {
    for (auto& [priority, hook] : make_hooks(sections, registry.hooks)) {
      chosen.push_back(hook.get());
      trainer.add_hook(priority, std::move(hook));
    }
  }
  Hook& hook() { return *chosen.front(); }  ///< the first one that was named

  std::vector<Hook*> chosen;
};

/// Twelve steps with one hook of the table.
inline Settings with_hook(const std::string& hook, const Settings& more = {}) {
  return with(kTwelveSteps, with({{"train.hooks", hook}}, more));
}

/// A folder of rank 0's that all ranks know, until all are done with it.
class CommonFolder {
 public:
  explicit CommonFolder(const mpi::Communicator& world) : world_(&world), path_(world.broadcast(own_.path())) {}
  ~CommonFolder() { world_->barrier(); }
  CommonFolder(const CommonFolder&) = delete;
  CommonFolder& operator=(const CommonFolder&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  const mpi::Communicator* world_;
  testing::TemporaryFolder own_;
  std::string path_;
};

/// The text of the error that every rank throws alike; "" where there is none.
template <class Error, class Function>
std::string agreed_error_of(const mpi::Communicator& world, const Function& function) {
  std::string words;
  try {
    function();
  } catch (const Error& error) {
    words = error.what();
  }
  return world.broadcast(words) == words ? words : "another one than rank 0's: " + words;
}

/// Normalizes pixels, then one linear layer.
class Normed : public models::Model {
 public:
  Normed(const Section&, const Task& task) {
    norm = register_module("norm", std::make_shared<models::BatchNorm>(28 * 28));
    head = register_module("head", std::make_shared<models::Linear>(28 * 28, task.classes));
  }
  at::Tensor forward(const at::Tensor& images) override {
    return models::run(*head, models::run(*norm, images.flatten(1)));
  }

  std::shared_ptr<models::BatchNorm> norm;
  std::shared_ptr<models::Linear> head;
};

inline std::shared_ptr<models::Model> make_normed(const Section& model, const Task& task) {
  return std::make_shared<Normed>(model, task);
}

inline Registry registry_with_normed() {
  Registry registry;
  registry.models.push_back({.name = "normed", .help = "", .keys = {}, .make = make_normed});
  return registry;
}

}  // namespace lockstep::engine
