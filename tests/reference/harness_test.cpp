// SPDX-License-Identifier: BSD-3-Clause
// The reference tests must fail by name for whatever they do not know: each case here puts such a folder in their
// place.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "support/reference.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing::reference {
namespace harness_test {

namespace fs = std::filesystem;

class ReferenceHarnessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) {
      if (const char* const value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    setenv("LOCKSTEP_SHARED", shared_.c_str(), 1);
    fs::create_directories(shared_ / "reference");
  }

  void write(const std::string& path, const std::string& text) {
    const fs::path file = shared_ / "reference" / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  /// The lines that `body` reports, skips included, one message a line.
  static std::string report_of(const std::function<void()>& body) {
    ::testing::TestPartResultArray results;
    {
      const ::testing::ScopedFakeTestPartResultReporter reporter(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
      body();
    }
    std::string report;
    for (int i = 0; i < results.size(); ++i) {
      report += std::string(results.GetTestPartResult(i).skipped() ? "skipped: " : "") +
                results.GetTestPartResult(i).message() + "\n";
    }
    return report;
  }

  /// Runs topic `made_up`, whose file known.json has cases {"value": number} that must be 1.
  static std::string run() {
    return report_of([] {
      run_topic("made_up", {{.file = "known.json",
                             .run =
                                 [](const Json& one_case) {
                                   require_known_fields(one_case, {"name", "value"});
                                   expect_close({number(one_case.at("value"))}, {1}, {.relative = 1e-12}, "value");
                                 }},
                            {.file = "inputs.json", .extra_fields = {"start"}}});
    });
  }

  /// Puts a pending.txt of these lines instead of the project's.
  void write_pending(const std::string& lines) {
    setenv("LOCKSTEP_SOURCE_DIR", shared_.c_str(), 1);
    fs::create_directories(shared_ / "tests/reference");
    std::ofstream(shared_ / "tests/reference/pending.txt") << lines;
  }
  void TearDown() override {
    for (const char* name : kVariables) {
      unsetenv(name);
      if (before_.contains(name)) setenv(name, before_.at(name).c_str(), 1);
    }
  }

  static constexpr const char* kVariables[] = {"LOCKSTEP_SOURCE_DIR", "LOCKSTEP_SHARED", "LOCKSTEP_GOLDEN",
                                               "LOCKSTEP_DATA", "LOCKSTEP_BINARY_DIR"};
  std::map<std::string, std::string> before_;
  TemporaryFolder folder_;
  fs::path shared_ = folder_.path();
};

std::string file_with(const std::string& cases) {
  return R"({"source": "", "how": "", "tolerance": "", "cases": )" + cases + "}";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(ReferenceHarnessTest, PassesWhatIsRight) {
  write("made_up/known.json", file_with(R"([{"name": "one", "value": 1.0}])"));
  write("made_up/inputs.json", R"({"source": "", "how": "", "tolerance": "", "start": 1})");
  EXPECT_EQ(run(), "");
}

TEST_F(ReferenceHarnessTest, NamesTheCaseThatFails) {
  write("made_up/known.json", file_with(R"([{"name": "good", "value": 1}, {"name": "bad", "value": 1.001}])"));
  EXPECT_CONTAINS(run(), R"(made_up/known.json, case 1 "bad")");
  EXPECT_EQ(run().find("good"), std::string::npos);
}

TEST_F(ReferenceHarnessTest, FailsForAnUnknownField) {
  write("made_up/known.json", file_with(R"([{"name": "odd", "value": 1, "more": 2}])"));
  EXPECT_CONTAINS(run(), R"(case 0 "odd": no test knows the field 'more')");
}

TEST_F(ReferenceHarnessTest, FailsForAnUnknownFile) {
  write("made_up/known.json", file_with(R"([{"value": 1}])"));
  write("made_up/below/new.json", file_with(R"([{"value": 1}])"));
  EXPECT_CONTAINS(run(), "made_up/below/new.json: no test knows this file");
}

TEST_F(ReferenceHarnessTest, FailsForFilesWithoutCases) {
  for (const std::string cases : {"[]", "{}", "null", "3"}) {
    write("made_up/known.json", file_with(cases));
    EXPECT_CONTAINS(run(), "made_up/known.json: it has no list of cases");
  }
  write("made_up/known.json", R"({"source": ""})");
  EXPECT_CONTAINS(run(), "made_up/known.json");
  write("made_up/known.json", R"({"source": )");
  EXPECT_CONTAINS(run(), "known.json is malformed");
}

TEST_F(ReferenceHarnessTest, FailsForATopicWithNoCaseRun) {
  fs::create_directories(shared_ / "reference/made_up");
  EXPECT_CONTAINS(run(), "was run");
  write("made_up/inputs.json", R"({"source": "", "start": 1})");
  EXPECT_CONTAINS(run(), "was run");
}

TEST_F(ReferenceHarnessTest, SkipsByNameWhatIsNotThere) {
  EXPECT_CONTAINS(run(), "skipped: ");
  EXPECT_CONTAINS(run(), "no reference data for made_up");
  fs::remove_all(shared_ / "reference");
  EXPECT_CONTAINS(report_of([] { check_coverage({}); }), "skipped: ");
}

TEST_F(ReferenceHarnessTest, CoverageNamesATopicThatNothingTests) {
  write("made_up/new.json", "{}");
  EXPECT_CONTAINS(report_of([] { check_coverage({}); }), "made_up/new.json: no test knows this topic");
  EXPECT_EQ(report_of([] { check_coverage({"made_up"}); }), "");
  fs::create_directories(shared_ / "reference/empty");
  EXPECT_CONTAINS(report_of([] { check_coverage({"made_up"}); }), "no test knows the topic empty");
  write("stray.json", "{}");
  EXPECT_CONTAINS(report_of([] { check_coverage({"made_up"}); }), "stray.json stands outside of any topic");
}

TEST_F(ReferenceHarnessTest, PendingTopicsFoldersAndFilesAreLeftOut) {
  write("new/one.json", "{}");
  write("new/below/two.json", "{}");
  write_pending("# a comment\n\nnew/\n");
  EXPECT_EQ(report_of([] { check_coverage({}); }), "");
  write_pending("new/one.json\n");
  EXPECT_CONTAINS(report_of([] { check_coverage({}); }), "new/below/two.json: no test knows this topic");
  write_pending("new/one.json\nnew/below/\n");
  EXPECT_EQ(report_of([] { check_coverage({}); }), "");
  write_pending("new/one.json\nnew/below/two.json\n");
  EXPECT_EQ(report_of([] { check_coverage({}); }), "");
}

TEST_F(ReferenceHarnessTest, APendingFileOfATestedTopicIsLeftOut) {
  write("made_up/known.json", file_with(R"([{"name": "one", "value": 1.0}])"));
  write("made_up/new.json", "{}");
  write_pending("made_up/new.json\n");
  EXPECT_EQ(run(), "");
  write_pending("made_up/known.json\nmade_up/new.json\n");
  EXPECT_CONTAINS(run(), "made_up/known.json is tested: take it out");
}

TEST_F(ReferenceHarnessTest, APendingFieldIsLeftOut) {
  write("made_up/known.json",
        R"({"source": "", "how": "", "tolerance": "", "more": 1, "cases": [{"name": "one", "value": 1}]})");
  write_pending("");
  EXPECT_CONTAINS(run(), "no test knows the field 'more'");
  write_pending("made_up/known.json#more\n");
  ::testing::internal::CaptureStdout();
  const std::string report = run();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "[ PENDING  ] made_up/known.json#more\n");
  EXPECT_EQ(report, "");
  EXPECT_EQ(report_of([] { check_coverage({"made_up"}); }), "");
  EXPECT_TRUE(is_pending("made_up/known.json", "more"));
  EXPECT_FALSE(is_pending("made_up/known.json", "more of it"));  // it is a field, not a prefix
  EXPECT_FALSE(is_pending("made_up/known.json", "cases"));
}

TEST_F(ReferenceHarnessTest, PendingEntriesAreLeftOutByTheirPrefix) {
  write("made_up/known.json",
        file_with(R"([{"name": "one", "value": 1}, {"name": "tar_cut", "value": 2}, {"name": "tar", "value": 3}])"));
  write_pending("made_up/known.json#tar\n");
  ::testing::internal::CaptureStdout();
  const std::string report = run();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "[ PENDING  ] made_up/known.json#tar_cut\n[ PENDING  ] made_up/known.json#tar\n");
  EXPECT_EQ(report, "");
  EXPECT_EQ(report_of([] { check_coverage({"made_up"}); }), "");

  write("other/lists.json", R"({"verdicts": [{"source": "tar", "file": "a"}], "models": {"hf/a": 1, "timm/b": 2}})");
  write_pending("other/lists.json#tar\nother/lists.json#hf/\n");
  EXPECT_EQ(report_of([] { check_coverage({"made_up", "other"}); }), "");
  EXPECT_TRUE(is_pending("other/lists.json", "tar"));
  EXPECT_TRUE(is_pending("other/lists.json", "hf/a"));
  EXPECT_FALSE(is_pending("other/lists.json", "timm/b"));
}

TEST_F(ReferenceHarnessTest, APartOfAFileThatNothingReadsIsNotEnough) {
  write("other/lists.json", R"({"arrays": 1, "rest": 2})");
  write_pending("other/lists.json#arrays\n");
  EXPECT_CONTAINS(report_of([] { check_coverage({}); }), "other/lists.json: no test knows this topic");
  write("made_up/known.json", file_with(R"([{"value": 1}])"));
  write("made_up/lists.json", R"({"arrays": 1, "rest": 2})");
  write_pending("made_up/lists.json#arrays\n");
  EXPECT_CONTAINS(run(), "made_up/lists.json: no test knows this file");
}

TEST_F(ReferenceHarnessTest, CoverageNamesPendingLinesThatMatchNothing) {
  write("other/lists.json", R"({"source": "x", "arrays": 1, "models": {"hf/a": 1}})");
  const auto report = [&](const std::string& line) {
    write_pending(line + "\n");
    return report_of([] { check_coverage({"other"}); });
  };
  EXPECT_CONTAINS(report("other/gone.json"), "'other/gone.json': the file or folder does not exist");
  EXPECT_CONTAINS(report("other/gone/"), "'other/gone/': the file or folder does not exist");
  EXPECT_CONTAINS(report("other/gone.json#arrays"), "'other/gone.json#arrays': the file or folder does not exist");
  EXPECT_CONTAINS(report("other/lists.json#tables"), "'other/lists.json#tables': the file has no such field");
  EXPECT_CONTAINS(report("other/lists.json#hf/b"), "'other/lists.json#hf/b': the file has no such field");
  EXPECT_CONTAINS(report("other/lists.json#source"), "'other/lists.json#source': every test reads this field");
  EXPECT_CONTAINS(report("other/\nother/lists.json#arrays"), "another line lists the whole file");
  EXPECT_EQ(report("absent/gone.json#arrays"), "");  // a variant without this topic
  for (const std::string malformed : {"other", "other/#arrays", "other/lists.json#"}) {
    write_pending(malformed + "\n");
    EXPECT_THROW(check_coverage({"other"}), std::runtime_error) << malformed;
  }
}

TEST_F(ReferenceHarnessTest, TheMoreSpecificVariableNamesTheFolder) {
  setenv("LOCKSTEP_SOURCE_DIR", shared_.c_str(), 1);
  setenv("LOCKSTEP_SHARED", "both", 1);  // a relative path counts from the source root
  EXPECT_EQ(golden_folder(), shared_ / "both/reference");
  EXPECT_EQ(sample_data("photos"), shared_ / "both/data/photos");
  setenv("LOCKSTEP_GOLDEN", "golden", 1);
  setenv("LOCKSTEP_DATA", "/samples", 1);
  EXPECT_EQ(golden_folder(), shared_ / "golden");
  EXPECT_EQ(sample_data("photos"), "/samples/photos");
  for (const char* name : {"LOCKSTEP_SHARED", "LOCKSTEP_GOLDEN", "LOCKSTEP_DATA"}) unsetenv(name);
  EXPECT_EQ(golden_folder(), shared_ / "tests/golden");
  EXPECT_EQ(sample_data("photos"), shared_ / "tests/data/photos");
}

TEST_F(ReferenceHarnessTest, APendingFileMayBeAbsentUnlessTheFolderIsComplete) {
  write("other/lists.json", R"({"source": "x", "arrays": 1})");
  const auto report = [&](const std::string& line) {
    write_pending(line + "\n");
    return report_of([] { check_coverage({"other"}); });
  };
  EXPECT_CONTAINS(report("other/gone.json"), "the file or folder does not exist");
  setenv("LOCKSTEP_GOLDEN", (shared_ / "reference").c_str(), 1);
  EXPECT_EQ(report("other/gone.json"), "");
  EXPECT_CONTAINS(report("other/lists.json#tables"), "'other/lists.json#tables': the file has no such field");
}

TEST_F(ReferenceHarnessTest, APackedFileIsReadAsTheFile) {
  setenv("LOCKSTEP_BINARY_DIR", (shared_ / "build").c_str(), 1);
  write("made_up/known.json", file_with(R"([{"name": "one", "value": 2.0}])"));
  write("made_up/files/a/packed.bin", "some bytes");
  write("made_up/files/plain.bin", "other bytes");
  const std::string folder = (shared_ / "reference/made_up").string();
  ASSERT_EQ(std::system(("gzip '" + folder + "/known.json' '" + folder + "/files/a/packed.bin'").c_str()), 0);
  EXPECT_CONTAINS(run(), R"(made_up/known.json, case 0 "one")");
  EXPECT_EQ(folder_.read("reference/made_up/files/a/packed.bin"), "");
  const auto text_of = [](const fs::path& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const fs::path packed = golden("made_up/files/a/packed.bin");
  EXPECT_EQ(packed.filename(), "packed.bin");
  EXPECT_EQ(text_of(packed), "some bytes");
  EXPECT_EQ(text_of(golden("made_up/files") / "a/packed.bin"), "some bytes");
  EXPECT_EQ(text_of(golden("made_up/files") / "plain.bin"), "other bytes");
  EXPECT_EQ(golden("made_up/files/plain.bin"), shared_ / "reference/made_up/files/plain.bin");
  write("made_up/new.json", "{}");
  ASSERT_EQ(std::system(("gzip '" + folder + "/new.json'").c_str()), 0);
  EXPECT_CONTAINS(run(), "made_up/new.json: no test knows this file");
  write("made_up/cut.json.gz", text_of(folder + "/known.json.gz").substr(0, 40));
  EXPECT_THROW(load("made_up/cut.json"), std::runtime_error);
}

TEST(ReferenceNumbersTest, AreRoundedToTheirType) {
  const auto one = [](const std::string& dtype, const std::string& text) {
    return numbers(Json::parse(R"({"dtype": ")" + dtype + R"(", "shape": [1], "data": [)" + text + "]}")).data.at(0);
  };
  EXPECT_EQ(one("float32", "0.1"), 0.1F);
  EXPECT_EQ(one("float64", "0.1"), 0.1);
  EXPECT_EQ(one("bfloat16", "0.1"), 0.10009765625);
  EXPECT_EQ(one("float16", "0.1"), 0.0999755859375);
  EXPECT_EQ(one("float32", "\"-inf\""), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(numbers(Json(0.5)).data, std::vector<double>{0.5});
  EXPECT_THROW(numbers(Json::parse(R"({"dtype": "float32", "shape": [2], "data": [1]})")), std::runtime_error);
}

TEST(ReferenceNumbersTest, ClosenessKnowsInfinityAndNan) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(is_close(inf, inf, {}));
  EXPECT_TRUE(is_close(nan, nan, {}));
  EXPECT_FALSE(is_close(inf, -inf, {.relative = 1}));
  EXPECT_FALSE(is_close(1, inf, {.relative = 1}));
  EXPECT_FALSE(is_close(nan, 1, {.absolute = 1}));
  EXPECT_FALSE(is_close(1, nan, {.absolute = 1}));
  EXPECT_TRUE(is_close(1.5, 1, {.relative = 0.5}));
  EXPECT_FALSE(is_close(1.5, 1, {.absolute = 0.25}));
}

}  // namespace harness_test
}  // namespace lockstep::testing::reference
