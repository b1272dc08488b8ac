// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>

#include "engine/setup/resources.hpp"
#include "mpi/gpu/gpu.hpp"
#include "mpi/gpu/nccl_version.hpp"
#include "mpi/host/shared_region.hpp"
#include "mpi/process/launch.hpp"
#include "mpi/process/topology.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/derived_keys.hpp"
#include "trainer/doctor/facts.hpp"
#include "trainer/doctor/findings.hpp"
#include "trainer/doctor/gpu_facts.hpp"
#include "trainer/doctor/measure.hpp"
#include "trainer/doctor/need.hpp"
#include "trainer/run_folder_name.hpp"

namespace lockstep::trainer {

namespace {

/// Collective.
NeedFacts need_on(const CommandJob& job, const config::Invocation& invocation, const mpi::Topology& topology) {
  config::Config config = invocation.config;
  try {
    settle_teacher(job, config);
  } catch (const Error& failure) {  // on every rank
    return {.refusal = failure.what()};
  }
  return need_of(config.sections(), job.registry, {.ranks = job.world.size(), .hosts = topology.host_count});
}

void add_gpus(const Sections& sections, const engine::Resources& resources, const mpi::Topology& topology,
              DoctorFacts& facts) {
  if (resources.gpu) {
    facts.gpu = resources.gpu->name();
    facts.versions["NCCL"] = mpi::nccl_version(*resources.gpu);
    facts.need = {.refusal = facts.need.refusal,
                  .checkpoint_mb = facts.need.checkpoint_mb,
                  .checkpoints = facts.need.checkpoints};  // the rest is in the memory of GPUs
  }
  if (topology.local_rank == 0 && sections.at("run").text("device") != "cpu") facts.gpus = gpu_facts();
}

}  // namespace

ExitCode examine(const CommandJob& job, const config::Invocation& invocation) {
  const mpi::Communicator& world = job.world;
  const Sections& sections = invocation.config.sections();
  const engine::Resources resources = engine::make_resources(sections, world, engine::Purpose::prediction);
  const mpi::Topology topology = mpi::Topology::of(world);
  DoctorFacts mine = rank_facts(resources.threads);
  mine.need = need_on(job, invocation, topology);
  mine.shares_by_name = !mpi::share_memfd(topology.split_by_host(world), 1).is_open();
  add_gpus(sections, resources, topology, mine);
  measure_speed(world, resources.threads, mine);
  measure_all_reduce(world, topology, mine);
  const std::string folder = run_folder_name(world, sections.at("run")).dir;
  if (!folder.empty()) try_files(world, folder, mine.files);

  std::vector<DoctorFacts> ranks;
  for (const std::string& text : world.all_gather(packed(mine))) ranks.push_back(unpacked(text));
  std::string of_job;
  if (world.is_root()) {
    if (const auto slurm = mpi::slurm_job()) of_job = mpi::description_of(*slurm);
  }
  const std::vector<Finding> findings = findings_about(ranks, job_facts_in(world.broadcast(of_job)), folder);
  print_result(world, invocation.options.contains("json") ? json_of(findings) : text_of(findings));
  const bool is_ill = std::ranges::find(findings, Verdict::fault, &Finding::verdict) != findings.end();
  return is_ill ? ExitCode::configuration : ExitCode::done;
}

}  // namespace lockstep::trainer
