// SPDX-License-Identifier: BSD-3-Clause
// A session: its members by subject are in session_opening.cpp, session_training.cpp and session_reading.cpp.
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/session.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "embed/agreement.hpp"
#include "embed/averaged_model.hpp"
#include "embed/model_state.hpp"
#include "embed/online_samples.hpp"
#include "embed/own_threads.hpp"
#include "embed/run_folder.hpp"
#include "embed/samples.hpp"
#include "embed/session_streams.hpp"
#include "embed/settings.hpp"
#include "embed/transit.hpp"
#include "engine/loaded_model.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/training_run.hpp"

namespace lockstep {

class Session::Impl {
 public:
  Impl(MPI_Comm communicator, const std::vector<std::string>& settings, const engine::Registry& registry);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void close();

  void push(const SampleTensors& samples, std::optional<std::int64_t> lane);
  std::int64_t buffer_size() const { return online_ ? online_->buffers().size() : 0; }
  std::pair<std::int64_t, std::int64_t> lanes() const;
  std::int64_t open_producers() const { return latest_.producers; }
  std::int64_t dropped() const { return producer_ ? producer_->dropped() : latest_.dropped; }

  double train_buffer(std::int64_t steps);
  double train(const SampleSource& samples);
  void update();
  std::string save();
  void resume(const std::string& from);
  void metric(const std::string& name, double value);
  void set_parameter(const std::string& name, const std::function<at::Tensor()>& make_values);

  SampleTensors predict(const SampleTensors& inputs);
  void predict_into(const SampleTensors& inputs, const SampleTensors& outputs);
  std::int64_t step() const { return training_ ? training_->trainer().progress().step : loaded_->step; }
  std::int64_t weights_step() const;
  std::int64_t parameter_count() const;
  std::optional<double> gradient_norm() const { return gradient_norm_; }
  std::vector<std::string> parameter_names() const;
  at::Tensor parameter(const std::string& name) const;
  void read_parameter(const std::string& name, const at::Tensor& values) const;

  const Task& task() const { return task_; }
  int rank() const { return all_.rank(); }
  int ranks() const { return all_.size(); }
  const std::shared_ptr<embed::SessionStreams>& streams() const { return streams_; }

 private:
  const mpi::Communicator& world() const { return transit_.world(); }
  engine::Trainer& trainer() const { return training_->trainer(); }
  parallel::DistributedDataParallel& wrapper() const {
    return training_ ? *training_->composition().model.wrapper : *loaded_->model.wrapper;
  }
  mpi::Collectives& collectives() const {
    return training_ ? *training_->composition().resources.collectives : *loaded_->resources.collectives;
  }

  /// Makes the model, and the training. Collective over world().
  void open();
  void open_training(const Sections& sections, const engine::Registry& registry);

  void require_open() const;
  void require_training() const;
  void require_folder() const;

  /// See embed::enter.
  template <class Prepare>
  embed::SessionNumbers enter(embed::SessionCall call, const Prepare& prepare) {
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
  void end(std::exception_ptr failure, const std::exception* what) noexcept;

  /// Puts checked samples on the host into the buffers.
  void keep(const batch::Batch& samples, std::optional<std::int64_t> lane);
  /// Reads what producers have sent, and answers them.
  void receive();
  /// Agrees on a call of train_buffer. If samples of producers are missing, waits for them. Collective.
  /// @param reports  faults of producers, and the end of the last one, are errors
  /// @return         the samples of all ranks in each step
  std::int64_t await_samples(std::int64_t steps, bool reports);
  embed::SessionNumbers numbers_of_buffers(std::int64_t steps) const;
  /// The numbers of producers go to the records.
  void note(const embed::SessionNumbers& all, bool reports);
  /// The model normalizes with the samples until now. Collective.
  void normalize();
  /// A step on the micro_batches of this rank.
  double take_step(std::vector<batch::Batch> batches, std::int64_t all);

  bool uses_average() const;
  /// The model that predicts. @throws ConfigError  it has no weights yet, or cannot predict on one rank
  parallel::DistributedDataParallel& predictor() const;
  /// Inputs that the program can change after the call. Copies from page-locked memory would still be under way.
  SampleTensors readable(SampleTensors inputs) const;
  /// The weights that predictions use, for a producer.
  std::pair<embed::LetterKind, embed::Letter> weights() const;
  /// Takes the weights of the receiver, on a producer.
  void take_weights();
  std::vector<engine::NamedTensor> state() const { return embed::state_of(wrapper().model()); }
  engine::NamedTensor find(const std::string& name) const;

  const engine::Registry* registry_;
  mpi::Communicator all_;  // ranks of the session
  embed::SessionConfig given_;
  embed::Transit transit_;
  double timeout_s_;
  embed::Producer* producer_ = nullptr;  // null = this rank trains
  embed::Receiver* receiver_ = nullptr;  // null = this rank does not train, or there are no producers
  std::shared_ptr<embed::SessionStreams> streams_;
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

}  // namespace lockstep
