// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include "core/table.hpp"

namespace lockstep::parallel {

namespace {

BufferMode buffer_mode(const std::string& name) {
  if (name == "broadcast") return BufferMode::broadcast;
  return name == "average" ? BufferMode::average : BufferMode::off;
}

AnomalyCheck anomaly_check_of(const std::string& name) {
  if (name == "once") return AnomalyCheck::once;
  return name == "always" ? AnomalyCheck::always : AnomalyCheck::off;
}

}  // namespace

DdpOptions DdpOptions::from(const Section& ddp, const mpi::Collectives& collectives) {
  DdpOptions options;
  options.reducer.limits.bucket_bytes = ddp.integers("bucket_bytes");
  options.reducer.limits.last_bucket_bytes = ddp.integer("last_bucket_bytes");
  options.reducer.finds_unused = ddp.boolean("find_unused_parameters");
  options.reducer.has_static_graph = ddp.boolean("static_graph");
  options.buffers = buffer_mode(ddp.text("buffers"));
  options.synchronises_batch_norm = ddp.boolean("sync_batch_norm");
  options.anomaly_check = anomaly_check_of(ddp.text("detect_anomalous_params"));
  options.weighs_samples = ddp.boolean("weigh_samples");
  options.checks_writes = ddp.boolean("check_writes");
  options.reports_times = ddp.boolean("report");
  if (ddp.text("comm_hook") != "none") {
    const CommHookRow& row = find_row(builtin_comm_hooks(), ddp.text("comm_hook"), ddp.cite("comm_hook"));
    options.comm_hook = [make = row.make, ddp](mpi::Collectives& all) { return make(ddp, all); };
  }
  const std::string& shares = ddp.text("shared_parameters");
  // The same on every rank, though some may be alone on their hosts.
  const bool has_shared_memory = collectives.name() == "shm" || collectives.name() == "hierarchical";
  options.shares_parameters = shares == "true" || (shares == "auto" && has_shared_memory);
  return options;
}

KeySpecs ddp_keys() {
  std::vector<std::string> hooks = {"none"};
  std::string hook_help = "how gradients travel: none (as they are)";
  for (const CommHookRow& row : builtin_comm_hooks()) {
    hooks.push_back(row.name);
    hook_help += ", " + row.name + " (" + row.help + ")";
  }
  const KeySpecs common = {
      keys::integers(
          "ddp.bucket_bytes", "26214400",
          "gradient bytes that are reduced together; a list: of the first buckets in order, the last repeats", 1),
      keys::integer("ddp.last_bucket_bytes", "1048576",
                    "the same for the bucket that is reduced last, which no computation hides; 0: like the others", 0),
      keys::boolean("ddp.find_unused_parameters", "false",
                    "search each step's graph for parameters that the loss does not use; else every one must be used"),
      keys::boolean("ddp.static_graph", "false",
                    "the graph is the same in every step: parameters may be used several times or never"),
      keys::choice(
          "ddp.buffers", "off",
          "buffers between ranks: off (averaged before an evaluation or checkpoint only), broadcast (rank 0's, "
          "before each step) or average (before each step)",
          {"off", "broadcast", "average"}),
      keys::choice("ddp.comm_hook", "none", hook_help, hooks),
      keys::boolean("ddp.sync_batch_norm", "false",
                    "normalise training batches by the statistics of all ranks' samples"),
      keys::choice("ddp.detect_anomalous_params", "off",
                   "name trained parameters outside the loss's graph: in the first step or in every step",
                   {"off", "once", "always"}),
      keys::choice("ddp.shared_parameters", "auto",
                   "keep one copy of the parameters per host; auto: where the backend has shared memory",
                   {"auto", "true", "false"}),
      keys::boolean(
          "ddp.weigh_samples", "false",
          "a step that is not told its weight counts samples instead of ranks; trainer always does, by its plan"),
      keys::boolean("ddp.check_writes", "false",
                    "for finding mistakes: who writes to a parameter outside of an update is named, and the run ends"),
      keys::boolean(
          "ddp.report", "false",
          "tell at the end what bounds a step, with the times of each bucket on the slowest rank, and draw them "
          "into ddp.svg"),
  };
  return keys_of_rows(common, builtin_comm_hooks());
}

}  // namespace lockstep::parallel
