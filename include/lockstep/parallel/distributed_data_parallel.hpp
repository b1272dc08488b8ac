// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/batch/outputs.hpp>
#include <lockstep/models/autocast.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/ddp_options.hpp>
#include <lockstep/parallel/ddp_report.hpp>
#include <lockstep/parallel/outputs.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::parallel {

class BlockGathering;
class ModelBuffers;
class ParameterStore;
class Reducer;
class StepRecorder;
struct NamedParameter;

/// What one micro_batch gave.
struct StepResult {
  double loss = 0;      ///< this rank's mean loss, unweighted
  double weighted = 0;  ///< the total with the weights that it was trained with
  optim::UpdateReport update;
  std::vector<std::pair<std::string, double>> values = {};  ///< of this rank: the entries beside "loss"

  /// Takes the numbers of the losses. On a GPU the host waits for them.
  /// @param weights  those that they were parsed with
  void read(const models::ParsedLosses& losses, const models::LossWeights& weights);
};

/// What is seen of a step while it runs; each may be empty.
struct StepObserver {
  /// @param batch  as `prepare` left it
  std::function<void(const batch::Batch& batch, const batch::Outputs& outputs)> on_forward = {};
  std::function<void(const models::ParsedLosses&)> on_loss = {};
  std::function<void()> on_backward = {};  ///< before the update of the micro_batch that completes a step
  bool reads_gradients = false;            ///< on_backward does: all are then averaged and whole on every rank
};

/// What a validation step gave.
struct ValidationResult {
  batch::Batch batch;  ///< as `prepare` left it
  batch::Outputs outputs;
  models::ParsedLosses losses;
};

/// Trains one model on all ranks: each rank feeds its share of a batch, gradients are averaged, and all ranks hold the
/// same parameters after every update. Averages weigh ranks equally; unequal shares are weighed through `weight`.
///
/// Where the arguments of PyTorch's DistributedDataParallel are, in its order:
///
///     module                        model, a models::Model: it knows its losses; or any forward through run
///     device_ids, output_device     none = a rank has one device, where the model's parameters are
///     dim                           none = a rank gets its own samples, nothing is scattered
///     broadcast_buffers             DdpOptions::buffers; off by default, and then averaged before evaluations
///     init_sync                     always: ranks begin with the root's values
///     process_group                 world and collectives of a group: Communicator::split, Collectives::split
///     bucket_cap_mb                 BucketLimits::bucket_bytes, in bytes
///     bucket_cap_mb_list            the same: several numbers
///     find_unused_parameters        ReducerOptions::finds_unused
///     check_reduction               always checked: a parameter without a gradient is an error that names it
///     gradient_as_bucket_view       always: `.grad` is a view of its bucket
///     static_graph                  ReducerOptions::has_static_graph
///     delay_all_reduce_named_params none: BucketLimits decide what is reduced together
///     param_to_hook_all_reduce      none, for the same reason
///     mixed_precision               DdpOptions::autocast. A parameter of 16 bits has gradients of 16 bits, unless its
///                                   grad_dtype says float32; fp16_hook and bf16_hook send 16 bits for others
///     device_mesh                   none = see process_group
///     skip_all_reduce_unused_params none = unused parameters travel with their bucket
///     register_comm_hook            DdpOptions::comm_hook
///     join                          parallel::Join
///     no_sync                       no_sync
class DistributedDataParallel {
 public:
  /// Checks that all ranks brought the same model before any data moves, gives everyone the root's parameters and
  /// buffers, and installs the reducer. Collective.
  /// @param world        the ranks that train together: all, or a group of them
  /// @param collectives  of the same ranks; outlives the wrapper
  /// @throws ConfigError  the models differ (the first difference: names, shapes, strides, dtypes, requires_grad),
  ///                      nothing in the model is trained, or it is wrapped already; on every rank
  DistributedDataParallel(std::shared_ptr<models::Model> model, const mpi::Communicator& world,
                          mpi::Collectives& collectives, const DdpOptions& options);
  virtual ~DistributedDataParallel();

  /// What the model receives of a batch: tensors on the device of its parameters, containers replaced by what they
  /// hold, then models::Model::preprocess with gradients off, then floating-point inputs in the type of the parameters.
  /// @throws DataError  a container holds several groups, or the model refuses the batch
  batch::Batch prepare(const batch::Batch& batch, bool is_training) const;

  /// Runs the model on a batch as `prepare` left it; while gradients are enabled this decides whether the backward
  /// passes that follow synchronize. Without gradients nothing is collective.
  batch::Outputs forward(const batch::Batch& prepared);
  /// The same for one tensor, which is moved to the device and type of the parameters first.
  at::Tensor forward(const at::Tensor& input);

  /// The same for a forward of another form: `function` runs the model and returns whatever it gives (see
  /// OutputTraits). Several forwards may precede a backward, and parts of what they return may go unused.
  template <class Function>
  auto run(Function&& function) {
    begin_forward();
    auto outputs = [&] {
      const std::optional<models::ScopedTap> recomputing = tap_of_recompute();
      const std::optional<models::ScopedTap> gathering = tap_of_blocks();
      return std::forward<Function>(function)();
    }();
    end_forward();
    if (!watches_outputs()) return outputs;
    std::vector<at::Tensor> tensors;
    visit_tensors(outputs, [&tensors](at::Tensor& tensor) { tensors.push_back(tensor); });
    tensors = watch(std::move(tensors));
    std::size_t next = 0;
    visit_tensors(outputs, [&](at::Tensor& tensor) { tensor = tensors[next++]; });
    return outputs;
  }

  /// Forward, losses, backward and, when `optimizer` completes its step, the update.
  /// @param weights  the micro_batch's share of the step's average on this rank: 1 / micro_batches when all samples
  ///                 weigh the same and ranks have equal shares; in general world_size * samples / global_batch_size.
  ///                 Without it that, or with weighs_samples the part by samples of this micro_batch on all ranks
  /// Collective when `optimizer` completes its step, or when samples are counted.
  StepResult train_step(const batch::Batch& batch, optim::OptimWrapper& optimizer,
                        const std::optional<models::LossWeights>& weights = std::nullopt,
                        const StepObserver& observer = {});

  /// The frame of a step of your own, as train_step has it: one micro_batch, from before its forward until after
  /// OptimWrapper::update_params. Its gradients may then stay in slices until the update.
  class MicroBatch {
   public:
    MicroBatch(DistributedDataParallel& wrapper, const optim::OptimWrapper& optimizer, bool reads_gradients);
    ~MicroBatch();
    MicroBatch(const MicroBatch&) = delete;
    MicroBatch& operator=(const MicroBatch&) = delete;

   private:
    DistributedDataParallel* wrapper_;
    bool completes_step_;
    int exceptions_;
  };
  /// @param reads_gradients  something between backward and update does
  MicroBatch micro_batch(const optim::OptimWrapper& optimizer, bool reads_gradients = false) {
    return {*this, optimizer, reads_gradients};
  }
  /// Names trained parameters outside of the graph of `loss` in the log, as options().anomaly_check says.
  void name_anomalous(const at::Tensor& loss);
  /// The part of a micro_batch in the step's average, where the caller of train_step does not say it. Collective with
  /// weighs_samples.
  double share_of(const batch::Batch& batch, const optim::OptimWrapper& optimizer);

  /// Whether forwards gather parameters from other ranks, so that all ranks must run as many.
  bool has_collective_forward() const noexcept { return gathering_ != nullptr; }

  /// Forward and losses without gradients, shown to `observer`, on_forward and on_loss. Collective where
  /// has_collective_forward.
  ValidationResult val_step(const batch::Batch& batch, const StepObserver& observer = {});

  /// What the model predicts, without gradients; the batch needs no target. Collective where has_collective_forward.
  models::Predictions test_step(const batch::Batch& batch);

  /// While one lives, forwards only accumulate gradients on this rank.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& wrapper) : wrapper_(&wrapper), before_(wrapper.synchronizes_) {
      wrapper.synchronizes_ = false;
    }
    ~NoSync() { wrapper_->synchronizes_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel* wrapper_;
    bool before_;
  };
  NoSync no_sync() { return NoSync(*this); }

  /// While one lives, forwards and losses are as in train_step: in the type of DdpOptions::autocast, and without
  /// synchronization unless the micro_batch completes a step. For loops of a user's own, which let it end before
  /// OptimWrapper::update_params:
  ///
  ///     const at::Tensor loss = [&] {
  ///       const auto context = wrapper.optim_context(optimizer);
  ///       return loss_of(wrapper.forward(input));
  ///     }();
  ///     optimizer.update_params(loss);
  class OptimContext {
   public:
    OptimContext(DistributedDataParallel& wrapper, bool completes_step);
    OptimContext(const OptimContext&) = delete;
    OptimContext& operator=(const OptimContext&) = delete;

   private:
    std::optional<NoSync> only_accumulates_;
    std::optional<models::Autocast> casts_;
  };
  OptimContext optim_context(const optim::OptimWrapper& optimizer) { return {*this, optimizer.completes_step()}; }

  /// Gives all ranks the same buffers: the average of floating-point ones, rank 0's of the others. Collective.
  void synchronize_buffers();
  /// Gives all ranks one rank's parameters and buffers. Collective.
  void broadcast_state(int root);

  /// Where the time of train_step goes, with reports_times. One rank has no communication, so no times either.
  /// Collective.
  DdpReport report() const;

  /// What the communication hook of DdpOptions has learned; null = nothing.
  HookMemory* hook_memory() noexcept { return hook_memory_.get(); }

  /// After an exception in forward or backward, on every rank: drops gradients and forgets the step. Collective.
  void reset_state();

  models::Model& model() noexcept { return *model_; }
  /// The trained parameters, for an OptimWrapper.
  optim::FlatParameters& parameters() noexcept;
  /// Runs `body` once for each copy of the parameters, where they are whole: it may change any of them. The only way to
  /// change parameters outside of an update. Collective.
  void write_parameters(const std::function<void()>& body);
  /// Whether gradients travel in buckets whose layout is learned: not for one rank, with lanes, or sharded.
  bool has_buckets() const;
  mpi::Collectives& collectives() noexcept { return *collectives_; }
  const DdpOptions& options() const noexcept { return options_; }

  // Of Lockstep's own modules.
  ParameterStore& store() noexcept { return *store_; }
  Reducer& reducer() noexcept { return *reducer_; }

 protected:
  /// Whether the model can be run as it is now; called before every forward.
  /// @param has_losses  of a train or validation step
  /// @throws ConfigError  it cannot
  virtual void require_usable([[maybe_unused]] bool has_losses) const {}

 private:
  friend class Join;

  void broadcast_from_root();
  void replicate(const std::vector<NamedParameter>& parameters);
  void shard(const std::vector<NamedParameter>& parameters);
  std::unique_ptr<Reducer> make_reducer(std::vector<NamedParameter> parameters);
  void choose_hook();
  void begin_forward();
  void prepare_gradients();
  void end_forward();
  std::optional<models::ScopedTap> tap_of_recompute() const;
  std::optional<models::ScopedTap> tap_of_blocks();
  void synchronize_before_forward();
  bool watches_outputs() const;
  std::vector<at::Tensor> watch(std::vector<at::Tensor> outputs);

  std::shared_ptr<models::Model> model_;
  mpi::Communicator world_;
  mpi::Collectives* collectives_;
  DdpOptions options_;
  std::unique_ptr<StepRecorder> recorder_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<ModelBuffers> buffers_;
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<BlockGathering> gathering_;  // of parameters that are freed between their uses
  std::shared_ptr<HookMemory> hook_memory_;
  at::ScalarType dtype_;          // of the parameters: inputs are converted to it
  at::Device device_ = at::kCPU;  // of the parameters: batches are moved there
  bool slices_fit_ = false;       // whoever visits slices of a reduction finds them
  bool synchronizes_ = true;
  std::optional<models::Tap> recompute_;
  bool has_named_anomalous_ = false;
  bool may_slice_ = false;                // the step at hand is updated by an OptimWrapper
  std::function<void()> before_forward_;  // of a Join
  int buffer_root_ = 0;                   // whose buffers are broadcast
};

/// Throws the same ConfigError on every rank if the ranks' models differ, naming the first difference. Collective.
/// @param ignored  full names of parameters and buffers that may differ
void verify_same_model(const models::Model& model, const mpi::Communicator& world,
                       const std::vector<std::string>& ignored = {});

}  // namespace lockstep::parallel
