// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/source.hpp>

#include <algorithm>
#include <stdexcept>

#include "data/source/settings.hpp"
#include "files.hpp"

namespace lockstep::data {
namespace dataset_test {

TEST(SourcesTest, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(
      sentence_of<ConfigError>([] {
        open_with({{"name", "digit"}});
      }),
      "data.name (command line): 'digit' is unknown; choose one of: digits, idx, text, tokens, folder, list, cifar10, "
      "cifar100, synthetic, hdf5, npy, fields, arrays; did you mean "
      "'digits'?");
}

TEST(SourcesTest, AUserAddsARowWithItsOwnKeys) {
  std::vector<Source> sources = builtin_sources();
  sources.push_back({.name = "mine",
                     .help = "",
                     .keys = {{.name = "data.mine_size", .type = KeyType::integer, .default_value = "7", .help = ""}},
                     .open = [](const Section& data) -> Splits {
                       throw DataError("size " + std::to_string(data.integer("mine_size")));
                     }});
  Section data = Section::with_defaults("data", data_keys(sources));
  data.set("name", "mine", "command line");
  EXPECT_EQ(sentence_of<DataError>([&] { open(data, sources); }), "size 7");
}

TEST(SourcesTest, ASourceWithoutATrainingSplitIsRefused) {
  std::vector<Source> sources = builtin_sources();
  sources.push_back({.name = "mine", .help = "", .keys = {}, .open = [](const Section&) {
                       return Splits{.train = nullptr, .val = open(Section::with_defaults("data", data_keys())).val};
                     }});
  Section data = Section::with_defaults("data", data_keys(sources));
  data.set("name", "mine", "command line");
  EXPECT_EQ(sentence_of<ConfigError>([&] { open(data, sources); }),
            "data.name (command line): the source 'mine' returned no training split; set `train`");
}

TEST(SourcesTest, KeysAreDeclaredOnceAndNamedData) {
  std::vector<std::string> names;
  for (const KeySpec& key : data_keys()) {
    names.push_back(key.name);
    EXPECT_EQ(key.name.rfind("data.", 0), 0U) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_EQ(fault_in(key, key.default_value), "") << key.name;
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  const Section data = section({});
  EXPECT_EQ(data.text("name"), "digits");
  EXPECT_TRUE(data.boolean("shuffle"));
}

TEST(SourcesTest, WorkersAreANumberOrAuto) {
  const auto workers = [](const std::string& text) { return DataSettings::from(section({{"workers", text}})).workers; };
  EXPECT_EQ(DataSettings::from(section({})).workers, std::nullopt);
  EXPECT_EQ(workers("auto"), std::nullopt);
  EXPECT_EQ(workers("0"), 0);
  EXPECT_EQ(workers("64"), 64);
  for (const std::string text : {"65", "-1", "two", "1.5", ""}) {
    EXPECT_EQ(sentence_of<ConfigError>([&] { workers(text); }),
              "data.workers (command line): '" + text + "' is neither auto nor a number from 0 to 64");
  }
  EXPECT_EQ(auto_workers(1), 1);
  EXPECT_EQ(auto_workers(2), 1);
  EXPECT_EQ(auto_workers(5), 4);
  EXPECT_EQ(auto_workers(128), 16);
}

TEST(SourcesTest, PathMustBeSetWhereItIsNeeded) {
  EXPECT_EQ(sentence_of<ConfigError>([] {
              open_with({{"name", "idx"}});
            }),
            "data.path is not set; data.name = idx needs a folder of IDX files");
  EXPECT_EQ(sentence_of<ConfigError>([] {
              open_with({{"name", "text"}});
            }),
            "data.path is not set; data.name = text needs the path of a text file");
  EXPECT_EQ(sentence_of<ConfigError>([] {
              open_with({{"name", "tokens"}});
            }),
            "data.path is not set; data.name = tokens needs a folder with train.bin and val.bin");
}

}  // namespace dataset_test
}  // namespace lockstep::data
