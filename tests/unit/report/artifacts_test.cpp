// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/artifacts.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cmath>

#include "folder.hpp"
#include "report/files/image.hpp"

namespace lockstep::report {
namespace artifacts_test {

Base64Image picture(const std::string& name, std::int64_t step, const std::string& png = "QUJD") {
  return {.name = name,
          .step = step,
          .caption = "7, \"taken\" for 1",
          .is_wrong = true,
          .height = 2,
          .width = 3,
          .png = png};
}

std::vector<std::string> names_in(const Folder& folder) {
  std::vector<std::string> names;
  const Artifacts read = read_artifacts(folder.path());
  for (const Table& table : read.tables) names.push_back(table.name + "@" + std::to_string(table.step));
  for (const Base64Image& shown : read.pictures) names.push_back(shown.name + "@" + std::to_string(shown.step));
  return names;
}

TEST(Base64Test, HasTheVectorsOfRfc4648) {
  for (const auto& [bytes, text] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                    {"f", "Zg=="},
                                                                                    {"fo", "Zm8="},
                                                                                    {"foo", "Zm9v"},
                                                                                    {"foob", "Zm9vYg=="},
                                                                                    {"fooba", "Zm9vYmE="},
                                                                                    {"foobar", "Zm9vYmFy"},
                                                                                    {"\xFB\xFF", "+/8="}}) {
    EXPECT_EQ(base64_of(bytes), text);
  }
}

TEST(ArtifactsTest, UnitsComeBackAndAreKeptByLaterRuns) {
  const Folder folder;
  ArtifactsWriter writer(folder.path());
  writer.put_units({});
  writer.save();
  EXPECT_EQ(folder.count(), 0U) << "a run without units has no file of them";
  writer.put_units({{"val/rmse/t2m", "K"}, {"val/rmse/u", "m s-1"}});
  writer.save();
  EXPECT_EQ(folder.read("units.json"), "{\n \"val/rmse/t2m\": \"K\",\n \"val/rmse/u\": \"m s-1\"\n}\n");
  ArtifactsWriter resumed(folder.path());
  resumed.put_units({{"val/rmse/u", "m/s"}});
  resumed.save();
  EXPECT_EQ(read_artifacts(folder.path()).units,
            (std::map<std::string, std::string>{{"val/rmse/t2m", "K"}, {"val/rmse/u", "m/s"}}));
  folder.write("units.json", "{\"val/rmse/u\": 3}");
  EXPECT_THROW(read_artifacts(folder.path()), DataError);
}

TEST(ArtifactsTest, TablesAndPicturesComeBackAsTheyWere) {
  const Folder folder;
  EXPECT_TRUE(read_artifacts(folder.path()).tables.empty());
  ArtifactsWriter writer(folder.path());
  writer.put(Table{.name = "val/confusion", .step = 12, .columns = 2, .values = {3, 0.1, std::nan(""), 4}});
  writer.put(picture("val/sample_00", 12));
  EXPECT_EQ(folder.count(), 0U) << "nothing is written before save";
  writer.save();
  EXPECT_EQ(folder.read("tables.json"), "[{\"name\":\"val/confusion\",\"step\":12,\"rows\":[[3.0,0.1],[null,4.0]]}]\n");
  const Artifacts read = read_artifacts(folder.path());
  ASSERT_EQ(read.tables.size(), 1U);
  EXPECT_EQ(read.tables[0].columns, 2U);
  EXPECT_EQ(read.tables[0].values[1], 0.1);
  EXPECT_TRUE(std::isnan(read.tables[0].values[2]));
  ASSERT_EQ(read.pictures.size(), 1U);
  EXPECT_EQ(read.pictures[0].caption, "7, \"taken\" for 1");
  EXPECT_TRUE(read.pictures[0].is_wrong);
  EXPECT_EQ(read.pictures[0].width, 3);
  EXPECT_EQ(read.pictures[0].png, "QUJD");
}

TEST(ArtifactsTest, FieldsKeepTheirColorsAndTitles) {
  const Folder folder;
  ArtifactsWriter writer(folder.path());
  Base64Image shown = picture("val/field", 3);
  shown.scale = ColorScale{.group = "t2m [K]", .low = 0.1, .high = 7, .unit = "K", .colors = {"#000000", "#ffffff"}};
  writer.put(shown);
  writer.put(Table{.name = "val/spectrum", .step = 3, .columns = 2, .values = {1, 2}, .title = "power"});
  writer.save();
  const Artifacts read = read_artifacts(folder.path());
  ASSERT_EQ(read.pictures.size(), 1U);
  ASSERT_TRUE(read.pictures[0].scale);
  EXPECT_EQ(read.pictures[0].scale->group, "t2m [K]");
  EXPECT_EQ(read.pictures[0].scale->low, 0.1);
  EXPECT_EQ(read.pictures[0].scale->high, 7);
  EXPECT_EQ(read.pictures[0].scale->unit, "K");
  EXPECT_EQ(read.pictures[0].scale->colors, shown.scale->colors);
  ASSERT_EQ(read.tables.size(), 1U);
  EXPECT_EQ(read.tables[0].title, "power");
}

TEST(ArtifactsTest, OfEachGroupTheLatestStepIsKept) {
  const Folder folder;
  ArtifactsWriter writer(folder.path());
  for (const char* const name : {"val/a", "val/b", "own/c", "d"}) writer.put(picture(name, 10));
  writer.save();
  ArtifactsWriter resumed(folder.path());
  resumed.put(picture("val/b", 20));
  resumed.put(picture("val/x", 20));
  resumed.put(picture("val/x", 20, "QQ=="));
  resumed.save();
  EXPECT_EQ(names_in(folder), (std::vector<std::string>{"own/c@10", "d@10", "val/b@20", "val/x@20"}));
  EXPECT_EQ(read_artifacts(folder.path()).pictures.back().png, "QQ==");
}

TEST(ArtifactsTest, AResumedRunForgetsWhatItWillReportAgain) {
  const Folder folder;
  ArtifactsWriter writer(folder.path());
  writer.put(Table{.name = "val/iou", .step = 20, .columns = 1, .values = {1}});
  writer.put(Table{.name = "own/t", .step = 10, .columns = 1, .values = {1}});
  writer.put(picture("val/a", 20));
  writer.save();
  ArtifactsWriter(folder.path()).truncate_after_step(20);
  EXPECT_EQ(names_in(folder).size(), 3U);
  ArtifactsWriter(folder.path()).truncate_after_step(19);
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"own/t@10"});
}

TEST(ArtifactsTest, DamageIsSaidToReadersAndOverwrittenByWriters) {
  const Folder folder;
  for (const char* const text : {"[{\"name\":1}]", "{", "[{\"name\":\"t\",\"step\":1,\"rows\":[[1,2],[3]]}]", "[3]",
                                 "[{\"name\":\"t\",\"step\":1,\"rows\":[[1],[]]}]"}) {
    folder.write("tables.json", text);
    EXPECT_THROW(read_artifacts(folder.path()), DataError) << text;
  }
  ArtifactsWriter writer(folder.path());
  writer.put(Table{.name = "t", .step = 1, .columns = 1, .values = {1}});
  writer.save();
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"t@1"});
}

}  // namespace artifacts_test
}  // namespace lockstep::report
