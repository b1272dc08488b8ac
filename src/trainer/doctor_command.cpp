// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>

#include "engine/setup/resources.hpp"
#include "mpi/gpu/gpu.hpp"
#include "mpi/process/launch.hpp"
#include "mpi/process/topology.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/doctor/facts.hpp"
#include "trainer/doctor/findings.hpp"
#include "trainer/doctor/measure.hpp"
#include "trainer/run_folder_name.hpp"

namespace lockstep::trainer {

ExitCode examine(const CommandJob& job, const config::Invocation& invocation) {
  const mpi::Communicator& world = job.world;
  const Sections& sections = invocation.config.sections();
  const engine::Resources resources = engine::make_resources(sections, world, engine::Purpose::prediction);
  DoctorFacts mine = rank_facts(resources.threads);
  if (resources.gpu) mine.gpu = mpi::gpu_name(mpi::Topology::of(world).local_rank);
  measure_speed(world, resources.threads, mine);
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
