// SPDX-License-Identifier: BSD-3-Clause
// The source `fields` on small npy files whose numbers state where they are stored.
#include <lockstep/core/error.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/data/source.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "data/fields/field_paths.hpp"
#include "files.hpp"
#include "support/folders.hpp"
#include "support/npy.hpp"

namespace lockstep::data {
namespace fields_test {

using testing::write_npy;

namespace fs = std::filesystem;

/// The numbers first, first + 1, ... in an array of this shape.
void write_count(const std::string& path, const std::vector<std::int64_t>& shape, float first = 0) {
  std::int64_t size = 1;
  for (const std::int64_t each : shape) size *= each;
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  write_npy(path, shape, values);
}

batch::Batch sample(const Splits& splits, std::int64_t index) {
  return splits.train->get(batch::draws_in_order(index, 1));
}

/// The first steps of all windows.
std::vector<std::int64_t> starts_of(const Dataset& dataset) {
  const auto& fields = dynamic_cast<const FieldDataset&>(dataset);
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < fields.size(); ++i) starts.push_back(fields.place(i).start);
  return starts;
}

class FieldsTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
};

TEST_F(FieldsTest, InputsAreAllChannelsOfTheOldestStepFirst) {
  write_count(folder_ / "a.npy", {4, 2, 3});  // the number is 6 t + 3 c + x
  const Splits splits =
      open_fields({{"path", folder_ / "a.npy"}, {"layout", "tcx"}, {"steps_in", "2"}, {"val_fraction", "0"}});
  EXPECT_EQ(splits.train->task().sample_shape, (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(values_of<float>(sample(splits, 1).input()),
            (std::vector<float>{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(values_of<float>(sample(splits, 1).target()), (std::vector<float>{18, 19, 20, 21, 22, 23}));
}

TEST_F(FieldsTest, AxesOfSpaceHaveTheOrderOfTheInputs) {
  write_count(folder_ / "in.npy", {1, 2, 3});
  write_count(folder_ / "out.npy", {1, 3, 2});
  const Splits splits = open_fields({{"path", folder_ / "in.npy"},
                                     {"target_path", folder_ / "out.npy"},
                                     {"layout", "in:nxy,out:nyx"},
                                     {"val_fraction", "0"}});
  EXPECT_EQ(values_of<float>(sample(splits, 0).target()), (std::vector<float>{0, 2, 4, 1, 3, 5}));
}

TEST_F(FieldsTest, TheLastChannelsOfSamplesAreStaticFields) {
  write_count(folder_ / "a.npy", {2, 1, 2, 2});
  write_count(folder_ / "s.npy", {2, 2}, 100);
  const Splits splits = open_fields(
      {{"path", folder_ / "a.npy"}, {"layout", "tcyx"}, {"static", folder_ / "s.npy"}, {"val_fraction", "0"}});
  EXPECT_EQ(values_of<float>(sample(splits, 0).input()), (std::vector<float>{0, 1, 2, 3, 100, 101, 102, 103}));
}

TEST_F(FieldsTest, DisjointWindowsShareNoStep) {
  write_count(folder_ / "a.npy", {10, 1});
  const std::map<std::string, std::string> keys = {
      {"path", folder_ / "a.npy"}, {"layout", "tc"}, {"steps_in", "2"}, {"val_fraction", "0"}};
  const auto starts = [&](const std::string& text) {
    auto own = keys;
    own["starts"] = text;
    return starts_of(*open_fields(own).train);
  };
  EXPECT_EQ(starts("disjoint"), (std::vector<std::int64_t>{0, 3, 6}));
  EXPECT_EQ(starts("every:4"), (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(starts("first"), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(sentence_of<ConfigError>([&] { starts("every:0"); }),
            "data.starts (command line): 'every:0' is not one of: all, first, disjoint, every:N");
}

TEST_F(FieldsTest, OneTrajectoryIsDividedByTime) {
  write_count(folder_ / "a.npy", {20, 1});
  const Splits splits = open_fields({{"path", folder_ / "a.npy"}, {"layout", "tc"}, {"val_fraction", "0.25"}});
  EXPECT_EQ(starts_of(*splits.train), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(starts_of(*splits.val), (std::vector<std::int64_t>{15, 16, 17, 18}));
}

TEST_F(FieldsTest, TrajectoriesAreDividedAsAWhole) {
  write_count(folder_ / "a.npy", {10, 3, 1});
  const Splits splits = open_fields({{"path", folder_ / "a.npy"}, {"layout", "ntc"}, {"val_fraction", "0.3"}});
  const auto trajectories = [](const Dataset& dataset) {
    const auto& fields = dynamic_cast<const FieldDataset&>(dataset);
    std::set<std::int64_t> found;
    for (std::int64_t i = 0; i < fields.size(); ++i) found.insert(fields.place(i).trajectory);
    return found;
  };
  std::set<std::int64_t> all = trajectories(*splits.train);
  EXPECT_EQ(all.size(), 7U);
  all.merge(trajectories(*splits.val));
  EXPECT_EQ(all.size(), 10U);
  EXPECT_EQ(splits.val->size(), 3 * 2);
}

TEST_F(FieldsTest, GapsAreAnErrorOrZeroWithAMask) {
  std::vector<float> values = {1, 2, 3, 4};
  values[2] = std::numeric_limits<float>::quiet_NaN();
  write_npy(folder_ / "a.npy", {2, 1, 2}, values);
  std::map<std::string, std::string> keys = {{"path", folder_ / "a.npy"}, {"layout", "tcx"}, {"val_fraction", "0"}};
  const Splits strict = open_fields(keys);
  EXPECT_EQ(sentence_of<DataError>([&] { sample(strict, 0); }),
            folder_ / "a.npy" +
                ": there is no value (NaN or a fill value) of 'c0' at step 1 of trajectory 0; set data.gaps to train "
                "without these points");
  keys["gaps"] = "zero";
  keys["gap_channel"] = "true";
  const batch::Batch filled = sample(open_fields(keys), 0);
  EXPECT_EQ(values_of<float>(filled.input()), (std::vector<float>{1, 2, 1, 1}));
  EXPECT_EQ(values_of<float>(filled.target()), (std::vector<float>{0, 4}));
  EXPECT_EQ(values_of<float>(filled.tensor("mask").to(at::kFloat)), (std::vector<float>{0, 1}));
}

TEST_F(FieldsTest, ForecastsReadNothingBehindTheirFirstInput) {
  std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7};
  values[4] = std::numeric_limits<float>::quiet_NaN();  // step 2 of 4
  write_npy(folder_ / "a.npy", {4, 1, 2}, values);
  const std::map<std::string, std::string> keys = {
      {"path", folder_ / "a.npy"}, {"layout", "tcx"}, {"val_fraction", "0"}, {"steps_in", "2"}};
  const auto forecast = [&](const std::string& steps_out) {
    std::map<std::string, std::string> more = keys;
    more["steps_out"] = steps_out;
    const Splits splits = open_fields(more);
    return dynamic_cast<const FieldDataset&>(*splits.train)
        .rolled_out({.passes = 3, .is_forecast = true, .pass_steps = 1});
  };
  for (const char* const steps_out : {"0", "1"}) {
    const auto dataset = forecast(steps_out);
    EXPECT_EQ(starts_of(*dataset), (std::vector<std::int64_t>{0, 1, 2}));
    const batch::Batch first = dataset->get(batch::draws_in_order(0, 1));
    EXPECT_FALSE(first.has("label"));
    EXPECT_EQ(values_of<float>(first.input()), (std::vector<float>{0, 1, 2, 3}));
    // Step 1, and then the same in place of the steps that are predicted.
    EXPECT_EQ(values_of<float>(first.tensor("later_inputs")), (std::vector<float>{2, 3, 2, 3, 2, 3, 2, 3}));
    EXPECT_THROW(dataset->get(batch::draws_in_order(1, 1)), DataError);
  }
}

TEST_F(FieldsTest, AClimatologyHasTheFieldsOfTheMonthOfTheTarget) {
  const fs::path files = testing::golden("fields") / "files/era5";
  std::vector<float> months;
  std::vector<float> days;
  for (int entry = 0; entry < 366; ++entry) {
    for (int i = 0; i < 9 * 12; ++i) {
      if (entry < 12) months.push_back(static_cast<float>(entry));
      days.push_back(static_cast<float>(entry));
    }
  }
  write_npy(folder_ / "months.npy", {12, 1, 9, 12}, months);
  write_npy(folder_ / "days.npy", {366, 1, 9, 12}, days);
  write_npy(folder_ / "mean.npy", {9, 12}, std::vector<float>(9 * 12, 280));
  write_npy(folder_ / "seasons.npy", {4, 1, 9, 12}, std::vector<float>(4 * 9 * 12, 280));
  const Splits splits =
      open_fields({{"path", (files / "era5_202001.nc").string() + "," + (files / "era5_202002.nc").string() + "," +
                                (files / "era5_202003.nc").string()},
                   {"variables", "t2m"},
                   {"join", "true"},
                   {"val_fraction", "0"}});
  const auto& fields = dynamic_cast<const FieldDataset&>(*splits.train);
  const auto of_sample = [&](const std::string& name, std::int64_t index, std::int64_t passes) {
    const auto with = fields.with_climatology({folder_ / name, "eval.climatology"});
    const auto rolled = dynamic_cast<const FieldDataset&>(*with).rolled_out({.passes = passes, .is_measured = true});
    const batch::Batch batch = rolled->get(batch::draws_in_order(index, 1));
    EXPECT_EQ(batch.tensor("climatology").sizes(), batch.target().sizes());
    return values_of<float>(batch.tensor("climatology").select(2, 0).select(2, 0));
  };
  // The days of the targets are found by hand from the times in hours since 1900.
  const std::int64_t last = fields.size() - 1;
  EXPECT_EQ(of_sample("mean.npy", 0, 2), (std::vector<float>{280, 280}));
  EXPECT_EQ(of_sample("months.npy", 0, 2), (std::vector<float>{0, 0}));
  const auto expected = [](double hours) { return static_cast<float>(std::floor(hours / 24 - 43829)); };
  const auto times = fields.description().pairs.back().inputs.times;
  // 43829 days from 1900-01-01 to 2020-01-01, and 25567 to 1970-01-01.
  EXPECT_EQ(of_sample("days.npy", last, 1), (std::vector<float>{expected(times.back() / 3600 + 25567 * 24)}));
  EXPECT_THROW(fields.with_climatology({folder_ / "seasons.npy", "eval.climatology"}), ConfigError);
}

TEST_F(FieldsTest, AMonthOfTheYearIsThatOfTheTarget) {
  const std::int64_t points = 18 * 432;
  std::vector<float> months;
  for (int month = 1; month <= 12; ++month) months.insert(months.end(), points, static_cast<float>(month));
  write_npy(folder_ / "months.npy", {12, 1, 18, 432}, months);
  const fs::path file = testing::sample_data("fields/sst") / "train/sst_2006-04_2007-03.nc";
  const Splits splits = open_fields({{"path", file.string()}, {"gaps", "mean"}, {"val_fraction", "0"}});
  const auto dataset =
      dynamic_cast<const FieldDataset&>(*splits.train).with_climatology({folder_ / "months.npy", "eval.climatology"});
  std::vector<float> found;
  for (std::int64_t i = 0; i < dataset->size(); ++i) {
    found.push_back(values_of<float>(dataset->get(batch::draws_in_order(i, 1)).tensor("climatology")).front());
  }
  EXPECT_EQ(found, (std::vector<float>{5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3}));
}

TEST_F(FieldsTest, ClassesAreIntegersInTheirRange) {
  write_count(folder_ / "x.npy", {3, 2, 1});
  write_npy(folder_ / "y.npy", {3, 2}, {0, 1, 1, std::numeric_limits<float>::quiet_NaN(), 2, 0});
  const Splits splits = open_fields({{"path", folder_ / "x.npy"},
                                     {"target_path", folder_ / "y.npy"},
                                     {"layout", "x:nyc,y:ny"},
                                     {"target_kind", "class"},
                                     {"classes", "2"},
                                     {"val_fraction", "0"}});
  EXPECT_EQ(splits.train->task().kind, TaskKind::segmentation);
  EXPECT_EQ(values_of<std::int64_t>(sample(splits, 1).target()), (std::vector<std::int64_t>{1, kIgnored}));
  EXPECT_EQ(sentence_of<DataError>([&] { sample(splits, 2); }),
            folder_ / "y.npy" + ": the target 2 is no class; data.classes = 2 allows 0 to 1");
}

TEST_F(FieldsTest, APatternNamesFilesInTheOrderOfTheirBytes) {
  fs::create_directories(folder_ / "deep/er");
  for (const char* name : {"b1.npy", "a2.npy", "a10.npy", "deep/a3.npy", "deep/er/a4.npy", "note.txt"}) {
    write_count(folder_ / name, {2, 1});
  }
  const auto names = [&](const std::string& text) {
    std::vector<std::string> found;
    for (const std::string& path : field_files(folder_ / text, "data.path")) {
      found.push_back(fs::relative(path, folder_.path()).string());
    }
    return found;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("a*.npy"), (Names{"a10.npy", "a2.npy"}));
  EXPECT_EQ(names("{b1,a2}.npy"), (Names{"a2.npy", "b1.npy"}));
  EXPECT_EQ(names("**/a*.npy"), (Names{"a10.npy", "a2.npy", "deep/a3.npy", "deep/er/a4.npy"}));
  EXPECT_EQ(names(""), (Names{"a10.npy", "a2.npy", "b1.npy"}));
  EXPECT_EQ(names("b1.npy," + folder_ / "a2.npy"), (Names{"b1.npy", "a2.npy"}));
  EXPECT_EQ(sentence_of<DataError>([&] { names("c*.npy"); }),
            folder_ / "c*.npy" + ": the file or folder does not exist; check data.path");
}

TEST_F(FieldsTest, TargetsAreNamedByTheirInputs) {
  for (const char* name : {"in_1.npy", "in_2.npy", "in_1_target.npy"}) write_count(folder_ / name, {2, 1});
  const std::vector<std::string> inputs = {folder_ / "in_1.npy", folder_ / "in_2.npy"};
  EXPECT_EQ(target_files({inputs[0]}, "%_target.npy", "data.target_path"),
            std::vector<std::string>{folder_ / "in_1_target.npy"});
  EXPECT_EQ(sentence_of<DataError>([&] { target_files(inputs, "%_target.npy", "data.target_path"); }),
            folder_ / "in_2_target.npy" + ": the file does not exist; data.target_path states it for the inputs " +
                inputs[1]);
  EXPECT_EQ(sentence_of<DataError>([&] { target_files(inputs, inputs[0], "data.target_path"); }),
            inputs[0] +
                ": is one of 1 files of targets, but there are 2 files of inputs; both must have the same "
                "number, in the same order");
}

TEST_F(FieldsTest, PairsOfInputsAndTargetsAreFound) {
  fs::create_directory(folder_ / "rows");
  write_count(folder_ / "rows/train_input.npy", {4, 3});
  write_count(folder_ / "rows/train_target.npy", {4, 2}, 100);
  const std::map<std::string, std::string> keys = {
      {"path", folder_ / "rows"}, {"layout", "nc"}, {"val_fraction", "0"}, {"cache", "off"}};
  const Splits splits = open_fields(keys);
  EXPECT_EQ(splits.train->size(), 4);
  EXPECT_EQ(sample(splits, 1).input().sizes(), at::IntArrayRef({1, 3}));
  EXPECT_EQ(sample(splits, 1).target()[0][0].item<float>(), 102);
  write_count(folder_ / "rows/other.npy", {4, 3});  // not a pair: the files are inputs of one data set, and differ
  EXPECT_THROW(open_fields(keys), DataError);
}

TEST_F(FieldsTest, TheRestOfATrajectoryCanBeTheTarget) {
  write_count(folder_ / "a.npy", {2, 7, 1});
  const Splits splits = open_fields({{"path", folder_ / "a.npy"},
                                     {"layout", "ntc"},
                                     {"steps_in", "2"},
                                     {"steps_out", "rest"},
                                     {"starts", "first"},
                                     {"val_fraction", "0"}});
  EXPECT_EQ(splits.train->size(), 2);
  EXPECT_EQ(values_of<float>(sample(splits, 1).target()), (std::vector<float>{9, 10, 11, 12, 13}));
}

TEST_F(FieldsTest, AFolderHasItsSplits) {
  for (const char* name : {"train", "valid", "test"}) {
    fs::create_directories(folder_ / "data/" + name);
    write_count(folder_ / "data/" + name + "/a.npy", {4, 1});
  }
  const Splits splits = open_fields({{"path", folder_.path()}, {"layout", "tc"}});
  EXPECT_EQ(splits.train->size(), 3);
  EXPECT_EQ(splits.val->size(), 3);
  EXPECT_EQ(splits.test->size(), 3);
}

TEST_F(FieldsTest, AnotherFileOrWindowIsAnotherDigest) {
  write_count(folder_ / "a.npy", {4, 1});
  write_count(folder_ / "b.npy", {5, 1});
  const auto digest = [&](const std::string& name, const std::string& stride) {
    return open_fields({{"path", folder_ / name}, {"layout", "tc"}, {"stride", stride}, {"val_fraction", "0"}})
        .train->digest();
  };
  EXPECT_EQ(digest("a.npy", "1"), digest("a.npy", "1"));
  EXPECT_NE(digest("a.npy", "1"), digest("b.npy", "1"));
  EXPECT_NE(digest("a.npy", "1"), digest("a.npy", "2"));
}

TEST_F(FieldsTest, AnUnknownAxisIsThatOfItsKey) {
  write_count(folder_ / "a.npy", {3, 4});
  const auto message = [this](const std::string& key, const std::string& value) {
    return sentence_of<ConfigError>([&] {
      open_fields({{"path", folder_ / "a.npy"}, {"layout", "tx"}, {key, value}});
    });
  };
  const std::string rest = ": the fields have no axis 'y'; their axes of space are 'x'";
  EXPECT_EQ(message("subsample", "y:2"), "data.subsample (command line)" + rest);
  EXPECT_EQ(message("crop", "y:0-2"), "data.crop (command line)" + rest);
}

TEST(CheckedStepsTest, EachStepOfEachFileIsKnownByItself) {
  FieldVariable input;
  input.info.path = "t2m";
  input.channels = {0};
  FieldVariable other = input;
  other.channels = {1};
  const auto file = [](const FieldVariable& variable) {
    return FieldFile{.path = "a.h5", .variables = {variable}, .trajectories = 3, .steps = 50};
  };
  FieldDescription description;
  description.pairs = {{.inputs = file(input), .targets = file(input)},
                       {.inputs = file(input), .targets = file(other)}};
  CheckedSteps checked(description);
  checked.add(0, false, 1, 20);
  checked.add(1, true, 2, 49);
  std::vector<std::string> known;
  for (std::size_t pair = 0; pair < 2; ++pair) {
    for (const bool are_targets : {false, true}) {
      for (std::int64_t trajectory = 0; trajectory < 3; ++trajectory) {
        for (std::int64_t step = 0; step < 50; ++step) {
          if (!checked.has(pair, are_targets, trajectory, step)) continue;
          known.push_back(std::to_string(pair) + (are_targets ? " targets " : " inputs ") + std::to_string(trajectory) +
                          " " + std::to_string(step));
        }
      }
    }
  }
  // The targets of the first pair are its inputs.
  EXPECT_EQ(known, (std::vector<std::string>{"0 inputs 1 20", "0 targets 1 20", "1 targets 2 49"}));
}

// A sample whose first step is known to be good can have a gap in its second one.
TEST_F(FieldsTest, AGapIsFoundInEachStepThatIsReadFirst) {
  std::vector<float> values(10 * 2 * 2, 1);
  values[5 * 4 + 3] = std::numeric_limits<float>::quiet_NaN();  // step 5
  write_npy(folder_.path("gap.npy"), {10, 2, 2}, values);
  const Splits splits =
      open_fields({{"path", folder_.path("gap.npy")}, {"layout", "tyx"}, {"normalize", "none"}, {"val_fraction", "0"}});
  for (int pass = 0; pass < 2; ++pass) {
    for (std::int64_t start = 0; start < splits.train->size(); ++start) {
      if (start == 4 || start == 5) {
        EXPECT_THROW(sample(splits, start), DataError) << start;
      } else {
        EXPECT_NO_THROW(sample(splits, start)) << start;
      }
    }
  }
}

TEST(VariableChoiceTest, BracketsHoldChannelsAndPositions) {
  const std::vector<VariableChoice> choices = parse_variables("fields[z500,t850],z[level=500,member#1],*/data", "key");
  ASSERT_EQ(choices.size(), 3U);
  EXPECT_EQ(choices[0].channels, (std::vector<std::string>{"z500", "t850"}));
  EXPECT_EQ(choices[1].fixed[0].value, "500");
  EXPECT_TRUE(choices[1].fixed[1].is_index);
  EXPECT_EQ(choices[1].text(), "z[level=500,member#1]");
  EXPECT_EQ(choices[2].path, "*/data");
  EXPECT_EQ(sentence_of<ConfigError>([] { parse_variables("z[level=500", "key"); }),
            "key: 'z[level=500' has no ']' at its end; an example is fields[z500,t850]");
}

}  // namespace fields_test
}  // namespace lockstep::data
