// SPDX-License-Identifier: BSD-3-Clause
#include "embed/run_folder.hpp"

#include <lockstep/log/log.hpp>

#include "checkpoints/store/lease.hpp"
#include "core/text/text.hpp"
#include "mpi/process/topology.hpp"
#include "report/files/run_files.hpp"
#include "trainer/run_environment.hpp"
#include "trainer/run_folder_name.hpp"
#include "trainer/run_output.hpp"
#include "trainer/run_report.hpp"

namespace lockstep::embed {

namespace {

std::string folder_of(const mpi::Communicator& world, const Section& run) {
  return run.text("dir").empty() ? std::string() : trainer::run_folder_name(world, run).dir;
}

}  // namespace

RunFolder::RunFolder(const mpi::Communicator& world, const config::Config& config)
    : path_(folder_of(world, config.section("run"))) {
  log::LogOptions options{.rank = world.rank(), .world_size = world.size(), .to_console = false};
  if (!is_there()) {
    log::configure(options);
    return;
  }
  const std::vector<std::string> hosts = world.all_gather(mpi::Topology::of(world).host_name);
  environment_ = trainer::environment_json(world.size(), hosts, {});
  world.all_or_throw([&] {
    if (!world.is_root()) return;
    report::make_run_folder(path_);
    lease_ = std::make_shared<checkpoints::Lease>(checkpoints());
  });
  world.all_or_throw([&] {
    options.file = trainer::rank_file(path_, world.rank());
    log::configure(options);
    if (!world.is_root()) return;
    trainer::write_run_files(path_, config, environment_);
    const Section& log = config.section("log");
    report_ = std::make_unique<trainer::RunReport>(path_, log.boolean("tensorboard"), log.real("console_s"));
  });
}

RunFolder::~RunFolder() = default;

void RunFolder::prepare(engine::TrainRequest& request) const {
  if (!is_there()) return;
  request.checkpoint_directory = checkpoints();
  request.lease = lease_;
  request.environment_json = environment_;
  if (!report_) return;
  trainer::report_to(*report_, request);
}

void RunFolder::end(engine::Outcome outcome) noexcept {
  try {
    if (report_) report_->on_end(outcome);
  } catch (const std::exception& failure) {
    log::warning("the report of the run is incomplete: " + message_of(failure));
  }
  log::flush();
}

void RunFolder::fail(const std::exception& failure, int exit_code) noexcept {
  try {
    if (report_) report_->on_failure(failure, exit_code);
  } catch (const std::exception& other) {
    log::warning("the report of the failure is incomplete: " + message_of(other));
  }
  log::flush();
}

}  // namespace lockstep::embed
