// SPDX-License-Identifier: BSD-3-Clause
// HDF5 content that Lockstep would not write, behind digests that are right: none of it is followed or believed.
#include <functional>

#include "checkpoints/format/layout.hpp"
#include "support.hpp"

namespace lockstep::checkpoints {
namespace crafted_file_test {

/// The sentence that check_tree says of a file that `build` fills. It may change `places` while it runs.
std::string error_of_tree(const std::function<void(hid_t)>& build, const std::vector<ArrayLocation>& places = {}) {
  const HdfSession session;
  MemoryFile file;
  {
    const Handle access = file.access_list();
    const Handle list(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "H5Pcreate");
    H5Pset_link_creation_order(list.id(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    const Handle opened(H5Fcreate("crafted", H5F_ACC_TRUNC, list.id(), access.id()), H5Fclose, "H5Fcreate");
    build(opened.id());
  }
  return error_of([&] { check_tree("f.h5", file, places); });
}

/// The entry of the list of arrays for the array /w.
struct Claim {
  std::string path = "/w";
  std::uint64_t shift = 0;  ///< distance from its true position
  std::uint64_t nbytes = 16;
};

/// The sentence that check_tree says of the array /w of 4 elements, with the given creation list and type.
std::string error_of_array(const std::function<void(hid_t)>& prepare, hid_t type = H5T_IEEE_F32LE,
                           const Claim& claim = {}) {
  std::vector<ArrayLocation> places(1);
  places[0].path = claim.path;
  places[0].nbytes = claim.nbytes;
  places[0].dtype = DType::float32;
  places[0].shape = {4};
  const auto build = [&](hid_t file) {
    const Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
    prepare(list.id());
    const hsize_t count = 4;
    const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "H5Screate_simple");
    const Handle set(H5Dcreate2(file, "w", type, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), H5Dclose,
                     "H5Dcreate2");
    const haddr_t offset = H5Dget_offset(set.id());
    places[0].offset = (offset == HADDR_UNDEF ? 512 : offset) + claim.shift;
  };
  return error_of_tree(build, places);
}

void early(hid_t list) { H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY); }

TEST(CraftedFileTest, AnEmptyTreeIsFine) {
  EXPECT_EQ(error_of_tree([](hid_t) {}), "");
}

TEST(CraftedFileTest, LinksOutOfTheTreeAreRefused) {
  const std::string refused = "f.h5: /: it is a soft or external link; this is not allowed";
  EXPECT_EQ(error_of_tree([](hid_t file) { H5Lcreate_external("/etc/passwd", "/", file, "x", 0, 0); }), refused);
  EXPECT_EQ(error_of_tree([](hid_t file) { H5Lcreate_soft("/y", file, "x", 0, 0); }), refused);
}

TEST(CraftedFileTest, ACircleOfGroupsEnds) {
  const std::string error = error_of_tree([](hid_t file) { H5Lcreate_hard(file, "/", file, "loop", 0, 0); });
  EXPECT_NE(error.find("/loop/loop: it is nested more than 32 groups deep, or in a cycle"), std::string::npos) << error;
}

TEST(CraftedFileTest, ANamedTypeIsRefused) {
  EXPECT_EQ(error_of_tree([](hid_t file) {
              const Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "H5Tcopy");
              H5Tcommit2(file, "t", type.id(), 0, 0, 0);
            }),
            "f.h5: /t: it is neither a group nor an array");
}

TEST(CraftedFileTest, BytesElsewhereAreRefused) {
  EXPECT_EQ(error_of_array([](hid_t list) { H5Pset_external(list, "/etc/passwd", 0, 16); }),
            "f.h5: /w: its bytes are in another file, '/etc/passwd'; this is not allowed");
  EXPECT_EQ(
      error_of_array([](hid_t list) {
        const hsize_t count = 4;
        const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "H5Screate_simple");
        H5Pset_virtual(list, space.id(), "/tmp/other.h5", "w", space.id());
      }),
      "f.h5: /w: it is a virtual dataset; its data are in other files, such as '/tmp/other.h5'; this is not allowed");
}

TEST(CraftedFileTest, OtherStorageIsRefused) {
  const std::string refused = "f.h5: /w: it is not stored contiguously";
  EXPECT_EQ(error_of_array([](hid_t list) { H5Pset_layout(list, H5D_COMPACT); }), refused);
  EXPECT_EQ(error_of_array([](hid_t list) {
              const hsize_t chunk = 2;
              H5Pset_chunk(list, 1, &chunk);
              H5Pset_deflate(list, 1);
            }),
            refused);
  // An array without elements is checked as well.
  EXPECT_EQ(
      error_of_array([](hid_t list) { H5Pset_external(list, "/etc/passwd", 0, 16); }, H5T_IEEE_F32LE, {.nbytes = 0}),
      "f.h5: /w: its bytes are in another file, '/etc/passwd'; this is not allowed");
}

TEST(CraftedFileTest, ThePlaceMustBeTheOneListed) {
  EXPECT_EQ(error_of_array(early), "");  // the control
  EXPECT_EQ(error_of_array(early, H5T_IEEE_F32LE, {.shift = 4}), "f.h5: /w: its offset differs from the index");
  EXPECT_EQ(error_of_array([](hid_t) {}), "f.h5: /w: its offset differs from the index");  // no space yet
  EXPECT_EQ(error_of_array(early, H5T_IEEE_F32LE, {.path = "/v"}), "f.h5: /w: it is not in the index");
  std::vector<ArrayLocation> listed(1);
  listed[0].path = "/w";
  EXPECT_EQ(error_of_tree([](hid_t) {}, listed), "f.h5: /w: it is in the index, but missing in the file");
  EXPECT_EQ(error_of_array(early, H5T_IEEE_F32LE, {.nbytes = 20}), "f.h5: /w: its shape does not fit its bytes");
}

TEST(CraftedFileTest, OtherTypesAreRefused) {
  const std::string refused = "f.h5: /w: its element type is not supported (float32, ";
  for (const hid_t type : {H5T_IEEE_F32BE, H5T_STD_U32LE, H5T_STD_REF_OBJ}) {
    EXPECT_EQ(error_of_array(early, type).substr(0, refused.size()), refused);
  }
  const Handle text(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  H5Tset_size(text.id(), H5T_VARIABLE);
  EXPECT_EQ(error_of_array(early, text.id()).substr(0, refused.size()), refused);
}

TEST(CraftedFileTest, OtherAttributesAreRefused) {
  const auto error_of_attribute = [](hid_t type, hsize_t count, hsize_t bytes) {
    return error_of_tree([&](hid_t file) {
      const Handle space(count == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr), H5Sclose,
                         "H5Screate");
      const Handle attribute(H5Acreate2(file, "a", type, space.id(), 0, 0), H5Aclose, "H5Acreate2");
      const std::vector<char> value(bytes);
      H5Awrite(attribute.id(), type, value.data());
    });
  };
  EXPECT_EQ(error_of_attribute(H5T_STD_I64LE, 0, 8), "");
  EXPECT_EQ(error_of_attribute(H5T_STD_I64LE, 2, 16), "f.h5: /: its attribute 'a' is malformed");
  const std::string refused = "f.h5: /: its attribute 'a' has a type that is not supported";
  EXPECT_EQ(error_of_attribute(H5T_STD_I32LE, 0, 4), refused);
  const Handle text(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  H5Tset_size(text.id(), H5T_VARIABLE);
  EXPECT_EQ(error_of_attribute(text.id(), 0, 8), refused);
  const Handle longer(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  H5Tset_size(longer.id(), 60'001);
  EXPECT_EQ(error_of_attribute(longer.id(), 0, 60'001), refused);
}

TEST(CraftedFileTest, NamesThatNoArchiveHoldsAreRefused) {
  EXPECT_EQ(error_of_tree([](hid_t file) {
              const Handle group(H5Gcreate2(file, "line\nbreak", 0, 0, 0), H5Gclose, "H5Gcreate2");
            }),
            "f.h5: /: it has a link with a malformed name");
}

}  // namespace crafted_file_test
}  // namespace lockstep::checkpoints
