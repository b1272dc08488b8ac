// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/buffer_settings.hpp"

#include <lockstep/core/error.hpp>

#include <string_view>

#include "core/text/parse_value.hpp"

namespace lockstep::engine {

namespace {

/// The N of buffer.statistics=first:N; 0 = another value.
std::int64_t first_samples(const Section& buffer) {
  const std::string& text = buffer.text("statistics");
  if (text == "none" || text == "running") return 0;
  constexpr std::string_view kFirst = "first:";
  const auto count = text.starts_with(kFirst) ? parse_integer(text.substr(kFirst.size())) : std::nullopt;
  if (count && *count >= 1) return *count;
  throw ConfigError(buffer.cite("statistics") + ": '" + text + "' is unknown; use none, running or first:1000");
}

}  // namespace

KeySpecs BufferSettings::keys() {
  constexpr double kMost = 1e12;
  KeySpecs keys = {
      keys::integer("buffer.capacity", "4096",
                    "Maximum number of samples in a buffer: of a rank or, with train.lanes, of a lane", 1, kMost),
      keys::choice("buffer.keep", "ring",
                   "Samples that a full buffer keeps. ring = the latest; reservoir = a uniform random choice among all "
                   "pushed samples",
                   {"ring", "reservoir"}),
      keys::integer("buffer.min", "1", "Minimum number of samples in all buffers together before the first step", 1,
                    kMost),
      keys::text("buffer.statistics", "none",
                 "Normalization of each channel of inputs and real targets inside the model. running = with the "
                 "statistics of all samples until now; first:N = with those of the first N samples, which then stay; "
                 "none = no normalization"),
      keys::choice(
          "buffer.route", "host",
          "Receiver of the samples of a rank that only produces (embed.role=producer). host = the ranks of its "
          "own host that train, in turn, as far as there are some; turn = all ranks that train, in turn",
          {"host", "turn"}),
      keys::integer("buffer.window_mb", "64",
                    "Maximum size of the samples that a producer has sent and no receiver has taken yet, in MB; one "
                    "sample may be larger",
                    1, 1e6),
      keys::choice("buffer.full", "wait",
                   "Behavior of a producer with a full window. wait = until a receiver takes samples; drop = the "
                   "samples are dropped and counted",
                   {"wait", "drop"})};
  for (KeySpec& key : keys) key = keys::read_by(std::move(key), "data.name", {"arrays"});
  return keys::titled("Samples that a program pushes, for programs that call Lockstep as a library", std::move(keys));
}

BufferSettings BufferSettings::from(const Section& buffer) {
  return {.capacity = buffer.integer("capacity"),
          .is_reservoir = buffer.text("keep") == "reservoir",
          .min = cited_integer(buffer, "min"),
          .has_statistics = buffer.text("statistics") != "none",
          .frozen_after = first_samples(buffer),
          .routes_by_host = buffer.text("route") == "host",
          .window_bytes = buffer.integer("window_mb") * 1'000'000,
          .drops_when_full = buffer.text("full") == "drop"};
}

}  // namespace lockstep::engine
