// SPDX-License-Identifier: BSD-3-Clause
// Updates 125 million parameters in 150 tensors by one rule. Its arguments are settings of section optim, such as
// name=adamw. Answers each line that it reads with the processor time of a step in ms and the mean square of the
// parameters after it. OPTIMIZERS_TENSORS in the environment is a number of tensors other than 150, divided by 3.
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "parallel/store/parameter_store.hpp"
#include "parallel/store/tensor_collectives.hpp"
#include "timing.hpp"

namespace {

using namespace lockstep;

constexpr std::uint64_t kSeed = 1337;      // the peer's: both draw the same numbers in the same order
constexpr std::size_t kCount = 2'500'000;  // parameters in a tensor of each shape

/// Parameters with gradients in memory of a bucket, as in a training.
std::vector<parallel::NamedParameter> make_parameters(mpi::Collectives& collectives) {
  const char* const given = std::getenv("OPTIMIZERS_TENSORS");
  const int tensors = given != nullptr ? std::atoi(given) : 50;  // tensors of each shape
  const mpi::BucketMemory bucket =
      collectives.allocate_bucket(static_cast<std::size_t>(tensors) * kCount * sizeof(float));
  std::byte* place = bucket.bytes.data();
  std::vector<parallel::NamedParameter> parameters;
  for (const std::int64_t rows : {2000, 490, 10}) {
    for (int i = 0; i < tensors; ++i) {
      const at::Tensor tensor = at::randn({rows, 1000}).requires_grad_();
      tensor.mutable_grad() = parallel::view_of(place, tensor, bucket.owner, at::kFloat);
      tensor.mutable_grad().normal_();
      place += tensor.nbytes();
      parameters.push_back({.name = "p" + std::to_string(parameters.size()), .tensor = tensor});
    }
  }
  return parameters;
}

optim::Optimizer make_optimizer(const std::vector<std::string>& settings, parallel::ParameterStore& store) {
  Section section = Section::with_defaults("optim", optim::optim_keys());
  for (const std::string& setting : settings) {
    const std::size_t sign = setting.find('=');
    section.set(setting.substr(0, sign), setting.substr(sign + 1), "bench");
  }
  std::vector<optim::ParameterInfo> infos;
  for (std::size_t i = 0; i < store.size(); ++i) infos.push_back({store.parameter(i).name, 2});
  const optim::Rule& rule = optim::find_rule(section.text("name"));
  return {rule, optim::build_groups(section, rule, infos), store};
}

double mean_square(const parallel::ParameterStore& store) {
  double sum = 0;
  double count = 0;
  for (std::size_t i = 0; i < store.size(); ++i) {
    const at::Tensor values = store.parameter(i).tensor.detach();
    for (const at::Tensor& row : values.split(100)) sum += row.to(at::kDouble).square_().sum().item<double>();
    count += static_cast<double>(values.numel());
  }
  return sum / count;
}

void run(const mpi::Communicator& world, const std::vector<std::string>& settings) {
  at::set_num_threads(1);
  at::manual_seed(kSeed);
  const auto collectives = mpi::make_collectives(world, {.backend = "self"});
  parallel::ParameterStore store(make_parameters(*collectives), world, *collectives, world.split(world.rank()));
  optim::Optimizer optimizer = make_optimizer(settings, store);
  for (std::string line; std::getline(std::cin, line);) {
    const double begin = bench::processor_milliseconds();
    optimizer.step();
    const double taken = bench::processor_milliseconds() - begin;
    std::printf("%.2f %.9g\n", taken, line == "check" ? mean_square(store) : 0);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  mpi::Environment environment(&argc, &argv);
  try {
    run(mpi::Communicator::world(), {argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_optimizers: %s\n", error.what());
    return 1;
  }
  environment.finish();
}
