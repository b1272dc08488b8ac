// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>

#include "core/numbers/processor_level.hpp"
#include "core/system/memory.hpp"
#include "core/text/text.hpp"
#include "embed/session_impl.hpp"
#include "engine/hooks/hooks.hpp"

namespace lockstep {

namespace {

/// A component of checkpoints.
class StateHook : public engine::Hook {
 public:
  explicit StateHook(std::shared_ptr<engine::Stateful> state)
      : Hook(engine::HookReads::nothing(), {std::move(state)}) {}
};

mpi::Communicator communicator_of(MPI_Comm communicator) {
  require_usable_level();
  if (communicator == MPI_COMM_NULL) return mpi::Communicator::alone();
  embed::require_mpi();
  return mpi::Communicator(communicator);
}

}  // namespace

Session::Impl::Impl(MPI_Comm communicator, const std::vector<std::string>& settings, const engine::Registry& registry)
    : registry_(&registry),
      all_(communicator_of(communicator)),
      given_(embed::read_settings(all_, settings, registry)),
      transit_(all_, given_.is_producer),
      timeout_s_(given_.config.section("comm").real("timeout_s")) {
  if (!transit_.has_producers()) {
    open();
    return;
  }
  all_.all_or_throw([this] { open(); });
  const auto buffer = engine::BufferSettings::from(given_.config.section("buffer"));
  transit_.connect(training_ ? lanes().second : 0, buffer, timeout_s_);
  producer_ = transit_.producer();
  receiver_ = transit_.receiver();
}

Session::Impl::~Impl() {
  if (is_closed_ || failure_) return;
  if (receiver_) receiver_->end("has left the run without closing it");
  if (training_) training_->trainer().fail(nullptr);
}

void Session::Impl::open() {
  const Sections& sections = given_.config.sections();
  streams_ = std::make_shared<embed::SessionStreams>(given_.config.section("run").text("device"), world());
  const embed::OwnStream on_stream(*streams_);
  if (given_.is_producer) {
    loaded_ = std::make_unique<engine::LoadedModel>(embed::model_without_weights(world(), sections, *registry_));
    loaded_->step = -1;
  } else {
    folder_.emplace(world(), given_.config);
    if (!given_.predicts_only) return open_training(sections, *registry_);
    loaded_ = std::make_unique<engine::LoadedModel>(
        engine::load_model(world(), sections, *registry_, given_.checkpoint, engine::Purpose::prediction, "train"));
  }
  threads_ = loaded_->resources.threads;
  task_ = loaded_->task;
  form_.emplace(sections.at("data"), task_, loaded_->splits.train->roles(), wrapper().model());
  wrapper().model().eval();
}

void Session::Impl::open_training(const Sections& sections, const engine::Registry& registry) {
  if (!given_.checkpoint.empty() && sections.at("init").text("from").empty()) {
    given_.config.set("init.from", given_.checkpoint, "from");
  }
  engine::TrainRequest request{.sections = sections,
                               .registry = registry,
                               .checkpoint_directory = "",
                               .config_ini = given_.config.to_ini(),
                               .environment_json = "",
                               .reporter = {},
                               .on_start = {},
                               .reads_request_files = false,
                               .hooks = {}};
  folder_->prepare(request);
  request.hooks.emplace_back(
      engine::Priority::highest,
      engine::callback_hook({.after_step = [this](engine::RunView&, const engine::StepReport& report) {
        loss_ = report.loss;
        gradient_norm_ = report.grad_norm;
      }}));
  online_ = std::make_unique<embed::OnlineSamples>(world(), sections);
  for (auto& state : online_->states([this]() -> mpi::Collectives& { return collectives(); })) {
    request.hooks.emplace_back(engine::Priority::normal, std::make_unique<StateHook>(std::move(state)));
  }
  training_ = std::make_unique<engine::TrainingRun>(world(), std::move(request));
  threads_ = training_->composition().resources.threads;
  const data::Dataset& train = *trainer().view().data.splits().train;
  task_ = train.task();
  form_.emplace(sections.at("data"), task_, train.roles(), wrapper().model());
  engine::heard_by_peers(collectives(), [&] { trainer().begin(); });
}

void Session::Impl::close() {
  if (is_closed_ || failure_) return;
  if (!training_) {
    is_closed_ = true;
    if (producer_) producer_->close();
    return;
  }
  enter(embed::SessionCall::close, [] { return embed::SessionNumbers(); });
  running([&] { training_->trainer().end(engine::Outcome::done); });
  folder_->end(engine::Outcome::done);
  if (receiver_) receiver_->end("has closed the run after step " + std::to_string(step()));
  is_closed_ = true;
}

void Session::Impl::require_open() const {
  if (failure_) std::rethrow_exception(failure_);
  if (is_closed_) throw ConfigError("the run is closed");
}

void Session::Impl::require_training() const {
  require_open();
  if (given_.predicts_only) throw ConfigError("the run only predicts (purpose=predict)");
  if (given_.is_producer) {
    throw ConfigError("this rank is a producer (embed.role=producer), which can only push, update, predict and close");
  }
}

void Session::Impl::require_folder() const {
  require_training();
  if (!folder_->is_there()) throw ConfigError("run.dir is not set, so that the run has no checkpoints");
}

void Session::Impl::end(std::exception_ptr failure, const std::exception* what) noexcept {
  failure_ = std::move(failure);
  const auto* const error = dynamic_cast<const Error*>(what);
  training_->trainer().fail(error);
  folder_->fail(*what, static_cast<int>(error != nullptr ? error->exit_code() : ExitCode::internal));
  if (receiver_) receiver_->end("has failed: " + message_of(*what));
  is_closed_ = true;
}

}  // namespace lockstep
