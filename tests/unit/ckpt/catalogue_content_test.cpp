// SPDX-License-Identifier: BSD-3-Clause
// Content that is malformed, or made to do harm.
#include <cmath>
#include <cstdio>

#include "catalogue.hpp"
#include "unit/checkpoints/zip_support.hpp"

namespace lockstep::ckpt {
namespace catalogue_content_test {

using namespace std::string_literals;

/// A state file whose index says something else of its second array, conv.bias.
void put_with_index(Workshop& shop, const std::function<void(checkpoints::ArrayLocation&)>& change) {
  const std::string whole = shop.save();
  auto places = places_of(whole);
  change(places[1]);
  shop.path = shop.folder / "crafted";
  shop.put(assembled(envelope_of(whole), content_of(whole), places));
}

std::string pytorch_of(const std::string& pickle) {
  return checkpoints::zip_of({{.name = "a/data.pkl", .bytes = pickle}});
}

void put_attribute(hid_t file, hid_t type) {
  const checkpoints::Handle space(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate");
  const checkpoints::Handle attribute(H5Acreate2(file, "step", type, space.id(), 0, 0), H5Aclose, "H5Acreate2");
}

const std::vector<Row>& content_rows() {
  const std::string tensor = R"("dtype":"F32","shape":[1],"data_offsets":)";
  static const std::vector<Row> rows = {
      {"E_MISSGRP",
       [](Workshop& shop) { put_with_index(shop, [](checkpoints::ArrayLocation& place) { place.path += "x"; }); },
       kVerify,
       Exit::corrupt,
       {"FILE  /model/params/conv.bias: it is not in the index"}},
      {"E_ATTRTYPE",
       [](Workshop& shop) { shop.put(crafted_file([](hid_t file) { put_attribute(file, H5T_STD_I32LE); })); },
       kVerify,
       Exit::corrupt,
       {"FILE  /: its attribute 'step' has a type that is not supported"}},
      {"E_DTYPE",
       [](Workshop& shop) { write_hdf5(shop.path, [](hid_t file) { add_set(file, "x", H5T_STD_B8LE, 2); }); },
       kVerify,
       Exit::incompatible,
       {"FILE  /x: its element type is not supported (float32, "}},
      {"E_DTYPE_safetensors",
       [](Workshop& shop) {
         shop.put(safetensors_of(R"({"w":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", "1234"));
       },
       kVerify,
       Exit::incompatible,
       {"tensor 'w'", "'F33' is not one of F32, F64"}},
      {"E_OVERFLOW",
       [](Workshop& shop) {
         put_with_index(shop, [](checkpoints::ArrayLocation& place) { place.shape = {std::int64_t{1} << 62, 8}; });
       },
       kVerify,
       Exit::corrupt,
       {"its index cannot be read"}},
      {"E_OVERFLOW_hdf5",
       [](Workshop& shop) {
         write_hdf5(shop.path, [](hid_t file) { add_set(file, "x", H5T_STD_U8LE, hsize_t{1} << 47); });
       },
       kVerify,
       Exit::corrupt,
       {"FILE  /x: its shape needs 140737488355328 bytes, but 0 are stored"}},
      {"E_STORAGE",
       [](Workshop& shop) {
         put_with_index(shop, [](checkpoints::ArrayLocation& place) {
           place.shape = {1};
           place.nbytes = 4;
         });
       },
       kVerify,
       Exit::corrupt,
       {"FILE  /model/params/conv.bias: its shape does not fit its bytes"}},
      {"E_EXTLINK",
       [](Workshop& shop) {
         write_hdf5(shop.path, [](hid_t file) { H5Lcreate_external("/etc/passwd", "/", file, "x", 0, 0); });
       },
       kVerify,
       Exit::refused,
       {"FILE  /: it is an external link, 'x' to '/etc/passwd'; this is not allowed"}},
      {"E_EXTLINK_own",
       [](Workshop& shop) {
         shop.put(crafted_file([](hid_t file) { H5Lcreate_external("/etc/passwd", "/", file, "x", 0, 0); }));
       },
       kVerify,
       Exit::refused,
       {"FILE  /: it is a soft or external link; this is not allowed"}},
      {"E_EXTSTORE",
       [](Workshop& shop) {
         write_hdf5(shop.path, [](hid_t file) {
           add_set(file, "x", H5T_STD_U8LE, 16, [](hid_t list) { H5Pset_external(list, "/etc/passwd", 0, 16); });
         });
       },
       kVerify,
       Exit::refused,
       {"FILE  /x: its bytes are in another file, '/etc/passwd'; this is not allowed"}},
      {"E_VDS",
       [](Workshop& shop) {
         write_hdf5(shop.path, [](hid_t file) {
           add_set(file, "x", H5T_STD_U8LE, 16, [](hid_t list) {
             const hsize_t count = 16;
             const checkpoints::Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "H5Screate_simple");
             H5Pset_virtual(list, space.id(), "/etc/passwd", "x", space.id());
           });
         });
       },
       kVerify,
       Exit::refused,
       {"FILE  /x: it is a virtual dataset; its data are in other files, such as '/etc/passwd'; this is not allowed"}},
      {"E_FILTER",
       [](Workshop& shop) {
         write_hdf5(shop.path, [](hid_t file) {
           add_set(file, "x", H5T_STD_U8LE, 16, [](hid_t list) {
             const hsize_t chunk = 16;
             H5Pset_chunk(list, 1, &chunk);
             H5Pset_filter(list, 32015, H5Z_FLAG_OPTIONAL, 0, nullptr);
           });
         });
       },
       kVerify,
       Exit::refused,
       {"FILE  /x: it is compressed with filter 32015"}},
      {"E_CYCLE",
       [](Workshop& shop) {
         write_hdf5(shop.path, [](hid_t file) { H5Lcreate_hard(file, "/", file, "again", 0, 0); });
       },
       kVerify,
       Exit::refused,
       {"FILE  /again: it is a second link to the group /"}},
      {"E_CYCLE_own",
       [](Workshop& shop) {
         shop.put(crafted_file([](hid_t file) { H5Lcreate_hard(file, "/", file, "loop", 0, 0); }));
       },
       kVerify,
       Exit::refused,
       {"/loop/loop: it is nested more than 32 groups deep, or in a cycle"}},
      {"E_DEPTH",
       [](Workshop& shop) {
         write_hdf5(shop.path, [](hid_t file) {
           std::string path;
           for (int i = 0; i < 40; ++i) {
             path += "/g";
             const checkpoints::Handle group(H5Gcreate2(file, path.c_str(), 0, 0, 0), H5Gclose, "H5Gcreate2");
           }
         });
       },
       kVerify,
       Exit::refused,
       {"it is nested more than 32 groups deep"}},
      {"E_COUNT",
       [](Workshop& shop) {
         std::string header = "{";
         char entry[80];
         for (int i = 0; i <= 1'000'000; ++i) {
           std::snprintf(entry, sizeof entry, R"(%s"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})",
                         i == 0 ? "" : ",", i);
           header += entry;
         }
         shop.put(safetensors_of(header + "}"));
       },
       kVerify,
       Exit::refused,
       {"the header lists more than a million tensors"}},
      {"E_NAME_hdf5",
       [](Workshop& shop) {
         write_hdf5(shop.path, [](hid_t file) {
           const checkpoints::Handle group(H5Gcreate2(file, "a\xFF\x1B[2J", 0, 0, 0), H5Gclose, "H5Gcreate2");
         });
       },
       kVerify,
       Exit::refused,
       {"FILE  /: it has a link with a malformed name, 'a?%1B[2J'"}},
      {"E_NAME_zip",
       [](Workshop& shop) {
         shop.put(checkpoints::zip_of({{.name = "a/data.pkl", .bytes = "\x80\x02}."}, {.name = "../x", .bytes = "1"}}));
       },
       kVerify,
       Exit::refused,
       {"record '../x': this name is not allowed"}},
      {"E_NAN",
       [](Workshop& shop) {
         checkpoints::Archive archive = small_state(10);
         archive.put("/model/params/bad",
                     checkpoints::array_of<float>(DType::float32, {2, 2}, {0, 1, std::nanf(""), INFINITY}));
         shop.path = checkpoints::write(shop.folder / "ckpt", 10, archive);
       },
       kVerify,
       Exit::incompatible,
       {"complete: ", "/model/params/bad holds 1 NaN and 1 infinite elements, the first at [1, 0]",
        "resume.allow_nonfinite=true"}},
      {"E_MIXED",
       [](Workshop& shop) {
         shop.save_in_parts(20);
         const std::string other = shop.path + "/shard-00001-of-00002.h5";
         shop.save_in_parts(10);
         fs::copy_file(other, shop.path + "/shard-00001-of-00002.h5", fs::copy_options::overwrite_existing);
       },
       kVerify,
       Exit::corrupt,
       {"shard-00001-of-00002.h5: it belongs to another checkpoint: its digest is ", "the manifest states "}},
      {"E_SHARDS",
       [](Workshop& shop) {
         shop.save_in_parts(10, 3);
         fs::remove(shop.path + "/shard-00000-of-00003.h5");
         fs::remove(shop.path + "/shard-00002-of-00003.h5");
       },
       kVerify,
       Exit::corrupt,
       {"these shards are missing: shard-00000-of-00003.h5, shard-00002-of-00003.h5"}},
      {"E_RUNID",
       [](Workshop& shop) {
         shop.save(10, "00000000000000aa");
         shop.save(20, "00000000000000bb");
         shop.path = shop.folder / "ckpt";
       },
       {"doctor", "FILE"},
       Exit::policy,
       {"step-000000000010 belongs to run 00000000000000aa, but step-000000000020 to run 00000000000000bb",
        "resume.fork=true"}},
      {"E_LEASE",
       [](Workshop& shop) {
         shop.save();
         shop.path = shop.folder / "ckpt";
         put_bytes(shop.path + "/LEASE", "host elsewhere\nprocess 1\njob 4711\n");
       },
       {"prune", "FILE", "--yes"},
       Exit::policy,
       {"another run writes checkpoints to this folder: process 1 on elsewhere (Slurm job 4711), last active ",
        " s ago"}},
      {"E_PICKLE_global",
       [](Workshop& shop) {
         shop.put(
             pytorch_of("\x80\x02"
                        "cos\nsystem\n(X\x04\0\0\0true"
                        "tR."s));
       },
       kVerify,
       Exit::refused,
       {"data.pkl: byte 24: it imports 'os.system'", "nothing was executed"}},
      {"E_PICKLE_opcode",
       [](Workshop& shop) { shop.put(pytorch_of("\x80\x02(i__main__\nX\n.")); },
       kVerify,
       Exit::refused,
       {"data.pkl: byte 3: opcode 105 is not needed for tensors"}},
      {"E_PICKLE_npz",
       [](Workshop& shop) {
         const std::string line = "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n";
         shop.put(checkpoints::zip_of(
             {{.name = "x.npy", .bytes = "\x93NUMPY\x01\0"s + static_cast<char>(line.size()) + '\0' + line}}));
       },
       kVerify,
       Exit::refused,
       {"array 'x': it contains pickled Python objects, which are never loaded"}},
      {"E_STHDR_long",
       [](Workshop& shop) { shop.put(std::string(8, '\xFF') + "{}"); },
       kVerify,
       Exit::corrupt,
       {"its header states a size of 18446744073709551615 bytes"}},
      {"E_STHDR_overlap",
       [tensor](Workshop& shop) {
         shop.put(safetensors_of("{\"v\":{" + tensor + "[0,4]},\"w\":{" + tensor + "[0,4]}}", "1234"));
       },
       kVerify,
       Exit::corrupt,
       {"tensor 'w': its bytes overlap those of another tensor"}},
      {"E_STHDR_hole",
       [tensor](Workshop& shop) { shop.put(safetensors_of("{\"w\":{" + tensor + "[4,8]}}", "12345678")); },
       kVerify,
       Exit::corrupt,
       {"tensor 'w': before it there are 4 bytes that belong to no tensor"}},
  };
  return rows;
}

class ContentRowTest : public CatalogueTest {};

TEST_P(ContentRowTest, SaysWhatItIsAndReturnsItsCode) { expect_row(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rows, ContentRowTest, ::testing::ValuesIn(content_rows()), name_of_row);

}  // namespace catalogue_content_test
}  // namespace lockstep::ckpt
