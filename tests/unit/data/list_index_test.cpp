// SPDX-License-Identifier: BSD-3-Clause
// The index of a list in data.cache gives what reading the text gives.
#include <thread>

#include "data/stores/folder_listing.hpp"
#include "data/stores/list_text.hpp"
#include "unit/data/image_files.hpp"

namespace lockstep::data {
namespace list_index_test {

using Options = ListLines::ListOptions;

/// Lists that have not changed for 2 s, so that indices of them are written.
class ListIndexTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    settled = std::make_unique<TemporaryFolder>();
    settled->write("plain.txt", "a/1.png 3\na/2.png 0\nb c/3.png\t7\n");
    settled->write("odd.txt", "\xEF\xBB\xBF# a list\r\n\r\nx.png 1\r\n  \n#x.png 9\ny z.png \t 0  \r\nlast.png 5");
    settled->write("sets.txt", "a.png 0,3\nb.png -\nc.png 1\n");
    settled->write("numbers.txt", "a.png 0.5\nb.png -3e2\n");
    settled->write("masks.txt", "a b.png\tm n.png\nc.png\td.png\n");
    settled->write("bare.txt", "a.png\nb c.png\n");
    settled->write("one line", "only.png 2");
    write_file(*settled, "images/a/1.ppm", ppm(2, 2, 0, 0, 0));
    write_file(*settled, "images/b/2.ppm", ppm(2, 2, 9, 9, 9));
    settle(settled->path("images"));
    cached_list(settled->path("images"), settled->path("folder cache"));
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  }
  static void TearDownTestSuite() { settled.reset(); }

  static std::unique_ptr<const ListLines> lines(const std::string& list, Options options, const std::string& cache) {
    options.cache = cache;
    return std::make_unique<const ListLines>(ListText(settled->path(list)), options);
  }
  std::string index_path() const { return std::filesystem::directory_iterator(cache.path())->path(); }

  static inline std::unique_ptr<TemporaryFolder> settled;
  TemporaryFolder cache;
};

void expect_equal(const ListLines& lines, const ListLines& plain, ListTarget target) {
  ASSERT_EQ(lines.size(), plain.size());
  for (std::int64_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(lines.line(i).path, plain.line(i).path);
    EXPECT_EQ(lines.line(i).label, plain.line(i).label);
    if (target == ListTarget::classes) {
      EXPECT_EQ(lines.labels(i), plain.labels(i));
    }
  }
  EXPECT_EQ(lines.classes(), plain.classes());
  EXPECT_EQ(lines.has_several(), plain.has_several());
  for (const std::int64_t classes : {std::int64_t{0}, plain.classes(), std::int64_t{1000}}) {
    EXPECT_EQ(lines.digest(classes), plain.digest(classes));
  }
  EXPECT_THROW(lines.line(plain.size()), std::out_of_range);
  EXPECT_NO_THROW(lines.check_unchanged());
}

TEST_F(ListIndexTest, GivesTheSameLinesAsTheText) {
  const std::vector<std::pair<std::string, ListTarget>> cases = {
      {"plain.txt", ListTarget::classes},   {"odd.txt", ListTarget::classes}, {"sets.txt", ListTarget::classes},
      {"numbers.txt", ListTarget::numbers}, {"masks.txt", ListTarget::masks}, {"bare.txt", ListTarget::none},
      {"plain.txt", ListTarget::none},      {"one line", ListTarget::classes}};
  for (const auto& [list, target] : cases) {
    SCOPED_TRACE(list);
    const auto plain = lines(list, {.target = target}, "");
    const auto first = lines(list, {.target = target}, cache.path());
    const auto second = lines(list, {.target = target}, cache.path());
    EXPECT_FALSE(plain->has_index());
    EXPECT_TRUE(second->has_index());
    expect_equal(*first, *plain, target);
    expect_equal(*second, *plain, target);
  }
  EXPECT_EQ(cache.count(), cases.size());  // one for each list and target
  EXPECT_EQ(lines("plain.txt", {}, cache.path())->digest(8), lines("plain.txt", {.classes = 8}, "")->digest(8));
}

TEST_F(ListIndexTest, ADamagedOneIsMadeAgain) {
  const auto plain = lines("odd.txt", {}, "");
  lines("odd.txt", {}, cache.path());
  const std::string path = index_path();
  const std::string name = std::filesystem::path(path).filename();
  const std::string good = cache.read(name);
  std::vector<std::string> damaged = {"", good.substr(0, 100), good.substr(0, good.size() - 8), good + "12345678"};
  for (std::size_t i = 0; i < good.size(); i += 3) {
    damaged.push_back(good);
    damaged.back()[i] = static_cast<char>(~damaged.back()[i]);
  }
  for (const std::string& bytes : damaged) {
    cache.write(name, bytes);
    expect_equal(*lines("odd.txt", {}, cache.path()), *plain, ListTarget::classes);
    EXPECT_EQ(cache.read(name), good);
  }
  cache.write("a file", "");
  expect_equal(*lines("odd.txt", {}, cache.path("a file")), *plain, ListTarget::classes);  // no folder
}

TEST_F(ListIndexTest, AnotherContentOfTheListIsRead) {
  TemporaryFolder folder;
  std::filesystem::copy_file(settled->path("plain.txt"), folder.path("list.txt"));
  // A list that has just changed has no index, because its next change could have the same time.
  const auto written = std::filesystem::last_write_time(folder.path("list.txt"));
  ListLines fresh(ListText(folder.path("list.txt")), {.cache = cache.path()});
  EXPECT_FALSE(fresh.has_index());
  std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  EXPECT_TRUE(ListLines(ListText(folder.path("list.txt")), {.cache = cache.path()}).has_index());
  // The same size and the same time of the last change of the content.
  folder.write("list.txt", "a/1.png 3\na/2.png 0\nb c/3.png\t8\n");
  std::filesystem::last_write_time(folder.path("list.txt"), written);
  const ListLines changed(ListText(folder.path("list.txt")), {.cache = cache.path()});
  EXPECT_FALSE(changed.has_index());
  EXPECT_EQ(changed.label(2), 8);
}

TEST_F(ListIndexTest, LabelsAreCheckedAgainstTheNumberOfClasses) {
  lines("plain.txt", {}, cache.path());
  EXPECT_TRUE(lines("plain.txt", {.classes = 8, .rule = "data.classes"}, cache.path())->has_index());
  EXPECT_EQ(
      sentence_of<DataError>([&] { lines("plain.txt", {.classes = 7, .rule = "data.classes"}, cache.path()); }),
      settled->path("plain.txt") + ": line 3: the label 7 is outside [0, 6] (data.classes = 7); correct the label");
}

TEST_F(ListIndexTest, AnIndexThatIsCutDuringUseIsAnError) {
  const auto first = lines("plain.txt", {}, cache.path());
  EXPECT_TRUE(first->has_index());
  std::filesystem::resize_file(index_path(), 130);
  EXPECT_NE(sentence_of<DataError>([&] { first->check_unchanged(); }).find("was changed while it was in use"),
            std::string::npos);
}

TEST_F(ListIndexTest, ListsOfFoldersHaveOne) {
  const std::string folder_cache = settled->path("folder cache");
  const std::map<std::string, std::string> values = {
      {"name", "folder"}, {"path", settled->path("images")}, {"cache", folder_cache}, {"val_fraction", "0"}};
  std::map<std::string, std::string> plain_values = values;
  plain_values["cache"] = "off";
  const ImageSplits plain = open_images(section(plain_values));
  const auto index_count = [&] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_cache)) {
      count += entry.path().extension() == ".lines" ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(index_count(), 0U);
  for (int time = 0; time < 3; ++time) {
    const ImageSplits splits = open_images(section(values));
    EXPECT_EQ(index_count(), 1U);
    EXPECT_EQ(names_in(*splits.train), names_in(*plain.train));
    EXPECT_EQ(labels_in(*splits.train), labels_in(*plain.train));
    EXPECT_EQ(splits.train->digest(), plain.train->digest());
  }
  // The digest in the index belongs to this state of the list only.
  const std::string list = cached_list(settled->path("images"), folder_cache).text.name();
  std::string text(std::filesystem::file_size(list), ' ');
  std::ifstream(list, std::ios::binary).read(text.data(), static_cast<std::streamsize>(text.size()));
  text[text.size() - 2] = '0';
  std::ofstream(list, std::ios::binary) << text;
  EXPECT_EQ(labels_in(*open_images(section(values)).train), labels_in(*plain.train));
}

}  // namespace list_index_test
}  // namespace lockstep::data
