// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/session.hpp>
#include <lockstep/engine/strategy.hpp>
#include <lockstep/engine/tables.hpp>
#include <lockstep/engine/trainer.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// The defaults of every key, changed by `settings` ("optim.lr", "0.1").
inline Sections sections_of(const Settings& settings) {
  Sections sections;
  for (const KeySpec& key : all_keys(builtin_tables())) {
    const std::string name = key.name.find('.') == std::string::npos ? "" : key.name.substr(0, key.name.find('.'));
    sections.try_emplace(name, Section(name)).first->second.declare(key);
  }
  for (const auto& [name, text] : settings) {
    const std::size_t dot = name.find('.');
    sections.at(name.substr(0, dot)).set(name.substr(dot + 1), text, "test");
  }
  return sections;
}

/// Notes the loss of every step.
class LossHook : public Hook {
 public:
  explicit LossHook(std::vector<double>& losses) : losses_(&losses) {}
  void after_step(Trainer&, const StepReport& report) override { losses_->push_back(report.loss); }

 private:
  std::vector<double>* losses_;
};

/// One run in memory: what engine::train sets up, but for evaluation, logs and files.
struct SmallRun {
  SmallRun(const mpi::Communicator& world, const Settings& settings)
      : sections(sections_of(settings)),
        splits(data::open(sections.at("data"))),
        strategy(sections, splits.train->task(), world),
        trainer(sections, strategy, splits) {
    trainer.add_hook(Priority::very_high, schedule_hook());
    trainer.add_hook(Priority::normal, std::make_unique<LossHook>(losses));
  }

  Sections sections;
  data::Splits splits;
  Strategy strategy;
  Trainer trainer;
  std::vector<double> losses;
};

}  // namespace lockstep::engine
