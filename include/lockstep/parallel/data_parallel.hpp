// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/value.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::parallel {

class ParameterStore;

/// What one batch gave.
struct BatchResult {
  double loss = 0;                                          ///< the total, what is trained
  std::vector<std::pair<std::string, double>> values = {};  ///< "loss" and the model's entries, see ParsedLosses
  std::int64_t samples = 0;                                 ///< of the input's first dimension
  optim::UpdateReport update = {};
};

/// Trains a model on one device and without other ranks, from batches that are trees of values: tensors are moved to
/// the device, and containers replaced by what they hold (data::scatter).
///
/// A batch is a map with a tensor "input" and, for losses, a tensor "target"; other tensors go to models of several
/// inputs, see models::Model::forward_all. To forward and test_step it may be the input alone.
class DataParallel {
 public:
  /// @param devices  the first is the model's; empty: the CPU. That there are several is refused where it matters, by
  ///                 train_step and val_step
  explicit DataParallel(std::shared_ptr<models::Model> model, std::vector<at::Device> devices = {});
  ~DataParallel();

  /// Every call looks whether the model is where it should be.
  /// @throws ConfigError  a parameter or buffer is on another device, naming it and both devices
  /// @throws DataError    the batch has no such tensor, or a container of several groups
  at::Tensor forward(const data::Value& batch);
  /// Forward, losses, backward and, where `optimizer` completes its step, the update.
  /// @param optimizer  of `parameters`
  /// @throws ConfigError  there are several devices
  BatchResult train_step(const data::Value& batch, optim::OptimWrapper& optimizer);
  /// Forward and losses, without gradients.
  BatchResult val_step(const data::Value& batch);
  /// What the model predicts, without gradients.
  models::Predictions test_step(const data::Value& batch);

  /// What optimizers update: made when first asked for, from when on nothing else may replace the parameters' memory.
  optim::FlatParameters& parameters();
  models::Model& model() noexcept { return *model_; }

 private:
  void require_one_device() const;
  void require_placed() const;
  at::Tensor run(const data::Value& scattered);
  models::ParsedLosses losses_of(const data::Value& batch, BatchResult& result);

  std::shared_ptr<models::Model> model_;
  std::vector<at::Device> devices_;
  std::unique_ptr<mpi::Collectives> alone_;
  std::unique_ptr<ParameterStore> store_;
};

}  // namespace lockstep::parallel
