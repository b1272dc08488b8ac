// SPDX-License-Identifier: BSD-3-Clause
// Which checkpoint a run continues from, and what may differ between the two.
#include "engine/resume/resume.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "checkpoints/store/store.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/settings/agreed.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep::engine {
namespace resume_test {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

const Settings kBase = with(kTwelveSteps, {{"resume", "auto"}});

class ResumeTest : public ::testing::Test {
 protected:
  /// Leaves checkpoints of steps 2, 4, 6 and 8.
  ResumeTest() {
    directory_ = world_.broadcast(folder_.path()) + "/ckpt";
    SmallRun run(world_, with(kBase, {{"train.max_steps", "8"}, {"ckpt.every", "2"}, {"ckpt.keep_last", "9"}}));
    run.trainer.add_hook(run.checkpoint_hook(directory_, ""));
    run.trainer.train();
    parameters_ = copies_of(run);
    world_.barrier();
  }
  ~ResumeTest() override { world_.barrier(); }

  static std::vector<at::Tensor> copies_of(SmallRun& run) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& parameter : run.model.wrapper->model().parameters()) copies.push_back(parameter.clone());
    return copies;
  }

  std::string state_of(std::int64_t step) const {
    return directory_ + "/" + checkpoints::folder_name(step) + "/state.h5";
  }

  /// Flips one bit in the middle of the state of a step.
  void damage(std::int64_t step) const {
    if (world_.is_root()) {
      std::string bytes = testing::read_file(state_of(step));
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
      testing::write_file(state_of(step), bytes);
    }
    world_.barrier();
  }

  /// Puts a changed copy of the checkpoint of step 8 into another folder, as `step`.
  std::string put_changed(const std::string& name, std::int64_t step,
                          const std::function<void(checkpoints::Archive&)>& change) const {
    const std::string other = directory_ + "-" + name;
    if (world_.is_root()) {
      checkpoints::Archive archive = checkpoints::read(directory_ + "/step-000000000008");
      change(archive);
      archive.set("/", "step", step);
      checkpoints::write(other, step, archive);
    }
    world_.barrier();
    return other;
  }
  static std::function<void(checkpoints::Archive&)> of_run(const std::string& id) {
    return [id](checkpoints::Archive& archive) { archive.set("/", "run_id", id); };
  }

  /// The sentence that `resume` says when it fails; "" when it does not.
  std::string error_of_resume(const Settings& settings) { return error_of_resume(settings, directory_); }
  std::string error_of_resume(const Settings& settings, const std::string& directory) {
    SmallRun run(world_, with(kBase, settings));
    try {
      load_or_resume(run.trainer, agreed(world_, [&] { return ResumeSettings::from(run.sections); }), directory);
      return "";
    } catch (const Error& error) {
      EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
      return error.what();
    }
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string directory_;
  std::vector<at::Tensor> parameters_;  // parameters at step 8
};

TEST_F(ResumeTest, ADamagedCheckpointIsSkippedAndTheNextOlderOneTaken) {
  damage(8);
  damage(6);
  SmallRun run(world_, kBase);
  EXPECT_EQ(load_or_resume(run, directory_), directory_ + "/step-000000000004");
  EXPECT_EQ(run.trainer.progress().step, 4);
  world_.barrier();
  EXPECT_EQ(checkpoints::list(directory_), (Steps{2, 4}));
  EXPECT_TRUE(fs::exists(directory_ + "/.bad-step-000000000008.1"));
  EXPECT_TRUE(fs::exists(directory_ + "/.bad-step-000000000006.1"));
}

TEST_F(ResumeTest, NotMoreThanAskedForAreTried) {
  damage(8);
  damage(6);
  const std::string error = error_of_resume({{"resume.max_fallback", "1"}});
  EXPECT_NE(error.find("none of the 2 latest checkpoints can be read"), std::string::npos) << error;
  EXPECT_NE(error.find("step-000000000008/state.h5: it is damaged"), std::string::npos) << error;
  EXPECT_NE(error.find("step-000000000006/state.h5: it is damaged"), std::string::npos) << error;
}

TEST_F(ResumeTest, ARunWithOnlyDamagedOnesStartsFromTheBeginningOnlyWhenAskedTo) {
  for (const std::int64_t step : {2, 4, 6, 8}) damage(step);
  const std::string error = error_of_resume({});
  EXPECT_NE(error.find("resume.allow_fresh=true"), std::string::npos) << error;
}

TEST_F(ResumeTest, AFreshStartThatWasAskedFor) {
  for (const std::int64_t step : {2, 4, 6, 8}) damage(step);
  SmallRun run(world_, with(kBase, {{"resume.allow_fresh", "true"}}));
  EXPECT_EQ(load_or_resume(run, directory_), std::nullopt);
  EXPECT_EQ(run.trainer.progress().step, 0);
}

// The numbers of an epoch that was interrupted are those of the whole of it.
TEST_F(ResumeTest, MetersOfAnEpochContinueWhereTheyWere) {
  const Settings metered = with(kBase, {{"train.metrics", "top_k,k=1"}, {"train.metrics", "auroc"}});
  const std::string directory = directory_ + "-metered";
  const auto epoch_of = [&](const Settings& settings) {
    SmallRun run(world_, settings);
    std::vector<Record> epochs;
    run.trainer.add_reporter([&](const Record& record) {
      if (record.kind == "epoch") epochs.push_back(record);
    });
    run.trainer.add_hook(train_meters_hook(cited_texts(run.sections.at("train"), "metrics")));
    run.trainer.add_hook(run.checkpoint_hook(directory, ""));
    load_or_resume(run, directory);
    run.trainer.train();
    EXPECT_EQ(epochs.size(), world_.is_root() ? 1U : 0U);
    return epochs.empty() ? Record() : epochs.front();
  };
  const Record whole = epoch_of(with(metered, {{"ckpt.every", "5"}, {"ckpt.keep_last", "9"}}));
  const Record resumed = epoch_of(with(metered, {{"resume", "5"}}));
  EXPECT_EQ(resumed.values, whole.values);
  // Others have nothing to continue from.
  const Record other = epoch_of(with(kBase, {{"resume", "5"}, {"train.metrics", "top_k,k=2"}}));
  if (!world_.is_root()) return;
  const auto samples_of = [](const Record& record) {
    for (const auto& [name, value] : record.values) {
      if (name == "train/samples") return std::get<std::int64_t>(value);
    }
    return std::int64_t{-1};
  };
  EXPECT_EQ(samples_of(whole), 96);
  EXPECT_EQ(samples_of(other), 36);
}

TEST_F(ResumeTest, AStepAskedForByNumberHasNoSubstitute) {
  damage(8);
  const std::string error = error_of_resume({{"resume", "8"}});
  EXPECT_NE(error.find("it is damaged"), std::string::npos) << error;
  EXPECT_TRUE(fs::exists(state_of(8)));
}

// Another program's version says nothing against the file.
TEST_F(ResumeTest, AnotherVersionIsNotSkipped) {
  if (world_.is_root()) {
    std::string bytes = testing::read_file(state_of(8));
    bytes[8] = 0;
    testing::write_file(state_of(8), bytes);
  }
  world_.barrier();
  const std::string error = error_of_resume({});
  EXPECT_NE(error.find("it has format version 0, but this program reads version 1 only"), std::string::npos) << error;
  EXPECT_TRUE(fs::exists(state_of(8)));
}

TEST_F(ResumeTest, AnotherModelIsRefusedUnlessAPartIsEnough) {
  const Settings wider = {{"model.hidden", "16,16"}};
  EXPECT_NE(error_of_resume(wider).find("/model/params/hidden1.weight is missing"), std::string::npos);
  SmallRun run(world_, with(with(kBase, wider), {{"resume.partial", "model"}}));
  const at::Tensor fresh = run.model.wrapper->model().named_parameters()["hidden1.weight"].clone();
  load_or_resume(run, directory_);
  auto now = run.model.wrapper->model().named_parameters();
  EXPECT_TRUE(at::equal(now["hidden0.weight"], parameters_[0]));
  EXPECT_TRUE(at::equal(now["hidden1.weight"], fresh));
  EXPECT_EQ(run.trainer.progress().step, 8);
  run.trainer.train();  // the moments of what was not taken begin at zero
  EXPECT_EQ(run.losses.size(), 4U);
}

TEST_F(ResumeTest, ResetPartsStartAgain) {
  SmallRun run(world_, with(kBase, {{"resume.reset", "optim, sampler,rng"}}));
  load_or_resume(run, directory_);
  EXPECT_EQ(run.updates.first().optimizer().steps(0)[0], 0);
  EXPECT_EQ(run.trainer.progress().step_in_epoch, 0);
  EXPECT_EQ(run.trainer.progress().epoch, 0);
  EXPECT_EQ(run.trainer.progress().step, 8);
  EXPECT_NE(error_of_resume({{"resume.reset", "moments"}}).find("'moments' is unknown; choose one of: optim"),
            std::string::npos);
}

// With a linear decay from 1 over 12 steps a run that began its schedule again at step 8 is at its beginning there, and
// remembers it in its own checkpoints.
TEST_F(ResumeTest, AScheduleThatBeganAgainContinuesFromThere) {
  const Settings decay = {{"sched.rule", "linear,start_factor=1,end_factor=0.5,end=4"}, {"train.max_steps", "16"}};
  SmallRun run(world_, with(with(kBase, decay), {{"resume.reset", "sched"}}));
  load_or_resume(run, directory_);
  EXPECT_EQ(run.trainer.view().schedule.begin(), 8);
  const optim::ParamGroup& group = run.updates.first().optimizer().groups().front();
  EXPECT_EQ(run.trainer.view().schedule.factor(8, group), 1.0);
  EXPECT_EQ(run.trainer.view().schedule.factor(12, group), 0.5);
  const checkpoints::Archive archive = capture(run.trainer, "", true);
  SmallRun again(world_, with(kBase, decay));
  restore(again.trainer, archive);
  EXPECT_EQ(again.trainer.view().schedule.begin(), 8);
}

TEST_F(ResumeTest, RenamedParametersFindTheirPlace) {
  checkpoints::Archive old = checkpoints::read(directory_ + "/step-000000000008");
  SmallRun run(world_, kBase);
  RestoreOptions away;
  away.renames = {{"hidden0.", "first."}};
  EXPECT_THROW(restore(run.trainer, old, away), CheckpointError);  // the run has no "first."
  RestoreOptions there_and_back = away;
  there_and_back.renames = {{"nothing", "x"}, {"hidden0.w", "hidden0.w"}};
  restore(run.trainer, old, there_and_back);
  EXPECT_TRUE(at::equal(run.model.wrapper->model().parameters()[0], parameters_[0]));
  RestoreOptions by_pattern;
  by_pattern.renames = {{"re:^(h)id+en([0-9])", "$1idden$2"}};
  restore(run.trainer, old, by_pattern);
  EXPECT_NE(error_of_resume({{"resume.rename", "no equals sign"}}).find("does not have the form FROM=TO"),
            std::string::npos);
}

/// A copy of `array` with other bytes.
checkpoints::Array edited(const checkpoints::Array& array, const std::function<void(std::span<std::byte>)>& edit) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(array.bytes.begin(), array.bytes.end());
  edit(*bytes);
  return {.dtype = array.dtype, .shape = array.shape, .bytes = *bytes, .owner = bytes};
}

/// The same archive with another array, or none, at `path`.
checkpoints::Archive with_array(const checkpoints::Archive& archive, const std::string& path, const std::string& name,
                                const std::optional<checkpoints::Array>& array) {
  checkpoints::Archive result;
  result.set_origin(archive.origin());
  for (const auto& [key, value] : archive.attributes_of("/")) result.set("/", key, value);
  for (const std::string& group : archive.group_paths()) {
    result.add_group(group);
    for (const auto& [key, value] : archive.attributes_of(group)) result.set(group, key, value);
  }
  for (const std::string& array_path : archive.array_paths()) {
    if (array_path != path) {
      result.put(array_path, archive.array(array_path));
    } else if (array) {
      result.put(name, *array);
    }
  }
  return result;
}

// E-NAN
TEST_F(ResumeTest, ParametersThatAreNotFiniteAreRefusedUnlessAllowed) {
  const std::string weight = "/model/params/hidden0.bias";
  const std::string other = put_changed("nan", 8, [&](checkpoints::Archive& archive) {
    const float nan = std::nanf("");
    const auto change = [nan](std::span<std::byte> bytes) { std::memcpy(bytes.data() + 12, &nan, sizeof nan); };
    archive = with_array(archive, weight, weight, edited(archive.array(weight), change));
  });
  const std::string error = error_of_resume({}, other);
  EXPECT_NE(error.find(weight + " holds 1 NaN and 0 infinite elements, the first at [3]"), std::string::npos) << error;
  EXPECT_NE(error.find("resume.allow_nonfinite=true"), std::string::npos) << error;
  EXPECT_EQ(checkpoints::list(other), (Steps{8}));  // it is no damage
  EXPECT_EQ(error_of_resume({{"resume.allow_nonfinite", "true"}}, other), "");
}

// E-RUNID
TEST_F(ResumeTest, CheckpointsOfTwoRunsAreRefusedUnlessTheRunForks) {
  put_changed("runs", 6, of_run("00000000000000aa"));
  const std::string other = put_changed("runs", 8, of_run("00000000000000bb"));
  const std::string error = error_of_resume({}, other);
  EXPECT_NE(error.find("step-000000000006 is of run 00000000000000aa"), std::string::npos) << error;
  EXPECT_NE(error.find("of run 00000000000000bb"), std::string::npos) << error;
  EXPECT_NE(error.find("resume.fork=true"), std::string::npos) << error;
  EXPECT_EQ(checkpoints::list(other), (Steps{6, 8}));
  SmallRun run(world_, with(kBase, {{"resume.fork", "true"}}));
  EXPECT_EQ(load_or_resume(run, other), other + "/step-000000000008");
  EXPECT_EQ(run.trainer.view().origin.run_id, "00000000000000bb");
  world_.barrier();
  EXPECT_EQ(checkpoints::list(other), (Steps{8}));
  EXPECT_TRUE(fs::exists(other + "/.old-step-000000000006.1"));
}

TEST_F(ResumeTest, ARunKeepsItsIdAndACopiedBeginningGetsAnother) {
  put_changed("one", 6, of_run("00000000000000aa"));
  const std::string other = put_changed("one", 8, of_run("00000000000000aa"));
  SmallRun run(world_, kBase);
  load_or_resume(run, other);
  EXPECT_EQ(run.trainer.view().origin.run_id, "00000000000000aa");
  SmallRun fork(world_, with(kBase, {{"resume", other + "/step-000000000006"}}));
  load_or_resume(fork, directory_ + "-new");
  EXPECT_EQ(fork.trainer.view().origin.run_id, "");  // the session draws one
}

// E-EMPTYDIR, E-MISSGRP, E-ATTRTYPE, E-MISSING, E-GROUPS, E-RNGLEN: what is said, with the way on.
TEST_F(ResumeTest, WhatIsMissingOrDiffersIsNamedWithItsRemedy) {
  const std::string empty = directory_ + "-empty";
  if (world_.is_root()) fs::create_directories(empty + "/.bad-step-000000000003.1");
  world_.barrier();
  const auto expect = [&](const std::string& error, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error << " / " << part;
  };
  expect(error_of_resume({{"resume", "must"}}, empty), {empty, "no folder named", "0 unfinished and 1 bad ones"});

  const auto error_with = [&](const std::string& name, const std::function<void(checkpoints::Archive&)>& change) {
    return error_of_resume({}, put_changed(name, 8, change));
  };
  expect(error_with("group", [](auto& archive) { archive = with_array(archive, "/optim/0/step", "", std::nullopt); }),
         {"/optim/0/step: the array does not exist"});
  expect(error_with("type", [](auto& archive) { archive.set("/sampler", "seed", std::string("x")); }),
         {"/sampler: attribute 'seed' is a text, not an integer"});
  const std::string weight = "/model/params/hidden0.weight";
  const std::string longer = "/model/params/module.hidden0.weight";
  expect(error_with("prefix",
                    [&](auto& archive) { archive = with_array(archive, weight, longer, archive.array(weight)); }),
         {weight + " is missing (did you mean 'module.hidden0.weight', which exists?)",
          longer + " is not in the model of the run", "resume.partial=model", "resume.rename=FROM=TO"});
  expect(error_with("groups", [](auto& archive) { archive.set("/optim/0/groups/1", "name", std::string("bias")); }),
         {"its parameter groups are [", ", bias], the run's are [", "resume.reset=optim"});
  const checkpoints::Array short_state{.dtype = DType::uint8, .shape = {1, 0}, .bytes = {}, .owner = nullptr};
  const auto shorten = [&](auto& archive) { archive = with_array(archive, "/rng/cpu", "/rng/cpu", short_state); };
  expect(error_with("rng", shorten),
         {"its generators have a state of 0 bytes, but those of this LibTorch (2.", "resume.reset=rng"});
  EXPECT_EQ(error_of_resume({{"resume.reset", "rng"}}, directory_ + "-rng"), "");
  expect(error_of_resume({{"optim.name", "sgd"}}), {"its optimizer is adamw", "resume.reset=optim"});
  expect(error_of_resume({{"data.train_size", "99"}}), {"trained on 100 samples", "resume.reset=sampler"});
  expect(error_of_resume({{"model.hidden", "17"}}),
         {"float32 [16, 784], the run has float32 [17, 784]", "resume.partial=model"});
}

/// Keeps the state after every step.
class KeepingHook : public Hook {
 public:
  KeepingHook(Trainer& trainer, std::vector<checkpoints::Archive>& states) : trainer_(&trainer), states_(&states) {}
  void after_step(RunView&, const StepReport&) override {
    const checkpoints::Archive live = capture(*trainer_, "", true);
    states_->push_back(live.with_arrays([](const std::string&, const checkpoints::Array& array) {
      const auto kept = std::make_shared<std::vector<std::byte>>(array.bytes.begin(), array.bytes.end());
      return checkpoints::Array{.dtype = array.dtype, .shape = array.shape, .bytes = *kept, .owner = kept};
    }));
  }

 private:
  Trainer* trainer_;
  std::vector<checkpoints::Archive>* states_;
};

// Across the ends of epochs (8 steps), with dropout, several forwards a step, clipping and a schedule.
TEST(ExactnessTest, FromEveryOneOf60StepsTheEndIsTheSame) {
  const mpi::Communicator world = mpi::Communicator::world();
  const Settings settings = {{"model.name", "cnn"},
                             {"model.channels", "2,4"},
                             {"model.hidden", "8"},
                             {"model.dropout", "0.2"},
                             {"data.train_size", "96"},
                             {"train.global_batch_size", "12"},
                             {"train.max_steps", "60"},
                             {"train.micro_batch", "2"},
                             {"train.clip_norm", "1"},
                             {"optim.name", "adamw"},
                             {"sched.rule", "cosine,final_factor=0.1"}};
  std::vector<checkpoints::Archive> states;
  SmallRun straight(world, settings);
  straight.trainer.add_hook(Priority::very_low, std::make_unique<KeepingHook>(straight.trainer, states));
  straight.trainer.train();
  ASSERT_EQ(states.size(), 60U);
  const std::uint64_t seed = testing::test_seed();
  for (std::size_t step = 1; step < 60; ++step) {
    if (!testing::is_long_run() && (step + seed) % 6 != 0) continue;
    SmallRun resumed(world, settings);
    restore(resumed.trainer, states[step - 1]);
    resumed.trainer.train();
    EXPECT_EQ(resumed.losses,
              std::vector<double>(straight.losses.begin() + static_cast<std::ptrdiff_t>(step), straight.losses.end()))
        << "from step " << step;
    EXPECT_EQ(testing::differences(states.back(), capture(resumed.trainer, "", true)), "") << "from step " << step;
  }
}

// A job that is requeued, but dies before its next checkpoint: after three starts from one step it is given up.
TEST_F(ResumeTest, AJobThatNeverGetsOnIsGivenUp) {
  const auto start = [&](std::int64_t step, std::optional<int> restarts, std::int64_t max = 3) -> std::string {
    try {
      limit_starts(world_, directory_, step, world_.is_root() ? restarts : std::nullopt, max);
      return "";
    } catch (const CheckpointError& error) {
      EXPECT_TRUE(error.is_agreed() || world_.size() == 1);
      return error.what();
    }
  };
  for (const int restarts : {0, 1, 2}) EXPECT_EQ(start(8, restarts), "") << restarts;
  for (int i = 0; i < 9; ++i) EXPECT_EQ(start(8, std::nullopt), "");  // manually: not counted
  EXPECT_NE(start(8, 3).find("the last 3 starts of this job resumed from step 8, and none reached another checkpoint"),
            std::string::npos);
  EXPECT_NE(start(8, 4), "");
  EXPECT_EQ(start(8, 5, 0), "");  // no limit
  EXPECT_EQ(start(8, 0), "");     // submitted again
  EXPECT_EQ(start(8, 1), "");
  EXPECT_EQ(start(9, 2), "");  // it has got on
  for (const int restarts : {3, 4}) EXPECT_EQ(start(9, restarts), "") << restarts;
  EXPECT_NE(start(9, 5), "");
}

TEST_F(ResumeTest, HowExactlyItContinues) {
  const checkpoints::Archive archive = checkpoints::read(directory_ + "/step-000000000008");
  SmallRun run(world_, kBase);
  EXPECT_EQ(reproducibility_of(run.trainer, archive, {}).text(), "bitwise");
  EXPECT_EQ(reproducibility_of(run.trainer, archive, {.resets_optim = true}).level,
            Reproducibility::Degree::statistical);
  checkpoints::Archive elsewhere = archive;
  elsewhere.set("/", "world_size", std::int64_t{7});
  EXPECT_EQ(reproducibility_of(run.trainer, elsewhere, {}).text(),
            "order, because it was written by 7 ranks and train.lanes is off");
}

}  // namespace resume_test
}  // namespace lockstep::engine
