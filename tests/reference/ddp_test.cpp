// SPDX-License-Identifier: BSD-3-Clause
#include "ddp.hpp"

#include <lockstep/mpi/collectives.hpp>

#include <gtest/gtest.h>

namespace lockstep::testing::reference {

mpi::Collectives& world() {
  static const auto collectives =
      mpi::make_collectives(mpi::Communicator::world(), {.backend = "auto", .timeout_s = 60});
  return *collectives;
}

at::ScalarType dtype_of(const Json& one_case) { return one_case.at("dtype") == "float64" ? at::kDouble : at::kFloat; }

at::Tensor tensor_of(const Json& stored, at::ScalarType dtype) {
  const StoredNumbers values = numbers(stored);
  const at::Tensor tensor = torch::tensor(values.data, at::kDouble).view(values.shape);
  return tensor.to(values.dtype == "int64" ? at::kLong : dtype);
}

void expect_close(const at::Tensor& actual, const Json& expected, const Tolerance& tolerance, const std::string& what) {
  const StoredNumbers values = numbers(expected);
  EXPECT_EQ(actual.sizes(), at::IntArrayRef(values.shape)) << what;
  const at::Tensor wide = actual.detach().to(at::kDouble).contiguous();
  const auto* const begin = wide.const_data_ptr<double>();
  expect_close(std::vector<double>(begin, begin + wide.numel()), values.data, tolerance, what);
}

namespace ddp_test {

TEST(ReferenceTest, DataParallelTrainingIsThatOfTorch) {
  std::vector<Handler> all;
  for (const auto& handlers : {model_handlers(), sync_batch_norm_handlers(), training_handlers()}) {
    all.insert(all.end(), handlers.begin(), handlers.end());
  }
  run_topic("ddp", all);
}

}  // namespace ddp_test
}  // namespace lockstep::testing::reference
