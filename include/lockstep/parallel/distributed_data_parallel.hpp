// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/models/functional.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/ddp_options.hpp>
#include <lockstep/parallel/ddp_report.hpp>
#include <lockstep/parallel/outputs.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::batch {
class LatePlaces;
class LateValues;
}  // namespace lockstep::batch

namespace lockstep::parallel {

class BatchCopies;
class BlockGathering;
class ManualReducer;
class ModelBuffers;
class ParameterStore;
class Reducer;
class ShardRanks;
class StepRecorder;
struct NamedParameter;

/// The result of one micro-batch.
struct StepResult {
  double loss = 0;      ///< mean loss of this rank, unweighted
  double weighted = 0;  ///< the weighted total
  optim::UpdateReport update;
  std::vector<std::pair<std::string, double>> values = {};  ///< entries other than "loss", of this rank
  bool is_void = false;                                     ///< nothing of the step counts, see ParsedLosses

  /// Values of the losses that are on their way from a GPU to the host.
  struct Late {
    std::shared_ptr<batch::LateValues> numbers;  ///< [K] float64: the loss, `values`, and perhaps the weighted total
    double weight = 1;                           ///< weight of the loss in the weighted total, if it is not among them
  };
  /// Set by `queue`: `loss`, `weighted` and the numbers of `values` are not known yet.
  std::optional<Late> late = {};

  /// Reads the values of the losses. On a GPU, the host waits for them.
  /// @param weights  the weights with which they were parsed
  void read(const models::ParsedLosses& losses, const models::LossWeights& weights);
  /// The same for a host that does not wait: it reads the values in `finish`.
  /// @param places  where they are then
  void queue(const models::ParsedLosses& losses, const models::LossWeights& weights, batch::LatePlaces& places);
  /// Reads the values after `queue`; the host waits for them, but not for later work. Otherwise, does nothing.
  void finish();
};

/// The result of a function that computes the losses of a step: the losses, and the outputs for observers.
struct StepLosses {
  models::LossMap losses;
  batch::Outputs outputs = {};
};

/// The options of a training step.
struct StepOptions {
  models::LossSum sum = models::LossSum::named;  ///< the losses that are trained
  /// Computes the losses of a prepared batch; empty = models::run and models::losses_of. It runs the blocks of the
  /// model through models::run.
  std::function<StepLosses(models::Model& model, const batch::Batch& batch)> losses = {};
  /// Average all gradients after backward by a ManualReducer, and broadcast the buffers of rank 0 before forward, in
  /// place of the reducer of the wrapper. Requires whole gradients.
  bool reduces_manually = false;
  bool requires_training_mode = false;  ///< throw std::logic_error if the model is in evaluation mode
};

/// Observes the events of a micro-batch, in this order. Validation steps have the first three.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// @param prepared  a result of DistributedDataParallel::prepare; outlives the step
  virtual void on_prepared([[maybe_unused]] const batch::Batch& prepared) {}
  virtual void on_forward([[maybe_unused]] const batch::Outputs& outputs) {}
  virtual void on_loss([[maybe_unused]] const models::ParsedLosses& losses) {}
  /// Called between backward and update, in the micro-batch that completes a step.
  virtual void on_backward() {}
  /// Called after backward and, in the micro-batch that completes a step, the update.
  virtual void on_update() {}

  /// Whether on_backward reads gradients; they are then averaged and complete on every rank.
  bool reads_gradients = false;
  /// Whether the result is completed later, by StepResult::finish: on a GPU, train_step does not wait for the losses.
  bool reads_late = false;
};

/// The losses and the update of a prepared micro-batch.
struct TrainedBatch {
  models::ParsedLosses losses;
  optim::UpdateReport update;
};

/// The result of a validation step.
struct ValidationResult {
  batch::Batch batch;  ///< result of `prepare`
  batch::Outputs outputs;
  models::ParsedLosses losses;
};

/// Trains one model on all ranks: each rank processes its share of a batch, gradients are averaged, and all ranks have
/// equal parameters after every update. Ranks have equal weights in the average; for unequal shares, use the argument
/// `weights`.
///
/// The arguments of PyTorch's DistributedDataParallel, in order, and their counterparts:
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
  /// Checks that all ranks have the same model, broadcasts the parameters and buffers of the root, and installs the
  /// reducer. Collective.
  /// @param world        the ranks that train together: all ranks or a group
  /// @param collectives  of the same ranks; outlives the wrapper
  /// @throws ConfigError  the models differ (the first difference: names, shapes, strides, dtypes, requires_grad), no
  ///                      parameter is trained, or the model is already wrapped; on every rank
  DistributedDataParallel(std::shared_ptr<models::Model> model, const mpi::Communicator& world,
                          mpi::Collectives& collectives, const DdpOptions& options);
  virtual ~DistributedDataParallel();

  /// Prepares a batch for the model: moves tensors to the device of the parameters, replaces containers by their
  /// content, calls models::Model::preprocess without gradients, and converts floating-point inputs to the type of the
  /// parameters.
  /// @throws DataError  a container contains several groups, or the model rejects the batch
  batch::Batch prepare(const batch::Batch& batch, bool is_training) const;

  /// Runs the model on a prepared batch. If gradients are enabled, this call determines whether the following backward
  /// passes synchronize. Without gradients, it is not collective.
  batch::Outputs forward(const batch::Batch& prepared);
  /// The same for one tensor, which is first moved to the device and type of the parameters.
  at::Tensor forward(const at::Tensor& input);

  /// The same for any other form of forward: `function` runs the model and returns its result (see OutputTraits).
  /// Several forwards can precede a backward, and parts of their results can be unused.
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
  /// @param weights  weight of the micro-batch in the average of the step on this rank: 1 / micro_batches for equal
  ///                 shares; in general world_size * samples / global_batch_size. Default: 1 / micro_batches or, with
  ///                 weighs_samples, the fraction of the samples of this micro-batch on all ranks
  /// @param observer  null = none
  /// @throws ConfigError  StepOptions::reduces_manually with lanes, sharded gradients or a closure rule
  /// Collective when `optimizer` completes its step, or when samples are counted.
  StepResult train_step(const batch::Batch& batch, optim::BaseOptimWrapper& optimizer,
                        const std::optional<models::LossWeights>& weights = std::nullopt,
                        const StepOptions& options = {}, StepObserver* observer = nullptr);
  /// The part of train_step after `prepare` and before the losses are read, within a MicroBatch.
  TrainedBatch train_prepared(const batch::Batch& prepared, optim::BaseOptimWrapper& optimizer,
                              const models::LossWeights& weights, const StepOptions& options, StepObserver& observer);

  /// A scope for your own step, as used by train_step: one micro-batch, from before its forward until after
  /// OptimWrapper::update_params. It allows gradients to stay in slices until the update.
  class MicroBatch {
   public:
    MicroBatch(DistributedDataParallel& wrapper, const optim::BaseOptimWrapper& optimizer, bool reads_gradients);
    ~MicroBatch();
    MicroBatch(const MicroBatch&) = delete;
    MicroBatch& operator=(const MicroBatch&) = delete;

   private:
    DistributedDataParallel* wrapper_;
    bool completes_step_;
    int exceptions_;
  };
  /// @param reads_gradients  whether gradients are read between backward and update
  MicroBatch micro_batch(const optim::BaseOptimWrapper& optimizer, bool reads_gradients = false) {
    return {*this, optimizer, reads_gradients};
  }
  /// Logs the trained parameters that are not in the graph of `loss`, according to options().anomaly_check.
  void name_anomalous(const at::Tensor& loss);
  /// Reads the values of the losses into the result of a micro-batch, as the last action of a step.
  /// @param weights  the weights with which they were parsed
  /// @param is_late  queue them only, for StepResult::finish
  void read_losses(StepResult& result, const models::ParsedLosses& losses, const models::LossWeights& weights,
                   bool is_late);
  /// The default weight of a micro-batch in train_step. Collective with weighs_samples.
  double share_of(const batch::Batch& batch, const optim::BaseOptimWrapper& optimizer);

  /// Whether a forward gathers parameters from other ranks. All ranks must then run the same number of forwards.
  bool has_collective_forward() const noexcept { return gathering_ != nullptr; }

  /// Computes forward and losses without gradients. Collective if has_collective_forward.
  /// @param observer  null = none
  ValidationResult val_step(const batch::Batch& batch, StepObserver* observer = nullptr);

  /// Computes predictions without gradients; the batch needs no target. Collective if has_collective_forward.
  models::Predictions test_step(const batch::Batch& batch);

  /// During its lifetime, backward passes only accumulate gradients on this rank.
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

  /// During its lifetime, forward and losses behave as in train_step: in the type of DdpOptions::autocast, and without
  /// synchronization unless the micro-batch completes a step. For your own loops; end it before
  /// OptimWrapper::update_params:
  ///
  ///     const at::Tensor loss = [&] {
  ///       const auto context = wrapper.optim_context(optimizer);
  ///       return loss_of(wrapper.forward(input));
  ///     }();
  ///     optimizer.update_params(loss);
  ///
  /// With the optimizer of a part, only the parameters of the part require gradients in the context, and only their
  /// gradients are reduced.
  class OptimContext {
   public:
    /// @param trained  a part of the parameters; null = all
    OptimContext(DistributedDataParallel& wrapper, bool completes_step, const optim::FlatParameters* trained = nullptr);
    ~OptimContext();
    OptimContext(const OptimContext&) = delete;
    OptimContext& operator=(const OptimContext&) = delete;

   private:
    std::optional<NoSync> only_accumulates_;
    std::optional<models::Autocast> casts_;
    DistributedDataParallel* wrapper_;
    std::optional<std::size_t> part_before_;
    std::vector<at::Tensor> resting_;  // parameters that require no gradient in the context
  };
  OptimContext optim_context(const optim::BaseOptimWrapper& optimizer) {
    return {*this, optimizer.completes_step(), optimizer.own_parameters()};
  }

  /// Makes the buffers equal on all ranks: the average of floating-point buffers, the values of rank 0 for others.
  /// Collective.
  void synchronize_buffers();
  /// Broadcasts the parameters and buffers of one rank. Collective.
  void broadcast_state(int root);

  /// The parts of the time of train_step, with reports_times. One rank has no communication, so no times either.
  /// Collective.
  DdpReport report() const;

  /// The state of the communication hook; null = none.
  HookMemory* hook_memory() noexcept { return hook_memory_.get(); }
  /// Whether the communication hook is not in the way of captured steps, see ChosenHook::is_recordable.
  bool has_recordable_hook() const noexcept { return has_recordable_hook_; }

  /// Reports now what the next forwards would report about the steps so far, for which the host waits for the GPU.
  /// @throws ConfigError  a parameter had no gradient; on every rank
  void check_last_step();
  /// Resets the step after an exception in forward or backward on every rank: clears gradients. Collective.
  void reset_state(GivenUp what = GivenUp::step);

  models::Model& model() noexcept { return *model_; }
  /// The trained parameters, for an OptimWrapper.
  optim::FlatParameters& parameters() noexcept;
  /// A part of them, for an OptimWrapper of its own.
  /// @param part  number in DdpOptions::parts
  optim::FlatParameters& part(std::size_t part);
  /// Runs `body` once per copy of the parameters, where they are complete; it can change any of them. Outside of
  /// updates, this is the only function that changes parameters. Collective.
  void write_parameters(const std::function<void()>& body);
  /// Whether gradients are reduced in buckets with a layout that is adapted in the first step: false for one rank, with
  /// lanes, or sharded.
  bool has_buckets() const;
  mpi::Collectives& collectives() noexcept { return *collectives_; }
  const DdpOptions& options() const noexcept { return options_; }

  // Used by the modules of Lockstep.
  ParameterStore& store() noexcept { return *store_; }
  Reducer& reducer() noexcept { return *reducer_; }

 protected:
  /// Checks that the model can be run; called before every forward.
  /// @param has_losses  whether the forward belongs to a training or validation step
  /// @throws ConfigError  it cannot be run
  virtual void require_usable([[maybe_unused]] bool has_losses) const {}

 private:
  friend class Join;

  void broadcast_from_root();
  void replicate(const std::vector<NamedParameter>& parameters);
  void shard(const std::vector<NamedParameter>& parameters);
  std::unique_ptr<Reducer> make_reducer(std::vector<NamedParameter> parameters);
  void choose_hook();
  std::optional<c10::ScalarType> rounding_of_hook();
  void begin_forward();
  void prepare_gradients();
  bool supports_slices() const;
  void end_forward();
  std::optional<models::ScopedTap> tap_of_recompute() const;
  std::optional<models::ScopedTap> tap_of_blocks();
  void synchronize_before_forward();
  void prepare_manual_reduction(const optim::BaseOptimWrapper& optimizer);
  models::ParsedLosses compute_losses(const batch::Batch& prepared, const models::LossWeights& weights,
                                      const StepOptions& options, StepObserver& observer);
  bool watches_outputs() const;
  std::vector<at::Tensor> watch(std::vector<at::Tensor> outputs);

  std::shared_ptr<models::Model> model_;
  mpi::Communicator world_;
  mpi::Collectives* collectives_;
  DdpOptions options_;
  std::unique_ptr<StepRecorder> recorder_;
  std::unique_ptr<ShardRanks> shard_ranks_;  // null = training is not sharded
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<ModelBuffers> buffers_;
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<ManualReducer> manual_reducer_;  // null until a step reduces manually
  std::unique_ptr<BlockGathering> gathering_;      // gathers parameters that are freed between their uses
  std::shared_ptr<HookMemory> hook_memory_;
  bool has_recordable_hook_ = true;                 // or none
  std::unique_ptr<batch::LatePlaces> late_places_;  // those of losses
  std::unique_ptr<BatchCopies> copies_;
  at::ScalarType dtype_;          // dtype of inputs: that of the parameters, or float32 with autocast
  at::Device device_ = at::kCPU;  // device of the parameters: batches are moved there
  bool slices_fit_ = false;       // whether visitors of slices of a reduction find them
  bool synchronizes_ = true;
  std::optional<models::Tap> recompute_;
  bool has_named_anomalous_ = false;
  bool may_slice_ = false;                  // the step at hand is updated by an OptimWrapper
  std::function<void()> before_forward_;    // `before_forward` of a Join
  std::optional<std::size_t> active_part_;  // part of the active OptimContext
  int buffer_root_ = 0;                     // buffer root: whose buffers are broadcast
};

/// Throws the same ConfigError on every rank, with the first difference, if the models of the ranks differ. Collective.
/// @param ignored  full names of parameters and buffers that can differ
void verify_same_model(const models::Model& model, const mpi::Communicator& world,
                       const std::vector<std::string>& ignored = {});

/// The communicator of a single process and its collectives; empty if the caller provides them.
struct Alone {
  std::unique_ptr<mpi::Communicator> own_world = {};
  std::unique_ptr<mpi::Collectives> own_collectives = {};
};

/// The wrapper for a single process: no communication, and gradients are used in place. Its steps are those of
/// DistributedDataParallel. Before every forward, it also checks that the model is on the expected device.
class DataParallel : private Alone, public DistributedDataParallel {
 public:
  /// @param devices  the first is the device of the model; empty = the device of its first parameter. With several
  ///                 devices, train_step and val_step throw
  /// @throws ConfigError  as DistributedDataParallel
  explicit DataParallel(std::shared_ptr<models::Model> model, std::vector<at::Device> devices = {},
                        const DdpOptions& options = {});
  /// @param world        one rank
  /// @param collectives  of the same rank; outlives the wrapper
  /// @throws ConfigError  on every rank, if there are several ranks
  DataParallel(std::shared_ptr<models::Model> model, std::vector<at::Device> devices, const mpi::Communicator& world,
               mpi::Collectives& collectives, const DdpOptions& options);

 protected:
  /// @throws ConfigError  a parameter or buffer is on another device, naming it and both devices; or, with losses,
  /// there
  ///                      are several devices
  void require_usable(bool has_losses) const override;

 private:
  DataParallel(Alone alone, std::shared_ptr<models::Model> model, std::vector<at::Device> devices,
               const DdpOptions& options);
  void find_tensors();
  void require_one_device() const;

  std::vector<at::Device> devices_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;  // tensors of the model with their names in messages
};

}  // namespace lockstep::parallel
