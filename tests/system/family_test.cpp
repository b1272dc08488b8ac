// SPDX-License-Identifier: BSD-3-Clause
// A family of models of a user's program: its public weights go in and out under the names of a library.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/foreign/foreign.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {
namespace family_test {

using checkpoints::NamedArray;
using Values = std::map<std::string, std::vector<float>>;

std::string binary(const std::string& name) {
  const char* const binaries = std::getenv("LOCKSTEP_BINARY_DIR");
  return std::string(binaries != nullptr ? binaries : ".") + "/" + name;
}

std::string program() { return binary("tests/system/family_program"); }

NamedArray array_of(const std::string& name, std::vector<std::int64_t> shape, float first) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  const auto values = std::make_shared<std::vector<float>>();
  for (std::int64_t i = 0; i < count; ++i) values->push_back(first + 0.001F * static_cast<float>(i % 97));
  return {name,
          {.dtype = DType::float32,
           .shape = std::move(shape),
           .bytes = std::as_bytes(std::span(*values)),
           .owner = values}};
}

/// Weights of the library: those of a model with 8 hidden features and 10 classes.
std::vector<NamedArray> public_weights() {
  return {array_of("encoder.dense.weight", {8, 784}, -0.04F), array_of("encoder.dense.bias", {8}, 0.1F),
          array_of("encoder.scale", {8, 1, 1}, 0.9F), array_of("classifier.weight", {10, 8}, -0.3F),
          array_of("classifier.bias", {10}, 0.2F)};
}

Values values_in(const std::string& path) {
  const checkpoints::Archive archive = checkpoints::read_foreign(path);
  Values values;
  for (const std::string& name : archive.array_paths()) {
    const checkpoints::Array& array = archive.array(name);
    std::vector<float>& numbers = values[name];
    numbers.resize(array.bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), array.bytes.data(), array.bytes.size());
  }
  return values;
}

/// Trains one step from the public weights on two ranks.
ProgramResult train(const std::string& weights, const std::string& run, const std::string& arguments) {
  return run_shell(mpirun_command(2) + " " + program() + " --model.from=" + weights +
                   " --optim.name=sgd --data.train_size=96 --train.max_steps=1 --run.dir=" + run + " " + arguments);
}

ProgramResult convert(const std::string& run, const std::string& arguments) {
  return run_shell(program() + " ckpt convert " + run + " " + arguments);
}

TEST(FamilyTest, PublicWeightsGoInAndOut) {
  const TemporaryFolder folder;
  const std::string weights = folder.path("public.safetensors");
  checkpoints::write_foreign(weights, checkpoints::ExportKind::safetensors, public_weights(), {});

  // A step of this rate rounds to nothing: the values that come out are those that went in.
  const ProgramResult still = train(weights, folder.path("still"), "--optim.lr=1e-30");
  ASSERT_EQ(still.exit_code, 0) << still.output;
  const ProgramResult converted =
      convert(folder.path("still"), "--as paperlib --to " + folder.path("still.safetensors"));
  ASSERT_EQ(converted.exit_code, 0) << converted.output;
  EXPECT_NE(converted.output.find("load with tagger_small(hidden=8, num_classes=10)"), std::string::npos)
      << converted.output;
  EXPECT_EQ(values_in(folder.path("still.safetensors")), values_in(weights));
  EXPECT_EQ(checkpoints::read_foreign(folder.path("still.safetensors")).array("/encoder.scale").shape,
            (std::vector<std::int64_t>{8, 1, 1}));

  // A real step changes them, and its result has the library's names, too.
  const ProgramResult trained = train(weights, folder.path("trained"), "--optim.lr=0.1");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string theirs = folder.path("trained.pth");
  ASSERT_EQ(convert(folder.path("trained"), "--as paperlib --to " + theirs).exit_code, 0);
  ASSERT_EQ(convert(folder.path("trained"), "--to " + folder.path("own.pt")).exit_code, 0);
  Values public_values = values_in(theirs);
  Values own = values_in(folder.path("own.pt"));
  EXPECT_NE(public_values.at("/classifier.weight"), values_in(weights).at("/classifier.weight"));
  EXPECT_EQ(public_values.at("/classifier.weight"), own.at("/out.weight"));
  EXPECT_EQ(public_values.at("/encoder.dense.bias"), own.at("/in.bias"));
  EXPECT_EQ(public_values.at("/encoder.scale"), own.at("/scale"));
}

TEST(FamilyTest, WhatTheRowStatesIsKnown) {
  const TemporaryFolder folder;
  const std::string weights = folder.path("public.safetensors");
  checkpoints::write_foreign(weights, checkpoints::ExportKind::safetensors, public_weights(), {});
  const std::string one = mpirun_command(1) + " " + program();
  const ProgramResult config = run_shell(one + " config --model.from=" + weights);
  EXPECT_NE(config.output.find("tagger_small"), std::string::npos) << config.output;
  const ProgramResult unknown = run_shell(one + " --model.name=tagger_smal --run.dir=" + folder.path("a"));
  EXPECT_EQ(unknown.exit_code, 2) << unknown.output;
  EXPECT_NE(unknown.output.find("did you mean 'tagger_small'?"), std::string::npos) << unknown.output;
  const ProgramResult reset = train(weights, folder.path("reset"), "--init.head=reset");
  EXPECT_EQ(reset.exit_code, 0) << reset.output;
  EXPECT_NE(reset.output.find("init.head: out keeps its own initial values"), std::string::npos) << reset.output;
  const ProgramResult plain =
      run_shell(binary("ckpt") + " convert " + folder.path("reset") + " --as paperlib --to " + folder.path("x.pth"));
  EXPECT_EQ(plain.exit_code, 2) << plain.output;
  EXPECT_NE(plain.output.find("--as paperlib: it must be timm or torchvision"), std::string::npos) << plain.output;
}

}  // namespace family_test
}  // namespace lockstep::testing
