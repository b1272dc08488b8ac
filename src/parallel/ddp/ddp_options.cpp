// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/text/parse_value.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"

namespace lockstep::parallel {

namespace {

BufferMode buffer_mode(const std::string& name) {
  if (name == "broadcast") return BufferMode::broadcast;
  return name == "average" ? BufferMode::average : BufferMode::off;
}

constexpr double kMebibyte = 1 << 20;

/// The size in bytes, at least 1 unless it is 0.
std::int64_t bytes_of(double mebibytes) {
  return mebibytes == 0 ? 0 : std::max(std::llround(mebibytes * kMebibyte), 1LL);
}

/// Sizes in bytes, as earlier versions had them, in MiB.
std::string in_mebibytes(const std::string& sizes) {
  std::vector<std::string> texts;
  for (const std::string& size : split_list(sizes, ',')) {
    const std::optional<double> bytes = parse_real(size);
    if (!bytes) return "";
    texts.push_back(number_text(*bytes / kMebibyte, std::numeric_limits<double>::max_digits10));
  }
  return joined(texts, ",");
}

/// The key that replaces a size in bytes.
KeySpec replacing_bytes(const KeySpec& key, const std::string& former) {
  return keys::replacing(key,
                         {.key = former,
                          .translate = [](const std::string& sizes, const std::string&) { return in_mebibytes(sizes); },
                          .hint = "its unit is MiB"});
}

AnomalyCheck anomaly_check_of(const std::string& name) {
  if (name == "once") return AnomalyCheck::once;
  return name == "always" ? AnomalyCheck::always : AnomalyCheck::off;
}

}  // namespace

BucketLimits BucketLimits::from(const Section& ddp) {
  BucketLimits limits{.bucket_bytes = {}, .last_bucket_bytes = bytes_of(ddp.real("last_bucket_mb"))};
  for (const double size : ddp.reals("bucket_mb")) limits.bucket_bytes.push_back(bytes_of(size));
  return limits;
}

DdpOptions DdpOptions::from(const Section& ddp, const mpi::Collectives& collectives,
                            const std::vector<CommHookRow>& comm_hooks) {
  DdpOptions options;
  options.reducer.limits = BucketLimits::from(ddp);
  options.reducer.finds_unused = ddp.boolean("find_unused_parameters");
  options.reducer.has_static_graph = ddp.boolean("static_graph");
  options.buffers = buffer_mode(ddp.text("buffers"));
  options.synchronizes_batch_norm = ddp.boolean("sync_batch_norm");
  options.batch_norm_ranks = static_cast<int>(ddp.integer("sync_batch_norm_ranks"));
  options.anomaly_check = anomaly_check_of(ddp.text("detect_anomalous_params"));
  options.weighs_samples = ddp.boolean("weigh_samples");
  options.checks_writes = ddp.boolean("check_writes");
  options.reports_times = ddp.boolean("report");
  if (ddp.text("comm_hook") != "none") {
    const CommHookRow& row = find_row(comm_hooks, ddp.text("comm_hook"), ddp.cite("comm_hook"));
    options.comm_hook = [make = row.make, ddp](mpi::Collectives& all) {
      ChosenHook chosen = make(ddp, all);
      if (!chosen.hook) throw ConfigError(ddp.cite("comm_hook") + ": its function `make` returned no hook");
      return chosen;
    };
  }
  const std::string& choice = ddp.text("shared_parameters");
  // The same on every rank, though some may be alone on their hosts.
  const bool has_shared_memory = collectives.name() == "shm" || collectives.name() == "hierarchical";
  options.shares_parameters = choice == "true" || (choice == "auto" && has_shared_memory);
  return options;
}

KeySpecs ddp_keys(const std::vector<CommHookRow>& comm_hooks) {
  std::vector<std::string> hooks = {"none"};
  std::string hook_help = "Gradient compression: none";
  for (const CommHookRow& row : comm_hooks) {
    hooks.push_back(row.name);
    hook_help += ", " + row.name + " (" + row.help + ")";
  }
  constexpr double kMaxBucket = 1 << 20;  // 1 TiB
  KeySpec bucket_size = keys::reals("ddp.bucket_mb", "25",
                                    "Bucket size in MiB of gradients. A list sets the sizes of the first buckets in "
                                    "order; its last value applies to all further buckets",
                                    0, kMaxBucket);
  bucket_size.min_is_exclusive = true;
  const KeySpec batch_norm_ranks = keys::integer(
      "ddp.sync_batch_norm_ranks", "0",
      "Number of consecutive ranks that share the statistics of ddp.sync_batch_norm. 0 = all ranks; -1 = the ranks of "
      "a host",
      -1, 1 << 20);
  const KeySpecs common = keys::titled(
      "Gradient buckets, compression and placement of parameters",
      {
          keys::expert(replacing_bytes(bucket_size, "ddp.bucket_bytes")),
          keys::expert(replacing_bytes(
              keys::real("ddp.last_bucket_mb", "1",
                         "Size in MiB of the bucket that is reduced last, which does not overlap with backward. 0 = "
                         "ddp.bucket_mb",
                         0, kMaxBucket),
              "ddp.last_bucket_bytes")),
          keys::boolean(
              "ddp.find_unused_parameters", "false",
              "Search the graph of each step for parameters that the loss does not use. If false, the loss must "
              "use all parameters"),
          keys::expert(keys::boolean(
              "ddp.static_graph", "false",
              "The graph is the same in every step. Parameters may then be unused, or used several times")),
          keys::expert(keys::choice(
              "ddp.buffers", "off",
              "Synchronization of buffers. off = averaged only before evaluations and checkpoints; broadcast = "
              "from rank 0 before each step; average = averaged before each step",
              {"off", "broadcast", "average"})),
          keys::choice("ddp.comm_hook", "none", hook_help, hooks),
          keys::boolean("ddp.sync_batch_norm", "false",
                        "Synchronized batch norm: normalize training batches by statistics over several ranks"),
          keys::expert(keys::not_read_by(batch_norm_ranks, "ddp.sync_batch_norm", {"false", "no", "off", "0"})),
          keys::expert(keys::choice(
              "ddp.detect_anomalous_params", "off",
              "Report trainable parameters that are not part of the graph of the loss, in the first step or "
              "in every step",
              {"off", "once", "always"})),
          keys::expert(
              keys::choice("ddp.shared_parameters", "auto",
                           "Keep one copy of the parameters per host. auto = if the backend supports shared memory",
                           {"auto", "true", "false"})),
          keys::expert(keys::boolean(
              "ddp.weigh_samples", "false",
              "Weight the gradients of ranks by their number of samples in steps without an explicit weight. Has "
              "no effect on `trainer`, which always does this")),
          keys::expert(keys::boolean(
              "ddp.check_writes", "false",
              "For debugging: report code that writes to a parameter outside of an update, and end the run")),
          keys::boolean(
              "ddp.report", "false",
              "At the end of the run, print what limits the step time, and write the times of each bucket on the "
              "slowest rank to ddp.svg"),
      });
  return keys_of_rows(common, comm_hooks, {"ddp.comm_hook"});
}

}  // namespace lockstep::parallel
