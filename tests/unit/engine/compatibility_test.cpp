// SPDX-License-Identifier: BSD-3-Clause
// What does not fit between a checkpoint and a run, and how well a resumed run reproduces the other.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/stateful.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "small_run.hpp"

namespace lockstep::engine {
namespace compatibility_test {

using checkpoints::Archive;
using Level = Reproducibility::Degree;

/// The sentence that the report says about the archive; "" when everything fits.
std::string refusal_of(const CompatibilityReport& report) {
  try {
    report.throw_if_any();
    return "";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.fault(), CheckpointFault::incompatible);
    return error.what();
  }
}

const std::string kBegin = "archive: does not fit this run: ";
const std::string kMiddle = "; resume with the configuration that is stored in it";
const std::string kEnd = " (see `trainer --help=resume`)";

TEST(CompatibilityTest, MismatchesAreListedByKindAndThenAsTheyCame) {
  const Archive archive;
  CompatibilityReport report(archive);
  EXPECT_EQ(refusal_of(report), "");
  report.add({.kind = MismatchKind::other, .text = "lanes"});
  report.add({.kind = MismatchKind::data, .text = "length", .remedies = {Remedy::reset_sampler}});
  report.add({.kind = MismatchKind::optimizer, .text = "rule", .remedies = {Remedy::reset_optimizer}});
  report.add({.kind = MismatchKind::data, .text = "seed", .remedies = {Remedy::reset_sampler}});
  EXPECT_EQ(refusal_of(report),
            kBegin + "rule; length; seed; lanes" + kMiddle +
                ", or accept a lower reproducibility with resume.reset=optim, resume.reset=sampler" + kEnd);
}

TEST(CompatibilityTest, OfManyMismatchesSomeAreCounted) {
  const Archive archive;
  CompatibilityReport report(archive);
  for (int i = 0; i < 11; ++i) report.add({.kind = MismatchKind::other, .text = std::to_string(i)});
  EXPECT_EQ(refusal_of(report), kBegin + "0; 1; 2; 3; 4; 5; 6; 7; and 3 more" + kMiddle + kEnd);
}

TEST(CompatibilityTest, OneKindIsAcceptedOrListedAlone) {
  const Archive archive;
  CompatibilityReport report(archive);
  report.add({.kind = MismatchKind::data, .text = "length"});
  report.add({.kind = MismatchKind::model, .text = "width", .remedies = {Remedy::partial_model}});
  try {
    report.throw_if_any(MismatchKind::model);
    ADD_FAILURE() << "the model does not fit";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.what(),
              kBegin + "width" + kMiddle + ", or accept a lower reproducibility with resume.partial=model" + kEnd);
  }
  EXPECT_EQ(report.accept(MismatchKind::model), std::vector<std::string>{"width"});
  EXPECT_NO_THROW(report.throw_if_any(MismatchKind::model));
  EXPECT_EQ(refusal_of(report), kBegin + "length" + kMiddle + kEnd);
}

TEST(CompatibilityTest, ArraysAreComparedByTypeAndShape) {
  Archive archive;
  archive.put("/model/params/module.weight", array_of(at::zeros({2, 3}), "weight"));
  archive.put("/model/params/bias", array_of(at::zeros({3}, at::kDouble), "bias"));
  const auto expect = [&](CompatibilityReport& report, const std::string& name, const at::Tensor& live) {
    report.expect_array(MismatchKind::model, "/model/params/" + name, live, {Remedy::partial_model}, {"module.weight"});
  };
  CompatibilityReport report(archive);
  expect(report, "module.weight", at::ones({2, 3}));
  EXPECT_TRUE(report.mismatches().empty());
  expect(report, "module.weight", at::zeros({6}));
  expect(report, "bias", at::zeros({3}));
  expect(report, "weight", at::zeros({2, 3}));
  ASSERT_EQ(report.mismatches().size(), 3U);
  EXPECT_EQ(report.mismatches()[0].text, "/model/params/module.weight is float32 [2, 3], the run has float32 [6]");
  EXPECT_EQ(report.mismatches()[1].text, "/model/params/bias is float64 [3], the run has float32 [3]");
  EXPECT_EQ(report.mismatches()[2].text,
            "/model/params/weight is missing (did you mean 'module.weight', which exists?)");
  EXPECT_EQ(report.mismatches()[2].remedies, (std::vector<Remedy>{Remedy::partial_model, Remedy::rename}));
}

// The settings that messages name are those that a configuration takes.
TEST(CompatibilityTest, RemediesAreSettings) {
  const std::vector<std::pair<Remedy, bool RestoreOptions::*>> resets = {
      {Remedy::partial_model, &RestoreOptions::is_partial},
      {Remedy::reset_average, &RestoreOptions::resets_average},
      {Remedy::reset_optimizer, &RestoreOptions::resets_optim},
      {Remedy::reset_generators, &RestoreOptions::resets_rng},
      {Remedy::reset_sampler, &RestoreOptions::resets_sampler}};
  for (const auto& [remedy, option] : resets) {
    const std::string& setting = setting_of(remedy);
    const auto equals = setting.find('=');
    const Sections sections = sections_of({{setting.substr(0, equals), setting.substr(equals + 1)}});
    EXPECT_TRUE(ResumeSettings::from(sections).restore.*option) << setting;
    EXPECT_FALSE(ResumeSettings::from(sections_of({})).restore.*option) << setting;
  }
  EXPECT_EQ(setting_of(Remedy::rename), "resume.rename=FROM=TO");
}

TEST(CompatibilityTest, SettingsAreReadOnce) {
  const ResumeSettings defaults = ResumeSettings::from(sections_of({}));
  const ResumeSettings unread;
  EXPECT_EQ(defaults.source, unread.source);
  EXPECT_EQ(defaults.max_fallback, unread.max_fallback);
  EXPECT_EQ(defaults.max_starts, unread.max_starts);
  EXPECT_EQ(defaults.schedule, unread.schedule);
  const ResumeSettings all = ResumeSettings::from(sections_of({{"resume", "12"},
                                                               {"resume.max_fallback", "5"},
                                                               {"resume.max_starts", "0"},
                                                               {"resume.allow_fresh", "true"},
                                                               {"resume.allow_nonfinite", "true"},
                                                               {"resume.fork", "true"},
                                                               {"resume.schedule", "checkpoint"},
                                                               {"resume.reset", "optim, rng"},
                                                               {"resume.reset", "ema"},
                                                               {"resume.rename", "a.=b."}}));
  EXPECT_EQ(all.source, "12");
  EXPECT_EQ(all.max_fallback, 5);
  EXPECT_EQ(all.max_starts, 0);
  EXPECT_TRUE(all.allow_fresh && all.allow_nonfinite && all.fork);
  EXPECT_EQ(all.schedule, "checkpoint");
  EXPECT_TRUE(all.restore.resets_optim && all.restore.resets_rng && all.restore.resets_average);
  EXPECT_FALSE(all.restore.is_partial || all.restore.resets_sched || all.restore.resets_sampler);
  EXPECT_EQ(all.restore.renames, (Renames{{"a.", "b."}}));
  EXPECT_THROW(ResumeSettings::from(sections_of({{"resume.partial", "optim"}})), ConfigError);
}

TEST(ReproducibilityTest, TheLowestLevelCountsAndOfEqualOnesTheFirst) {
  const Reproducibility bitwise;
  const Reproducibility ranks{Level::order, "ranks"};
  const Reproducibility threads{Level::order, "threads"};
  const Reproducibility hook{Level::statistical, "hook"};
  const Reproducibility precision{Level::statistical, "precision"};
  EXPECT_EQ(worst_of({}).text(), "bitwise");
  EXPECT_EQ(worst_of({bitwise, bitwise}).text(), "bitwise");
  EXPECT_EQ(worst_of({bitwise, ranks, threads}).text(), "order, because ranks");
  EXPECT_EQ(worst_of({threads, bitwise, ranks}).text(), "order, because threads");
  EXPECT_EQ(worst_of({ranks, hook, precision}).text(), "statistical, because hook");
  EXPECT_EQ(worst_of({precision, threads, hook}).text(), "statistical, because precision");
}

}  // namespace compatibility_test
}  // namespace lockstep::engine
