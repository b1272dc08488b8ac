// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/resources.hpp"

#include <lockstep/log/log.hpp>

#include <utility>

#include "batch/nvtx_range.hpp"
#include "data/source/settings.hpp"
#include "engine/settings/batch_layout.hpp"
#include "engine/settings/process.hpp"
#include "engine/setup/precision.hpp"
#include "mpi/gpu/step_graph.hpp"

namespace lockstep::engine {

Resources make_resources(const Sections& sections, const mpi::Communicator& world, Purpose purpose,
                         std::shared_ptr<const mpi::Gpu> stand_in) {
  const Section& train = sections.at("train");
  const RunSettings run = RunSettings::from(sections.at("run"));
  const bool has_lanes = BatchSettings::from(train).lanes.value > 0 && purpose != Purpose::prediction;
  Processor processor = choose_processor(run, world, has_lanes, data::DataSettings::from(sections.at("data")).workers);
  Resources resources{
      .world = world,
      .collectives = nullptr,
      .threads = processor.threads,
      .loader_threads = processor.loader_threads,
      .processors = processor.processors,
      .draws = {.seed = run.seed, .rank = run.draws_by_rank ? static_cast<std::uint64_t>(world.rank()) : 0},
      .compiles = run.compile,
      .is_as_on_gpu = stand_in != nullptr};
  if (processor.gpu) {
    resources.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(processor.gpu->index()));
    batch::enable_nvtx_ranges();
  }
  resources.gpu = stand_in ? std::move(stand_in) : std::move(processor.gpu);
  world.all_or_throw([&] {
    if (run.compile && resources.gpu) mpi::StepGraph::use_stream(*resources.gpu);
    resources.tf32 = products_in_tf32(run.tf32, cited_text(train, "precision"), resources.device);
    set_float32_products(resources.tf32);
    set_up_process(run, world.is_root());
  });
  mpi::CommSettings comm = mpi::CommSettings::from(sections.at("comm"));
  comm.gpu = resources.gpu;
  resources.collectives = mpi::make_collectives(world, comm);
  return resources;
}

}  // namespace lockstep::engine
