// SPDX-License-Identifier: BSD-3-Clause
// Trainings with batches of bytes have the bits of those with float32 batches, and batches have the order of the model.
#include <gtest/gtest.h>

#include "small_run.hpp"
#include "support/sentence.hpp"

namespace lockstep::engine {
namespace image_output_test {

const Settings kImages = {{"data.name", "synthetic"},
                          {"data.shape", "3,40,40"},
                          {"data.size", "60"},
                          {"data.classes", "4"},
                          {"data.transform", "random_resized_crop,size=32"},
                          {"data.transform", "normalize"},
                          {"data.val_transform", "resize,size=32,32"},
                          {"data.val_transform", "normalize"},
                          {"model.name", "resnet18"},
                          {"model.width", "8"},
                          {"optim.lr", "0.05"},
                          {"train.global_batch_size", "12"},
                          {"train.max_steps", "4"}};

/// Types and orders of the inputs, as loaded and as the model gets them.
class OrderHook : public Hook {
 public:
  void on_forward(RunView&, const LastBatch& last) override {
    given.push_back(last.given->input().scalar_type());
    prepared.push_back(last.batch->input().scalar_type());
    given_is_last = given_is_last && last.given->input().is_contiguous(at::MemoryFormat::ChannelsLast);
    prepared_is_last = prepared_is_last && last.batch->input().is_contiguous(at::MemoryFormat::ChannelsLast);
  }
  std::vector<at::ScalarType> given;
  std::vector<at::ScalarType> prepared;
  bool given_is_last = true;
  bool prepared_is_last = true;
};

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
  EvaluationResult evaluation;
};

Trained trained(const Settings& settings, at::ScalarType loaded, bool is_last) {
  const mpi::Communicator world = mpi::Communicator::world();
  SmallRun run(world, settings);
  auto hook = std::make_unique<OrderHook>();
  const OrderHook& seen = *hook;
  run.trainer.add_hook(Priority::high, std::move(hook));
  run.trainer.train();
  EXPECT_EQ(seen.given.size(), 4U);
  for (const at::ScalarType type : seen.given) EXPECT_EQ(type, loaded);
  for (const at::ScalarType type : seen.prepared) EXPECT_EQ(type, at::kFloat);
  EXPECT_EQ(seen.given_is_last, is_last || loaded == at::kByte);
  EXPECT_EQ(seen.prepared_is_last, is_last);
  Trained result{.losses = run.losses, .parameters = {}, .evaluation = evaluate(run, *run.splits.val, 5)};
  for (const at::Tensor& parameter : run.model.wrapper->model().parameters()) {
    result.parameters.push_back(parameter.detach().clone());
  }
  return result;
}

void expect_equal(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.losses, b.losses);
  for (std::size_t i = 0; i < a.parameters.size(); ++i) EXPECT_TRUE(a.parameters[i].equal(b.parameters[i])) << i;
  EXPECT_EQ(a.evaluation.losses, b.evaluation.losses);
  EXPECT_EQ(a.evaluation.correct, b.evaluation.correct);
}

TEST(ImageOutputRunTest, BytesTrainWithTheBitsOfFloats) {
  const Trained floats = trained(kImages, at::kFloat, true);
  expect_equal(trained(with(kImages, {{"data.output", "uint8"}}), at::kByte, true), floats);
  const Settings bytes = {{"data.output", "uint8"}, {"data.workers", "0"}, {"train.micro_batch", "4"}};
  if (mpi::Communicator::world().size() == 3) expect_equal(trained(with(kImages, bytes), at::kByte, true), floats);
}

TEST(ImageOutputRunTest, AModelOfPlanesGetsPlanes) {
  const Settings cnn = with(kImages, {{"model.name", "cnn"}, {"model.channels", "4,8"}});
  const Trained floats = trained(cnn, at::kFloat, false);
  expect_equal(trained(with(cnn, {{"data.output", "uint8"}}), at::kByte, false), floats);
}

TEST(ImageOutputRunTest, MixedSamplesAreFloats) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Settings mixed = with(kImages, {{"train.mix", "mixup"}});
  trained(mixed, at::kFloat, true);
  EXPECT_EQ(testing::sentence_of<ConfigError>([&] {
              const SmallRun run(world, with(mixed, {{"data.output", "uint8"}}));
            }),
            "train.mix (test): samples are mixed as float32 numbers, but with data.output = uint8 the batches contain "
            "bytes; remove train.mix or set data.output=float");
}

}  // namespace image_output_test
}  // namespace lockstep::engine
