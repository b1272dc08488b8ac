// SPDX-License-Identifier: BSD-3-Clause
#include "data/settings.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/data/dataset.hpp>

#include <algorithm>

#include "core/cited.hpp"
#include "core/table.hpp"
#include "core/text.hpp"

namespace lockstep::data {

KeySpecs DataSettings::keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers) {
  return {keys::text("data.name", "digits", "Source of the samples: " + joined(names_of(sources))),
          keys::text("data.path", "", "File or folder that the source reads"),
          keys::text("data.input_keys", "",
                     "Comma-separated names of the sample values that are the model's inputs. If empty, the source "
                     "defines them (usually \"data\")"),
          keys::renamed(keys::text("data.target_keys", "",
                                   "Comma-separated names of the sample values that are the targets. If empty, the "
                                   "source defines them (usually \"label\"). Use \"data\" for autoencoders"),
                        "data.target_key"),
          keys::boolean("data.shuffle", "true", "Shuffle the training samples before each epoch"),
          keys::text("data.sampler", "default",
                     "Selection and order of the training samples: " + joined(names_of(samplers))),
          keys::integer(
              "data.workers", "1",
              "Loader threads per rank that prepare batches in advance. 0 = the training thread loads its own batches",
              0, 64)};
}

DataSettings DataSettings::from(const Section& data) {
  return {.source = data.text("name"),
          .sampler = data.text("sampler"),
          .roles = {.inputs = cited_text(data, "input_keys"), .targets = cited_text(data, "target_keys")},
          .workers = static_cast<int>(data.integer("workers"))};
}

bool has_default_value(const Section& data, const std::string& key) {
  if (data.is_default(key)) return true;
  const KeyValue& value = data.values().at(key);
  return joined(value.texts) == value.spec.default_value;
}

void refuse_unknown_keys(const Section& data, const Source& chosen, const std::vector<Source>& sources) {
  const auto has_key = [](const Source& source, const std::string& name) {
    return std::any_of(source.keys.begin(), source.keys.end(),
                       [&name](const KeySpec& spec) { return spec.name == name; });
  };
  for (const auto& [key, value] : data.values()) {
    const std::string name = data.full_name(key);
    // Checkpoints of earlier versions contain data.classes = 10 for every source.
    if (has_key(chosen, name) || key == "classes" || has_default_value(data, key)) continue;
    std::vector<std::string> owners;
    for (const Source& source : sources) {
      if (has_key(source, name)) owners.push_back(source.name);
    }
    if (owners.empty()) continue;  // common to all sources, or a key of a sampler
    throw ConfigError(data.cite(key) + " is not a key of data.name = " + chosen.name + ", only of: " + joined(owners) +
                      "; remove it or select another source");
  }
}

}  // namespace lockstep::data
