// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/rollout.hpp"

#include <lockstep/core/error.hpp>

#include <utility>

#include "data/source/climatology.hpp"
#include "data/source/roles.hpp"

namespace lockstep::engine {

KeySpecs rollout_keys() {
  return {
      keys::integer("train.rollout", "1",
                    "Forward passes of a training step on fields, each of which begins with the predictions of the "
                    "one before; the loss is the mean over all of them",
                    1, 1 << 20),
      keys::expert(keys::choice("train.rollout_gradient", "all",
                                "all: the gradient goes through all passes. last: only the last pass has a loss and "
                                "gradients (the push-forward trick)",
                                {"all", "last"}))};
}

std::shared_ptr<const data::Dataset> rolled_out(const data::Dataset& dataset, const data::RolloutRule& rule,
                                                const std::string& cited) {
  const auto* const fields = dynamic_cast<const data::RolloutDataset*>(&dataset);
  if (fields == nullptr) {
    throw ConfigError(cited + " needs windows of fields (data.name=fields) without data.input_keys and " +
                      "data.target_keys; remove the key");
  }
  try {
    return fields->rolled_out(rule);
  } catch (const ConfigError& error) {
    throw ConfigError(cited + ": " + error.what());
  }
}

std::shared_ptr<const data::Dataset> with_climatology(const data::Dataset& dataset, const Cited<std::string>& choice) {
  const auto* const fields = dynamic_cast<const data::ClimatologyDataset*>(&dataset);
  if (fields != nullptr) return fields->with_climatology(choice);
  throw ConfigError(choice.cite + " needs windows of fields (data.name=fields) without data.input_keys and " +
                    "data.target_keys; remove the key");
}

std::shared_ptr<const data::Dataset> trained_dataset(std::shared_ptr<const data::Dataset> dataset,
                                                     const Sections& sections) {
  const Section& train = sections.at("train");
  const Section& eval = sections.at("eval");
  const std::int64_t passes = train.integer("rollout");
  if (passes == 1) return dataset;
  if (!train.texts("metrics").empty()) {
    throw ConfigError(train.cite("metrics") + " cannot be combined with train.rollout; use eval.metrics");
  }
  if (eval.text("split") == "train" && eval.text("every") != "never") {
    throw ConfigError(eval.cite("split") + " cannot be combined with train.rollout; evaluate val or test");
  }
  return rolled_out(*dataset, {.passes = passes, .last_target = train.text("rollout_gradient") == "last"},
                    train.cite("rollout"));
}

}  // namespace lockstep::engine
