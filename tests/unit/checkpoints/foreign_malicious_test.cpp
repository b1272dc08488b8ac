// SPDX-License-Identifier: BSD-3-Clause
// Hand-made hostile files: each is refused in one sentence that tells why.
#include <hdf5.h>

#include <fcntl.h>
#include <unistd.h>

#include "checkpoints/foreign/pickle.hpp"
#include "checkpoints/format/hdf5.hpp"
#include "foreign_support.hpp"
#include "zip_support.hpp"

namespace lockstep::checkpoints {
namespace foreign_malicious_test {

using namespace std::string_literals;

struct Case {
  std::string bytes;
  std::string sentence;  ///< sentence: what the error must contain
};

void expect_refused(const TemporaryFolder& directory, const std::string& name, const std::vector<Case>& cases) {
  const std::string path = directory / name;
  for (const auto& [bytes, sentence] : cases) {
    put_bytes(path, bytes);
    const std::string error = error_of_foreign(path);
    EXPECT_TRUE(error.starts_with(path + ": ")) << error << " for " << sentence;
    EXPECT_NE(error.find(sentence), std::string::npos) << error << "\ninstead of " << sentence;
  }
}

// --- safetensors ---

std::string safetensors(const std::string& header, const std::string& data = "") {
  return le(header.size(), 8) + header + data;
}

/// A header with the one tensor "w".
std::string one_tensor(const std::string& fields, const std::string& data = "") {
  return safetensors("{\"w\":{" + fields + "}}", data);
}

TEST(MaliciousSafetensorsTest, IsRefusedWithItsReason) {
  const std::string f32 = "\"dtype\":\"F32\",";
  const std::string good = f32 + "\"shape\":[1],\"data_offsets\":[0,4]";
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  const std::string second = ",\"v\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":";
  const std::string first = "{\"w\":{" + good + "}";
  const std::string long_name(1025, 'n');
  const TemporaryFolder directory;
  expect_refused(
      directory, "hostile.safetensors",
      {{le(~0ULL, 8) + "{}", "its header states a size of 18446744073709551615 bytes"},
       {le(1ULL << 63, 8) + "{}",
        "its header states a size of 9223372036854775808 bytes; safetensors allows 100000000"},
       {le(100, 8) + "{}", "its header states a size of 100 bytes, but the file has 10"},
       {le(1, 8) + "{", "its header states a size of 1 bytes; the minimum is {}"},
       {one_tensor(f32 + "\"shape\":[4611686018427387904,8],\"data_offsets\":[0,0]"), "overflow 63 bits"},
       {one_tensor(f32 + "\"shape\":[9223372036854775808],\"data_offsets\":[0,0]"), "its shape overflows 63 bits"},
       {one_tensor(f32 + "\"shape\":[18446744073709551616],\"data_offsets\":[0,0]"), "more than 64 bits"},
       {one_tensor(f32 + "\"shape\":[-1],\"data_offsets\":[0,0]"), "tensor 'w': its field shape holds a negative"},
       {one_tensor(f32 + "\"shape\":[01],\"data_offsets\":[0,4]", "1234"), "it is not JSON"},
       {one_tensor(f32 + "\"shape\":[1e0],\"data_offsets\":[0,4]", "1234"), "a number with a fraction"},
       {one_tensor(f32 + "\"shape\":" + nested + ",\"data_offsets\":[0,4]", "1234"), "its field shape holds a list"},
       {one_tensor(f32 + "\"shape\":[" + "1,"s +
                       "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"
                       "],\"data_offsets\":[0,4]",
                   "1234"),
        "more than 32 dimensions"},
       {one_tensor(good, "123"), "it ends at byte 4 of the data, but there are 3"},
       {one_tensor(good, "12345"), "after its last tensor there are 1 bytes that belong to no tensor"},
       {one_tensor("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]", "1234"), "'F33' is not one of F32, F64"},
       {one_tensor("\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]", "\x01\x02"),
        "/w: its element 1 must be 0 or 1, but is 2"},
       {one_tensor(good + ",\"shape\":[1]", "1234"), "its field shape occurs twice"},
       {one_tensor(good + ",\"more\":[1]", "1234"), "a field 'more', which is not a field of safetensors"},
       {one_tensor(f32 + "\"shape\":[1]", "1234"), "its field data_offsets is missing"},
       {one_tensor(f32 + "\"shape\":[1],\"data_offsets\":[4,0]", "1234"), "it starts after its end"},
       {one_tensor(f32 + "\"shape\":[1],\"data_offsets\":[0,4,4]", "1234"), "its data_offsets are not two numbers"},
       {safetensors(first + second + "[2,4]}}", "1234"), "its bytes overlap those of another tensor"},
       {safetensors(first + second + "[5,7]}}", "1234567"), "before it there are 1 bytes that belong to no tensor"},
       {safetensors(first + "," + first.substr(1) + "}", "1234"), "tensor 'w': the header lists it twice"},
       {safetensors("{\"__metadata__\":{\"a\":1}}"), "its entry 'a' is a number, not a text"},
       {safetensors("{\"__metadata__\":[]}"), "is a list, not an object"},
       {safetensors("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}"), "its field 'a' occurs twice"},
       {safetensors("{\"" + long_name + "\":{" + good + "}}", "1234"), "it is longer than 1024 bytes"},
       {safetensors("{\"\":{" + good + "}}", "1234"), "a name in it is empty"},
       {safetensors("{\"\\ud800\":{" + good + "}}", "1234"), "it is not JSON in UTF-8"},
       {safetensors("{\"\xFF\":{" + good + "}}", "1234"), "it is not JSON in UTF-8"},
       {safetensors("{}\0\0"s), "it has a NUL"},
       {safetensors("{}x"), "it does not end with } and blanks"},
       {safetensors("{}  {}"), "it is not JSON"}});
}

TEST(MaliciousSafetensorsTest, NamesAreSafeToPrint) {
  const TemporaryFolder directory;
  const std::string path = directory / "escape.safetensors";
  put_bytes(path, safetensors("{\"\\u001b[31m\":{\"dtype\":\"Q\",\"shape\":[],\"data_offsets\":[0,0]}}"));
  EXPECT_NE(error_of_foreign(path).find("tensor '%1B[31m'"), std::string::npos) << error_of_foreign(path);
}

// --- zip ---

const std::string kEmptyMap = "\x80\x02}.";

TEST(MaliciousZipTest, IsRefusedWithItsReason) {
  const ZipEntry pickle = {.name = "a/data.pkl", .bytes = kEmptyMap};
  const ZipEntry other = {.name = "a/data/0", .bytes = "1234"};
  const auto with = [&](auto change) {
    ZipEntry record = other;
    change(record);
    return zip_of({pickle, record});
  };
  const TemporaryFolder directory;
  const std::string good = zip_of({pickle, other});
  put_bytes(directory / "good.pt", good);
  ASSERT_EQ(error_of_foreign(directory / "good.pt"), "") << "the cases below would prove nothing";
  expect_refused(
      directory, "hostile.pt",
      {{good.substr(0, good.size() - 1), "without an end record"},
       {good + "x", "without an end record"},
       {zip_of({pickle}, "comment"), "without an end record"},
       {zip_of({pickle, pickle}), "record 'a/data.pkl': the name is used twice"},
       {with([](ZipEntry& record) { record.flags = 1; }), "record 'a/data/0': it is encrypted"},
       {with([](ZipEntry& record) { record.method = 12; }), "its compression (12) is neither none nor deflate"},
       {with([](ZipEntry& record) { record.name = "/etc/passwd"; }), "'/etc/passwd': this name is not allowed"},
       {with([](ZipEntry& record) { record.name = "a/../../x"; }), "this name is not allowed"},
       {with([](ZipEntry& record) { record.name = "a/\x1b[31m"; }), "'a/%1B[31m': this name is not allowed"},
       {with([](ZipEntry& record) { record.local_name = "a/data/1"; }), "contradicts the directory"},
       {with([](ZipEntry& record) { record.stated_bytes = le(0xFFFFFFF0, 4); }), "more than the file has"},
       {with([](ZipEntry& record) { record.stated_bytes = le(0xFFFFFFFF, 4); }), "lacks a 64-bit size"},
       {with([](ZipEntry& record) { record.header = 0; }), "contradicts the directory"},
       {with([](ZipEntry& record) { record.header = 1'000'000; }), "it is after the directory"},
       {zip_of({pickle, {.name = "a/data.pkl2", .bytes = good}, {.name = "a/x", .bytes = "1", .header = 50}}),
        "no record starts at the stated offset"},
       {zip_of({pickle,
                {.name = "a/n", .bytes = zip_of({{.name = "a/x", .bytes = "1"}})},
                {.name = "a/x", .bytes = "1", .header = 77}}),
        "record 'a/n': it overlaps another record"},
       {zip_of({{.name = "a/other", .bytes = "1"}}), "neither the record data.pkl of a PyTorch file nor arrays"},
       {zip_of({{.name = "a/data.pkl", .bytes = kEmptyMap, .has_wrong_crc = true}}), "differ from their CRC-32"},
       {"PK\x03\x04", "it is a truncated zip archive"}});
}

std::string deflated(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(text.size() + 100, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string npy(const std::string& line, const std::string& bytes) {
  return "\x93NUMPY\x01\0"s + le(line.size(), 2) + line + bytes;
}

/// A zip of one deflated record that claims `bytes` bytes.
std::string npz_deflated(const std::string& packed, std::uint64_t bytes, std::uint32_t crc) {
  std::string file = zip_of({{.name = "x.npy", .bytes = packed, .method = 8}});
  const std::string sizes = le(crc_of(packed), 4) + le(packed.size(), 4) + le(packed.size(), 4);
  for (std::size_t position = file.find(sizes); position != std::string::npos;
       position = file.find(sizes, position + 1)) {
    file.replace(position, sizes.size(), le(crc, 4) + le(packed.size(), 4) + le(bytes, 4));
  }
  return file;
}

TEST(MaliciousNpzTest, IsRefusedWithItsReason) {
  const auto npz = [](const std::string& line, const std::string& bytes = "") {
    return zip_of({{.name = "x.npy", .bytes = npy(line, bytes)}});
  };
  const std::string zeros(100 << 20, '\0');
  const std::string packed = deflated(zeros);
  const std::string small = npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 2)}\n", "a0b0c0d0"s);
  const TemporaryFolder directory;
  put_bytes(directory / "good.npz", npz_deflated(deflated(small), small.size(), crc_of(small)));
  ASSERT_EQ(bytes_of(directory / "good.npz").substr(0, 2), "PK");
  const Archive good = read_foreign(directory / "good.npz");  // column-major becomes row-major
  EXPECT_EQ(values_of<std::uint8_t>(good.array("/x")),
            (std::vector<std::uint8_t>{'a', '0', 'c', '0', 'b', '0', 'd', '0'}));
  expect_refused(
      directory, "hostile.npz",
      {{npz("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n"), "pickled Python objects, which are never"},
       {npz("{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}\n"),
        "array 'x': its element type '<U4' is not supported"},
       {npz("{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}\n"), "its element type '<f3' is not supported"},
       {npz("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}\n"), "records with several fields"},
       {npz("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8)}\n"), "overflows 63 bits"},
       {npz("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}\n"),
        "not an integer below 2^63"},
       {npz("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}\n"), "not an integer below 2^63"},
       {npz("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n", "1234"), "needs 8 bytes, but there are 4"},
       {npz("{'descr': '<f4', 'shape': (1,)}\n", "1234"), "its .npy header is malformed"},
       {npz("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\n", "1234"), "malformed"},
       {npz("__import__('os').system('true')\n"), "its .npy header is malformed"},
       {zip_of({{.name = "x.npy", .bytes = "\x93NUMPY\x01\0\xFF\xFF"s}}), "its .npy header is truncated"},
       {zip_of({{.name = "x.npy", .bytes = "\x93NUMPY\x09\0\x01\0{"s}}),
        "its .npy version 9 is not supported (1, 2, 3 are)"},
       {zip_of({{.name = "x.npy", .bytes = "short"}}), "it is not in .npy format"},
       {npz_deflated(packed, zeros.size(), crc_of(zeros)), "such an expansion is not allowed"},
       {npz_deflated(packed, 0xFFFFFFF0, 0), "more bytes than deflate can produce"},
       {npz_deflated("junk", 100, 0), "its compressed bytes are damaged"},
       {npz_deflated(deflated(small), small.size() + 1, crc_of(small)), "its compressed bytes are damaged"},
       {npz_deflated(deflated(small), small.size(), 7), "differ from their CRC-32"}});
}

TEST(MaliciousNpzTest, ArraysOfOtherKindsBesideOthersAreLeftOutAndNamed) {
  const TemporaryFolder directory;
  const std::string path = directory / "beside.npz";
  const std::string good = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}\n", "ab");
  const std::pair<std::string, std::string> others[] = {
      {"'|O'", "it contains pickled Python objects, which are never loaded"},
      {"'<U4'", "its element type '<U4' is not supported"},
      {"'<M8[ns]'", "its element type '<M8[ns]' is not supported"},
      {"[('a', '<f4')]", "its elements are records with several fields; a tensor cannot hold them"}};
  for (const auto& [type, reason] : others) {
    const std::string other = npy("{'descr': " + type + ", 'fortran_order': False, 'shape': (1,)}\n", "12345678");
    put_bytes(path, zip_of({{.name = "meta.npy", .bytes = other}, {.name = "w.npy", .bytes = good}}));
    std::vector<std::string> left_out;
    const Archive archive = read_foreign(path, {.left_out = &left_out});
    EXPECT_EQ(archive.array_paths(), std::vector<std::string>({"/w"}));
    EXPECT_EQ(left_out, std::vector<std::string>({"array 'meta': " + reason}));
    put_bytes(path, zip_of({{.name = "meta.npy", .bytes = other}}));
    EXPECT_EQ(error_of_foreign(path), path + ": array 'meta': " + reason);
  }
}

// --- pickle ---

std::string error_of_pickle(const std::string& program) {
  return error_of([&] { parse_pickle(std::as_bytes(std::span(program))); });
}

TEST(MaliciousPickleTest, NothingIsRunAndTheReasonIsReported) {
  const std::string head = "\x80\x02";
  const std::string storage = "(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"s + "0X\x03\0\0\0cpu"s;
  const std::string rebuild = head + "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"s +
                              "X\x01\0\0\0"s + "0X\x03\0\0\0cpuK\x04tQ"s;
  const std::pair<std::string, std::string> cases[] = {
      {"", "it is empty"},
      {"}.", "byte 0: it does not start with a protocol"},
      {"\x80\x05}.", "pickle protocol 5"},
      {head + "cos\nsystem\n(X\x04\0\0\0true"s + "tR.", "it imports 'os.system'"},
      {head + "cposix\nsystem\n.", "it imports 'posix.system'"},
      {head + "ctorch\nSize.__class__\n.", "it imports 'torch.Size.__class__'"},
      {head + "ctorch._utils._rebuild_tensor\nv2\n.", "it imports"},
      {head + "ctorch\n_utils._rebuild_tensor_v2\n.", "it imports"},
      {head + "X\x01\0\0\0wX\x02\0\0\0os\x93."s, "opcode 147 is not needed for tensors"},
      {head + "(i__main__\nX\n.", "opcode 105 is not needed for tensors"},
      {head + "(o.", "opcode 111 is not needed for tensors"},
      {head + "]}b.", "it uses a value of another type as a map with attributes"},
      {head + "}", "it is truncated"},
      {head + ".", "it pops from an empty stack"},
      {head + "(.", "it pops from an empty stack"},
      {head + "}(a.", "it pops from an empty stack"},
      {head + "t.", "pops to a mark that does not exist"},
      {head + "}(X\x01\0\0\0ku."s, "a key has no value"},
      {head + "]u.", "pops to a mark that does not exist"},
      {head + "](u.", "it uses a value of another type as a map"},
      {head + "h\x07.", "it reads memo entry 7, which was never written"},
      {head + "j\xFF\xFF\xFF\xFF.", "it reads memo entry 4294967295, which was never written"},
      {head + "X\xFF\xFF\xFF\xFFx", "it is truncated"},
      {head + "\x8A\xFFx", "it is truncated"},
      {head + "c" + std::string(1000, 'm') + "\n", "more than 200 bytes"},
      {head + "K\x01K\x02R.", "it calls a name without a tuple"},
      {head + "K\x01)R.", "it calls a value that is not a name"},
      {head + "ctorch\nFloatStorage\n)R.", "it calls an element type"},
      {head + storage + "J\xFF\xFF\xFF\xFFtQ.", "a storage of -1 elements is impossible"},
      {head + storage + "\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7FtQ.", "elements is impossible"},
      {head + "K\x01Q.", "a storage has an unexpected name"},
      {rebuild + "J\xFF\xFF\xFF\xFF))\x89)tR.", "a tensor starts before its storage"},
      {rebuild + "K\0K\x02\x85)\x89)tR."s, "a different number of strides and dimensions"},
      {rebuild + "K\0J\xFF\xFF\xFF\xFF\x85K\x01\x85\x89)tR."s, "a tensor's shape or stride is negative"},
      {rebuild + "K\0X\x01\0\0\0a\x85K\x01\x85\x89)tR."s, "a tensor's number does not fit 64 bits"},
      {rebuild + "K\0("s + std::string(33, 'N') + "t)\x89)tR."s, "more than 32 dimensions"},
  };
  for (const auto& [program, sentence] : cases) {
    EXPECT_NE(error_of_pickle(program).find(sentence), std::string::npos)
        << error_of_pickle(program) << " / " << sentence;
  }
}

// 5 million lists, each of a byte; 2^31 would be the same error.
TEST(MaliciousPickleTest, ValuesAreBounded) {
  EXPECT_NE(error_of_pickle("\x80\x02" + std::string(5'000'000, ']') + ".").find("more than 4 million values"),
            std::string::npos);
}

TEST(MaliciousPickleTest, NumbersOfAnyLengthAreRead) {
  const auto root = [](const std::string& program) {
    const Pickle pickle = parse_pickle(std::as_bytes(std::span(program)));
    return pickle.values.at(pickle.root);
  };
  EXPECT_EQ(root("\x80\x02\x8A\0."s).integer, 0);
  EXPECT_EQ(root("\x80\x02\x8A\x01\xFF."s).integer, -1);
  EXPECT_EQ(root("\x80\x02\x8A\x02\xFF\0."s).integer, 255);
  EXPECT_EQ(root("\x80\x02\x8A\x09\0\0\0\0\0\0\0\0\x01."s).text, "18446744073709551616");
  EXPECT_EQ(root("\x80\x02\x8A\x09\0\0\0\0\0\0\0\0\xFF."s).text, "-18446744073709551616");
}

// --- HDF5 ---

class Hdf5File {
 public:
  explicit Hdf5File(const std::string& path) : id_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~Hdf5File() { H5Fclose(id_); }
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;
  hid_t id() const { return id_; }

  void put(const char* name, hid_t type, std::vector<hsize_t> shape, hid_t list, const void* data) const {
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t set = H5Dcreate2(id_, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    if (data != nullptr) H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
    H5Dclose(set);
    H5Sclose(space);
  }

 private:
  hid_t id_;
};

class MaliciousHdf5Test : public ::testing::Test {
 protected:
  void expect_refused(const std::string& sentence) {
    const std::string error = error_of_foreign(path_);
    EXPECT_TRUE(error.starts_with(path_ + ": ")) << error;
    EXPECT_NE(error.find(sentence), std::string::npos) << error << "\ninstead of " << sentence;
  }
  const HdfSession session_;
  const TemporaryFolder directory_;
  const std::string path_ = directory_ / "other.h5";
};

TEST_F(MaliciousHdf5Test, GoodFilesOfOtherProgramsAreRead) {
  {
    const Hdf5File file(path_);
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const hid_t packed = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk[2] = {1, 2};
    H5Pset_chunk(packed, 2, chunk);
    H5Pset_shuffle(packed);
    H5Pset_deflate(packed, 6);
    H5Pset_fletcher32(packed);
    H5Gclose(H5Gcreate2(file.id(), "/g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    file.put("/g/packed", H5T_IEEE_F32LE, {2, 3}, packed, values);
    const std::int16_t turned[2] = {0x0100, 0x0200};
    file.put("/turned", H5T_STD_I16BE, {2}, H5P_DEFAULT, turned);  // big endian: 1, 2 as stored
    H5Lcreate_hard(file.id(), "/turned", file.id(), "/tied", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/g/packed", file.id(), "/soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Pclose(packed);
  }
  const Archive archive = read_foreign(path_);
  EXPECT_EQ(values_of<float>(archive.array("/g/packed")), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values_of<float>(archive.array("/soft")), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values_of<std::int16_t>(archive.array("/turned")), (std::vector<std::int16_t>{1, 2}));
  EXPECT_EQ(archive.first_path_of("/turned"), "/tied") << "in order of name";
}

TEST_F(MaliciousHdf5Test, NothingOutsideOfTheFileIsRead) {
  const hsize_t bytes = 16;
  put_bytes(directory_ / "secret", std::string(bytes, 's'));
  {
    const Hdf5File file(path_);
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(list, (directory_ / "secret").c_str(), 0, bytes);
    file.put("/stolen", H5T_STD_U8LE, {bytes}, list, nullptr);
    H5Pclose(list);
  }
  expect_refused("/stolen: its bytes are in another file, '" + (directory_ / "secret") + "'; this is not allowed");
  {
    const Hdf5File file(path_);
    H5Lcreate_external("elsewhere.h5", "/x", file.id(), "/away", H5P_DEFAULT, H5P_DEFAULT);
  }
  expect_refused("/: it is an external link, 'away' to 'elsewhere.h5'; this is not allowed");
  {
    const Hdf5File file(path_);
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    const hid_t space = H5Screate_simple(1, &bytes, nullptr);
    H5Pset_virtual(list, space, "elsewhere.h5", "/x", space);
    file.put("/virtual", H5T_STD_U8LE, {bytes}, list, nullptr);
    H5Sclose(space);
    H5Pclose(list);
  }
  expect_refused(
      "/virtual: it is a virtual dataset; its data are in other files, such as 'elsewhere.h5'; this is not allowed");
}

TEST_F(MaliciousHdf5Test, ClaimsBeyondTheFileAreRefused) {
  const hsize_t huge = hsize_t{1} << 47;
  {
    const Hdf5File file(path_);
    file.put("/late", H5T_STD_U8LE, {huge}, H5P_DEFAULT, nullptr);  // never allocated
  }
  expect_refused("/late: its shape needs 140737488355328 bytes, but 0 are stored");
  {
    const Hdf5File file(path_);
    const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk = 1024;
    H5Pset_chunk(list, 1, &chunk);
    H5Pset_deflate(list, 1);
    file.put("/bomb", H5T_STD_U8LE, {huge}, list, nullptr);
    H5Pclose(list);
  }
  expect_refused("/bomb: it states a size of 140737488355328 bytes in a file of");
}

TEST_F(MaliciousHdf5Test, TypesCirclesAndDepthAreBounded) {
  {
    const Hdf5File file(path_);
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    file.put("/texts", text, {2}, H5P_DEFAULT, nullptr);
    H5Tclose(text);
  }
  expect_refused("/texts: its element type is not supported");
  {
    const Hdf5File file(path_);
    H5Lcreate_hard(file.id(), "/", file.id(), "/again", H5P_DEFAULT, H5P_DEFAULT);
  }
  expect_refused("/again: it is a second link to the group /");
  {
    const Hdf5File file(path_);
    H5Lcreate_soft("/loop", file.id(), "/loop", H5P_DEFAULT, H5P_DEFAULT);
  }
  expect_refused("/loop: ");
  {
    const Hdf5File file(path_);
    std::string path;
    for (int i = 0; i < 100; ++i) {
      path += "/g";
      H5Gclose(H5Gcreate2(file.id(), path.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    }
  }
  expect_refused("it is nested more than 32 groups deep");
  {
    const Hdf5File file(path_);
    H5Gclose(H5Gcreate2(file.id(), "/a\x1b[31m", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  }
  EXPECT_TRUE(read_foreign(path_).has("/a%1B[31m")) << "a name is data, and safe to print";
}

// --- others ---

TEST(MaliciousFileTest, AFileOfAnotherFormatIsNamed) {
  const TemporaryFolder directory;
  expect_refused(directory, "file",
                 {{"", "the file is empty"},
                  {std::string(5000, '\0'), "it starts with zeros"},
                  {"\x1F\x8B\x08 and so on", "it is a gzip file: decompress it first (`gunzip`)"},
                  {"\x80\x02\x8A\x0Al\xFC\x9C", "data.pkl: byte 2: it is truncated"},
                  {"{\"json\": {\"text\": 1}}", "it is not a Lockstep checkpoint, safetensors, PyTorch, npz"},
                  {"abcdefg", "it is not a Lockstep checkpoint,"}});
  EXPECT_EQ(error_of_foreign(directory / "none"), directory / "none: the file or folder does not exist");
  EXPECT_EQ(error_of_foreign("/dev/zero"), "/dev/zero: it is a device, not a regular file");
}

// Nobody may take memory for what a file merely claims: 4 GiB of nothing behind good first bytes.
TEST(MaliciousFileTest, SparseFilesCostNoMemory) {
  const TemporaryFolder directory;
  const std::string header = "{\"w\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}";
  for (const std::string& head : {"PK\x03\x04"s, "\x89HDF\r\n\x1A\n"s, safetensors(header), "\x80\x02"s}) {
    const std::string path = directory / "sparse";
    put_bytes(path, head);
    std::filesystem::resize_file(path, std::uintmax_t{4} << 30);
    EXPECT_NE(error_of_foreign(path), "");
  }
}

}  // namespace foreign_malicious_test
}  // namespace lockstep::checkpoints
