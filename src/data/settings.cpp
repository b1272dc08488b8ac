// SPDX-License-Identifier: BSD-3-Clause
#include "data/settings.hpp"

#include <lockstep/core/keys.hpp>

#include "core/table.hpp"
#include "core/text.hpp"

namespace lockstep::data {

KeySpecs DataSettings::keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers) {
  return {keys::text("data.name", "digits", "where samples come from: " + joined(names_of(sources))),
          keys::text("data.path", "", "file or folder that the source reads"),
          keys::text("data.input_keys", "data",
                     "what samples call the model's input; of several, separated by commas, the first is its input and "
                     "the others are given by name"),
          keys::text("data.target_key", "label",
                     "what samples call the target; \"data\" for models that give their input back"),
          keys::boolean("data.shuffle", "true", "draw the training samples of each epoch in a new order"),
          keys::text("data.sampler", "default",
                     "which training samples come, and in which order: " + joined(names_of(samplers))),
          keys::integer("data.workers", "1",
                        "threads per rank that fetch batches ahead; 0: the training thread fetches", 0, 64)};
}

DataSettings DataSettings::from(const Section& data) {
  return {.source = data.text("name"),
          .sampler = data.text("sampler"),
          .sample_keys = {.inputs = split_list(data.text("input_keys"), ','), .targets = {data.text("target_key")}},
          .workers = static_cast<int>(data.integer("workers"))};
}

}  // namespace lockstep::data
