// SPDX-License-Identifier: BSD-3-Clause
// What we write in the formats of others, we read back; and we replace nothing unasked.
#include "checkpoints/disk/disk.hpp"
#include "checkpoints/foreign/zip.hpp"
#include "foreign_support.hpp"

namespace lockstep::checkpoints {
namespace foreign_round_trip_test {

using Metadata = std::map<std::string, std::string>;

struct Format {
  std::string suffix;
  ExportKind kind;
  FileKind file_kind;
};

const Format kFormats[] = {{".safetensors", ExportKind::safetensors, FileKind::safetensors},
                           {".pt", ExportKind::pytorch, FileKind::pytorch},
                           {".npz", ExportKind::npz, FileKind::npz},
                           {".h5", ExportKind::hdf5, FileKind::hdf5}};

/// An array that a format cannot hold is not written: complex128 in safetensors.
std::vector<NamedArray> arrays_for(ExportKind kind) {
  std::vector<NamedArray> arrays = arrays_of_all_dtypes();
  std::erase_if(arrays, [&](const NamedArray& one) {
    const bool is_dot = one.name == "." || one.name.find('/') != std::string::npos;
    return (kind == ExportKind::safetensors && one.array.dtype == DType::complex128) ||
           (kind == ExportKind::npz && is_dot);  // names of files
  });
  return arrays;
}

TEST(ForeignRoundTripTest, EveryTypeShapeAndNameComesBackInEveryFormat) {
  const TemporaryFolder directory;
  const Metadata metadata = {{"step", "12"}, {"note", "schön \"quoted\"\n"}};
  for (const auto& [suffix, kind, file_kind] : kFormats) {
    SCOPED_TRACE(suffix);
    const std::string path = directory / ("file" + suffix);
    const std::vector<NamedArray> arrays = arrays_for(kind);
    write_foreign(path, kind, arrays, metadata);
    EXPECT_EQ(kind_of(path), file_kind);
    const Archive back = read_foreign(path);
    EXPECT_EQ(back.array_paths().size(), arrays.size());
    for (const auto& [name, array] : arrays) {
      SCOPED_TRACE(name);
      const Array& found = back.array("/" + encode_name(name));
      EXPECT_EQ(found.shape, array.shape);
      const bool is_widened = kind == ExportKind::npz && array.dtype == DType::bfloat16;
      EXPECT_EQ(found.dtype, is_widened ? DType::float32 : array.dtype);
      if (is_widened) {
        const auto narrow = values_of<std::uint16_t>(array);
        const auto wide = values_of<float>(found);
        for (std::size_t i = 0; i < narrow.size(); ++i) EXPECT_EQ(float_to_bfloat16(wide[i]), narrow[i]);
      } else {
        EXPECT_EQ(values_of<std::uint8_t>(found), values_of<std::uint8_t>(array));
      }
      const auto address = reinterpret_cast<std::uintptr_t>(found.bytes.data());
      EXPECT_EQ(address % size_of(found.dtype), 0U) << "a reader would take misaligned values from it";
    }
    EXPECT_EQ(back.text("/", "step"), "12");
    EXPECT_EQ(back.text("/", "note"), metadata.at("note").c_str());
    EXPECT_EQ(back.origin(), path);
  }
}

TEST(ForeignRoundTripTest, NoArraysAreAFileToo) {
  const TemporaryFolder directory;
  for (const auto& [suffix, kind, file_kind] : kFormats) {
    const std::string path = directory / ("none" + suffix);
    write_foreign(path, kind, {}, {});
    EXPECT_EQ(kind_of(path), file_kind) << suffix;
    EXPECT_TRUE(read_foreign(path).array_paths().empty()) << suffix;
  }
}

TEST(ForeignRoundTripTest, EqualContentIsEqualBytes) {
  const TemporaryFolder directory;
  for (const auto& [suffix, kind, file_kind] : kFormats) {
    write_foreign(directory / ("a" + suffix), kind, arrays_for(kind), {{"k", "v"}});
    write_foreign(directory / ("b" + suffix), kind, arrays_for(kind), {{"k", "v"}});
    EXPECT_EQ(bytes_of(directory / ("a" + suffix)), bytes_of(directory / ("b" + suffix))) << suffix;
  }
}

TEST(ForeignRoundTripTest, AFileIsReplacedOnlyWhenAskedFor) {
  const TemporaryFolder directory;
  const NamedArray one = {"w", array_of<float>(DType::float32, {1}, {1})};
  for (const auto& [suffix, kind, file_kind] : kFormats) {
    const std::string path = directory / ("kept" + suffix);
    put_bytes(path, "mine");
    EXPECT_EQ(error_of([&, kind = kind] { write_foreign(path, kind, {one}, {}); }),
              path + ": the file already exists and is not overwritten");
    EXPECT_EQ(bytes_of(path), "mine");
    write_foreign(path, kind, {one}, {}, IfExists::replace);
    EXPECT_EQ(values_of<float>(read_foreign(path).array("/w")), std::vector<float>{1});
  }
  EXPECT_EQ(names_of(directory.path()).size(), std::size(kFormats)) << "a temporary was left behind";
}

TEST(ForeignRoundTripTest, WhatCannotBeWrittenIsSaidInASentence) {
  const TemporaryFolder directory;
  const std::string path = directory / "x.safetensors";
  const NamedArray good = {"w", array_of<float>(DType::float32, {1}, {1})};
  const NamedArray wide = {"z", array_of<double>(DType::complex128, {1}, {1, 2})};
  const auto error = [&](const std::vector<NamedArray>& arrays, const Metadata& metadata = {}) {
    return error_of([&] { write_foreign(path, ExportKind::safetensors, arrays, metadata); });
  };
  EXPECT_EQ(error({good, good}), path + ": array 'w': the name is used twice");
  EXPECT_EQ(error({wide}), path + ": tensor 'z': safetensors has no complex128");
  EXPECT_EQ(error({{"", good.array}}), path + ": array '': a name has 1 to 1024 bytes of UTF-8");
  EXPECT_EQ(error({{"\xFF", good.array}}), path + ": array '?': a name has 1 to 1024 bytes of UTF-8");
  EXPECT_EQ(error({{"__metadata__", good.array}}), path + ": safetensors reserves the name __metadata__");
  EXPECT_EQ(error({good}, {{"k", "\xFF"}}), path + ": metadata 'k': it is not UTF-8, or has a NUL");
  EXPECT_EQ(directory.count(), 0U);
}

TEST(ForeignRoundTripTest, TheSuffixPicksTheFormat) {
  EXPECT_EQ(export_kind_of("a/b.safetensors"), ExportKind::safetensors);
  EXPECT_EQ(export_kind_of("b.pt"), ExportKind::pytorch);
  EXPECT_EQ(export_kind_of("b.pth"), ExportKind::pytorch);
  EXPECT_EQ(export_kind_of("b.npz"), ExportKind::npz);
  EXPECT_EQ(export_kind_of("b.tar.h5"), ExportKind::hdf5);
  EXPECT_EQ(export_kind_of("b.zip"), std::nullopt);
  EXPECT_EQ(export_kind_of("pt"), std::nullopt);
}

TEST(ForeignRoundTripTest, OwnFilesAreNotForeign) {
  const TemporaryFolder directory;
  const std::string path = write(directory.path(), 1, sample(1)) + "/state.h5";
  EXPECT_EQ(kind_of(path), FileKind::lockstep);
  EXPECT_EQ(describe(kind_of(path)), "a Lockstep checkpoint");
  EXPECT_EQ(error_of_foreign(path), path + ": it is a Lockstep checkpoint, not a file of another program");
}

// Sizes and offsets beyond 32 bits need gigabytes; a lower border makes the same records of a few bytes.
TEST(ForeignRoundTripTest, LargeZipArchivesStateTheirSizesIn64Bits) {
  const TemporaryFolder directory;
  for (const std::uint64_t border : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{200}}) {
    const std::string path = directory / ("large" + std::to_string(border) + ".zip");
    NewFile file(path);
    ZipWriter zip(file, border);
    zip.add("a/one", std::string("1"));
    zip.add("a/many", std::string(300, 'm'));
    zip.add("a/none", std::string());
    zip.finish();
    file.close();
    const DiskSource source(path);
    const Zip back(source);
    ASSERT_EQ(back.records().size(), 3U);
    Expansion expansion(source);
    const OwnedBytes block = back.read(*back.find("a/many"), "a/many", expansion);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(block.bytes.data()), block.bytes.size()),
              std::string(300, 'm'));
    for (const ZipRecord& record : back.records()) EXPECT_EQ(record.offset % 64, 0U);
  }
}

}  // namespace foreign_round_trip_test
}  // namespace lockstep::checkpoints
