// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/task.hpp>

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::engine {
struct Registry;
const Registry& builtin_registry();
}  // namespace lockstep::engine
namespace lockstep::mpi {
class Gpu;
}
namespace lockstep::embed {
class SessionStreams;
}

namespace lockstep {

/// Samples by the names of their values: tensors [N, ...] with one row per sample. By default the model reads "input"
/// and learns "target"; data.input_keys and data.target_keys choose others.
using SampleTensors = std::vector<std::pair<std::string, at::Tensor>>;
/// Makes samples inside of a collective call: what it throws on one rank is thrown on all of them.
using SampleSource = std::function<SampleTensors()>;

/// Training and prediction inside a program that owns the process, the samples and the loop over steps. The C interface
/// (lockstep/lockstep.h) and the Fortran module are made of it.
///
/// Several sessions can be open at once, also on overlapping communicators. A session never initializes or finalizes
/// MPI, installs no signal handlers and prints nothing. It may be used with every level of thread support of MPI: all
/// calls of MPI come from the calling thread, inside the functions of the session. Not thread-safe.
///
/// A session on a GPU (run.device=cuda) computes on a stream of its own; device and stream of the calling thread stay
/// as they are. Tensors on this GPU belong to the stream of `set_stream`: a call uses them behind all work that this
/// stream has when the call begins, and work that it gets later is behind the call. The host waits for neither.
///
/// A member that is collective starts with an agreement: if the arguments of one rank are wrong, or ranks call
/// different members, every rank throws the same error, nothing has changed, and the session can be used further. Any
/// other error ends the session: further calls throw it again.
class Session {
 public:
  /// Collective over `communicator`.
  /// @param communicator  of any ranks of the program; it is duplicated. MPI_COMM_NULL = this process alone, which
  ///                      needs no MPI
  /// @param settings      "key=value" with the keys of `trainer`; "config=FILE" reads a file of them, and "from=RUN"
  ///                      begins with configuration and weights of a run. Later ones win. A run with "purpose=predict"
  ///                      has no optimizer and only predicts. On a rank with "embed.role=producer", which all other
  ///                      settings have in common, the session only produces samples for the ranks that train: of its
  ///                      members push, update, predict and close do something there
  /// @param registry      what models, losses and so on are chosen from; outlives the session
  /// @throws ConfigError, CheckpointError, CommError  on every rank
  Session(MPI_Comm communicator, const std::vector<std::string>& settings,
          const engine::Registry& registry = engine::builtin_registry());
  ~Session();  ///< without close, nothing is saved. Not collective
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Ends the run: with run.dir, saves a last checkpoint and the report. Collective.
  void close();

  /// One step on the samples of all ranks: forward, loss, backward, reduction, update and schedule, as a step of
  /// `trainer`. Each sample has the same weight. Returns when all parameters that this rank can read are complete.
  /// Collective.
  /// @param samples  of this rank, with any strides, on the CPU or on the device of the session; read during the call
  ///                 only. Ranks can have different numbers of samples, also none: then tensors with 0 rows
  /// @return         the mean loss over the samples of all ranks
  /// @throws DataError     a shape, type or name is wrong on one rank, or no rank has samples
  /// @throws NumericError  the loss or the gradients are not finite, as train.nonfinite says
  double train(const SampleTensors& samples) {
    return train([&samples] { return samples; });
  }
  double train(const SampleSource& samples);

  /// Keeps samples in the buffer of this rank, up to buffer.capacity. Not collective. A producer sends them to the
  /// buffer of the rank that buffer.route or the lane says.
  /// @param lane  with train.lanes, the lane that receives them, one of this rank; none = they are dealt to the lanes
  ///              of this rank in turn
  /// @throws DataError  as train; or another shape than that of earlier samples
  void push(const SampleTensors& samples, std::optional<std::int64_t> lane = std::nullopt);
  /// Samples in the buffer of this rank. Not collective.
  std::int64_t buffer_size() const;
  /// The first of the lanes of this rank, and their number; 0 without train.lanes. A producer may push to all lanes.
  /// Not collective.
  std::pair<std::int64_t, std::int64_t> lanes() const;
  /// Steps on batches of train.global_batch_size samples that are drawn from the buffers. The draws are a pure function
  /// of run.seed, the step and the number of samples in each buffer. Collective.
  /// @param steps  >= 0
  /// @return       the mean loss of the last step; NaN without steps
  /// Where a buffer is empty, its part of the batch is left out.
  /// Where there are producers, each step begins with receiving what they have sent, and waits until the buffers have
  /// buffer.min samples. A call that begins after a producer's process has ended without closing the run, or after
  /// the last producer has closed it, throws CommError, once; the session can be used further.
  /// @throws DataError  the buffers of all ranks together have fewer than buffer.min samples
  double train_buffer(std::int64_t steps);

  /// The outputs of the model and its predictions by name: "output" for a model with one output; "values" of a
  /// regression, "classes", "labels" or "masks". Not collective: ranks predict when they want. The weights are those of
  /// the latest step or, if the run averages weights, the average at the latest `update`.
  /// @param inputs  as for train; targets are not read. N can be 0
  SampleTensors predict(const SampleTensors& inputs);
  /// The same into tensors of the program, of any type and strides, on the CPU or on the device of the session. Waits
  /// for the GPU only if one of them is on the CPU.
  /// @param outputs  some or all of the names that `predict` returns
  /// @throws DataError  a name that is not computed, or another shape
  void predict_into(const SampleTensors& inputs, const SampleTensors& outputs);

  /// Gives `predict` the average of the weights of this step, if the run has one (ema.kind, unless
  /// eval.weights=trained); each rank then has a second copy of the model. Otherwise, does nothing. Collective.
  ///
  /// A producer takes the weights with which the rank that receives its samples would predict. Waits until that
  /// rank is in a call of `train`, `train_buffer` or `update`. Not collective.
  void update();
  /// The step whose weights `predict` uses; -1 = it has none yet.
  std::int64_t weights_step() const;

  /// Producers that have neither closed the run nor ended, at the latest call of train_buffer; 0 on a producer.
  std::int64_t open_producers() const;
  /// Samples that this producer dropped because its window was full (buffer.full=drop). On a rank that trains: those
  /// that all producers that have closed the run dropped, at the latest call of train_buffer.
  std::int64_t dropped() const;

  /// Saves a checkpoint now. Collective.
  /// @return  its folder
  /// @throws ConfigError  run.dir is not set
  std::string save();
  /// Continues from a checkpoint, also in the middle of a run. Collective.
  /// @param from  "must" = the newest one of run.dir, a step, or a path
  void resume(const std::string& from = "must");

  /// A value of the program for metrics.jsonl and the report: the latest one is part of the next record. That of the
  /// first rank counts. Not collective.
  /// @throws ConfigError  the records have a value of this name, such as "loss"
  void metric(const std::string& name, double value);

  std::int64_t step() const;             ///< updates done
  std::int64_t parameter_count() const;  ///< elements of all parameters
  /// Norm of the gradients of the last step before clipping; none if it was not computed (train.clip_norm).
  std::optional<double> gradient_norm() const;
  /// Names of all parameters and buffers, in the order of the model.
  std::vector<std::string> parameter_names() const;
  /// A copy of a parameter or buffer. Not collective.
  /// @throws ConfigError  there is none of this name
  at::Tensor parameter(const std::string& name) const;
  /// The same into a tensor of the program, as `predict_into`.
  /// @throws DataError  another shape
  void read_parameter(const std::string& name, const at::Tensor& values) const;
  /// Replaces a parameter or buffer on all ranks by the values of the first rank. Collective.
  /// @throws DataError  another shape, or a name that does not exist
  void set_parameter(const std::string& name, const at::Tensor& values) {
    set_parameter(name, [&values] { return values; });
  }
  void set_parameter(const std::string& name, const std::function<at::Tensor()>& values);

  /// The stream of the program to which tensors on the GPU belong, for later calls. The session neither owns nor
  /// synchronizes it. Not collective.
  /// @param stream  a cudaStream_t of the GPU of the session; null = LibTorch's current stream of the thread that calls
  ///                the session, as after the opening
  /// @throws ConfigError  not null, and the session is on the CPU; or it is no stream of this GPU
  void set_stream(void* stream);
  /// The GPU of this rank; null = the session is on the CPU.
  const mpi::Gpu* gpu() const;

  const Task& task() const;
  /// Ranks of the session, and the number of this one.
  int rank() const;
  int ranks() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
