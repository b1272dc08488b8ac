// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/hdf5.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "arrays/array_file.hpp"
#include "core/system/in_threads.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::arrays {
namespace hdf5_test {

using checkpoints::Handle;
using checkpoints::HdfSession;
using testing::TemporaryFolder;

/// Writes a file with HDF5's own functions.
class Writer {
 public:
  /// @param userblock  bytes before HDF5's part
  explicit Writer(const std::string& path, hsize_t userblock = 0)
      : list_(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "H5Pcreate"), file_(create(path, userblock)) {}

  hid_t file() const { return file_.id(); }

  /// Elements 0, 1, 2, ... as this type in the file.
  void add(const std::string& name, hid_t type, const std::vector<hsize_t>& shape, hid_t creation = H5P_DEFAULT) {
    const hsize_t size = std::accumulate(shape.begin(), shape.end(), hsize_t{1}, std::multiplies<hsize_t>());
    std::vector<std::int32_t> values(size);
    std::iota(values.begin(), values.end(), 0);
    const Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, "space");
    const Handle set(H5Dcreate2(file_.id(), name.c_str(), type, space.id(), H5P_DEFAULT, creation, H5P_DEFAULT),
                     H5Dclose, "set");
    checkpoints::checked(H5Dwrite(set.id(), H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
                         "H5Dwrite");
  }

 private:
  Handle create(const std::string& path, hsize_t userblock) const {
    checkpoints::checked(H5Pset_userblock(list_.id(), userblock), "H5Pset_userblock");
    return {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, list_.id(), H5P_DEFAULT), H5Fclose, "H5Fcreate"};
  }

  HdfSession session_;
  Handle list_;
  Handle file_;
};

std::vector<std::byte> read_slab(const ArrayFile& file, const std::string& name, const Slab& slab) {
  const ArrayInfo info = file.find(name);
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_of(slab)) * info.type.bytes);
  file.read(info, slab, bytes);
  return bytes;
}

/// The same part with HDF5's own function.
std::vector<std::byte> read_with_hdf5(const std::string& path, const std::string& name, const Slab& slab,
                                      hid_t memory_type) {
  const HdfSession session;
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "H5Fopen");
  const Handle set(H5Dopen2(file.id(), name.c_str(), H5P_DEFAULT), H5Dclose, "H5Dopen2");
  const Handle space(H5Dget_space(set.id()), H5Sclose, "H5Dget_space");
  const std::vector<hsize_t> start(slab.start.begin(), slab.start.end()), count(slab.count.begin(), slab.count.end()),
      step(slab.step.begin(), slab.step.end());
  H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), step.data(), count.data(), nullptr);
  const auto size = static_cast<hsize_t>(size_of(slab));
  const Handle memory(H5Screate_simple(1, &size, nullptr), H5Sclose, "H5Screate_simple");
  std::vector<std::byte> bytes(size * H5Tget_size(memory_type));
  checkpoints::checked(H5Dread(set.id(), memory_type, memory.id(), space.id(), H5P_DEFAULT, bytes.data()), "H5Dread");
  return bytes;
}

hssize_t open_objects() {
  const HdfSession session;
  return H5Fget_obj_count(static_cast<hid_t>(H5F_OBJ_ALL), H5F_OBJ_ALL);
}

std::string error_of(const auto& work) {
  try {
    work();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
}

/// Parts of all kinds: all, a row, strides, single elements, far apart.
std::vector<Slab> slabs() {
  return {
      {{0, 0, 0}, {7, 30, 50}, {1, 1, 1}}, {{2, 0, 0}, {3, 30, 50}, {2, 1, 1}}, {{1, 3, 0}, {2, 5, 50}, {1, 1, 1}},
      {{1, 3, 7}, {2, 5, 11}, {3, 2, 1}},  {{0, 1, 2}, {7, 29, 16}, {1, 1, 3}}, {{6, 29, 49}, {1, 1, 1}, {1, 1, 1}},
      {{0, 0, 49}, {7, 30, 1}, {1, 1, 1}}, {{0, 0, 0}, {2, 1, 1}, {6, 1, 1}},   {{3, 0, 0}, {1, 15, 50}, {1, 2, 1}}};
}

TEST(HdfSessionTest, OneThreadAtATime) {
  std::atomic<bool> has_entered = false;
  std::jthread other;
  {
    const HdfSession session;
    const HdfSession inner;
    other = std::jthread([&] {
      const HdfSession theirs;
      has_entered = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(has_entered);
  }
  other.join();
  EXPECT_TRUE(has_entered);
}

TEST(HdfSessionTest, AForkedChildInheritsIt) {
  const HdfSession session;
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // instead of waiting forever
    { const HdfSession inner; }
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Hdf5Test, ContiguousDataAreThoseThatHdf5Reads) {
  const TemporaryFolder folder;
  const std::pair<const char*, std::pair<hid_t, hid_t>> types[] = {{"big", {H5T_IEEE_F32BE, H5T_NATIVE_FLOAT}},
                                                                   {"double", {H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE}},
                                                                   {"short", {H5T_STD_I16BE, H5T_NATIVE_INT16}},
                                                                   {"byte", {H5T_STD_U8LE, H5T_NATIVE_UINT8}}};
  for (const hsize_t userblock : {0, 512, 2048}) {
    const std::string path = folder.path("plain" + std::to_string(userblock) + ".h5");
    {
      Writer writer(path, userblock);
      for (const auto& [name, type] : types) writer.add(name, type.first, {7, 30, 50});
    }
    const auto file = open_arrays(path);
    for (const auto& [name, type] : types) {
      for (const Slab& slab : slabs()) {
        EXPECT_EQ(read_slab(*file, name, slab), read_with_hdf5(path, name, slab, type.second)) << name << userblock;
      }
    }
  }
}

TEST(Hdf5Test, ChunksAreThoseThatHdf5Reads) {
  const TemporaryFolder folder;
  const std::string path = folder.path("chunks.h5");
  {
    Writer writer(path);
    for (const unsigned level : {0U, 4U}) {
      const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
      const hsize_t chunk[] = {2, 7, 20};
      H5Pset_chunk(list.id(), 3, chunk);
      if (level > 0) {
        H5Pset_shuffle(list.id());
        H5Pset_deflate(list.id(), level);
        H5Pset_fletcher32(list.id());
      }
      writer.add(level == 0 ? "plain" : "packed", H5T_STD_I16BE, {7, 30, 50}, list.id());
    }
  }
  const auto file = open_arrays(path);
  for (const char* const name : {"plain", "packed"}) {
    for (const Slab& slab : slabs()) {
      EXPECT_EQ(read_slab(*file, name, slab), read_with_hdf5(path, name, slab, H5T_NATIVE_INT16)) << name;
    }
  }
  EXPECT_EQ(file->find("packed").storage.filters, (std::vector<std::string>{"shuffle", "deflate", "fletcher32"}));
  EXPECT_EQ(file->find("packed").storage.chunk, (std::vector<std::int64_t>{2, 7, 20}));
}

/// The fill value -3 in big-endian bytes; one chunk of three was written.
TEST(Hdf5Test, ChunksThatWereNeverWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.path("holes.h5");
  {
    Writer writer(path);
    const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
    const hsize_t chunk = 2, size = 6, start = 2, count = 2;
    H5Pset_chunk(list.id(), 1, &chunk);
    const std::int32_t fill = -3, values[] = {7, 8};
    H5Pset_fill_value(list.id(), H5T_NATIVE_INT32, &fill);
    const Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose, "H5Screate_simple");
    const Handle memory(H5Screate_simple(1, &count, nullptr), H5Sclose, "H5Screate_simple");
    const Handle set(H5Dcreate2(writer.file(), "t", H5T_STD_I16BE, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT),
                     H5Dclose, "H5Dcreate2");
    H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, &start, nullptr, &count, nullptr);
    H5Dwrite(set.id(), H5T_NATIVE_INT32, memory.id(), space.id(), H5P_DEFAULT, values);
  }
  const auto bytes = read_slab(*open_arrays(path), "t", {{0}, {6}, {1}});
  std::vector<std::int16_t> numbers(6);
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  EXPECT_EQ(numbers, (std::vector<std::int16_t>{-3, -3, 7, 8, -3, -3}));
}

TEST(Hdf5Test, NothingStaysOpen) {
  const hssize_t before = open_objects();
  const TemporaryFolder folder;
  const std::string path = folder.path("a.h5");
  {
    Writer writer(path);
    const Handle group(H5Gcreate2(writer.file(), "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "H5Gcreate2");
    for (int i = 0; i < 40; ++i) writer.add("g/" + std::to_string(i), H5T_STD_I32LE, {3});
    const Handle texts(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
    const hsize_t one = 1;
    const Handle space(H5Screate_simple(1, &one, nullptr), H5Sclose, "H5Screate_simple");
    const Handle text(H5Dcreate2(writer.file(), "text", texts.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                      H5Dclose, "H5Dcreate2");
  }
  {
    const auto file = open_arrays(path);
    for (const std::string& name : file->names()) {
      if (name == "text") continue;
      EXPECT_EQ(read_slab(*file, name, whole(file->find(name))).size(), 12U);
    }
    EXPECT_THROW(file->find("text"), DataError);
    EXPECT_THROW(file->find("g"), DataError);
    EXPECT_THROW(file->find("absent"), DataError);
    EXPECT_THROW(file->attributes_of("absent"), DataError);
    EXPECT_EQ(file->texts("absent"), std::vector<std::string>());
  }
  EXPECT_THROW(open_arrays(folder.path("absent.h5")), DataError);
  EXPECT_EQ(open_objects(), before);
}

TEST(Hdf5Test, TheMessageListsTheArrays) {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.h5");
  {
    Writer writer(path);
    const Handle group(H5Gcreate2(writer.file(), "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose, "H5Gcreate2");
    for (const char* const name : {"t", "g/v", "B"}) writer.add(name, H5T_STD_I32LE, {3});
    H5Lcreate_hard(writer.file(), "g", writer.file(), "g/loop", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/t", writer.file(), "same", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/gone", writer.file(), "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("gone.h5", "/x", writer.file(), "far", H5P_DEFAULT, H5P_DEFAULT);
  }
  const auto file = open_arrays(path);
  EXPECT_EQ(file->names(), (std::vector<std::string>{"B", "far", "g/v", "same", "soft", "t"}));
  EXPECT_EQ(error_of([&] { file->find("u"); }),
            path + ": there is no variable 'u'; there are B, far, g/v, same, soft, t");
  expect_words(error_of([&] { file->find("far"); }), {path, "far", "gone.h5", "'/x'"});
  expect_words(error_of([&] { file->find("soft"); }), {path, "soft", "/gone"});
  expect_words(error_of([&] { file->find("g"); }), {"variable 'g'", "not an array"});
  EXPECT_EQ(file->find("/g/v/").path, "g/v");
  EXPECT_EQ(read_slab(*file, "same", {{0}, {3}, {1}}), read_slab(*file, "t", {{0}, {3}, {1}}));
}

TEST(Hdf5Test, DamagedFiles) {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.h5");
  { Writer(path).add("t", H5T_STD_I32LE, {100}); }
  const std::string bytes = folder.read("a.h5");
  for (const std::size_t end : {std::size_t{5}, std::size_t{8}, std::size_t{60}, bytes.size() / 2, bytes.size() - 1}) {
    folder.write("cut.h5", bytes.substr(0, end));
    const auto read_all = [&] { read_slab(*open_arrays(folder.path("cut.h5")), "t", {{0}, {100}, {1}}); };
    expect_words(error_of(read_all), {folder.path("cut.h5"), "truncated"});
  }
  EXPECT_EQ(open_objects(), 0);
}

/// Position and size of a chunk in its file.
std::pair<std::streamoff, std::size_t> place_of_chunk(const std::string& path, const std::string& name,
                                                      hsize_t number) {
  const HdfSession session;
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose, "H5Fopen");
  const Handle set(H5Dopen2(file.id(), name.c_str(), H5P_DEFAULT), H5Dclose, "H5Dopen2");
  const Handle space(H5Dget_space(set.id()), H5Sclose, "H5Dget_space");
  hsize_t offset[H5S_MAX_RANK], bytes = 0;
  unsigned skipped = 0;
  haddr_t address = 0;
  checkpoints::checked(H5Dget_chunk_info(set.id(), space.id(), number, offset, &skipped, &address, &bytes),
                       "H5Dget_chunk_info");
  return {static_cast<std::streamoff>(address), static_cast<std::size_t>(bytes)};
}

void overwrite(const std::string& path, std::streamoff offset, std::size_t bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset);
  file << std::string(bytes, '\x7F');
}

TEST(Hdf5Test, ADamagedChunkIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.h5");
  {
    Writer writer(path);
    const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
    const hsize_t chunk[] = {2, 30, 50};
    H5Pset_chunk(list.id(), 3, chunk);
    const Handle sum(H5Pcopy(list.id()), H5Pclose, "H5Pcopy"), offset(H5Pcopy(list.id()), H5Pclose, "H5Pcopy");
    H5Pset_shuffle(list.id());
    H5Pset_deflate(list.id(), 4);
    H5Pset_fletcher32(sum.id());
    H5Pset_scaleoffset(offset.id(), H5Z_SO_INT, 0);
    writer.add("packed", H5T_STD_I32LE, {7, 30, 50}, list.id());
    writer.add("sum", H5T_STD_I32LE, {7, 30, 50}, sum.id());
    writer.add("other", H5T_STD_I32LE, {7, 30, 50}, offset.id());
  }
  for (const char* const name : {"packed", "sum", "other"}) {
    const auto [begin, bytes] = place_of_chunk(path, name, 2);
    overwrite(path, begin, bytes);
  }
  const auto file = open_arrays(path);
  const auto read_steps = [&](const char* name, std::int64_t first, std::int64_t count) {
    return error_of([&] { read_slab(*file, name, {{first, 0, 0}, {count, 30, 50}, {1, 1, 1}}); });
  };
  EXPECT_EQ(read_steps("packed", 0, 7), path +
                                            ": variable 'packed': its elements from index [4, 0, 0] on cannot be "
                                            "read: its data are damaged (filter deflate)");
  EXPECT_EQ(read_steps("sum", 5, 1), path +
                                         ": variable 'sum': its elements from index [4, 0, 0] on cannot be read: it "
                                         "is damaged: its bytes differ from their checksum (fletcher32)");
  EXPECT_EQ(read_steps("packed", 0, 4), "");
  EXPECT_EQ(read_steps("sum", 6, 1), "");
  EXPECT_EQ(read_steps("other", 0, 4), "");  // the filters of HDF5 do not notice all damage
}

TEST(Hdf5Test, AChangedFileIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.h5");
  { Writer(path).add("t", H5T_STD_I32LE, {100}); }
  const auto file = open_arrays(path);
  read_slab(*file, "t", {{0}, {100}, {1}});
  std::filesystem::resize_file(path, 1000);
  expect_words(error_of([&] { read_slab(*file, "t", {{0}, {100}, {1}}); }), {path, "changed"});
}

/// HDF5 itself reads the missing part as fill values.
TEST(Hdf5Test, SourcesOfVirtualSetsMustExist) {
  const TemporaryFolder folder;
  const std::string path = folder.path("v.h5");
  { Writer(folder.path("part.h5")).add("t", H5T_STD_I32LE, {4}); }
  {
    Writer writer(path);
    const hsize_t size = 4;
    const Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose, "H5Screate_simple");
    const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
    H5Pset_virtual(list.id(), space.id(), "part.h5", "t", space.id());
    const Handle set(H5Dcreate2(writer.file(), "all", H5T_STD_I32LE, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT),
                     H5Dclose, "H5Dcreate2");
  }
  const Slab all = {{0}, {4}, {1}};
  EXPECT_EQ(open_arrays(path)->find("all").storage.layout, "virtual");
  EXPECT_EQ(read_slab(*open_arrays(path), "all", all), read_slab(*open_arrays(folder.path("part.h5")), "t", all));
  { Writer(folder.path("part.h5")).add("other", H5T_STD_I32LE, {4}); }
  expect_words(error_of([&] { open_arrays(path)->find("all"); }), {path, "'all'", "part.h5", "'t'"});
  std::filesystem::remove(folder.path("part.h5"));
  expect_words(error_of([&] { open_arrays(path)->find("all"); }), {path, "'all'", "part.h5", "does not exist"});
  EXPECT_EQ(open_objects(), 0);
}

TEST(Hdf5Test, SlabsOutsideAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.h5");
  { Writer(path).add("t", H5T_STD_I32LE, {10, 4}); }
  const auto file = open_arrays(path);
  EXPECT_EQ(read_slab(*file, "t", {{0, 0}, {0, 4}, {1, 1}}).size(), 0U);
  for (const Slab& slab : std::vector<Slab>{{{0, 0}, {11, 4}, {1, 1}},
                                            {{-1, 0}, {1, 4}, {1, 1}},
                                            {{0, 1}, {10, 2}, {1, 3}},
                                            {{0, 0}, {10, 4}, {0, 1}},
                                            {{0}, {10}, {1}}}) {
    EXPECT_NE(error_of([&] { read_slab(*file, "t", slab); }), "");
  }
  std::vector<std::byte> small(4);
  EXPECT_THROW(file->read(file->find("t"), whole(file->find("t")), small), DataError);
}

TEST(Hdf5Test, ThreadsReadAtTheSameTime) {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.h5");
  {
    Writer writer(path);
    const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
    const hsize_t chunk[] = {1, 30, 50};
    H5Pset_chunk(list.id(), 3, chunk);
    H5Pset_deflate(list.id(), 1);
    writer.add("packed", H5T_STD_I32LE, {7, 30, 50}, list.id());
    writer.add("plain", H5T_STD_I32LE, {7, 30, 50});
  }
  const auto file = open_arrays(path);
  in_threads(4, [&](int thread) {
    for (int i = 0; i < 200; ++i) {
      if (thread == 0 && i % 40 == 0) set_chunk_cache(i % 80 == 0 ? 10000 : std::size_t{64} << 20);
      const std::int64_t row = (thread + i) % 7;
      const auto bytes = read_slab(*file, i % 2 == 0 ? "packed" : "plain", {{row, 0, 0}, {1, 30, 50}, {1, 1, 1}});
      std::int32_t first = 0;
      std::memcpy(&first, bytes.data(), sizeof first);
      EXPECT_EQ(first, row * 1500);
      if (i % 50 == 0) {
        EXPECT_EQ(open_arrays(path)->names().size(), 2U);
      }
    }
  });
}

}  // namespace hdf5_test
}  // namespace lockstep::arrays
