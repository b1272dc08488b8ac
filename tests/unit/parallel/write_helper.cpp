// SPDX-License-Identifier: BSD-3-Clause
// usage: write_helper shared|private
// A job that trains with ddp.check_writes until its last rank changes a parameter by itself.
#include <lockstep/models/layers.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <torch/types.h>

#include <cstdio>
#include <string>
#include <unistd.h>

#include "parallel/store/parameter_store.hpp"
#include "support/optimizer.hpp"

namespace {

using namespace lockstep;

class Net : public models::Model {
 public:
  Net() {
    first_ = register_module("first", std::make_shared<models::Linear>(50, 100));
    second_ = register_module("second", std::make_shared<models::Linear>(100, 2));
  }
  at::Tensor forward(const at::Tensor& input) override { return models::run(*second_, models::run(*first_, input)); }
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    return {{"loss", (output - target).square().mean()}};
  }

 private:
  std::shared_ptr<models::Linear> first_;
  std::shared_ptr<models::Linear> second_;
};

}  // namespace

int main(int argc, char** argv) {
  mpi::Environment environment(&argc, &argv);
  {
    const mpi::Communicator world = mpi::Communicator::world();
    const auto collectives = mpi::make_collectives(world, {.timeout_s = 60});
    auto net = std::make_shared<Net>();
    parallel::DistributedDataParallel wrapper(
        net, world, *collectives, {.shares_parameters = std::string(argv[1]) == "shared", .checks_writes = true});
    auto optimizer = testing::make_optimizer(wrapper.parameters(), {{"name", "sgd"}});
    const batch::Batch batch{at::ones({4, 50}), at::ones({4, 2})};
    for (int step = 0; step < 5; ++step) {
      wrapper.train_step(batch, optimizer);
      if (step == 2) world.barrier();
      if (step < 2 || world.rank() + 1 < world.size()) continue;
      std::printf("step %d\n", step);
      std::fflush(nullptr);
      const torch::NoGradGuard no_grad;
      wrapper.store().parameter(2).tensor.mul_(0.5);
    }
    world.barrier();
  }
  environment.finish();
  std::fflush(nullptr);
  _exit(0);
}
