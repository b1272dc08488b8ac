// SPDX-License-Identifier: BSD-3-Clause
// Files of another kind, cut off, or damaged.

#include "catalogue.hpp"
#include "unit/checkpoints/zip_support.hpp"

namespace lockstep::ckpt {
namespace catalogue_file_test {

using namespace std::string_literals;

const std::vector<Row>& file_rows() {
  static const std::vector<Row> rows = {
      {"E_EMPTY",
       [](Workshop& shop) { shop.put(""); },
       kVerify,
       Exit::corrupt,
       {"the file is empty, as after a crash before its bytes reached the disk"}},
      {"E_NOTCKPT_text", [](Workshop& shop) { shop.put("hello\n"); }, kVerify, Exit::usage, {"it is a text file"}},
      {"E_NOTCKPT_gzip",
       [](Workshop& shop) { shop.put("\x1F\x8B\x08 and so on"); },
       kVerify,
       Exit::usage,
       {"it is a gzip file", "`gunzip`"}},
      {"E_NOTCKPT_zip",
       [](Workshop& shop) { shop.put(checkpoints::zip_of({{.name = "a.txt", .bytes = "a"}})); },
       kVerify,
       Exit::usage,
       {"it is a zip archive", "`unzip -l`"}},
      {"E_NOTCKPT_pickle",
       [](Workshop& shop) { shop.put("\x80\x02}q\x01."); },
       kVerify,
       Exit::usage,
       {"it is a pickle, but not a file of torch.save"}},
      {"E_NOTCKPT_legacy",  // begins with PyTorch's magic number
       [](Workshop& shop) { shop.put("\x80\x02\x8A\x0Al\xFC\x9C\x46\xF9\x20j\xA8P\x19."); },
       kVerify,
       Exit::corrupt,
       {"data.pkl: byte 0: it is empty"}},
      {"E_NOTCKPT_safetensors",
       [](Workshop& shop) { shop.put(safetensors_of("{}")); },
       {"lineage", "FILE"},
       Exit::usage,
       {"it is a safetensors file", "`ckpt ls` reads it"}},
      {"E_FOREIGNH5",
       [](Workshop& shop) {
         write_hdf5(shop.path, [](hid_t file) {
           const checkpoints::Handle group(H5Gcreate2(file, "layer_names", 0, 0, 0), H5Gclose, "H5Gcreate2");
         });
       },
       {"lineage", "FILE"},
       Exit::incompatible,
       {"it is an HDF5 file written by Keras", "`ckpt ls` reads it", "--init.from"}},
      {"E_FOREIGNH5_matlab",
       [](Workshop& shop) {
         write_hdf5(
             shop.path, [](hid_t) {}, 512);
         std::string file = bytes_of(shop.path);
         const std::string text = "MATLAB 7.3 MAT-file, Platform: GLNXA64";
         shop.put(text + file.substr(text.size()));
       },
       {"lineage", "FILE"},
       Exit::incompatible,
       {"it is an HDF5 file written by MATLAB"}},
      {"E_TORN",
       [](Workshop& shop) {
         const std::string whole = shop.save();
         checkpoints::Envelope envelope = envelope_of(whole);
         envelope.flags = 0;
         shop.path = shop.folder / "torn";
         shop.put(sealed(envelope, whole).substr(0, 5000));
       },
       kVerify,
       Exit::corrupt,
       {"it is incomplete: its writer was stopped while it saved step 10 (5000 of "}},
      {"E_TRUNC",
       [](Workshop& shop) {
         const std::string whole = shop.save();
         shop.path = shop.folder / "cut";
         shop.put(whole.substr(0, 6000));
       },
       kVerify,
       Exit::corrupt,
       {"it has 6000 bytes instead of ", "it is truncated"}},
      {"E_TRAIL",
       [](Workshop& shop) {
         const std::string whole = shop.save();
         shop.path = shop.folder / "longer";
         shop.put(whole + "xyz");
       },
       kVerify,
       Exit::corrupt,
       {": 3 bytes were appended at byte "}},
      {"E_ENVCRC",
       [](Workshop& shop) {
         const std::string whole = shop.save();
         shop.path = shop.folder / "flipped";
         shop.put_flipped(whole, 60);
       },
       kVerify,
       Exit::corrupt,
       {"bytes 0-4095, its envelope", "(stored ", ", computed "}},
      {"E_ENVCRC_zero",  // HDF5's part is whole behind it, and must not be taken for the file of another program
       [](Workshop& shop) {
         std::string whole = shop.save();
         whole.replace(0, checkpoints::kEnvelopeBytes, checkpoints::kEnvelopeBytes, '\0');
         shop.path = shop.folder / "zeros";
         shop.put(whole);
       },
       kVerify,
       Exit::corrupt,
       {"it starts with zeros: its writer was interrupted, or its data never reached the disk"}},
      {"E_LEAF",
       [](Workshop& shop) {
         const std::string whole = shop.save();
         const auto place = places_of(whole)[0];
         shop.path = shop.folder / "flipped";
         shop.put_flipped(whole, place.offset);
       },
       kVerify,
       Exit::corrupt,
       {"it is damaged: bytes ", "(array /model/params/conv.weight) differ from their digest"}},
      {"E_LEAF_zero",
       [](Workshop& shop) {
         std::string whole = shop.save();
         for (const std::size_t i : {0U, 1U}) {
           const auto place = places_of(whole)[i];
           whole.replace(place.offset, place.nbytes, place.nbytes, '\0');
         }
         shop.path = shop.folder / "zeros";
         shop.put(whole);
       },
       kVerify,
       Exit::corrupt,
       {"(array /model/params/conv.weight), ", "(array /model/params/conv.bias) ",
        "they are all zero, as after a write that never reached the disk"}},
      {"E_TENSOR",  // one array is read, and checked
       [](Workshop& shop) {
         const std::string whole = shop.save();
         shop.path = shop.folder / "flipped";
         shop.put_flipped(whole, places_of(whole)[1].offset + 5);
       },
       {"show", "FILE", "conv.bias"},
       Exit::corrupt,
       {"(array /model/params/conv.bias) differ from their digest"}},
      {"E_H5OPEN",
       [](Workshop& shop) {
         const std::string whole = shop.save();
         std::string content = content_of(whole);
         content[checkpoints::kEnvelopeBytes] = 'x';  // first byte of HDF5's signature
         shop.path = shop.folder / "no-hdf5";
         shop.put(assembled(envelope_of(whole), content, places_of(whole)));
       },
       kVerify,
       Exit::corrupt,
       {"FILE  /: HDF5's H5Fopen failed: "}},
      {"E_H5BUSY",
       [](Workshop& shop) {
         const checkpoints::HdfSession session;
         const std::string open = shop.folder / "open.h5";
         const checkpoints::Handle list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "H5Pcreate");
         H5Pset_libver_bounds(list.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
         const checkpoints::Handle file(H5Fcreate(open.c_str(), H5F_ACC_TRUNC, 0, list.id()), H5Fclose, "H5Fcreate");
         ASSERT_GE(H5Fstart_swmr_write(file.id()), 0);
         fs::copy_file(open, shop.path);
       },
       kVerify,
       Exit::corrupt,
       {"it is marked as open for writing"}},
      {"E_MAJOR",
       [](Workshop& shop) {
         std::string whole = shop.save();
         whole[8] = '\x63';
         shop.path = shop.folder / "newer";
         shop.put(whole);
       },
       kVerify,
       Exit::incompatible,
       {"it has format version 99, but this program reads version 1 only", "it was written by lockstep "}},
      {"E_FEATURE",
       [](Workshop& shop) {
         const std::string whole = shop.save();
         checkpoints::Envelope envelope = envelope_of(whole);
         envelope.flags |= 4;
         shop.path = shop.folder / "newer";
         shop.put(sealed(envelope, whole));
       },
       kVerify,
       Exit::incompatible,
       {"it has feature flags 0000000000000004", "it was written by lockstep "}},
  };
  return rows;
}

class FileRowTest : public CatalogueTest {};

TEST_P(FileRowTest, SaysWhatItIsAndReturnsItsCode) { expect_row(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rows, FileRowTest, ::testing::ValuesIn(file_rows()), name_of_row);

}  // namespace catalogue_file_test
}  // namespace lockstep::ckpt
