// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/session.hpp>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "checkpoints/store/store.hpp"
#include "core/numbers/processor_level.hpp"
#include "core/system/memory.hpp"
#include "core/text/duration.hpp"
#include "core/text/text.hpp"
#include "embed/agreement.hpp"
#include "embed/averaged_model.hpp"
#include "embed/model_state.hpp"
#include "embed/online_samples.hpp"
#include "embed/own_threads.hpp"
#include "embed/predictions.hpp"
#include "embed/run_folder.hpp"
#include "embed/samples.hpp"
#include "embed/settings.hpp"
#include "embed/transit.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/loaded_model.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/state/model_tensors.hpp"
#include "engine/training_run.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep {

namespace {

using embed::OwnThreads;
using embed::SessionCall;

/// The names of values in every record of a training.
constexpr std::array<std::string_view, 11> kOwnValues = {
    "step",          "epoch",       "samples",          "loss",           "lr", "grad_norm", "loss_scale",
    "skipped_steps", "evaluations", "received_samples", "dropped_samples"};

constexpr std::chrono::milliseconds kNap(1);

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

class Session::Impl {
 public:
  Impl(MPI_Comm communicator, const std::vector<std::string>& settings, const engine::Registry& registry)
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

  ~Impl() {
    if (is_closed_ || failure_) return;
    if (receiver_) receiver_->end("has left the run without closing it");
    if (training_) training_->trainer().fail(nullptr);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void close() {
    if (is_closed_ || failure_) return;
    if (!training_) {
      is_closed_ = true;
      if (producer_) producer_->close();
      return;
    }
    enter(SessionCall::close, [] { return embed::SessionNumbers(); });
    running([&] { training_->trainer().end(engine::Outcome::done); });
    folder_->end(engine::Outcome::done);
    if (receiver_) receiver_->end("has closed the run after step " + std::to_string(step()));
    is_closed_ = true;
  }

  void push(const SampleTensors& samples, std::optional<std::int64_t> lane) {
    if (!producer_) return keep(samples, lane);
    require_open();
    producer_->push(*form_, form_->batch_of(samples, /*has_targets=*/true), lane);
  }
  std::int64_t buffer_size() const { return online_ ? online_->buffers().size() : 0; }
  std::pair<std::int64_t, std::int64_t> lanes() const {
    if (!training_) return {0, producer_ ? producer_->lanes() : 0};
    const engine::BatchLayout& layout = trainer().view().data.layout();
    return {layout.first_lane, layout.lanes > 0 ? layout.micro_batches : 0};
  }

  std::int64_t open_producers() const { return latest_.producers; }
  std::int64_t dropped() const { return producer_ ? producer_->dropped() : latest_.dropped; }
  std::int64_t weights_step() const {
    if (loaded_) return loaded_->step;
    return uses_average() ? averaged_.step() : step();
  }

  double train_buffer(std::int64_t steps) {
    const OwnThreads threads(threads_);
    // The samples of producers are received before each step.
    const std::int64_t calls = receiver_ ? std::max<std::int64_t>(steps, 1) : 1;
    double loss = std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t call = 0; call < calls; ++call) {
      const std::int64_t samples = await_samples(steps, /*reports=*/call == 0);
      normalize();
      for (std::int64_t i = 0; i < steps / calls; ++i) {
        std::vector<batch::Batch> batches;
        for (batch::ValueMap& values : online_->buffers().draw(step()))
          batches.push_back(form_->drawn(std::move(values)));
        loss = take_step(std::move(batches), samples);
      }
    }
    return loss;
  }

  double train(const SampleSource& samples) {
    batch::Batch batch;
    const OwnThreads threads(threads_);
    const std::int64_t all = enter(SessionCall::train, [&]() -> embed::SessionNumbers {
                               receive();
                               batch = form_->batch_of(samples(), /*has_targets=*/true);
                               return {.samples = batch.size()};
                             }).samples;
    if (all == 0) throw_agreed(ExitCode::data, "no rank has samples, so that there is nothing to train");
    const std::int64_t parts = trainer().view().data.layout().micro_batches;
    std::vector<batch::Batch> batches;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t begin = batch.size() * part / parts;
      batches.push_back(form_->rows_of(batch, begin, batch.size() * (part + 1) / parts - begin));
    }
    online_->count(batches);
    normalize();
    return take_step(std::move(batches), all);
  }

  SampleTensors predict(const SampleTensors& inputs) {
    require_open();
    const OwnThreads threads(threads_);
    if (uses_average() && !averaged_.is_there()) {
      throw ConfigError(
          "predictions use the average of the weights (ema.kind), and there is none yet; call update on all "
          "ranks first, or set eval.weights=trained");
    }
    parallel::DistributedDataParallel& model = uses_average() ? averaged_.wrapper() : wrapper();
    if (model.has_collective_forward()) {
      throw ConfigError(
          "ranks cannot predict alone, because no rank has all parameters (strategy.stage=3) or forward passes "
          "communicate (ddp.sync_batch_norm); open another run with purpose=predict and from=RUN");
    }
    if (weights_step() < 0) throw ConfigError("this rank has no weights yet; call update first");
    return embed::predictions_of(model, *form_, inputs);
  }

  void update() {
    const OwnThreads threads(threads_);
    if (producer_) return take_weights();
    enter(SessionCall::update, [&] {
      receive();
      return embed::SessionNumbers();
    });
    if (!uses_average()) return;
    running([&] { averaged_.update(training_->composition(), given_.config.sections(), *registry_, task_, step()); });
  }

  std::string save() {
    const OwnThreads threads(threads_);
    enter(SessionCall::save, [&] {
      require_folder();
      return embed::SessionNumbers();
    });
    running([&] { trainer().view().saves.save(); });
    return checkpoints::checkpoint_of(folder_->checkpoints(), step());
  }

  void resume(const std::string& from) {
    const OwnThreads threads(threads_);
    enter(SessionCall::resume, [&] {
      require_folder();
      return embed::SessionNumbers();
    });
    try {
      training_->resume(from);
    } catch (const CheckpointError& error) {
      if (!error.is_agreed()) end(std::current_exception(), &error);
      throw;
    } catch (const std::exception& error) {
      end(std::current_exception(), &error);
      throw;
    }
  }

  void metric(const std::string& name, double value) {
    require_training();
    if (std::ranges::find(kOwnValues, name) != kOwnValues.end() || name.starts_with("lr/")) {
      throw ConfigError("the records of the run have a value '" + name + "' of their own; choose another name");
    }
    trainer().view().events.put(name, value, {.is_smoothed = false});
  }

  std::int64_t step() const { return training_ ? training_->trainer().progress().step : loaded_->step; }
  std::int64_t parameter_count() const {
    return training_ ? training_->composition().model.parameter_count : loaded_->model.parameter_count;
  }
  std::optional<double> gradient_norm() const { return gradient_norm_; }

  std::vector<std::string> parameter_names() const {
    std::vector<std::string> names;
    for (const engine::NamedTensor& each : state()) names.push_back(each.name);
    return names;
  }

  at::Tensor parameter(const std::string& name) const { return find(name).tensor.detach().clone(); }

  void set_parameter(const std::string& name, const std::function<at::Tensor()>& make_values) {
    const OwnThreads threads(threads_);
    engine::NamedTensor target;
    at::Tensor values;
    enter(SessionCall::set_parameter, [&] {
      require_training();
      if (training_->composition().model.param_dtype.is_half()) {
        throw ConfigError("with train.param_dtype, parameters have copies of higher precision and cannot be replaced");
      }
      target = find(name);
      values = make_values();
      if (!values.defined() || values.sizes() != target.tensor.sizes()) {
        throw DataError("the parameter '" + name + "' has the shape " + batch::shape_text(target.tensor) +
                        ", but the given values " + (values.defined() ? batch::shape_text(values) : "none"));
      }
      return embed::SessionNumbers();
    });
    running([&] {
      at::Tensor copy = values.to(target.tensor.scalar_type()).contiguous().clone();
      collectives().broadcast(parallel::bytes_of(copy), 0);
      const torch::NoGradGuard no_grad;
      engine::write_parameters(wrapper().store(), {target},
                               [&copy](const engine::NamedTensor& each) { each.tensor.copy_(copy); });
    });
  }

  const Task& task() const { return task_; }
  int rank() const { return all_.rank(); }
  int ranks() const { return all_.size(); }

 private:
  const mpi::Communicator& world() const { return transit_.world(); }

  /// Makes the model, and the training. Collective over world().
  void open() {
    const Sections& sections = given_.config.sections();
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

  void keep(const SampleTensors& samples, std::optional<std::int64_t> lane) {
    require_training();
    const at::ScalarType type = training_->composition().model.precision.parameters;
    online_->push(*form_, form_->batch_of(samples, /*has_targets=*/true), lane, type);
  }

  /// Reads what producers have sent, and answers them.
  void receive() {
    if (!receiver_) return;
    receiver_->receive([this](const SampleTensors& samples, std::optional<std::int64_t> lane) { keep(samples, lane); },
                       [this] { return weights(); });
  }

  /// The weights that predictions use, for a producer.
  std::pair<embed::LetterKind, embed::Letter> weights() const {
    if (wrapper().has_collective_forward()) {
      return {embed::LetterKind::refusal,
              {.text = "producers get no weights, because no rank has all parameters (strategy.stage=3)"}};
    }
    if (uses_average() && !averaged_.is_there()) {
      return {embed::LetterKind::refusal,
              {.text = "the run averages weights (ema.kind), and there is no average yet; call update on the ranks "
                       "that train first, or set eval.weights=trained"}};
    }
    embed::Letter letter{.number = weights_step()};
    for (const engine::NamedTensor& each : uses_average() ? embed::state_of(averaged_.wrapper().model()) : state()) {
      letter.tensors.emplace_back(each.name, each.tensor.detach().cpu());
    }
    return {embed::LetterKind::weights, std::move(letter)};
  }

  /// Takes the weights of the receiver, on a producer.
  void take_weights() {
    require_open();
    const embed::Letter letter = producer_->request_weights();
    const torch::NoGradGuard no_grad;
    const std::vector<engine::NamedTensor> mine = state();
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i].tensor.copy_(letter.tensors.at(i).second);
    wrapper().model().eval();
    loaded_->step = letter.number;
  }

  /// Agrees on a call of train_buffer. If samples of producers are missing, waits for them. Collective.
  /// @param reports  faults of producers, and the end of the last one, are errors
  /// @return         the samples of all ranks in each step
  std::int64_t await_samples(std::int64_t steps, bool reports) {
    const SteadyClock::time_point start = SteadyClock::now();
    for (;;) {
      const embed::SessionNumbers all = enter(SessionCall::train_buffer, [&]() -> embed::SessionNumbers {
        if (steps < 0) throw DataError(std::to_string(steps) + " steps: the number is negative");
        receive();
        embed::SessionNumbers mine{
            .samples = online_->buffers().samples_per_step(), .kept = online_->buffers().size(), .steps = steps};
        if (!receiver_) return mine;
        if (reports) receiver_->report_fault();
        if (seconds_since(start) > timeout_s_) {
          throw CommError("producers have sent too few samples for " + seconds_text(timeout_s_) +
                          " (comm.timeout_s): the first step needs buffer.min");
        }
        mine.producers = receiver_->open();
        mine.received = receiver_->received();
        mine.dropped = receiver_->dropped();
        return mine;
      });
      if (receiver_) note(all, reports);
      if (steps == 0) return all.samples;
      if (online_->is_filled(all.kept) || !receiver_ || all.producers == 0) {
        online_->require_filled(all.kept);
        return all.samples;
      }
      std::this_thread::sleep_for(kNap);
    }
  }

  /// The numbers of producers go to the records.
  void note(const embed::SessionNumbers& all, bool reports) {
    latest_ = all;
    trainer().view().events.put("received_samples", static_cast<double>(all.received), {.is_smoothed = false});
    trainer().view().events.put("dropped_samples", static_cast<double>(all.dropped), {.is_smoothed = false});
    if (reports) receiver_->require_producers(all.producers, all.received, all.dropped);
  }

  void open_training(const Sections& sections, const engine::Registry& registry) {
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

  /// The model normalizes with the samples until now. Collective.
  void normalize() {
    if (online_->has_statistics()) running([&] { online_->normalize(collectives(), wrapper().model()); });
  }

  engine::Trainer& trainer() const { return training_->trainer(); }
  parallel::DistributedDataParallel& wrapper() const {
    return training_ ? *training_->composition().model.wrapper : *loaded_->model.wrapper;
  }
  mpi::Collectives& collectives() const {
    return training_ ? *training_->composition().resources.collectives : *loaded_->resources.collectives;
  }

  void require_open() const {
    if (failure_) std::rethrow_exception(failure_);
    if (is_closed_) throw ConfigError("the run is closed");
  }
  void require_training() const {
    require_open();
    if (given_.predicts_only) throw ConfigError("the run only predicts (purpose=predict)");
    if (given_.is_producer) {
      throw ConfigError(
          "this rank is a producer (embed.role=producer), which can only push, update, predict and close");
    }
  }
  void require_folder() const {
    require_training();
    if (!folder_->is_there()) throw ConfigError("run.dir is not set, so that the run has no checkpoints");
  }

  /// See embed::enter.
  template <class Prepare>
  embed::SessionNumbers enter(SessionCall call, const Prepare& prepare) {
    if (failure_) std::rethrow_exception(failure_);
    if (producer_) require_training();
    return embed::enter(call, world(), collectives(), [&] {
      require_training();
      return prepare();
    });
  }

  /// Runs what all ranks do together; a failure ends the session.
  template <class Work>
  void running(const Work& work) {
    try {
      engine::heard_by_peers(collectives(), work);
    } catch (const std::exception& error) {
      end(std::current_exception(), &error);
      throw;
    }
  }

  void end(std::exception_ptr failure, const std::exception* what) noexcept {
    failure_ = std::move(failure);
    const auto* const error = dynamic_cast<const Error*>(what);
    training_->trainer().fail(error);
    folder_->fail(*what, static_cast<int>(error != nullptr ? error->exit_code() : ExitCode::internal));
    if (receiver_) receiver_->end("has failed: " + message_of(*what));
    is_closed_ = true;
  }

  /// A step on the micro_batches of this rank.
  double take_step(std::vector<batch::Batch> batches, std::int64_t all) {
    engine::StepInput input{.next = {}, .samples = all};
    for (batch::Batch& batch : batches) {
      input.counts.push_back(batch.size());
      if (batch.size() == 0) batch = form_->filler(batch);
    }
    std::size_t next = 0;
    input.next = [&] { return std::move(batches.at(next++)); };
    loss_ = std::numeric_limits<double>::quiet_NaN();
    gradient_norm_.reset();
    models::Model& model = wrapper().model();
    if (!model.is_training()) model.train();
    running([&] { trainer().step(input); });
    return loss_;
  }

  bool uses_average() const {
    return training_ && training_->composition().updates.average != nullptr &&
           given_.config.section("eval").text("weights") != "trained";
  }

  std::vector<engine::NamedTensor> state() const { return embed::state_of(wrapper().model()); }

  engine::NamedTensor find(const std::string& name) const {
    require_open();
    std::vector<std::string> names;
    for (engine::NamedTensor& each : state()) {
      if (each.name == name) return std::move(each);
      names.push_back(each.name);
    }
    const std::string nearest = nearest_name(name, names);
    throw ConfigError("the model has no parameter or buffer '" + name + "'" +
                      (nearest.empty() ? "" : "; do you mean '" + nearest + "'?"));
  }

  const engine::Registry* registry_;
  mpi::Communicator all_;  // ranks of the session
  embed::SessionConfig given_;
  embed::Transit transit_;
  double timeout_s_;
  embed::Producer* producer_ = nullptr;  // null = this rank trains
  embed::Receiver* receiver_ = nullptr;  // null = this rank does not train, or there are no producers
  std::optional<embed::RunFolder> folder_;
  std::unique_ptr<engine::LoadedModel> loaded_;    // null = the rank trains
  embed::AveragedModel averaged_;                  // has the average of the weights at the latest update
  std::unique_ptr<engine::TrainingRun> training_;  // null = it only predicts
  std::unique_ptr<embed::OnlineSamples> online_;   // null = it only predicts
  std::optional<embed::SampleForm> form_;
  Task task_;
  int threads_ = 1;
  double loss_ = 0;
  std::optional<double> gradient_norm_;
  embed::SessionNumbers latest_;  // sums of all ranks that train, if there are producers
  bool is_closed_ = false;
  std::exception_ptr failure_;
};

Session::Session(MPI_Comm communicator, const std::vector<std::string>& settings, const engine::Registry& registry) {
  const OwnThreads unchanged(at::get_num_threads());
  impl_ = std::make_unique<Impl>(communicator, settings, registry);
}
Session::~Session() = default;

void Session::close() { impl_->close(); }
double Session::train(const SampleSource& samples) { return impl_->train(samples); }
SampleTensors Session::predict(const SampleTensors& inputs) { return impl_->predict(inputs); }
void Session::update() { impl_->update(); }
std::string Session::save() { return impl_->save(); }
void Session::resume(const std::string& from) { impl_->resume(from); }
void Session::push(const SampleTensors& samples, std::optional<std::int64_t> lane) { impl_->push(samples, lane); }
std::int64_t Session::buffer_size() const { return impl_->buffer_size(); }
std::pair<std::int64_t, std::int64_t> Session::lanes() const { return impl_->lanes(); }
double Session::train_buffer(std::int64_t steps) { return impl_->train_buffer(steps); }
void Session::metric(const std::string& name, double value) { impl_->metric(name, value); }
std::int64_t Session::open_producers() const { return impl_->open_producers(); }
std::int64_t Session::dropped() const { return impl_->dropped(); }
std::int64_t Session::weights_step() const { return impl_->weights_step(); }
std::int64_t Session::step() const { return impl_->step(); }
std::int64_t Session::parameter_count() const { return impl_->parameter_count(); }
std::optional<double> Session::gradient_norm() const { return impl_->gradient_norm(); }
std::vector<std::string> Session::parameter_names() const { return impl_->parameter_names(); }
at::Tensor Session::parameter(const std::string& name) const { return impl_->parameter(name); }
void Session::set_parameter(const std::string& name, const std::function<at::Tensor()>& values) {
  impl_->set_parameter(name, values);
}
const Task& Session::task() const { return impl_->task(); }
int Session::rank() const { return impl_->rank(); }
int Session::ranks() const { return impl_->ranks(); }

}  // namespace lockstep
