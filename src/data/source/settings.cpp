// SPDX-License-Identifier: BSD-3-Clause
#include "data/source/settings.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>

#include <algorithm>

#include "core/keys/cited.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"

namespace lockstep::data {

KeySpecs DataSettings::keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers) {
  return keys::titled(
      "Data source and sampling",
      {keys::text("data.name", "digits", "Source of the samples: " + joined(names_of(sources))),
       keys::not_read_by(keys::text("data.path", "", "File or folder that the source reads"), "data.name",
                         {"digits", "synthetic"}),
       keys::expert(keys::text("data.input_keys", "",
                               "Comma-separated names of the sample values that are the model's inputs. If empty, the "
                               "source defines them (usually \"data\")")),
       keys::expert(keys::renamed(
           keys::text("data.target_keys", "",
                      "Comma-separated names of the sample values that are the targets. If empty, the source defines "
                      "them (usually \"label\"). Use \"data\" for autoencoders"),
           "data.target_key")),
       keys::text("data.sampler", "default",
                  "Selection and order of the training samples: " + joined(names_of(samplers))),
       keys::text("data.workers", "auto",
                  "Loader threads per rank that prepare batches in advance, up to 64. auto = one less than the "
                  "processors of the rank, from 1 to 16; 0 = the training thread loads its own batches"),
       keys::expert(keys::integer("data.prefetch", "4",
                                  "Batches per rank that are prepared in advance. The minimum is two more than the "
                                  "micro-batches of one step",
                                  1, 1024)),
       keys::expert(keys::integer("data.read_ahead", "2",
                                  "Batches in advance of which the system is requested to read the files. 0 = off", 0,
                                  1024)),
       keys::expert(keys::real("data.stall_s", "60",
                               "Seconds without a new sample after which a warning states the samples that are being "
                               "read. 0 = no warning",
                               0, 1e6))});
}

namespace {

constexpr int kMaxWorkers = 64;
constexpr double kMiB = 1 << 20;

std::optional<int> workers_in(const Section& data) {
  const std::string& text = data.text("workers");
  if (text == "auto") return std::nullopt;
  const auto number = parse_integer(text);
  if (number && *number >= 0 && *number <= kMaxWorkers) return static_cast<int>(*number);
  throw ConfigError(data.cite("workers") + ": '" + text + "' is neither auto nor a number from 0 to " +
                    std::to_string(kMaxWorkers));
}

}  // namespace

std::int64_t max_image_bytes(const Section& data) {
  return static_cast<std::int64_t>(data.real("max_image_mb") * kMiB);
}

int auto_workers(int processors) { return std::clamp(processors - 1, 1, 16); }

DataSettings DataSettings::from(const Section& data) {
  return {.source = data.text("name"),
          .sampler = data.text("sampler"),
          .roles = {.inputs = cited_text(data, "input_keys"), .targets = cited_text(data, "target_keys")},
          .workers = workers_in(data),
          .prefetch = static_cast<int>(data.integer("prefetch")),
          .read_ahead = static_cast<int>(data.integer("read_ahead")),
          .stall_seconds = data.real("stall_s")};
}

}  // namespace lockstep::data
