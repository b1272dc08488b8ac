// SPDX-License-Identifier: BSD-3-Clause
// The source `fields` through the program: training on rows, maps and windows, `trainer data`, and malformed files.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <random>

#include "checkpoints/format/hdf5.hpp"
#include "support/folders.hpp"
#include "support/npy.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace fields_system_test {

using testing::ProgramResult;
using testing::run_ranks;
using testing::run_shell;
using Json = nlohmann::json;

constexpr int kConfiguration = 2;
constexpr int kData = 3;

std::string file(const std::string& name) { return (testing::golden("fields") / name).string(); }

/// The values of a field in the records of a run.
std::vector<double> recorded(const std::string& run, const std::string& field) {
  std::vector<double> values;
  std::istringstream lines(testing::read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    if (record.contains(field)) values.push_back(record.at(field));
  }
  return values;
}

class FieldsProgramTest : public ::testing::Test {
 protected:
  /// Trains and returns the losses.
  std::vector<double> train(int ranks, const std::string& arguments) {
    const std::string run = folder_.path("run" + std::to_string(++runs_));
    const ProgramResult result =
        run_ranks(ranks, "--data.name=fields --log.every=1 --run.dir=" + run + " " + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return recorded(run, "loss");
  }

  testing::TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(FieldsProgramTest, ColumnsTrainTheSameOnAnyNumberOfRanks) {
  const std::string arguments =
      "--data.path=" + file("files/climsim") +
      "/*/train_input.h5 --data.target_path=" + file("files/climsim/0001-02-01/train_target.h5") + "," +
      file("files/climsim/0001-02-02/train_target.h5") +
      " --data.layout=nc --data.val_fraction=0.2 --model.name=mlp --data.cache=off --train.lanes=2"
      " --train.global_batch_size=4 --train.max_epochs=5 --optim.lr=0.01";
  const std::vector<double> losses = train(1, arguments);
  ASSERT_GE(losses.size(), 15U);
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(train(2, arguments), losses);
}

TEST_F(FieldsProgramTest, MapsOfClassesTrainAModelForSegmentation) {
  const std::vector<double> losses =
      train(1, "--data.path=" + file("files/deepcam") +
                   " --data.variables=climate/data --data.target_variables=climate/labels_0"
                   " --data.layout=climate/data:yxc,climate/labels_0:yx --data.target_kind=class --data.classes=3"
                   " --data.crop=y:0-8,x:0-8 --model.name=unet --model.width=8 --model.depth=2"
                   " --train.global_batch_size=2 --train.max_epochs=8 --optim.lr=0.01");
  ASSERT_FALSE(losses.empty());
  EXPECT_LT(losses.back(), losses.front());
}

TEST_F(FieldsProgramTest, WindowsTrainAModelOfFields) {
  const std::vector<double> losses =
      train(2, "--data.path=" + file("files/pdebench/1D_Burgers_Sols_Nu0.01.hdf5") +
                   " --data.variables=tensor --data.layout=ntx --data.steps_in=2 --model.name=fno --model.width=8"
                   " --model.depth=2 --model.modes=8 --train.global_batch_size=8 --train.max_epochs=4"
                   " --optim.lr=0.01");
  ASSERT_FALSE(losses.empty());
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST_F(FieldsProgramTest, TrainingKnowsTheClimatologyOfItsMetrics) {
  testing::write_npy(folder_.path("data.npy"), {12, 4, 4}, std::vector<float>(12 * 16, 1));
  testing::write_npy(folder_.path("usual.npy"), {4, 4}, std::vector<float>(16, 0));
  train(
      2,
      "--data.path=" + folder_.path("data.npy") +
          " --data.layout=tyx --data.val_fraction=0.3 --model.name=unet --model.width=4 --model.depth=1"
          " --model.norm=none --train.global_batch_size=4 --train.max_steps=2 --eval.metrics=acc --eval.climatology=" +
          folder_.path("usual.npy"));
  EXPECT_EQ(recorded(folder_.path("run1"), "val/acc/data").size(), 1U);
}

/// A network on two steps of two channels, which computes differences and is rolled out.
std::string rollout_arguments() {
  return "--data.path=" + file("files/makani/train") + " --data.val_path=" + file("files/makani/test") +
         " --data.variables=fields[u10m,t2m] --data.layout=tcyx --data.steps_in=2 --data.predict=differences"
         " --model.name=unet --model.width=4 --model.depth=1 --model.norm=none --train.global_batch_size=4"
         " --train.max_steps=6 --optim.lr=0.003 --train.lanes=2 --eval.rollout=3 --ckpt.every=3";
}

TEST_F(FieldsProgramTest, RolloutsAndStatisticsAreTheSameOnAnyNumberOfRanks) {
  const std::string cache = " --data.cache=" + folder_.path("cache");
  const std::vector<double> losses = train(1, rollout_arguments() + cache);
  ASSERT_EQ(losses.size(), 6U);
  const std::string one = folder_.path("run1");
  for (const char* name : {"val/rmse/u10m", "val/rmse@1/t2m", "val/rmse@3/u10m", "val/persistence_rmse@3/t2m"}) {
    EXPECT_FALSE(recorded(one, name).empty()) << name;
  }
  // The second run computes its own statistics, the third one takes those of the first.
  EXPECT_EQ(train(2, rollout_arguments() + " --data.cache=off"), losses);
  EXPECT_EQ(train(2, rollout_arguments() + cache), losses);
  const std::string statistics = testing::read_file(one + "/statistics.json");
  EXPECT_NE(statistics, "");
  EXPECT_EQ(testing::read_file(folder_.path("run2") + "/statistics.json"), statistics);
  EXPECT_EQ(testing::read_file(folder_.path("run3") + "/statistics.json"), statistics);
  // So are the pictures and charts of the report.
  for (const char* name : {"/pictures.json", "/tables.json"}) {
    const std::string shown = testing::read_file(one + name);
    EXPECT_NE(shown, "") << name;
    EXPECT_EQ(testing::read_file(folder_.path("run2") + name), shown) << name;
  }
  const std::string page = testing::read_file(one + "/report.html");
  for (const char* words : {"<figcaption>prediction", "<figcaption>mean error", "<div class=\"bar\"",
                            "t2m: rmse</title>", ">persistence</text>", "<title>power of u10m", ", sample 1: "}) {
    EXPECT_NE(page.find(words), std::string::npos) << words;
  }
  std::size_t images = 0;
  for (std::size_t place = page.find("<img "); place != std::string::npos; place = page.find("<img ", place + 1))
    ++images;
  EXPECT_EQ(images, 2U * 2U * 4U + 2U * 2U) << "of 2 samples and 2 channels, and errors of 2 channels";

  train(1, rollout_arguments() + cache + " --eval.metrics=well");
  EXPECT_FALSE(recorded(folder_.path("run4"), "val/rollout_nrmse").empty());
  EXPECT_FALSE(recorded(folder_.path("run4"), "val/nrmse@3/t2m").empty());

  train(1, rollout_arguments() + cache + " --log.fields=t2m --log.field_samples=1");
  const std::string chosen = testing::read_file(folder_.path("run5") + "/pictures.json");
  EXPECT_NE(chosen.find("field_00_t2m_error"), std::string::npos);
  EXPECT_EQ(chosen.find("field_01"), std::string::npos);
  EXPECT_EQ(chosen.find("u10m"), std::string::npos);
  const ProgramResult unknown = run_ranks(2, "--data.name=fields --run.dir=" + folder_.path("unknown") + " " +
                                                 rollout_arguments() + " --log.fields=msl --data.cache=off");
  EXPECT_EQ(unknown.rank_codes, std::vector<int>(2, 2)) << unknown.output;
  EXPECT_NE(
      unknown.output.find("log.fields (command line): the targets have no channel 'msl'; their channels are u10m, t2m"),
      std::string::npos)
      << unknown.output;

  // The numbers are part of the checkpoint: an evaluation measures nothing.
  const ProgramResult evaluated = run_ranks(1, "eval --from=" + one + " --data.cache=off --json");
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  const Json metrics = Json::parse(evaluated.output).at("metrics");
  EXPECT_EQ(metrics.at("loss").get<double>(), recorded(one, "val/loss").back());
  EXPECT_EQ(metrics.at("rmse@3/t2m").get<double>(), recorded(one, "val/rmse@3/t2m").back());
}

TEST_F(FieldsProgramTest, TrainingThroughARolloutResumes) {
  const std::string arguments = rollout_arguments() + " --train.rollout=2 --data.cache=off";
  const std::vector<double> whole = train(2, arguments);
  const std::string run = folder_.path("resumed");
  const std::string words = "--data.name=fields --log.every=1 --run.dir=" + run + " " + arguments;
  ASSERT_EQ(run_ranks(2, words + " --train.max_steps=3").exit_code, 0);
  ASSERT_EQ(run_ranks(1, words + " --resume=must").exit_code, 0);
  EXPECT_EQ(recorded(run, "loss"), whole);
  EXPECT_NE(train(2, arguments + " --train.rollout_gradient=last"), whole);
  const ProgramResult refused =
      run_ranks(2, "--data.name=fields --eval.split=train --run.dir=" + folder_.path("refused") + " " + arguments);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.output.find("cannot be combined with train.rollout; evaluate val or test"), std::string::npos)
      << refused.output;
}

// ---- `trainer data`.

Json data_json(const std::string& arguments) {
  const ProgramResult result =
      run_shell(testing::trainer_program() + " data --json --data.name=fields " + arguments + " 2>/dev/null");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return Json::parse(result.output);
}

/// A text attribute, or a list of them.
void write_texts(hid_t object, const char* name, const std::vector<std::string>& texts) {
  std::size_t size = 1;
  for (const std::string& text : texts) size = std::max(size, text.size());
  std::string bytes;
  for (const std::string& text : texts) bytes += text + std::string(size - text.size(), '\0');
  const checkpoints::Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "type");
  H5Tset_size(type.id(), size);
  const hsize_t count = texts.size();
  const checkpoints::Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "space");
  const checkpoints::Handle attribute(H5Acreate2(object, name, type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT),
                                      H5Aclose, "attribute");
  H5Awrite(attribute.id(), type.id(), bytes.data());
}

void write_number(hid_t object, const char* name, hid_t type, double value) {
  const checkpoints::Handle space(H5Screate(H5S_SCALAR), H5Sclose, "space");
  const checkpoints::Handle attribute(H5Acreate2(object, name, type, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                                      "attribute");
  H5Awrite(attribute.id(), H5T_NATIVE_DOUBLE, &value);
}

void write_coordinates(hid_t file, const char* name, const std::vector<double>& values, const std::string& units) {
  const hsize_t count = values.size();
  const checkpoints::Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "space");
  const checkpoints::Handle set(
      H5Dcreate2(file, name, H5T_IEEE_F64LE, space.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose, "set");
  H5Dwrite(set.id(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  write_texts(set.id(), "units", {units});
}

/// An array t2m[time 10, latitude 3, longitude 4] in chunks of 4 steps, around the whole earth, with a gap of time
/// after step 5. The stored numbers are 0, 1, ... 119; the value is 0.5 * number + 10, and 7 and 100 mean "no value".
void write_grid(const std::string& path, bool is_compressed) {
  const checkpoints::HdfSession session;
  const checkpoints::Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose, "file");
  write_coordinates(file.id(), "time", {0, 6, 12, 18, 24, 30, 60, 66, 72, 78}, "hours since 2000-01-01");
  write_coordinates(file.id(), "latitude", {-60, 0, 60}, "degrees_north");
  write_coordinates(file.id(), "longitude", {0, 90, 180, 270}, "degrees_east");
  const std::vector<hsize_t> shape = {10, 3, 4}, chunk = {4, 3, 4};
  const checkpoints::Handle space(H5Screate_simple(3, shape.data(), nullptr), H5Sclose, "space");
  const checkpoints::Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "list");
  H5Pset_chunk(list.id(), 3, chunk.data());
  if (is_compressed) {
    H5Pset_shuffle(list.id());
    H5Pset_deflate(list.id(), 4);
  }
  const checkpoints::Handle set(
      H5Dcreate2(file.id(), "t2m", H5T_STD_I16LE, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), H5Dclose, "set");
  std::vector<std::int16_t> values(120);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int16_t>(i);
  H5Dwrite(set.id(), H5T_NATIVE_INT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  write_texts(set.id(), "DIMENSION_LABELS", {"time", "latitude", "longitude"});
  write_texts(set.id(), "units", {"K"});
  write_number(set.id(), "scale_factor", H5T_IEEE_F64LE, 0.5);
  write_number(set.id(), "add_offset", H5T_IEEE_F64LE, 10);
  write_number(set.id(), "_FillValue", H5T_STD_I16LE, 7);
  write_number(set.id(), "missing_value", H5T_STD_I16LE, 100);
}

/// Whether one of the remarks contains a text.
bool has_remark(const Json& facts, const std::string& text) {
  return std::ranges::any_of(facts.at("remarks"), [&](const Json& remark) {
    return remark.get<std::string>().find(text) != std::string::npos;
  });
}

TEST_F(FieldsProgramTest, DataCountsWindowsChunksAndGaps) {
  const std::string path = folder_.path("grid.h5");
  write_grid(path, true);
  const std::string arguments = "--data.path=" + path +
                                " --data.variables=t2m --data.steps_in=2 --data.gaps=mean --data.val_fraction=0"
                                " --data.chunk_cache_mb=0.00005 --data.cache=" +
                                folder_.path("cache");
  const Json facts = data_json(arguments);
  const Json& train = facts.at("splits").at("train");
  EXPECT_EQ(train.at("files"), 1);
  EXPECT_EQ(train.at("trajectories"), 1);
  EXPECT_EQ(train.at("steps"), 10);
  EXPECT_EQ(train.at("samples"), 6) << "8 windows of 3 steps, of which 2 would cross the gap";
  EXPECT_EQ(train.at("left_at_gaps"), 2);
  EXPECT_EQ(facts.at("window"),
            (Json{{"steps_in", 2}, {"steps_out", 1}, {"stride", 1}, {"lead", 1}, {"stored_steps", 3}}));
  EXPECT_EQ(train.at("sample_shape"), (Json{2, 3, 4}));
  EXPECT_EQ(facts.at("target_shape"), (Json{1, 3, 4}));
  EXPECT_EQ(facts.at("inputs"), (Json{"t2m@-1", "t2m"}));
  EXPECT_EQ(facts.at("time"), (Json{{"first", "2000-01-01T00:00:00"},
                                    {"last", "2000-01-04T06:00:00"},
                                    {"step_seconds", 21600.0},
                                    {"gaps", 1},
                                    {"first_gap_after", "2000-01-02T06:00:00"}}));
  EXPECT_EQ(facts.at("space").at(1), (Json{{"name", "longitude"},
                                           {"points", 4},
                                           {"stored_points", 4},
                                           {"units", "degrees_east"},
                                           {"first", 0.0},
                                           {"last", 270.0}}));
  ASSERT_EQ(facts.at("arrays").size(), 1U);
  const Json& array = facts.at("arrays").at(0);
  EXPECT_EQ(array.at("layout"), "tyx");
  EXPECT_EQ(array.at("layout_rule"), "names of the axes");
  EXPECT_EQ(array.at("units"), "K");
  EXPECT_EQ(array.at("axes").at(2),
            (Json{{"name", "longitude"}, {"size", 4}, {"units", "degrees_east"}, {"letter", "x"}}));
  EXPECT_EQ(array.at("packing"), (Json{{"scale", 0.5}, {"offset", 10.0}}));
  EXPECT_EQ(array.at("storage").at("chunk"), (Json{4, 3, 4}));
  EXPECT_EQ(array.at("storage").at("chunk_bytes"), 96);
  EXPECT_EQ(array.at("storage").at("filters"), (Json{"shuffle", "deflate"}));
  EXPECT_EQ(array.at("storage").at("bytes"), 240);
  // Steps 0 to 3, 4 to 7, and 8 to 9 have a chunk each. The windows at 0 and 1 need one, those at 2, 3, 6 and 7 two.
  EXPECT_DOUBLE_EQ(facts.at("chunks").at("unpacked_bytes_of_sample").get<double>(), 96 * 10 / 6.0);
  EXPECT_EQ(facts.at("chunks").at("used_bytes_of_sample"), 3 * 12 * 2);
  EXPECT_EQ(facts.at("chunks").at("all_bytes"), 3 * 96);
  EXPECT_TRUE(facts.at("statistics").is_null());
  for (const char* remark : {"has 1 gap, which no window crosses", "unpacks 2.22 times the bytes that samples use",
                             "has 9.16e-05 MiB, more than data.chunk_cache_mb", "model.padding=zero,circular"}) {
    EXPECT_TRUE(has_remark(facts, remark)) << remark << "\n" << facts.at("remarks").dump(1);
  }
  const Json calm = data_json(arguments + " --data.chunk_cache_mb=1 --model.name=unet --model.padding=circular");
  EXPECT_EQ(calm.at("remarks").size(), 1U) << calm.at("remarks").dump(1);

  // 118 of the numbers 0 to 119 are values, which sum up to 7140 - 107.
  const Json measured = data_json(arguments + " --statistics=" + folder_.path("statistics.json")).at("statistics");
  EXPECT_EQ(measured.at("origin"), "computed");
  const Json& channel = measured.at("channels").at(0);
  EXPECT_EQ(channel.at("channel"), "t2m");
  EXPECT_EQ(channel.at("gaps"), 2);
  EXPECT_NEAR(channel.at("values").at("mean").get<double>(), 0.5 * 7033 / 118 + 10, 1e-12);
  EXPECT_EQ(channel.at("values").at("min"), 10.0);
  EXPECT_EQ(channel.at("values").at("max"), 69.5);
  const Json kept = data_json(arguments).at("statistics");
  EXPECT_EQ(kept.at("origin"), "kept in data.cache");
  EXPECT_EQ(kept.at("channels"), measured.at("channels"));

  const ProgramResult text = run_ranks(2, "data --data.name=fields " + arguments);
  EXPECT_EQ(text.exit_code, 0) << text.output;
  for (const char* line :
       {"windows at gaps of time      2", "usual step 6 h, 1 gap, first after 2000-01-02T06:00:00", "(factor 2.22)",
        "chunks [4, 3, 4] of 96 bytes, shuffle, deflate", "layout    tyx by names of the axes",
        "scale_factor 0.5, add_offset 10, gaps are 7 or 100", "t2m (K)"}) {
    EXPECT_NE(text.output.find(line), std::string::npos) << line << "\n" << text.output;
  }
}

TEST_F(FieldsProgramTest, DataStatesTheBytesInTheFile) {
  write_grid(folder_.path("grid.h5"), false);
  const Json facts = data_json("--data.path=" + folder_.path("grid.h5") + " --data.gaps=zero --data.cache=off");
  const Json& storage = facts.at("arrays").at(0).at("storage");
  EXPECT_EQ(storage.at("bytes"), 240);
  EXPECT_EQ(storage.at("stored_bytes"), 3 * 96) << "the last chunk is stored as a whole";
  EXPECT_EQ(storage.at("filters"), Json::array());
}

TEST_F(FieldsProgramTest, DataWarnsOfManyFilesAndNamesShortOnes) {
  const std::string data = folder_.path("files");
  std::filesystem::create_directory(data);
  for (int i = 0; i < 1100; ++i) testing::write_npy(data + "/" + std::to_string(i) + ".npy", {3, 1}, {1, 2, 3});
  testing::write_npy(data + "/short.npy", {1, 1}, {1});
  const Json facts = data_json("--data.path=" + data + " --data.layout=tc --data.val_fraction=0 --data.cache=off");
  EXPECT_EQ(facts.at("splits").at("train").at("samples"), 2200);
  EXPECT_EQ(facts.at("splits").at("train").at("files"), 1100);
  EXPECT_EQ(facts.at("splits").at("train").at("too_short"), Json{data + "/short.npy"});
  EXPECT_EQ(facts.at("arrays").at(0).at("layout_rule"), "data.layout");
  // 64 of 1101 files are open when one of 2200 samples is read.
  EXPECT_TRUE(has_remark(facts, "an epoch opens about 2072 files")) << facts.at("remarks").dump(1);
}

TEST_F(FieldsProgramTest, DataCountsTheFilesOfAPartOfASeries) {
  for (const char* name : {"a", "b", "c"}) testing::write_npy(folder_.path(name) + ".npy", {4, 1}, {1, 2, 3, 4});
  const Json facts = data_json("--data.path=" + folder_.path("?.npy") +
                               " --data.layout=tc --data.join=true --data.val_fraction=0.25 --data.cache=off");
  const auto counts = [&](const char* split) {
    const Json& each = facts.at("splits").at(split);
    return std::vector<int>{each.at("files"), each.at("steps"), each.at("samples")};
  };
  EXPECT_EQ(counts("train"), (std::vector<int>{3, 9, 8})) << "steps 0 to 8 of 12";
  EXPECT_EQ(counts("val"), (std::vector<int>{1, 3, 2}));
}

TEST_F(FieldsProgramTest, StatisticsOfDataAreThoseOfTraining) {
  const std::string path = folder_.path("statistics.json");
  const std::string makani = rollout_arguments() + " --data.cache=off --data.vector=u10m+t2m";
  const std::vector<double> losses = train(2, makani);
  for (const int ranks : {1, 3}) {
    const ProgramResult result = run_ranks(ranks, "data --statistics=" + path + " --data.name=fields " + makani);
    ASSERT_EQ(result.exit_code, 0) << result.output;
    EXPECT_EQ(testing::read_file(path), testing::read_file(folder_.path("run1") + "/statistics.json"));
  }
  EXPECT_EQ(train(2, makani + " --data.statistics=" + path), losses);

  // Inputs and targets are others, and have the same names.
  const std::string columns = "--data.path=" + file("files/climsim/0001-02-01") +
                              " --data.layout=nc --data.val_fraction=0.2 --model.name=mlp --data.cache=off"
                              " --train.global_batch_size=4 --train.max_epochs=2 --optim.lr=0.01";
  const std::vector<double> of_columns = train(1, columns);
  ASSERT_EQ(run_ranks(2, "data --statistics=" + path + " --data.name=fields " + columns).exit_code, 0);
  EXPECT_EQ(train(1, columns + " --data.statistics=" + path), of_columns);
}

TEST_F(FieldsProgramTest, StatisticsThatCannotBeReadOrComputedAreRefused) {
  const std::string source = "--data.name=fields --data.cache=off --data.layout=ntx --data.path=" +
                             file("files/pdebench/1D_Burgers_Sols_Nu0.01.hdf5");
  const auto refused = [&](const std::string& arguments, int code, const std::string& text) {
    const ProgramResult result = run_ranks(2, arguments);
    EXPECT_EQ(result.exit_code, code) << result.output;
    const std::vector<std::string> errors = testing::error_lines(result.output);
    ASSERT_EQ(errors.size(), 1U) << result.output;
    EXPECT_NE(errors[0].find(text), std::string::npos) << errors[0];
  };
  const std::string path = folder_.path("statistics.json");
  const std::string computed = "data --statistics=" + path + " ";
  refused(computed + source + " --data.normalize=none", kConfiguration, "data.normalize = none needs no statistics");
  refused(computed + "--data.name=digits", kConfiguration, "data.name = digits has no statistics");
  refused(computed + "--data.name=synthetic", kConfiguration, "those of data.transform");
  refused("data --statistics=numbers.txt " + source, kConfiguration, "'numbers.txt' must end in .json");
  refused("data --statistics=" + folder_.path("none/s.json") + " " + source, kConfiguration,
          "there is no folder " + folder_.path("none"));
  testing::write_file(path, R"({"difference_steps": 1, "channels": []})");
  const std::string stated = " --data.statistics=" + path;
  refused("data " + source + stated, kData, "states no channels");
  refused(computed + source + stated, kData, "states no channels");
  testing::write_file(path, R"({"channels": 1})");
  refused("data " + source + stated, kData, "is no statistics.json of a run");
  testing::write_file(path, R"({"difference_steps": 1, "channels": [{"channel": "other", "values":
      {"count": 1, "mean": 0, "std": 1, "rms": 1, "min": 0, "max": 0}}]})");
  refused("data " + source + stated, kData, "states no numbers of the channel 'tensor'");
  testing::write_file(path, R"({"difference_steps": 2, "channels": [{"channel": "tensor", "values":
      {"count": 1, "mean": 0, "std": 1, "rms": 1, "min": 0, "max": 0}, "differences":
      {"count": 1, "mean": 0, "std": 1, "rms": 1, "min": 0, "max": 0}}]})");
  refused("data " + source + stated + " --data.predict=differences", kConfiguration,
          "there are no statistics of the differences of 'tensor'");
}

/// The arguments of a case of malformed.json in which the array `fields` is read; empty = another array.
std::string arguments_of(const Json& one_case) {
  const Json& variables = one_case.at("variables");
  const bool is_usual =
      variables.size() == 1 && variables[0].at("path") == "fields" && variables[0].at("layout") == "tcyx";
  if (!is_usual || one_case.contains("statistics")) return "";
  std::string paths;
  for (const std::string& name : one_case.at("files").get<std::vector<std::string>>()) {
    paths += (paths.empty() ? "" : ",") + file(name);
  }
  std::string arguments = "--data.path=" + paths + " --data.variables=fields --data.layout=tcyx";
  for (const char* key : {"steps_in", "steps_out", "stride", "lead"}) {
    arguments += std::string(" --data.") + key + "=" + one_case.at(key).dump();
  }
  return arguments;
}

class MalformedFieldsTest : public ::testing::TestWithParam<int> {};

TEST_P(MalformedFieldsTest, EachFaultGetsOneSentence) {
  const Json document = Json::parse(testing::read_golden("fields/malformed.json"));
  std::vector<Json> cases;
  for (const Json& one_case : document.at("cases")) {
    const bool is_of_file = std::ranges::any_of(one_case.at("must_name"), [](const Json& name) {
      return name.get<std::string>().find('.') != std::string::npos;
    });
    const bool is_refused = one_case.at("verdict") == "refuse" && one_case.at("when") == "open";
    if (is_refused && is_of_file && !one_case.contains("crop") && !arguments_of(one_case).empty()) {
      cases.push_back(one_case);
    }
  }
  ASSERT_GT(cases.size(), 10U);
  if (!testing::is_long_run()) {
    std::mt19937_64 random(testing::test_seed() + static_cast<std::uint64_t>(GetParam()));
    std::ranges::shuffle(cases, random);
    cases.resize(GetParam() == 1 ? 6 : 4);
  }
  for (const Json& one_case : cases) {
    SCOPED_TRACE(one_case.at("name").get<std::string>());
    const testing::TemporaryFolder folder;
    const ProgramResult result = run_ranks(
        GetParam(), "--data.name=fields --model.name=mlp --train.max_steps=1 --run.dir=" + folder.path("run") + " " +
                        arguments_of(one_case));
    EXPECT_EQ(result.exit_code, kData) << result.output;
    EXPECT_EQ(result.rank_codes, std::vector<int>(static_cast<std::size_t>(GetParam()), kData)) << result.output;
    const std::vector<std::string> errors = testing::error_lines(result.output);
    ASSERT_EQ(errors.size(), 1U) << result.output;
    for (const std::string& name : one_case.at("must_name").get<std::vector<std::string>>()) {
      EXPECT_NE(errors[0].find(name), std::string::npos) << name << "\n" << errors[0];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MalformedFieldsTest, ::testing::Values(1, 2),
                         [](const auto& test) { return "np" + std::to_string(test.param); });

}  // namespace fields_system_test
}  // namespace lockstep
