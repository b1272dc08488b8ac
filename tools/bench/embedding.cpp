// SPDX-License-Identifier: BSD-3-Clause
// The cost of the library interface: lockstep_train beside the same step of a loop of Lockstep, lockstep_predict beside
// LibTorch's own forward, the time from lockstep_open to the first step, and 6 x Linear(1024) beside a plain LibTorch
// loop with one blocking MPI_Allreduce per tensor. Ours and theirs take turns. Prints "name ours theirs" in ms.
#include <lockstep/engine/registry.hpp>
#include <lockstep/lockstep.h>
#include <lockstep/session.hpp>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <mpi.h>
#include <torch/types.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "embed/settings.hpp"
#include "engine/training_run.hpp"
#include "mlp6.hpp"
#include "timing.hpp"

namespace {

using namespace lockstep;  // this is a program of its own
using bench::Clock;
using bench::milliseconds_since;

const std::vector<const char*> kSmall = {"model.name=mlp",       "model.hidden=16", "data.input_shape=16",
                                         "data.target_shape=16", "optim.name=sgd",  "run.threads=1"};

void require(int code, const lockstep_run* run) {
  if (code == LOCKSTEP_DONE) return;
  std::fprintf(stderr, "bench_embedding: %s\n", lockstep_error(run));
  std::exit(code);
}

/// An mlp of 16-16-16 that both interfaces train on one sample.
class SmallModel {
 public:
  SmallModel() {
    require(lockstep_open(kSmall.data(), static_cast<int>(kSmall.size()), LOCKSTEP_ALONE, &run_), nullptr);
    static constexpr std::int64_t kSizes[] = {1, 16};
    input_ = lockstep_array_c("input", LOCKSTEP_FLOAT32, 2, kSizes, numbers_.data());
    target_ = lockstep_array_c("target", LOCKSTEP_FLOAT32, 2, kSizes, numbers_.data() + 16);
    output_ = lockstep_array_c("output", LOCKSTEP_FLOAT32, 2, kSizes, result_.data());
  }
  ~SmallModel() { lockstep_close(&run_); }

  double train_ms() {
    const lockstep_array arrays[] = {input_, target_};
    const auto begin = Clock::now();
    require(lockstep_train(run_, arrays, 2, nullptr), run_);
    return milliseconds_since(begin);
  }
  double predict_ms() {
    const auto begin = Clock::now();
    require(lockstep_predict(run_, &input_, 1, &output_, 1), run_);
    return milliseconds_since(begin);
  }

 private:
  lockstep_run* run_ = nullptr;
  std::vector<float> numbers_ = std::vector<float>(32, 0.5F);
  std::vector<float> result_ = std::vector<float>(16);
  lockstep_array input_ = {};
  lockstep_array target_ = {};
  lockstep_array output_ = {};
};

/// The same model in a loop of Lockstep, which has its batch already.
class LoopOfSteps {
 public:
  LoopOfSteps()
      : world_(mpi::Communicator::alone()),
        given_(embed::read_settings(world_, {kSmall.begin(), kSmall.end()}, engine::builtin_registry())),
        run_(world_, {.sections = given_.config.sections(),
                      .registry = engine::builtin_registry(),
                      .checkpoint_directory = "",
                      .config_ini = "",
                      .environment_json = "",
                      .reporter = {},
                      .on_start = {},
                      .hooks = {}}) {
    run_.trainer().begin();
  }

  double train_ms() {
    engine::StepInput input{.next = [this] { return batch(); }, .samples = 1};
    const auto begin = Clock::now();
    run_.trainer().step(input);
    return milliseconds_since(begin);
  }

 private:
  batch::Batch batch() const {
    batch::Batch batch({{"input", values_[0]}, {"target", values_[1]}}, 1);
    batch.set_roles(roles_);
    return batch;
  }

  mpi::Communicator world_;
  embed::SessionConfig given_;
  engine::TrainingRun run_;
  std::vector<at::Tensor> values_ = {at::full({1, 16}, 0.5), at::full({1, 16}, 0.5)};
  std::shared_ptr<const batch::Roles> roles_ =
      std::make_shared<const batch::Roles>(batch::Roles{.inputs = {"input"}, .targets = {"target"}});
};

/// LibTorch's forward of an mlp of 16-16-16.
class PlainForward {
 public:
  double ms() const {
    const auto begin = Clock::now();
    const c10::InferenceMode inference;
    const at::Tensor output = at::linear(at::relu(at::linear(input_, weight_, bias_)), weight_, bias_);
    const double milliseconds = milliseconds_since(begin);
    return output.numel() == 16 ? milliseconds : 0;
  }

 private:
  at::Tensor input_ = at::full({1, 16}, 0.5);
  at::Tensor weight_ = at::full({16, 16}, 0.1);
  at::Tensor bias_ = at::zeros({16});
};

void print(const char* name, std::vector<double> ours, std::vector<double> theirs) {
  std::printf("%s %.6f %.6f\n", name, bench::median(std::move(ours)), bench::median(std::move(theirs)));
}

void time_small(int repeats) {
  std::vector<double> starts;
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    SmallModel model;
    model.train_ms();
    starts.push_back(milliseconds_since(begin));
  }
  std::printf("start %.3f\n", starts.front());  // the first one of the process
  SmallModel model;
  LoopOfSteps loop;
  const PlainForward forward;
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int i = 0; i < repeats; ++i) {
    ours.push_back(model.train_ms());
    theirs.push_back(loop.train_ms());
  }
  print("train", ours, theirs);
  for (int i = 0; i < repeats; ++i) {
    ours[static_cast<std::size_t>(i)] = model.predict_ms();
    theirs[static_cast<std::size_t>(i)] = forward.ms();
  }
  print("predict", ours, theirs);
}

/// 6 x (Linear(1024) + ReLU) as a program without Lockstep has it.
class PlainLoop {
 public:
  PlainLoop() {
    for (int i = 0; i < bench::kMlpLayers; ++i) {
      for (const std::vector<std::int64_t>& shape :
           {std::vector<std::int64_t>{bench::kMlpWidth, bench::kMlpWidth}, {bench::kMlpWidth}}) {
        parameters_.push_back(at::randn(shape).mul_(0.03).set_requires_grad(true));
      }
    }
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }

  double ms(const at::Tensor& input) {
    const auto begin = Clock::now();
    at::Tensor x = input;
    for (std::size_t i = 0; i < parameters_.size(); i += 2) {
      x = at::relu(at::linear(x, parameters_[i], parameters_[i + 1]));
    }
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
    x.square().mean().backward();
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters_) {
      at::Tensor gradient = parameter.grad();
      MPI_Allreduce(MPI_IN_PLACE, gradient.mutable_data_ptr<float>(), static_cast<int>(gradient.numel()), MPI_FLOAT,
                    MPI_SUM, MPI_COMM_WORLD);
      parameter.sub_(gradient, 0.01 / ranks_);
    }
    return milliseconds_since(begin);
  }

 private:
  std::vector<at::Tensor> parameters_;
  int ranks_ = 1;
};

void time_mlp6(int repeats) {
  engine::Registry registry;
  registry.models.push_back(bench::mlp6_row());
  Session session(MPI_COMM_WORLD,
                  {"model.name=mlp6", "data.input_shape=1024", "data.target_shape=1", "optim.name=sgd", "optim.lr=0.01",
                   "loss.name=auto", "run.threads=1"},
                  registry);
  PlainLoop plain;
  const at::Tensor input = at::randn({8, bench::kMlpWidth});
  const SampleTensors samples = {{"input", input}, {"target", at::zeros({8, 1})}};
  std::vector<double> ours;
  std::vector<double> theirs;
  constexpr int kBlock = 4;
  for (int i = 0; i < repeats + 1; ++i) {
    for (int k = 0; k < kBlock; ++k) {
      const auto begin = Clock::now();
      session.train(samples);
      ours.push_back(milliseconds_since(begin));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < kBlock; ++k) theirs.push_back(plain.ms(input));
    MPI_Barrier(MPI_COMM_WORLD);
    if (i == 0) ours.clear(), theirs.clear();
  }
  if (session.rank() == 0) print("mlp6", ours, theirs);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 100;
  if (argc > 1 && std::strcmp(argv[1], "small") == 0) {
    time_small(repeats);
    return 0;
  }
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
  time_mlp6(repeats);
  MPI_Finalize();
  return 0;
}
