// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/archive.hpp>

#include "checkpoints/store/snapshot.hpp"
#include "support.hpp"

namespace lockstep::checkpoints {
namespace archive_test {

using Names = std::vector<std::string>;

Array one_byte() { return array_of<std::uint8_t>(DType::uint8, {1}, {7}); }

TEST(ArchiveTest, KeepsOrderAndSetsUpGroups) {
  Archive archive;
  archive.put("/b/x/second", one_byte());
  archive.put("/a/w", one_byte());
  archive.put("/b/x/first", one_byte());
  EXPECT_EQ(archive.array_paths(), (Names{"/b/x/second", "/a/w", "/b/x/first"}));
  EXPECT_EQ(archive.arrays_in("/b/x"), (Names{"second", "first"}));
  EXPECT_EQ(archive.groups_in("/"), (Names{"b", "a"}));
  EXPECT_EQ(archive.groups_in("/b"), (Names{"x"}));
  EXPECT_EQ(archive.group_paths(), (Names{"/b", "/b/x", "/a"}));
  EXPECT_TRUE(archive.has("/b/x"));
  EXPECT_TRUE(archive.has("/"));
  EXPECT_FALSE(archive.has("/b/y"));
}

TEST(ArchiveTest, AttributesHaveATypeAndTheLastValueWins) {
  Archive archive;
  archive.set("/sched", "step", std::int64_t{1});
  archive.set("/sched", "step", std::int64_t{2});
  archive.set("/sched", "lr", 0.5);
  archive.set("/sched", "type", std::string("cosine"));
  EXPECT_EQ(archive.integer("/sched", "step"), 2);
  EXPECT_EQ(archive.real("/sched", "lr"), 0.5);
  EXPECT_EQ(archive.text("/sched", "type"), "cosine");
  EXPECT_TRUE(archive.has_attribute("/sched", "lr"));
  EXPECT_FALSE(archive.has_attribute("/sched", "gamma"));
  EXPECT_FALSE(archive.has_attribute("/nowhere", "lr"));
  EXPECT_EQ(archive.attributes_of("/sched").size(), 3u);
}

TEST(ArchiveTest, AMissingThingIsNamed) {
  Archive archive;
  archive.set_origin("state.h5");
  archive.set("/sched", "lr", 0.5);
  EXPECT_EQ(error_of([&] { archive.array("/w"); }), "state.h5: /w: the array does not exist");
  EXPECT_EQ(error_of([&] { archive.array("/sched"); }), "state.h5: /sched: is a group, not an array");
  EXPECT_EQ(error_of([&] { archive.real("/sched", "x"); }), "state.h5: /sched: there is no attribute 'x'");
  EXPECT_EQ(error_of([&] { archive.integer("/sched", "lr"); }),
            "state.h5: /sched: attribute 'lr' is a real number, not an integer");
  EXPECT_EQ(error_of([&] { archive.text("/sched", "lr"); }),
            "state.h5: /sched: attribute 'lr' is a real number, not a text");
}

TEST(ArchiveTest, MistakesOfTheProgramAreLogicErrors) {
  Archive archive;
  archive.put("/a/w", one_byte());
  EXPECT_THROW(archive.put("/a/w", one_byte()), std::logic_error);
  EXPECT_THROW(archive.put("/a", one_byte()), std::logic_error);
  EXPECT_THROW(archive.put("/a/w/x", one_byte()), std::logic_error);
  EXPECT_THROW(archive.add_group("/a/w"), std::logic_error);
  for (const std::string path : {"", "/", "a", "a/b", "/a/", "//a", "/a//b", "/.", "/a/../b", "/a\n", "/a\x7F"}) {
    EXPECT_THROW(archive.put(path, one_byte()), std::logic_error) << path;
  }
  EXPECT_THROW(archive.put("/" + std::string(1025, 'x'), one_byte()), std::logic_error);
  archive.put("/" + std::string(1024, 'x'), one_byte());
  auto wrong = one_byte();
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{2}, {-1}, {1, 0}, {1LL << 62, 1LL << 62}}) {
    wrong.shape = shape;
    EXPECT_THROW(archive.put("/wrong", wrong), std::logic_error);
  }
  EXPECT_THROW(archive.set("/a", "torch_dtype", std::int64_t{1}), std::logic_error);
  EXPECT_THROW(archive.set("/a", "", std::int64_t{1}), std::logic_error);
  EXPECT_THROW(archive.set("/a", "text", std::string("a\0b", 3)), std::logic_error);
  EXPECT_THROW(archive.set("/a", "text", std::string(60'001, 'x')), std::logic_error);
}

TEST(ArchiveTest, DepthIsLimited) {
  std::string path;
  for (int i = 0; i < 32; ++i) path += "/g";
  Archive archive;
  archive.put(path, one_byte());
  EXPECT_THROW(archive.put(path + "/g", one_byte()), std::logic_error);
}

TEST(ArchiveTest, TextTravelsAsBytes) {
  EXPECT_EQ(text_of(text_array("größer\n")), "größer\n");
  EXPECT_EQ(text_of(text_array("")), "");
  EXPECT_EQ(text_array("abc").shape, (std::vector<std::int64_t>{3}));
  EXPECT_NE(error_of([] { text_of(array_of<float>(DType::float32, {1}, {1})); }), "");
}

TEST(ArchiveTest, OtherArraysKeepTheTreeItsLinksAndAttributes) {
  Archive archive;
  archive.put("/model/w", one_byte());
  archive.link("/model/tied", "/model/w");
  archive.set("/model/w", "unit", std::string("m"));
  archive.set("/", "step", std::int64_t{3});
  archive.add_group("/empty");
  Names replaced;
  const Archive result = archive.with_arrays([&](const std::string& path, const Array&) {
    replaced.push_back(path);
    return array_of<std::uint8_t>(DType::uint8, {2}, {8, 9});
  });
  EXPECT_EQ(replaced, (Names{"/model/w"}));
  EXPECT_EQ(result.array("/model/w").shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(result.array("/model/tied").shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(result.first_path_of("/model/tied"), "/model/w");
  EXPECT_EQ(result.text("/model/w", "unit"), "m");
  EXPECT_EQ(result.integer("/", "step"), 3);
  EXPECT_EQ(result.group_paths(), (Names{"/model", "/empty"}));
  EXPECT_EQ(archive.array("/model/w").shape, (std::vector<std::int64_t>{1}));
}

TEST(ArchiveTest, ArraysThatAreStableAreNotCopied) {
  std::vector<std::uint8_t> changing = {1, 2, 3};
  std::vector<std::uint8_t> stable = {4, 5, 6};
  const auto borrowed = [](std::vector<std::uint8_t>& values, bool is_stable) {
    return Array{.dtype = DType::uint8,
                 .shape = {3},
                 .bytes = std::as_bytes(std::span(values)),
                 .owner = nullptr,
                 .is_stable = is_stable};
  };
  Archive archive;
  archive.put("/changing", borrowed(changing, false));
  archive.put("/stable", borrowed(stable, true));
  archive.link("/tied", "/stable");
  Snapshot snapshot;
  const Archive copy = snapshot.copy(archive);
  changing[0] = 9;
  EXPECT_EQ(copy.array("/changing").bytes[0], std::byte{1});
  EXPECT_EQ(copy.array("/stable").bytes.data(), archive.array("/stable").bytes.data());
  EXPECT_EQ(copy.array("/tied").bytes.data(), archive.array("/stable").bytes.data());
}

// Values that are written must be there; a copy of the archive knows it, too.
TEST(ArchiveTest, BytesThatArriveLaterAreAwaited) {
  const TemporaryFolder folder;
  std::vector<std::uint8_t> bytes = {0};
  Archive archive;
  archive.put("/late", {.dtype = DType::uint8,
                        .shape = {1},
                        .bytes = std::as_bytes(std::span(bytes)),
                        .owner = nullptr,
                        .is_stable = true});
  archive.await_arrival();  // nothing is awaited
  archive.set_arrival([&bytes] { bytes[0] = 7; });
  Snapshot snapshot;
  const std::string written = write(folder.path("ckpt"), 1, snapshot.copy(archive));
  EXPECT_EQ(read(written).array("/late").bytes[0], std::byte{7});
  Archive all;
  bytes[0] = 0;
  all.append(archive);
  EXPECT_EQ(all.array("/late").bytes[0], std::byte{7});
  archive.set_arrival([] { throw CheckpointError("it was lost"); });
  EXPECT_THROW(write(folder.path("ckpt"), 2, archive), CheckpointError);
}

TEST(NameTest, EncodingMakesOnePartOfAnyName) {
  EXPECT_EQ(encode_name("layer1.0.conv.weight"), "layer1.0.conv.weight");
  EXPECT_EQ(encode_name("a/b%c"), "a%2Fb%25c");
  EXPECT_EQ(encode_name("."), "%2E");
  EXPECT_EQ(encode_name(".."), "%2E%2E");
  EXPECT_EQ(encode_name("..."), "...");
  EXPECT_EQ(encode_name("tab\there\x7F"), "tab%09here%7F");
  EXPECT_EQ(encode_name("schön"), "schön");
  for (const std::string name : {"", ".", "..", "/", "%", "%41", "a/../b", "line\nbreak", "schön 重み", "x%"}) {
    EXPECT_EQ(decode_name(encode_name(name)), name);
    EXPECT_EQ(encode_name(name).find('/'), std::string::npos);
  }
  EXPECT_EQ(decode_name("%2f"), "/");
}

TEST(NameTest, AMalformedPartIsRefused) {
  for (const std::string part : {"%", "a%2", "%zz", "%2"}) {
    EXPECT_EQ(error_of([&] { decode_name(part); }),
              "name '" + part + "': '%' is not followed by two hexadecimal digits");
  }
}

}  // namespace archive_test
}  // namespace lockstep::checkpoints
