// SPDX-License-Identifier: BSD-3-Clause
// `trainer predict` of data.name=fields: netCDF-4 files with the names, coordinates, units and times of the inputs, the
// same bytes on any number of ranks, and no file that looks complete after a failure.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <span>
#include <unistd.h>

#include "arrays/array_file.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace predict_fields_test {

namespace fs = std::filesystem;
using arrays::ArrayFile;
using arrays::texts_of;
using testing::ProgramResult;
using testing::run_ranks;

constexpr int kConfiguration = 2;

std::string file(const std::string& name) { return (testing::golden("fields") / "files" / name).string(); }

template <class Number>
std::vector<Number> read_all(const ArrayFile& from, const std::string& name) {
  const arrays::ArrayInfo info = from.find(name);
  EXPECT_EQ(info.type.bytes, sizeof(Number)) << name;
  std::vector<Number> numbers(static_cast<std::size_t>(arrays::size_of(arrays::whole(info))));
  from.read(info, arrays::whole(info), std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

std::vector<std::string> text(const std::string& value) { return {value}; }

/// The names in a folder that start with `start`.
std::vector<std::string> names_in(const fs::path& folder, const std::string& start) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(start)) names.push_back(entry.path().filename().string());
  }
  return names;
}

class PredictFieldsTest : public ::testing::Test {
 protected:
  std::string run() const { return folder_.path("run"); }
  void train(const std::string& arguments) const {
    const ProgramResult outcome = run_ranks(
        1, "--data.name=fields --train.max_steps=2 --train.global_batch_size=2 --eval.every=never --run.dir=" + run() +
               " " + arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  /// Three months of temperatures and heights, and of surface temperatures with gaps.
  void train_on_months() const {
    train("--data.path=" + months() +
          " --data.variables=t2m,z[level=500],sst --data.gaps=zero --data.join=true --data.val_fraction=0"
          " --data.crop=longitude:2-12 --model.name=unet --model.width=4 --model.depth=1");
  }
  static std::string months() {
    return file("era5/era5_202001.nc") + "," + file("era5/era5_202002.nc") + "," + file("era5/era5_202003.nc");
  }
  std::string predicting(const std::string& out, const std::string& more = "") const {
    return "predict --from " + run() + " --eval.batch_size=4 --predict.out=" + folder_.path(out) + " " + more;
  }
  void predict(int ranks, const std::string& out, const std::string& more = "") const {
    const ProgramResult outcome = run_ranks(ranks, predicting(out, more));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  std::shared_ptr<const ArrayFile> open(const std::string& name) const {
    return arrays::open_arrays(folder_.path(name));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(PredictFieldsTest, TimesUnitsAndCoordinatesAreThoseOfTheInput) {
  train_on_months();
  predict(1, "1.nc");
  for (const int ranks : {2, 3}) {
    const std::string out = std::to_string(ranks) + ".nc";
    predict(ranks, out, "--data.workers=" + std::to_string(ranks - 1));
    EXPECT_TRUE(testing::read_file(folder_ / out) == testing::read_file(folder_ / "1.nc")) << ranks << " ranks";
    EXPECT_EQ(names_in(folder_.path("."), out).size(), 1U);
  }
  predict(2, "1.h5");
  EXPECT_TRUE(testing::read_file(folder_ / "1.h5") == testing::read_file(folder_ / "1.nc"));
  predict(1, "1.npy");

  const auto out = open("1.nc");
  const auto in = arrays::open_arrays(file("era5/era5_202001.nc"));
  const arrays::ArrayInfo height = out->find("z500");
  EXPECT_EQ(height.axes, (std::vector<std::string>{"time", "latitude", "longitude"}));
  EXPECT_EQ(texts_of(height.attributes, "units"), text("m**2 s**-2"));
  EXPECT_EQ(texts_of(height.attributes, "long_name"), text("z"));
  EXPECT_FALSE(height.attributes.contains("scale_factor"));
  EXPECT_EQ(read_all<float>(*out, "latitude"), read_all<float>(*in, "latitude"));
  EXPECT_EQ(texts_of(out->find("latitude").attributes, "units"), text("degrees_north"));
  std::vector<float> longitudes = read_all<float>(*in, "longitude");
  longitudes.erase(longitudes.begin(), longitudes.begin() + 2);
  EXPECT_EQ(read_all<float>(*out, "longitude"), longitudes);
  EXPECT_EQ(texts_of(out->find("time").attributes, "units"), text("hours since 1900-01-01 00:00:00.0"));
  EXPECT_EQ(texts_of(out->find("time").attributes, "calendar"), text("gregorian"));
  EXPECT_EQ(texts_of(out->attributes_of(""), "Conventions"), text("CF-1.8"));
  const std::string source = texts_of(out->attributes_of(""), "source").at(0);
  EXPECT_TRUE(source.starts_with("Lockstep ")) << source;
  EXPECT_NE(source.find("weights of step 2 from " + run()), std::string::npos) << source;

  // Each prediction is for the step behind its input, also across the end of a file.
  std::vector<double> stored;
  for (const char* const month : {"era5/era5_202001.nc", "era5/era5_202002.nc", "era5/era5_202003.nc"}) {
    for (const std::int32_t hours : read_all<std::int32_t>(*arrays::open_arrays(file(month)), "time")) {
      stored.push_back(hours);
    }
  }
  EXPECT_EQ(read_all<double>(*out, "time"), std::vector<double>(stored.begin() + 1, stored.end()));
  EXPECT_EQ(read_all<double>(*out, "forecast_reference_time"), std::vector<double>(stored.begin(), stored.end() - 1));

  // The same values as one array, but for the points without a target.
  const auto array = open("1.npy");
  const std::vector<float> values = read_all<float>(*array, "");
  const std::size_t samples = stored.size() - 1, points = std::size_t{9} * 10;
  ASSERT_EQ(values.size(), samples * 3 * points);
  std::size_t gaps = 0;
  std::size_t channel = 0;
  for (const char* const name : {"t2m", "z500", "sst"}) {
    const std::vector<float> field = read_all<float>(*out, name);
    ASSERT_EQ(field.size(), samples * points);
    for (std::size_t i = 0; i < field.size(); ++i) {
      const float expected = values[(i / points * 3 + channel) * points + i % points];
      if (std::isnan(field[i])) {
        ++gaps;
        EXPECT_STREQ(name, "sst");
      } else {
        ASSERT_EQ(field[i], expected) << name << " " << i;
      }
    }
    ++channel;
  }
  EXPECT_GT(gaps, 0U);
  EXPECT_LT(gaps, samples * points);
}

TEST_F(PredictFieldsTest, ADifferenceToAGapIsAGap) {
  train("--data.path=" + months() +
        " --data.variables=sst --data.gaps=mean --data.predict=differences --data.steps_in=2 --data.join=true"
        " --data.val_fraction=0 --model.name=unet --model.width=4 --model.depth=1");
  predict(2, "differences.nc");
  constexpr std::int16_t kGap = -32767;
  std::vector<std::int16_t> stored;
  for (const char* const month : {"era5/era5_202001.nc", "era5/era5_202002.nc", "era5/era5_202003.nc"}) {
    for (const std::int16_t number : read_all<std::int16_t>(*arrays::open_arrays(file(month)), "sst")) {
      stored.push_back(number);
    }
  }
  const auto out = open("differences.nc");
  const std::vector<float> values = read_all<float>(*out, "sst");
  const auto samples = static_cast<std::size_t>(out->find("sst").shape.front());
  const std::size_t points = values.size() / samples;
  ASSERT_EQ(stored.size(), (samples + 2) * points);
  std::size_t gaps = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_gap = stored[i + points] == kGap || stored[i + 2 * points] == kGap;
    ASSERT_EQ(std::isnan(values[i]), is_gap) << i;
    gaps += is_gap ? 1 : 0;
  }
  EXPECT_GT(gaps, 0U);
  EXPECT_LT(gaps, values.size());
}

TEST_F(PredictFieldsTest, WithoutTargetsTheTimesContinueThoseOfTheInput) {
  train_on_months();
  predict(2, "a.nc", "--data.path=" + file("era5/era5_202003.nc") + " --data.steps_out=0");
  std::vector<double> expected;
  for (const std::int32_t hours : read_all<std::int32_t>(*arrays::open_arrays(file("era5/era5_202003.nc")), "time")) {
    expected.push_back(hours + 6);
  }
  EXPECT_EQ(read_all<double>(*open("a.nc"), "time"), expected);
}

TEST_F(PredictFieldsTest, TrajectoriesAndStepsAreAxes) {
  train("--data.path=" + file("well/shear") +
        " --data.variables=t0_fields/density,t1_fields/velocity --data.steps_in=2 --data.steps_out=3"
        " --model.name=unet --model.width=4 --model.depth=1");
  for (const int ranks : {1, 2}) predict(ranks, std::to_string(ranks) + ".nc", "--predict.split=train");
  predict(2, "1.npy", "--predict.split=train");
  EXPECT_TRUE(testing::read_file(folder_ / "1.nc") == testing::read_file(folder_ / "2.nc"));
  const auto out = open("2.nc");
  const arrays::ArrayInfo velocity = out->find("velocity_y");
  EXPECT_EQ(velocity.axes, (std::vector<std::string>{"sample", "step", "x", "y"}));
  EXPECT_EQ(texts_of(velocity.attributes, "coordinates"), text("file trajectory first_step"));
  EXPECT_EQ(read_all<std::int32_t>(*out, "step"), (std::vector<std::int32_t>{1, 2, 3}));
  std::vector<std::int32_t> files, trajectories, firsts;
  // 2 trajectories of 9 steps, and one of 12. A window has 5 steps.
  for (const auto& [number, trajectory, windows] : {std::array{0, 0, 5}, std::array{0, 1, 5}, std::array{1, 0, 8}}) {
    for (std::int32_t i = 0; i < windows; ++i) {
      files.push_back(number);
      trajectories.push_back(trajectory);
      firsts.push_back(i);
    }
  }
  EXPECT_EQ(read_all<std::int32_t>(*out, "file"), files);
  EXPECT_EQ(read_all<std::int32_t>(*out, "trajectory"), trajectories);
  EXPECT_EQ(read_all<std::int32_t>(*out, "first_step"), firsts);
  EXPECT_EQ(texts_of(out->find("file").attributes, "files"), text("shear_Re_100.hdf5 shear_Re_200.hdf5"));
  const auto x = arrays::open_arrays(file("well/shear/data/train/shear_Re_100.hdf5"));
  EXPECT_EQ(read_all<float>(*out, "x"), read_all<float>(*x, "dimensions/x"));
  const std::vector<float> values = read_all<float>(*open("1.npy"), "");  // [N, step, channel, x, y]
  const std::size_t points = std::size_t{12} * 8;
  const std::vector<float> field = read_all<float>(*out, "velocity_y");
  ASSERT_EQ(values.size(), field.size() * 3);
  for (std::size_t i = 0; i < field.size(); ++i) {
    ASSERT_EQ(field[i], values[(i / points * 3 + 2) * points + i % points]) << i;
  }
}

/// The errors of a channel in a file of rollouts, by step: the root of the mean square over all starts whose targets
/// are stored.
std::vector<double> errors_of(const ArrayFile& rollouts, const ArrayFile& stored, const std::string& channel,
                              std::size_t position, std::size_t steps_in) {
  const std::vector<float> fields = read_all<float>(stored, "fields");  // [10, 5, points]
  const std::vector<float> predicted = read_all<float>(rollouts, channel);
  const std::vector<std::int32_t> firsts = read_all<std::int32_t>(rollouts, "first_step");
  const std::size_t steps = read_all<std::int32_t>(rollouts, "step").size();
  const std::size_t points = std::size_t{9} * 16, stored_steps = 10, channels = 5;
  std::vector<double> errors;
  for (std::size_t step = 0; step < steps; ++step) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < firsts.size(); ++i) {
      const std::size_t first = static_cast<std::size_t>(firsts[i]) + steps_in;
      if (first + steps > stored_steps) continue;
      for (std::size_t p = 0; p < points; ++p, ++count) {
        sum += std::pow(double{predicted[(i * steps + step) * points + p]} -
                            double{fields[((first + step) * channels + position) * points + p]},
                        2);
      }
    }
    errors.push_back(std::sqrt(sum / count));
  }
  return errors;
}

TEST_F(PredictFieldsTest, RolloutsAreThoseOfTheEvaluationAndContinueBehindTheFile) {
  train("--data.path=" + file("makani/train") + " --data.val_path=" + file("makani/test") +
        " --data.variables=fields[u10m,t2m] --data.steps_in=2 --data.predict=differences --model.name=unet"
        " --model.width=4 --model.depth=1 --model.norm=none");
  for (const int ranks : {1, 2, 3}) {
    predict(ranks, std::to_string(ranks) + ".nc", "--predict.rollout=3 --eval.batch_size=2");
    EXPECT_TRUE(testing::read_file(folder_ / (std::to_string(ranks) + ".nc")) == testing::read_file(folder_ / "1.nc"));
  }
  const auto out = open("1.nc");
  EXPECT_EQ(out->find("t2m").axes, (std::vector<std::string>{"sample", "step", "lat", "lon"}));
  EXPECT_EQ(read_all<std::int32_t>(*out, "step"), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(read_all<std::int32_t>(*out, "first_step"), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  // The times of Makani's files have no unit. The last ones lie behind the end of the file.
  EXPECT_EQ(texts_of(out->find("time").attributes, "units"), text("seconds since 1970-01-01"));
  const auto stored = arrays::open_arrays(file("makani/test/2003.h5"));
  const std::vector<double> times = read_all<double>(*stored, "timestamp");
  std::vector<double> expected;
  for (std::size_t i = 0; i + 1 < times.size(); ++i) {
    for (std::size_t step = 0; step < 3; ++step) {
      expected.push_back(times[0] + static_cast<double>(i + 2 + step) * (times[1] - times[0]));
    }
  }
  EXPECT_EQ(read_all<double>(*out, "time"), expected);

  const ProgramResult evaluated = run_ranks(1, "eval --json --eval.rollout=3 --from=" + run());
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  const auto metric = [&](const std::string& name) {
    const std::size_t place = evaluated.output.find("\"" + name + "\":");
    EXPECT_NE(place, std::string::npos) << name << evaluated.output;
    return std::stod(evaluated.output.substr(place + name.size() + 3));
  };
  const std::vector<std::string> channels = stored->texts("channel");
  for (const std::string channel : {"u10m", "t2m"}) {
    const auto position = static_cast<std::size_t>(std::ranges::find(channels, channel) - channels.begin());
    const std::vector<double> errors = errors_of(*out, *stored, channel, position, 2);
    for (std::size_t step = 0; step < 3; ++step) {
      const double known = metric("rmse@" + std::to_string(step + 1) + "/" + channel);
      EXPECT_NEAR(errors[step], known, 1e-6 * known) << channel << " step " << step + 1;
    }
  }

  // The first step with an anomaly correlation below 0.6 belongs to the numbers of the steps.
  const ProgramResult correlated = run_ranks(2, "eval --json --eval.rollout=3 --eval.metrics=acc --eval.climatology=" +
                                                    file("makani/stats/time_means.npy") + " --from=" + run());
  ASSERT_EQ(correlated.exit_code, 0) << correlated.output;
  const auto number = [&](const std::string& name) {
    const std::size_t place = correlated.output.find("\"" + name + "\":");
    EXPECT_NE(place, std::string::npos) << name << correlated.output;
    return std::stod(correlated.output.substr(place + name.size() + 3));
  };
  int useful = 1;
  while (useful <= 3 && number("acc@" + std::to_string(useful) + "/t2m") >= 0.6) ++useful;
  EXPECT_EQ(number("rollout_acc_steps/t2m"), useful);

  // A file that ends with the input: there are no targets at all.
  predict(2, "last.nc", "--predict.rollout=3 --data.steps_out=0");
  EXPECT_EQ(read_all<float>(*open("last.nc"), "t2m"), read_all<float>(*out, "t2m"));
  const ProgramResult refused = run_ranks(2, predicting("a.npy", "--predict.rollout=2 --predict.output=features"));
  EXPECT_EQ(refused.exit_code, kConfiguration) << refused.output;
}

TEST_F(PredictFieldsTest, RolloutsReadForcingsFromTheFile) {
  train("--data.path=" + months() +
        " --data.variables=t2m --data.forcing=z[level=500] --data.cycle=day --data.join=true --data.val_fraction=0"
        " --model.name=unet --model.width=4 --model.depth=1");
  predict(2, "a.nc", "--predict.rollout=4");
  predict(1, "b.nc", "--predict.rollout=1");
  std::vector<double> stored;
  for (const char* const month : {"era5/era5_202001.nc", "era5/era5_202002.nc", "era5/era5_202003.nc"}) {
    for (const std::int32_t hours : read_all<std::int32_t>(*arrays::open_arrays(file(month)), "time")) {
      stored.push_back(hours);
    }
  }
  const auto out = open("a.nc");
  const std::vector<double> references = read_all<double>(*out, "forecast_reference_time");
  // The last pass begins 3 steps after the first one, and needs a forcing there.
  EXPECT_EQ(references, std::vector<double>(stored.begin(), stored.end() - 3));
  const std::vector<float> rollouts = read_all<float>(*out, "t2m");
  const std::vector<float> single = read_all<float>(*open("b.nc"), "t2m");
  const std::size_t points = std::size_t{9} * 12;
  for (std::size_t i = 0; i < references.size(); ++i) {
    for (std::size_t p = 0; p < points; ++p) ASSERT_EQ(rollouts[i * 4 * points + p], single[i * points + p]) << i;
  }
}

TEST_F(PredictFieldsTest, ARolloutThatOverflowsIsInfiniteInMetricsAndNaNInFiles) {
  train("--data.path=" + file("makani/train") + " --data.val_path=" + file("makani/test") +
        " --data.variables=fields[u10m,t2m] --data.steps_in=2 --data.predict=differences --model.name=unet"
        " --model.width=4 --model.depth=1 --model.norm=none --optim.lr=3");
  const ProgramResult evaluated = run_ranks(2, "eval --json --eval.rollout=8 --eval.metrics=field --from=" + run());
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  EXPECT_NE(evaluated.output.find("\"rmse@8/t2m\":null"), std::string::npos) << evaluated.output;
  EXPECT_EQ(evaluated.output.find("\"rmse@1/t2m\":null"), std::string::npos) << evaluated.output;
  EXPECT_EQ(evaluated.output.find("\"persistence_rmse@8/t2m\":null"), std::string::npos) << evaluated.output;
  const std::size_t warning = evaluated.output.find(" on; the metrics of that step and of later ones are infinite");
  ASSERT_NE(warning, std::string::npos) << evaluated.output;
  EXPECT_EQ(evaluated.output.find("are infinite", warning + 60), std::string::npos) << evaluated.output;
  const std::size_t place = evaluated.output.rfind(" from step ", warning) + std::string(" from step ").size();
  const std::size_t end = std::stoul(evaluated.output.substr(place));
  ASSERT_GT(end, 1U);

  predict(2, "a.nc", "--predict.rollout=8");
  const std::vector<float> values = read_all<float>(*open("a.nc"), "t2m");
  const std::size_t points = std::size_t{9} * 16, starts = 9;
  ASSERT_EQ(values.size(), starts * 8 * points);
  std::size_t first = 8;  // the first step with a NaN in any rollout
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t step = i / points % 8;
    if (std::isnan(values[i])) first = std::min(first, step);
    EXPECT_FALSE(std::isinf(values[i]));
    if (step > 0 && std::isnan(values[i - points])) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
    }
  }
  EXPECT_LT(first, end);
  EXPECT_GT(first, 0U);
}

TEST_F(PredictFieldsTest, ColumnsAreOneVariable) {
  train("--data.path=" + file("climsim/*/train_input.h5") +
        " --data.target_path=" + file("climsim/0001-02-01/train_target.h5") + "," +
        file("climsim/0001-02-02/train_target.h5") + " --data.layout=nc --data.val_fraction=0 --model.name=mlp");
  predict(2, "a.nc");
  predict(1, "a.npy");
  const auto out = open("a.nc");
  EXPECT_EQ(out->find("data").axes, (std::vector<std::string>{"sample", "data_channel"}));
  EXPECT_EQ(texts_of(out->find("file").attributes, "files"),
            text("0001-02-01/train_input.h5 0001-02-02/train_input.h5"));
  EXPECT_EQ(read_all<float>(*out, "data"), read_all<float>(*open("a.npy"), ""));
}

TEST_F(PredictFieldsTest, MapsOfClassesAreIntegers) {
  train("--data.path=" + file("deepcam") +
        " --data.variables=climate/data --data.target_variables=climate/labels_0"
        " --data.layout=climate/data:yxc,climate/labels_0:yx --data.target_kind=class --data.classes=3"
        " --data.crop=y:0-8,x:0-8 --model.name=unet --model.width=8 --model.depth=2");
  predict(2, "a.nc", "--predict.split=train");
  predict(1, "a.npy", "--predict.split=train");
  const std::vector<std::int32_t> classes = read_all<std::int32_t>(*open("a.nc"), "labels_0");
  const std::vector<std::uint8_t> array = read_all<std::uint8_t>(*open("a.npy"), "");
  EXPECT_EQ(classes, std::vector<std::int32_t>(array.begin(), array.end()));
}

TEST_F(PredictFieldsTest, FaultsAreOneSentenceOnAllRanks) {
  train_on_months();
  const auto expect_fault = [&](const std::string& arguments, const std::string& words) {
    const ProgramResult outcome = run_ranks(2, arguments);
    EXPECT_EQ(outcome.rank_codes, (std::vector<int>{kConfiguration, kConfiguration})) << outcome.output;
    const std::vector<std::string> errors = testing::error_lines(outcome.output);
    ASSERT_EQ(errors.size(), 1U) << outcome.output;
    EXPECT_NE(errors[0].find(words), std::string::npos) << errors[0];
    EXPECT_TRUE(names_in(folder_.path("."), "a.nc").empty());
  };
  expect_fault(predicting("none/a.nc"), "does not exist; create it");
  expect_fault(predicting("a.nc", "--predict.output=features"), "use a file that ends in .npy");
  const std::string digits = folder_.path("digits");
  const ProgramResult trained =
      run_ranks(1, "--data.train_size=48 --model.name=mlp --model.hidden=8 --train.max_steps=1 --run.dir=" + digits);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  expect_fault("predict --from " + digits + " --predict.out=" + folder_.path("a.nc"),
               "is for fields, but the data are not those of data.name=fields");
}

TEST_F(PredictFieldsTest, AKilledRunLeavesNoFileThatLooksComplete) {
  train_on_months();
  std::string many = months();
  for (int i = 0; i < 6; ++i) many += "," + many;
  const std::string out = folder_.path("k.nc");
  const std::string command = testing::mpirun_command(2) + " " + testing::trainer_program() + " " +
                              predicting("k.nc", "--data.join=false --eval.batch_size=1 --data.path=" + many);
  const std::string script = command + " & job=$!; while kill -0 $job && [ ! -e " + out +
                             ".part-00000 ]; do sleep 0.02; done; sleep 0.1; for p in $(pgrep -f 'predict.out=" + out +
                             "'); do if [ \"$(cat /proc/$p/comm)\" = trainer ]; then kill -9 $p; fi; done; wait $job";
  EXPECT_NE(testing::run_shell(script).exit_code, 0);
  EXPECT_FALSE(fs::exists(out));
  ASSERT_EQ(names_in(folder_.path("."), "k.nc"), std::vector<std::string>{"k.nc.part-00000"});
  EXPECT_THROW(arrays::open_arrays(out + ".part-00000"), DataError);
  predict(2, "k.nc");
  EXPECT_EQ(names_in(folder_.path("."), "k.nc"), std::vector<std::string>{"k.nc"});
}

// A disk on a tmpfs of 16 kB that only this shell sees.
TEST_F(PredictFieldsTest, AFullDiskIsASentence) {
  const std::string unshare = ::geteuid() == 0 ? "unshare -m" : "unshare -rm";
  if (testing::run_shell(unshare + " true").exit_code != 0) GTEST_SKIP() << "no private mount is allowed here";
  train_on_months();
  const std::string disk = folder_.path("disk");
  fs::create_directories(disk);
  folder_.write("script.sh", "mount -t tmpfs -o size=16k none " + disk + " || exit 99\n\"$@\"\ncode=$?\nls -A " + disk +
                                 "\nexit $code\n");
  for (const int ranks : {1, 2}) {
    const ProgramResult outcome = testing::run_shell(
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + unshare + " bash " + folder_.path("script.sh") +
        " " + testing::mpirun_command(ranks) + " " + testing::trainer_program() + " " + predicting("disk/a.nc"));
    if (outcome.exit_code == 99) GTEST_SKIP() << "no private mount is allowed here";
    EXPECT_EQ(outcome.exit_code, kConfiguration) << outcome.output;
    EXPECT_NE(outcome.output.find("a.nc cannot be written: No space left on device"), std::string::npos)
        << outcome.output;
    EXPECT_EQ(outcome.output.find("\na.nc"), std::string::npos) << "left behind: " << outcome.output;
  }
}

}  // namespace predict_fields_test
}  // namespace lockstep
