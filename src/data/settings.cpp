// SPDX-License-Identifier: BSD-3-Clause
#include "data/settings.hpp"

#include <lockstep/core/keys.hpp>

#include "core/cited.hpp"
#include "core/table.hpp"
#include "core/text.hpp"

namespace lockstep::data {

KeySpecs DataSettings::keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers) {
  return {keys::text("data.name", "digits", "where samples come from: " + joined(names_of(sources))),
          keys::text("data.path", "", "file or folder that the source reads"),
          keys::text("data.input_keys", "",
                     "names of the samples' values that are the model's inputs, separated by commas; empty: those that "
                     "the source says (\"data\")"),
          keys::renamed(keys::text("data.target_keys", "",
                                   "names of those that are its targets; empty: as the source says (\"label\"); "
                                   "\"data\" for models that give their input back"),
                        "data.target_key"),
          keys::boolean("data.shuffle", "true", "draw the training samples of each epoch in a new order"),
          keys::text("data.sampler", "default",
                     "which training samples come, and in which order: " + joined(names_of(samplers))),
          keys::integer("data.workers", "1",
                        "threads per rank that fetch batches ahead; 0: the training thread fetches", 0, 64)};
}

DataSettings DataSettings::from(const Section& data) {
  return {.source = data.text("name"),
          .sampler = data.text("sampler"),
          .roles = {.inputs = cited_text(data, "input_keys"), .targets = cited_text(data, "target_keys")},
          .workers = static_cast<int>(data.integer("workers"))};
}

}  // namespace lockstep::data
