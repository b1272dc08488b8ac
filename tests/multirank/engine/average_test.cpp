// SPDX-License-Identifier: BSD-3-Clause
// An average of past weights in a run: what it is, what it is evaluated as, and how it is saved and resumed.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/setup/init_from.hpp"
#include "engine/state/stored_model.hpp"
#include "small_run.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace average_test {

using checkpoints::Archive;
using Values = std::vector<at::Tensor>;

// Four steps are an epoch.
const Settings kCnn = {{"model.name", "cnn"},     {"model.channels", "4,8"},         {"model.hidden", "16"},
                       {"model.dropout", "0.1"},  {"optim.name", "adamw"},           {"optim.lr", "0.01"},
                       {"data.train_size", "50"}, {"train.global_batch_size", "12"}, {"data.val_size", "20"},
                       {"data.workers", "0"},     {"train.max_steps", "8"},          {"eval.batch_size", "10"},
                       {"eval.every", "2"}};
const Settings kResnet = with(
    kCnn, {{"model.name", "resnet18"}, {"model.width", "8"}, {"ema.buffers", "average"}, {"train.max_steps", "6"}});
const Settings kSwa = {{"ema.kind", "swa"}};

Values values_of(WrappedModel& model) {
  Values values;
  for (const at::Tensor& parameter : model.wrapper->model().parameters()) values.push_back(parameter.detach().clone());
  return values;
}

bool is_equal(const Values& a, const Values& b) {
  bool all = a.size() == b.size();
  for (std::size_t i = 0; all && i < a.size(); ++i) all = at::equal(a[i], b[i]);
  return all;
}

/// Keeps the weights of every step.
class WatchingHook : public Hook {
 public:
  WatchingHook(Trainer& trainer, std::vector<Values>& steps) : trainer_(&trainer), steps_(&steps) {}
  void after_step(RunView&, const StepReport&) override { steps_->push_back(values_of(trainer_->run().model)); }

 private:
  Trainer* trainer_;
  std::vector<Values>* steps_;
};

/// Gathers the state after step 4 as a checkpoint would: that gives all ranks the same buffers.
class CapturingHook : public Hook {
 public:
  explicit CapturingHook(Trainer& trainer) : trainer_(&trainer) {}
  void after_step(RunView& view, const StepReport& report) override {
    if (report.progress.step == 4) capture(*trainer_, "", view.world.is_root());
  }

 private:
  Trainer* trainer_;
};

struct AveragedRun : SmallRun {
  AveragedRun(const mpi::Communicator& world, const Settings& settings, const Registry& registry = builtin_registry())
      : SmallRun(world, settings, registry) {
    trainer.add_hook(Priority::very_high, std::make_unique<WatchingHook>(trainer, steps));
    trainer.add_hook(average_hook(EmaSettings::from(sections.at("ema"))));
    trainer.add_hook(evaluate_hook(sections));
  }

  double validation_loss() const {
    for (const auto& [name, value] : trainer.view().measured.values) {
      if (name == "val/loss") return value;
    }
    return -1;
  }

  std::vector<Values> steps;
};

class AverageTest : public ::testing::Test {
 protected:
  AverageTest() : shared_(world_.broadcast(folder_.path())) {}
  ~AverageTest() override { world_.barrier(); }

  /// The values that `run` holds, written and read again on every rank. Collective over the ranks of the run.
  Archive through_a_file(SmallRun& run, const std::string& name) const {
    const Archive archive = capture(run.trainer, "", run.resources.world.is_root());
    const std::string folder = shared_ + "/" + name;
    if (run.resources.world.is_root()) checkpoints::write(folder, run.trainer.progress().step, archive);
    run.resources.world.barrier();
    return checkpoints::read(folder + "/" + checkpoints::folder_name(run.trainer.progress().step));
  }

  /// The end of a run.
  Archive end_of(const Settings& settings, const std::string& name) const {
    AveragedRun run(world_, settings);
    run.trainer.train();
    return through_a_file(run, name);
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  testing::TemporaryFolder folder_;
  std::string shared_;  // rank 0's folder
};

at::Tensor tensor_in(const Archive& archive, const std::string& path) {
  const checkpoints::Array& array = archive.array(path);
  return at::from_blob(const_cast<std::byte*>(array.bytes.data()), array.shape, at::kFloat).clone();
}

/// Names of parameters whose stored averages differ.
std::string different_averages(const Archive& left, const Archive& right) {
  std::string names;
  EXPECT_EQ(left.arrays_in("/ema/params"), right.arrays_in("/ema/params"));
  for (const std::string& name : left.arrays_in("/ema/params")) {
    if (!at::equal(tensor_in(left, "/ema/params/" + name), tensor_in(right, "/ema/params/" + name)))
      names += name + " ";
  }
  return names;
}

/// The largest difference between the stored average and the mean of what the weights were after the steps from
/// `first` on.
double distance_to_mean(const Archive& archive, AveragedRun& run, std::size_t first) {
  double largest = 0;
  std::size_t i = 0;
  for (const auto& item : run.model.wrapper->model().named_parameters()) {
    at::Tensor sum = at::zeros_like(item.value(), at::kDouble);
    for (std::size_t step = first; step <= run.steps.size(); ++step) sum += run.steps[step - 1][i];
    const at::Tensor mean = sum / static_cast<double>(run.steps.size() - first + 1);
    const at::Tensor stored = tensor_in(archive, "/ema/params/" + item.key());
    largest = std::max(largest, (stored - mean).abs().max().item<double>());
    ++i;
  }
  return largest;
}

TEST_F(AverageTest, IsTheMeanOfTheWeightsInSharedAndInPrivateMemory) {
  std::map<std::string, Archive> ends;
  for (const std::string shares : {"true", "false"}) {
    for (const std::string begin : {"1", "3"}) {
      AveragedRun run(world_, with(with(kCnn, kSwa), {{"ddp.shared_parameters", shares}, {"ema.begin", begin}}));
      run.trainer.train();
      const Archive archive = through_a_file(run, shares + begin);
      const std::size_t first = begin == "1" ? 1 : 3;
      // Weights are below 1 in magnitude, and an average is rounded once in a step.
      EXPECT_LE(distance_to_mean(archive, run, first), 1e-6);
      EXPECT_GT(distance_to_mean(archive, run, first + 1), 1e-4);  // the comparison can fail
      EXPECT_EQ(archive.integer("/ema", "updates"), 9 - std::stoi(begin));
      ends[shares + begin] = archive;
    }
  }
  for (const std::string begin : {"1", "3"}) {
    EXPECT_EQ(testing::differences(ends["true" + begin], ends["false" + begin]), "");
  }
}

// A program's own row: each update replaces the average by the weights.
TEST_F(AverageTest, AProgramAddsAverages) {
  Registry registry;
  registry.averages.push_back({.name = "latest", .help = "the weights", .weight = [](const auto&, auto) { return 1; }});
  AveragedRun run(world_, with(kCnn, {{"ema.kind", "latest"}}), registry);
  run.trainer.train();
  const Archive archive = through_a_file(run, "latest");
  EXPECT_EQ(archive.text("/ema", "kind"), "latest");
  std::size_t i = 0;
  for (const auto& item : run.model.wrapper->model().named_parameters()) {
    EXPECT_TRUE(at::equal(tensor_in(archive, "/ema/params/" + item.key()), run.steps.back()[i++])) << item.key();
  }
  EXPECT_THROW(AveragedRun(world_, with(kCnn, {{"ema.kind", "latest"}})), ConfigError);
}

TEST_F(AverageTest, ChangesNoBitOfTheTraining) {
  for (const Settings& base : {kCnn, kResnet}) {
    AveragedRun without(world_, base);
    without.trainer.train();
    AveragedRun averaged(world_, with(base, {{"ema.kind", "ema"}, {"ema.decay", "0.8"}}));
    averaged.trainer.train();
    EXPECT_EQ(averaged.losses, without.losses);
    EXPECT_TRUE(is_equal(values_of(averaged.model), values_of(without.model)));
    EXPECT_NE(averaged.validation_loss(), without.validation_loss());
  }
}

TEST_F(AverageTest, IsWhatIsEvaluated) {
  for (const Settings& base : {kCnn, kResnet}) {
    AveragedRun run(world_, with(base, kSwa));
    run.trainer.train();
    EXPECT_TRUE(is_equal(values_of(run.model), run.steps.back()));
    AveragedRun trained(world_, with(with(base, kSwa), {{"eval.weights", "trained"}}));
    trained.trainer.train();
    EXPECT_NE(run.validation_loss(), trained.validation_loss());
    const Archive archive = through_a_file(run, base == kCnn ? "cnn" : "resnet");
    for (const bool is_average : {true, false}) {
      SmallRun other(world_, base);
      restore_model(other.resources.world, *other.model.wrapper, with_model(archive, is_average));
      const double loss = evaluate(other, *other.splits.val, 10).mean_loss();
      const double expected = (is_average ? run : trained).validation_loss();
      // Statistics of equal ranks are averaged once more, which may round.
      EXPECT_NEAR(loss, expected, base == kCnn ? 0 : 1e-5 * expected);
    }
  }
}

TEST_F(AverageTest, LeavesNothingBehindWhenAnEvaluationFails) {
  for (const std::string shares : {"true", "false"}) {
    const Settings settings = with(with(kResnet, kSwa), {{"ddp.shared_parameters", shares}, {"train.max_steps", "2"}});
    AveragedRun run(world_, settings);
    run.trainer.train();
    const Archive before = through_a_file(run, "before" + shares);
    Values inside;
    EXPECT_THROW(with_average(*run.model.wrapper, run.updates.average.get(),
                              [&] {
                                inside = values_of(run.model);
                                world_.barrier();
                                throw std::runtime_error("not enough memory");
                              }),
                 std::runtime_error);
    world_.barrier();
    EXPECT_FALSE(is_equal(inside, run.steps.back()));
    EXPECT_TRUE(is_equal(values_of(run.model), run.steps.back()));
    EXPECT_EQ(testing::differences(through_a_file(run, "after" + shares), before), "");
  }
}

// Before it begins the average is the weights, and stands in a checkpoint as their second name.
TEST_F(AverageTest, BeginsAtItsFirstStep) {
  AveragedRun early(world_, with(with(kCnn, kSwa), {{"ema.begin", "2epochs"}, {"train.max_steps", "8"}}));
  early.trainer.train();
  EXPECT_EQ(early.updates.average->updates(), 4);  // the second epoch is 4 of the 8 steps
  AveragedRun ends(world_, with(with(kCnn, kSwa), {{"ema.every", "1epochs"}, {"train.max_steps", "8"}}));
  ends.trainer.train();
  EXPECT_EQ(ends.updates.average->updates(), 2);  // steps 4 and 8
  AveragedRun changing(world_, with(with(kCnn, kSwa), {{"ema.every", "2 then 1@6"}, {"train.max_steps", "8"}}));
  changing.trainer.train();
  EXPECT_EQ(changing.updates.average->updates(), 5);  // steps 2, 4, 6, 7 and 8
  AveragedRun all(world_, with(kCnn, kSwa));
  all.trainer.train();
  EXPECT_EQ(all.updates.average->updates(), 8);

  AveragedRun late(world_, with(with(kCnn, kSwa), {{"ema.begin", "5"}, {"train.max_steps", "5"}}));
  late.trainer.train();
  const Archive archive = through_a_file(late, "late");
  for (const std::string& name : archive.arrays_in("/model/params")) {
    EXPECT_TRUE(at::equal(tensor_in(archive, "/ema/params/" + name), tensor_in(archive, "/model/params/" + name)));
  }
  EXPECT_EQ(late.updates.average->updates(), 1);

  SmallRun fresh(world_, with(kCnn, kSwa));
  const Archive begun = through_a_file(fresh, "fresh");
  EXPECT_EQ(begun.integer("/ema", "updates"), 0);
  EXPECT_EQ(begun.first_path_of("/ema/params/conv0.weight"), "/model/params/conv0.weight");
}

TEST_F(AverageTest, RefusesABeginThatNeverComes) {
  const auto error_of = [&](const Settings& settings) -> std::string {
    AveragedRun run(world_, with(with(kCnn, kSwa), settings));
    try {
      run.trainer.train();
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_NE(error_of({{"ema.begin", "9"}}).find("start at step 9, but the run ends at step 8"), std::string::npos);
  EXPECT_NE(error_of({{"ema.begin", "3epochs"}}).find("start at step 9, but the run ends at step 8"),
            std::string::npos);
  EXPECT_NE(error_of({{"ema.kind", "none"}, {"eval.weights", "average"}}).find("eval.weights"), std::string::npos);
}

struct ResumeCase {
  const char* name;
  Settings settings;
};

class AverageResumeTest : public AverageTest, public ::testing::WithParamInterface<ResumeCase> {};

TEST_P(AverageResumeTest, ContinuesBitForBit) {
  const Settings& settings = GetParam().settings;
  AveragedRun half(world_, with(settings, {{"train.max_steps", "4"}}));
  half.trainer.train();
  const Archive midway = through_a_file(half, "half");
  AveragedRun whole(world_, settings);
  whole.trainer.add_hook(Priority::very_low, std::make_unique<CapturingHook>(whole.trainer));
  whole.trainer.train();
  const Archive end = through_a_file(whole, "whole");
  EXPECT_NE(testing::differences(midway, end).find("/ema/params/"), std::string::npos);
  AveragedRun resumed(world_, settings);
  restore(resumed.trainer, midway);
  resumed.trainer.train();
  EXPECT_EQ(testing::differences(through_a_file(resumed, "resumed"), end), "");
  EXPECT_EQ(resumed.updates.average->updates(), whole.updates.average->updates());
  EXPECT_EQ(resumed.validation_loss(), whole.validation_loss());
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AverageResumeTest,
    ::testing::Values(ResumeCase{"Ema", with(kCnn, {{"ema.kind", "ema"}, {"ema.decay", "0.9"}})},
                      ResumeCase{"SwaEverySecondStep", with(with(kCnn, kSwa), {{"ema.every", "2"}})},
                      ResumeCase{"AnnealingInPrivateMemory", with(kCnn, {{"ema.kind", "annealing"},
                                                                         {"ema.gamma", "4"},
                                                                         {"ddp.shared_parameters", "false"}})},
                      ResumeCase{"BeforeItBegins", with(with(kCnn, kSwa), {{"ema.begin", "4"}})},
                      ResumeCase{"AveragedBuffers", with(kResnet, kSwa)},
                      ResumeCase{"CopiedBuffers", with(with(kResnet, kSwa), {{"ema.buffers", "copy"}})}),
    [](const auto& test) { return test.param.name; });

// Through files, and straight into the memory that it is to lie in.
TEST_F(AverageTest, IsTakenOverInOtherForms) {
  const Archive saved = end_of(with(with(kCnn, kSwa), {{"ddp.shared_parameters", "true"}}), "saved");
  const std::string path = shared_ + "/saved/" + checkpoints::folder_name(8);
  const mpi::Communicator self = world_.split(world_.rank());
  const Settings base = with(kCnn, kSwa);
  for (const std::string shares : {"true", "false"}) {
    SmallRun run(world_, with(base, {{"ddp.shared_parameters", shares}}));
    Archive archive;
    const checkpoints::RestoreTargets targets = restore_targets(run.trainer);
    EXPECT_TRUE(targets.contains("/ema/params/conv0.weight"));
    run.model.wrapper->parameters().write([&] { archive = checkpoints::read(path, targets); });
    restore(run.trainer, archive);
    EXPECT_EQ(different_averages(through_a_file(run, "again" + shares), saved), "");
  }
  SmallRun alone(self, base);
  restore(alone.trainer, saved);
  EXPECT_EQ(different_averages(through_a_file(alone, "alone" + std::to_string(world_.rank())), saved), "");
  EXPECT_NE(different_averages(end_of(with(base, {{"ema.begin", "2"}}), "other"), saved), "");  // it can fail
}

// Each rank averages its slices; checkpoints are those of the undivided form.
TEST_F(AverageTest, IsDividedAsTheOptimizersState) {
  const Settings base = with(with(kCnn, kSwa), {{"optim.name", "sgd"}, {"train.max_steps", "4"}});
  const Archive whole = end_of(base, "whole");
  double loss = 0;
  for (const std::string stage : {"0", "1", "2", "3"}) {
    const Settings sharded = {{"strategy.name", "sharded"}, {"strategy.stage", stage}};
    const Settings settings = stage == "0" ? base : with(base, sharded);
    SmallRun run(world_, settings);
    run.trainer.add_hook(average_hook(EmaSettings::from(run.sections.at("ema"))));
    run.trainer.add_hook(evaluate_hook(run.sections));
    run.trainer.train();
    const double measured = run.trainer.view().measured.values.front().second;
    if (stage == "0") loss = measured;
    EXPECT_NEAR(measured, loss, 1e-5 * loss) << stage;  // sums are formed in another order
    const Archive divided = through_a_file(run, "divided" + stage);
    for (const std::string& name : whole.arrays_in("/ema/params")) {
      const std::string path = "/ema/params/" + name;
      EXPECT_LE((tensor_in(divided, path) - tensor_in(whole, path)).abs().max().item<double>(), 1e-5) << stage << name;
      EXPECT_FALSE(at::equal(tensor_in(divided, path), tensor_in(divided, "/model/params/" + name)));
    }
    SmallRun taken(world_, settings);
    restore(taken.trainer, whole);
    EXPECT_EQ(different_averages(through_a_file(taken, "taken" + stage), whole), "") << stage;
  }
}

TEST_F(AverageTest, StartsAgainWithoutOneInTheCheckpoint) {
  const Archive none = end_of(with(kCnn, {{"train.max_steps", "4"}}), "none");
  const Archive swa = end_of(with(with(kCnn, kSwa), {{"train.max_steps", "4"}}), "swa");
  EXPECT_FALSE(none.has_attribute("/ema", "kind"));
  AveragedRun added(world_, with(kCnn, kSwa));
  restore(added.trainer, none);
  added.trainer.train();
  EXPECT_LE(distance_to_mean(through_a_file(added, "added"), added, 1), 1e-6);  // mean of steps 5 to 8
  AveragedRun reset(world_, with(kCnn, kSwa));
  restore(reset.trainer, swa, {.resets_average = true});
  reset.trainer.train();
  EXPECT_EQ(testing::differences(through_a_file(reset, "reset"), through_a_file(added, "added-again")), "");
  AveragedRun dropped(world_, kCnn);
  restore(dropped.trainer, swa);
  dropped.trainer.train();
  EXPECT_TRUE(is_equal(values_of(dropped.model), values_of(added.model)));
  EXPECT_FALSE(through_a_file(dropped, "dropped").has("/ema/params/conv0.weight"));
}

TEST_F(AverageTest, ContinuesInPartWhereTheModelChanged) {
  const Archive saved = end_of(with(kCnn, kSwa), "saved");
  SmallRun run(world_, with(with(kCnn, kSwa), {{"model.hidden", "8"}}));
  EXPECT_FALSE(restore(run.trainer, saved, {.is_partial = true}).empty());
  const Archive taken = through_a_file(run, "taken");
  const auto average_in = [](const Archive& archive, const std::string& name) {
    return tensor_in(archive, "/ema/params/" + name);
  };
  EXPECT_TRUE(at::equal(average_in(taken, "conv0.weight"), average_in(saved, "conv0.weight")));
  EXPECT_FALSE(at::equal(average_in(taken, "conv0.weight"), tensor_in(taken, "/model/params/conv0.weight")));
  EXPECT_TRUE(at::equal(average_in(taken, "classifier.hidden0.weight"),
                        tensor_in(taken, "/model/params/classifier.hidden0.weight")));
  EXPECT_EQ(run.updates.average->updates(), 8);
}

TEST_F(AverageTest, IsWhereATrainingBegins) {
  const Archive archive = end_of(with(kResnet, kSwa), "origin");
  const std::string from = shared_ + "/origin/" + checkpoints::folder_name(6);
  for (const std::string weights : {"auto", "average", "trained"}) {
    SmallRun run(world_, with(kResnet, {{"init.from", from}, {"init.weights", weights}}));
    EXPECT_TRUE(init_from(run.resources.world, *run.model.wrapper, run.sections).empty());
    const std::string group = weights == "trained" ? "/model" : "/ema";
    for (const auto& item : run.model.wrapper->model().named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), tensor_in(archive, group + "/params/" + item.key()))) << item.key();
      EXPECT_FALSE(at::equal(tensor_in(archive, "/ema/params/" + item.key()),
                             tensor_in(archive, "/model/params/" + item.key())));
    }
    for (const auto& item : run.model.wrapper->model().named_buffers()) {
      if (!item.value().is_floating_point()) continue;
      EXPECT_TRUE(at::equal(item.value(), tensor_in(archive, group + "/buffers/" + item.key()))) << item.key();
    }
  }
  end_of(kCnn, "plain");
  const std::string plain = shared_ + "/plain/" + checkpoints::folder_name(8);
  SmallRun run(world_, with(kCnn, {{"init.from", plain}, {"init.weights", "average"}}));
  EXPECT_THROW(init_from(run.resources.world, *run.model.wrapper, run.sections), Error);
  SmallRun fallen_back(world_, with(kCnn, {{"init.from", plain}}));
  EXPECT_TRUE(init_from(fallen_back.resources.world, *fallen_back.model.wrapper, fallen_back.sections).empty());
}

}  // namespace average_test
}  // namespace lockstep::engine
