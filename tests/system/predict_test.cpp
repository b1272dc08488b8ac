// SPDX-License-Identifier: BSD-3-Clause
// `trainer predict`: the same bytes on any number of ranks, all kinds of tasks and outputs, and no file that looks
// complete after a failure.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <unistd.h>

#include "support/program.hpp"

namespace lockstep {
namespace predict_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::ProgramResult;
using testing::run_ranks;

/// A PPM file of one color.
std::string ppm(int red, int green, int blue) {
  std::string pixels;
  for (int i = 0; i < 64; ++i) pixels += {static_cast<char>(red), static_cast<char>(green), static_cast<char>(blue)};
  return "P6 8 8 255\n" + pixels;
}

std::vector<Json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::vector<std::string> text_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// The names in a folder that start with `start`.
std::vector<std::string> names_in(const fs::path& folder, const std::string& start) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(start)) names.push_back(entry.path().filename().string());
  }
  return names;
}

/// Red, green and blue images in folders of these names, and models that are trained on them.
class PredictTest : public ::testing::Test {
 protected:
  static constexpr int kImages = 21;

  void SetUp() override {
    for (int i = 0; i < kImages; ++i) {
      const int value = 100 + 5 * i;
      write(file_of(i), i % 3 == 0 ? ppm(value, 0, 0) : i % 3 == 1 ? ppm(0, value, 0) : ppm(0, 0, value));
    }
  }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder_.path(name)).parent_path());
    folder_.write(name, text);
  }

  static std::string file_of(int i) {
    const std::vector<std::string> names = {"red", "green", "blue"};
    const std::string folder = "images/" + names[static_cast<std::size_t>(i % 3)];
    return folder + "/" + (i < 10 ? "0" : "") + std::to_string(i) + ".ppm";
  }

  void write_list(const std::string& name, const std::function<std::string(int)>& label) {
    fs::create_directories(folder_ / "images");
    std::string text;
    for (int i = 0; i < kImages; ++i) text += file_of(i) + " " + label(i) + "\n";
    write(name, text);
  }

  std::string run() const { return folder_.path("run"); }
  void train(const std::string& data) {
    const ProgramResult outcome = run_ranks(
        2, data +
               " --data.val_fraction=0 --eval.every=never --model.name=mlp --model.hidden=16 "
               "--train.global_batch_size=6 --train.max_epochs=30 --optim.name=adam --optim.lr=0.01 --run.dir=" +
               run());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  void train_on_folders() { train("--data.name=folder --data.cache=off --data.path=" + folder_.path("images")); }

  /// @param more  arguments after --from
  ProgramResult predict(int ranks, const std::string& more) const {
    return run_ranks(ranks, "predict --from " + run() + " --eval.batch_size=4 " + more);
  }

  /// The output on 1, 2 and 3 ranks with different numbers of workers has the same bytes.
  /// @return  the path of one
  std::string expect_equal(const std::string& ending, const std::string& more) const {
    std::string first;
    for (const int ranks : {1, 2, 3}) {
      const std::string out = folder_.path(std::to_string(ranks) + ending);
      const ProgramResult outcome =
          predict(ranks, more + " --data.workers=" + std::to_string(ranks - 1) + " --predict.out=" + out);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
      const std::string bytes = testing::read_file(out);
      EXPECT_FALSE(bytes.empty());
      if (ranks == 1) first = bytes;
      EXPECT_TRUE(bytes == first) << ranks << " ranks: " << out;
      EXPECT_EQ(names_in(folder_.path("."), std::to_string(ranks) + ending).size(), 1U);
    }
    return folder_.path("1" + ending);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(PredictTest, ClassesAreTheSameOnAnyNumberOfRanks) {
  train_on_folders();
  const std::string all = "--predict.split=train --predict.probabilities=true --predict.top_k=2 ";
  const std::vector<Json> lines = lines_of(expect_equal(".jsonl", all));
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(kImages));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Json& line = lines[i];
    EXPECT_EQ(line["index"], i);
    const std::string name = line["top"][0]["class"];
    EXPECT_TRUE(line["id"].get<std::string>().starts_with(name + "/")) << line;
    EXPECT_EQ(line["top"][0]["index"], line["target"]) << line;
    EXPECT_EQ(line["top"].size(), 2U);
    EXPECT_GE(line["top"][0]["probability"], line["top"][1]["probability"]);
    double sum = 0;
    for (const Json& each : line["probabilities"]) sum += each.get<double>();
    EXPECT_NEAR(sum, 1, 3e-6);
    EXPECT_EQ(line["probabilities"][line["target"].get<std::size_t>()], line["top"][0]["probability"]);
  }
  const std::vector<std::string> table = text_lines(expect_equal(".csv", all));
  ASSERT_EQ(table.size(), 1U + kImages);
  EXPECT_EQ(table[0],
            "index,id,target,class,probability,class_2,probability_2,probability of blue,probability of green,"
            "probability of red");
  EXPECT_TRUE(table[1].starts_with("0,blue/02.ppm,blue,blue,0.")) << table[1];
  const std::string array = testing::read_file(expect_equal(".npy", all));
  EXPECT_NE(array.find("'descr': '<f4', 'fortran_order': False, 'shape': (21, 3), }"), std::string::npos);
  EXPECT_EQ(array.size(), 128U + 21 * 3 * 4);
  const std::string features = testing::read_file(expect_equal(".features.npy", all + "--predict.output=features "));
  EXPECT_NE(features.find("'shape': (21, 16), }"), std::string::npos);
}

TEST_F(PredictTest, ThePageShowsTheLargestErrorsFirst) {
  train_on_folders();
  fs::create_directories(folder_ / "mixed/red");
  fs::create_directories(folder_ / "mixed/green");
  write("mixed/red/right.ppm", ppm(150, 0, 0));
  write("mixed/red/w<rong.ppm", ppm(0, 150, 0));
  write("mixed/green/good.ppm", ppm(0, 160, 0));
  std::string first;
  for (const int ranks : {1, 2, 3}) {
    const ProgramResult outcome =
        predict(ranks, "--eval.batch_size=1 --data.path=" + folder_.path("mixed") +
                           " --predict.html_samples=2 --predict.html=" + folder_.path("page.html") +
                           " --predict.out=" + folder_.path("page.jsonl"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const std::string page = testing::read_file(folder_ / "page.html");
    if (ranks == 1) first = page;
    EXPECT_TRUE(page == first) << ranks;
  }
  EXPECT_NE(first.find("1 of 3 samples with a target"), std::string::npos);
  const std::size_t wrong = first.find("red/w&lt;rong.ppm, target red, green ");
  EXPECT_NE(wrong, std::string::npos) << first.substr(0, 4000);
  EXPECT_NE(first.find("red/w&lt;rong.ppm<br/>target red<br/>green "), std::string::npos);  // the lines of the caption
  EXPECT_EQ(first.find("<figure"), first.rfind("<figure", wrong));
  std::size_t figures = 0;
  for (std::size_t position = first.find("<img"); position != std::string::npos;
       position = first.find("<img", position + 1))
    ++figures;
  EXPECT_EQ(figures, 2U);
  EXPECT_EQ(first.find("http://"), std::string::npos);
  EXPECT_EQ(first.find("https://"), std::string::npos);
  const std::vector<Json> lines = lines_of(folder_.path("page.jsonl"));  // the numbers of the model, not of the folder
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["target"], 1);
  EXPECT_EQ(lines[1]["target"], 2);
}

TEST_F(PredictTest, FoldersWithoutLabelsAndWeightsOfAFile) {
  train_on_folders();
  write("new/z.ppm", ppm(0, 150, 0));
  write("new/deep/er/a b.ppm", ppm(150, 0, 0));
  write("new/#c.ppm", ppm(0, 0, 150));
  write("new/notes.txt", "no image");
  const std::string data = "--data.unlabeled=true --data.path=" + folder_.path("new");
  const std::vector<Json> lines = lines_of(expect_equal(".jsonl", data));
  ASSERT_EQ(lines.size(), 3U);
  std::map<std::string, std::string> classes;
  for (const Json& line : lines) {
    EXPECT_FALSE(line.contains("target")) << line;
    classes[line["id"].get<std::string>()] = line["top"][0]["class"].get<std::string>();
  }
  const std::map<std::string, std::string> expected = {
      {"./#c.ppm", "blue"}, {"deep/er/a b.ppm", "red"}, {"z.ppm", "green"}};
  EXPECT_EQ(classes, expected);

  write("names.txt", "blue\ngreen\nred\n");
  const std::string out = folder_.path("file.jsonl");
  const ProgramResult outcome =
      run_ranks(2, "predict --init.from=" + run() + "/ckpt/" + names_in(run() + "/ckpt", "step-").at(0) +
                       " --data.name=folder --data.cache=off --model.name=mlp --model.hidden=16 --data.class_names=" +
                       folder_.path("names.txt") + " " + data + " --predict.out=" + out);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(testing::read_file(out), testing::read_file(folder_ / "1.jsonl"));
}

TEST_F(PredictTest, Labels) {
  write_list("list.txt", [](int i) { return i % 3 == 0 ? std::string("0,2") : std::to_string(i % 3); });
  train("--data.name=list --data.path=" + folder_.path("list.txt"));
  const std::vector<Json> lines = lines_of(expect_equal(".jsonl", "--predict.split=train --predict.threshold=0.5"));
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(kImages));
  for (const Json& line : lines) {
    std::vector<int> labels;
    for (const Json& label : line["labels"]) labels.push_back(label["index"]);
    std::sort(labels.begin(), labels.end());
    EXPECT_EQ(Json(labels), line["target"]) << line;
  }
  EXPECT_EQ(lines[0]["target"], Json({0, 2}));
  const std::vector<std::string> table = text_lines(expect_equal(".csv", "--predict.split=train --predict.top_k=1"));
  EXPECT_EQ(table[0], "index,id,target,labels,class,probability");
  EXPECT_TRUE(table[1].starts_with("0,images/red/00.ppm,0;2,")) << table[1];
  const std::vector<Json> none = lines_of(expect_equal("none.jsonl", "--predict.split=train --predict.threshold=1"));
  EXPECT_TRUE(none[0]["labels"].empty());
}

TEST_F(PredictTest, Numbers) {
  write_list("list.txt", [](int i) { return i % 3 == 0 ? "0.5" : "-1.25"; });
  train("--data.name=list --data.target=real --data.path=" + folder_.path("list.txt"));
  const std::vector<Json> lines = lines_of(expect_equal(".jsonl", "--predict.split=train"));
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(kImages));
  for (const Json& line : lines) {
    ASSERT_EQ(line["values"].size(), 1U) << line;
    EXPECT_NEAR(line["values"][0].get<double>(), line["target"][0].get<double>(), 0.5) << line;
  }
  const std::vector<std::string> table = text_lines(expect_equal(".csv", "--predict.split=train"));
  EXPECT_EQ(table[0], "index,id,target,value");
  EXPECT_TRUE(table[1].starts_with("0,images/red/00.ppm,0.5,")) << table[1];
}

TEST_F(PredictTest, EvaluationsPrintJsonAndWriteThePredictions) {
  train_on_folders();
  const std::string out = folder_.path("eval.jsonl");
  const ProgramResult outcome =
      run_ranks(2, "eval --json --from " + run() + " --eval.split=train --eval.batch_size=4 --predictions=" + out);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::size_t begin = outcome.output.find("{\"from\"");
  ASSERT_NE(begin, std::string::npos) << outcome.output;
  const Json json = Json::parse(outcome.output.substr(begin, outcome.output.find('\n', begin) - begin));
  EXPECT_EQ(json["count"], kImages);
  EXPECT_GT(json["step"], 0);
  EXPECT_EQ(json["split"], "train");
  EXPECT_EQ(json["weights"], "trained");
  EXPECT_EQ(json["metrics"]["accuracy"], 1.0);
  EXPECT_EQ(testing::read_file(out), testing::read_file(expect_equal(".jsonl", "--predict.split=train")));
  const ProgramResult nothing = run_ranks(2, "eval");
  EXPECT_EQ(nothing.rank_codes, (std::vector<int>{2, 2})) << nothing.output;
  EXPECT_NE(nothing.output.find("eval needs --from PATH"), std::string::npos) << nothing.output;
}

/// Bytes of a PGM file with the classes of 16 x 16 pixels.
std::string pgm(const std::function<int(int row, int column)>& class_at) {
  std::string pixels;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) pixels += static_cast<char>(class_at(row, column));
  }
  return "P5 16 16 255\n" + pixels;
}

// A U-Net on a list with masks: images with a bright half at the left, which is class 1.
TEST_F(PredictTest, UnetAndListsWithMasks) {
  std::string list;
  for (int i = 0; i < 13; ++i) {
    const auto is_bright = [i](int column) { return column < 3 + i; };
    std::string pixels;
    for (int p = 0; p < 256; ++p) pixels += std::string(3, static_cast<char>(is_bright(p % 16) ? 200 - i : 20 + i));
    const std::string name = "square" + std::to_string(i);
    write("scenes/" + name + ".ppm", "P6 16 16 255\n" + pixels);
    write("scenes/" + name + ".pgm", pgm([&](int, int column) { return is_bright(column) ? 1 : 0; }));
    list += "scenes/" + name + ".ppm scenes/" + name + ".pgm\n";
  }
  write("list.txt", list);
  const ProgramResult trained = run_ranks(
      2, "--data.name=list --data.target=mask --data.val_fraction=0 --eval.every=never --data.path=" +
             folder_.path("list.txt") + " --model.name=unet --model.width=8 --model.depth=1 --model.norm=group " +
             "--train.global_batch_size=4 --train.max_epochs=25 --optim.name=adam --optim.lr=0.01 --run.dir=" + run());
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string masks = " --predict.masks=" + folder_.path("masks");
  const std::vector<Json> lines = lines_of(expect_equal(".jsonl", ""));
  ASSERT_EQ(lines.size(), 13U);
  std::int64_t right = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::int64_t expected = std::min<std::int64_t>(256, 16 * static_cast<std::int64_t>(3 + i));
    EXPECT_EQ(lines[i]["id"], "scenes/square" + std::to_string(i) + ".ppm");
    EXPECT_FALSE(lines[i].contains("target")) << lines[i];
    EXPECT_EQ(lines[i]["counts"][0].get<std::int64_t>() + lines[i]["counts"][1].get<std::int64_t>(), 256);
    right += std::abs(lines[i]["counts"][1].get<std::int64_t>() - expected) <= 16 ? 1 : 0;
  }
  EXPECT_GE(right, 11);
  const std::string array = testing::read_file(expect_equal(".npy", ""));
  EXPECT_NE(array.find("'shape': (13, 16, 16), }"), std::string::npos);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto begin = array.begin() + static_cast<std::ptrdiff_t>(128 + 256 * i);
    EXPECT_EQ(std::count(begin, begin + 256, 1), lines[i]["counts"][1].get<std::int64_t>());
  }
  const ProgramResult page =
      predict(2, "--predict.out=" + folder_.path("m.csv") + masks + " --predict.html=" + folder_.path("m.html"));
  ASSERT_EQ(page.exit_code, 0) << page.output;
  EXPECT_EQ(names_in(folder_ / "masks", "").size(), 13U);
  EXPECT_NE(testing::read_file(folder_ / "m.html").find("of the pixels are right"), std::string::npos);
  // The same images without masks.
  std::string images;
  for (int i = 0; i < 13; ++i) images += "scenes/square" + std::to_string(i) + ".ppm\n";
  write("images.txt", images);
  const std::string out = folder_.path("new.jsonl");
  const ProgramResult unlabeled =
      predict(2, "--data.path=" + folder_.path("images.txt") + " --data.unlabeled=true --predict.out=" + out);
  ASSERT_EQ(unlabeled.exit_code, 0) << unlabeled.output;
  EXPECT_EQ(lines_of(out), lines);
}

TEST_F(PredictTest, BadInputHasOneSentence) {
  train_on_folders();
  write("bad/a.ppm", "P6 8 8 255\ncut");
  write("other/violet/a.ppm", ppm(1, 2, 3));
  fs::create_directories(folder_ / "empty");
  write("taken/a", "x");
  const std::string out = " --predict.out=" + folder_.path("out.jsonl");
  const std::string from = "--from " + run();
  struct Case {
    std::string arguments;
    int code;
    std::string words;
  };
  const std::vector<Case> cases = {
      {out, 2, "predict needs --from PATH"},
      {from, 2, "predict.out is not set"},
      {from + " --predict.out=a.txt", 2, "'a.txt' must end in .jsonl, .csv, .npy, .nc or .h5"},
      {from + " --predict.out=" + folder_.path("none/a.csv"), 2, "does not exist; create it"},
      {from + out + " --predict.html=a.htm", 2, "'a.htm' must end in .html"},
      {from + out + " --predict.masks=" + folder_.path("taken"), 2, "exists; delete it or name a new folder"},
      {from + out + " --predict.masks=" + folder_.path("m"), 2, "does not predict masks"},
      {from + out + " --predict.output=features", 2, "use a file that ends in .npy"},
      {from + out + " --predict.top_k=0", 2, "predict.top_k"},
      {from + out + " --init.from=x.pt", 2, "both name weights"},
      {from + out + " --predict.split=test", 2, "has no split 'test'"},
      {from + out + " --data.on_error=replace", 2, "use data.exclude"},
      {"--from " + folder_.path("nowhere") + out, 4, "does not exist"},
      {from + out + " --data.path=" + folder_.path("other"), 3, "the class 'violet' of the data"},
      {from + out + " --data.path=" + folder_.path("bad") + " --data.unlabeled=true", 3, "a.ppm"},
      {from + out + " --data.path=" + folder_.path("bad") + " --data.unlabeled=true --data.check=off", 3, "a.ppm"},
      {from + out + " --data.path=" + folder_.path("bad"), 3, "data.unlabeled=true"},
      {from + out + " --data.path=" + folder_.path("empty") + " --data.unlabeled=true", 3, "contains no images"},
      {from + out + " --data.path=" + folder_.path("nowhere") + " --data.unlabeled=true", 3, "is not a folder"},
      {from + out + " --model.hidden=8", 4, "does not fit"},
  };
  for (const Case& c : cases) {
    const ProgramResult outcome = run_ranks(2, "predict " + c.arguments);
    EXPECT_EQ(outcome.rank_codes, (std::vector<int>{c.code, c.code})) << c.arguments << "\n" << outcome.output;
    const std::size_t error = outcome.output.find(" error ");
    ASSERT_NE(error, std::string::npos) << c.arguments << "\n" << outcome.output;
    EXPECT_EQ(outcome.output.find(" error ", error + 1), std::string::npos) << outcome.output;
    const std::string line = outcome.output.substr(error, outcome.output.find('\n', error) - error);
    EXPECT_NE(line.find(c.words), std::string::npos) << c.arguments << "\n" << line;
    EXPECT_TRUE(names_in(folder_.path("."), "out.jsonl").empty()) << c.arguments;
  }
}

/// The program with masks and fields.
class PredictImagesTest : public ::testing::Test {
 protected:
  ProgramResult run(int ranks, const std::string& arguments, const std::string& environment = "") const {
    return testing::run_shell(environment + " " + testing::mpirun_command(ranks) + " " + PREDICT_PROGRAM + " " +
                              arguments + " --eval.batch_size=5");
  }
  void train(const std::string& source) {
    const ProgramResult outcome = run(2, "--data.name=" + source +
                                             " --model.name=pixels --train.global_batch_size=16 --train.max_epochs=60 "
                                             "--optim.name=adam --optim.lr=0.1 --eval.every=never --run.dir=" +
                                             folder_.path("run"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  std::string from() const { return "predict --from " + folder_.path("run") + " --predict.out="; }

  testing::TemporaryFolder folder_;
};

TEST_F(PredictImagesTest, MasksAreWrittenAsPngAndArray) {
  train("squares");
  std::vector<std::string> first;
  for (const int ranks : {1, 2, 3}) {
    const std::string n = std::to_string(ranks);
    const ProgramResult outcome =
        run(ranks, from() + folder_.path(n + ".jsonl") + " --predict.masks=" + folder_.path("m" + n) +
                       " --predict.html=" + folder_.path(n + ".html"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const ProgramResult array = run(ranks, from() + folder_.path(n + ".npy"));
    ASSERT_EQ(array.exit_code, 0) << array.output;
    std::vector<std::string> all = {testing::read_file(folder_ / (n + ".jsonl")),
                                    testing::read_file(folder_ / (n + ".html")),
                                    testing::read_file(folder_ / (n + ".npy"))};
    for (int i = 0; i < 43; ++i) {
      const std::string name = i < 10 ? "0000000" + std::to_string(i) : "000000" + std::to_string(i);
      all.push_back(testing::read_file(folder_.path("m" + n + "/" + name + ".png")));
      EXPECT_TRUE(all.back().starts_with("\x89PNG")) << name;
    }
    EXPECT_EQ(names_in(folder_ / ("m" + n), "").size(), 43U);
    if (ranks == 1) first = all;
    EXPECT_TRUE(all == first) << ranks << " ranks";
    EXPECT_FALSE(fs::exists(folder_ / ("m" + n + ".unfinished")));
  }
  const std::vector<Json> lines = lines_of(folder_.path("1.jsonl"));
  ASSERT_EQ(lines.size(), 43U);
  for (int i = 0; i < 43; ++i) {
    const Json expected = {{"index", i},
                           {"id", "square " + std::to_string(i)},
                           {"counts", {64 - 2 * (i % 8), 2 * (i % 8)}},
                           {"mask", (i < 10 ? "0000000" : "000000") + std::to_string(i) + ".png"}};
    EXPECT_EQ(lines[static_cast<std::size_t>(i)], expected);
  }
  const std::string array = testing::read_file(folder_ / "1.npy");
  EXPECT_NE(array.find("'descr': '|u1', 'fortran_order': False, 'shape': (43, 8, 8), }"), std::string::npos);
  ASSERT_EQ(array.size(), 128U + 43 * 64);
  for (std::size_t i = 0; i < 43; ++i) {
    for (std::size_t p = 0; p < 64; ++p) {
      ASSERT_EQ(array[128 + 64 * i + p], p / 8 < i % 8 && p % 8 < 2 ? 1 : 0) << i << " " << p;
    }
  }
  const ProgramResult table = run(1, from() + folder_.path("t.csv"));
  EXPECT_EQ(text_lines(folder_.path("t.csv"))[0], "index,id,pixels of ground,\"pixels of square, bright\"");
}

TEST_F(PredictImagesTest, FieldsAndFeaturesAreArrays) {
  train("images_and_fields");
  const ProgramResult fields = run(3, from() + folder_.path("a.npy"));
  ASSERT_EQ(fields.exit_code, 0) << fields.output;
  const std::string array = testing::read_file(folder_ / "a.npy");
  EXPECT_NE(array.find("'shape': (43, 1, 8, 8), }"), std::string::npos);
  EXPECT_EQ(array.size(), 128U + 43 * 64 * 4);
  for (const int ranks : {1, 3}) {
    const std::string out = folder_.path("f" + std::to_string(ranks) + ".npy");
    const ProgramResult features = run(ranks, from() + out + " --predict.output=features");
    ASSERT_EQ(features.exit_code, 0) << features.output;
  }
  const std::string features = testing::read_file(folder_ / "f1.npy");
  EXPECT_EQ(features, testing::read_file(folder_ / "f3.npy"));
  EXPECT_NE(features.find("'shape': (43, 1), }"), std::string::npos);
  for (std::size_t i = 0; i < 43; ++i) {  // the mean of the image that the head reads
    float value = 0;
    std::memcpy(&value, features.data() + 128 + 4 * i, 4);
    EXPECT_EQ(value, static_cast<float>(2 * (i % 8)) / 64) << i;
  }
}

TEST_F(PredictImagesTest, AKilledRunLeavesNoFileThatLooksComplete) {
  train("squares");
  const std::string out = folder_.path("k.jsonl");
  const std::string masks = folder_.path("km");
  const std::string arguments = from() + out + " --predict.masks=" + masks;
  const std::string script =
      "SLOW_MS=400 " + testing::mpirun_command(2) + " " + PREDICT_PROGRAM + " " + arguments +
      " --eval.batch_size=5 & job=$!; while kill -0 $job && [ ! -e " + masks +
      ".unfinished/00000000.png ]; do sleep 0.02; done; for p in $(pgrep -f 'predict.out=" + out +
      "'); do if [ \"$(cat /proc/$p/comm)\" = predict_program ]; then kill -9 $p; fi; done; wait $job";
  EXPECT_NE(testing::run_shell(script).exit_code, 0);
  EXPECT_FALSE(fs::exists(out));
  EXPECT_FALSE(fs::exists(masks));
  EXPECT_EQ(names_in(folder_.path("."), "k.jsonl.part-").size(), 2U);
  const ProgramResult again = run(1, arguments);
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_EQ(names_in(folder_.path("."), "k").size(), 2U);  // the file and the folder
  EXPECT_EQ(lines_of(out).size(), 43U);
  EXPECT_EQ(names_in(masks, "").size(), 43U);
}

// A disk on a tmpfs of 16 kB that only this shell sees.
TEST_F(PredictImagesTest, AFullDiskIsASentence) {
  const std::string unshare = ::geteuid() == 0 ? "unshare -m" : "unshare -rm";
  if (testing::run_shell(unshare + " true").exit_code != 0) GTEST_SKIP() << "no private mount is allowed here";
  train("images_and_fields");
  const std::string disk = folder_.path("disk");
  fs::create_directories(disk);
  folder_.write("script.sh", "mount -t tmpfs -o size=16k none " + disk + " || exit 99\n\"$@\"\ncode=$?\nls -A " + disk +
                                 "\nexit $code\n");
  for (const int ranks : {1, 2, 3}) {
    const ProgramResult outcome =
        testing::run_shell("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + unshare + " bash " +
                           folder_.path("script.sh") + " " + testing::mpirun_command(ranks) + " " + PREDICT_PROGRAM +
                           " " + from() + disk + "/a.npy --eval.batch_size=5 --predict.html=" + disk + "/a.html");
    if (outcome.exit_code == 99) GTEST_SKIP() << "no private mount is allowed here";
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_NE(outcome.output.find(" cannot be written: No space left on device"), std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.output.find("\na."), std::string::npos) << "left behind: " << outcome.output;
  }
}

}  // namespace predict_test
}  // namespace lockstep
