// SPDX-License-Identifier: BSD-3-Clause
// Files for tests of `ckpt`: whole ones, and others whose digests are right although their content is not.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/format/envelope.hpp"
#include "checkpoints/format/layout.hpp"
#include "unit/checkpoints/support.hpp"

namespace lockstep::ckpt {

using checkpoints::bytes_of;
using checkpoints::put_bytes;
using testing::TemporaryFolder;

/// A small state as engine writes it.
inline checkpoints::Archive small_state(std::int64_t step, const std::string& run = "") {
  using checkpoints::array_of;
  checkpoints::Archive archive;
  archive.set("/", "step", step);
  archive.set("/", "run_id", run);
  archive.set("/optim/0", "type", std::string("adamw"));
  archive.put("/model/params/conv.weight", array_of<float>(DType::float32, {2, 3}, {1, 2, 3, 4, 5, 6}));
  archive.put("/model/params/conv.bias", array_of<float>(DType::float32, {2}, {7, 8}));
  archive.put("/model/params/norm.scale", array_of<float>(DType::float32, {1}, {static_cast<float>(step)}));
  archive.put("/meta/config_ini", checkpoints::text_array("[train]\n"));
  return archive;
}

inline std::string sealed(checkpoints::Envelope envelope, std::string file) {
  checkpoints::seal(envelope);
  std::copy_n(reinterpret_cast<const char*>(&envelope), sizeof envelope, file.begin());
  return file;
}

inline checkpoints::Envelope envelope_of(const std::string& file) {
  checkpoints::Envelope envelope;
  std::memcpy(&envelope, file.data(), sizeof envelope);
  return envelope;
}

/// The pieces into which digests cut a state file's HDF5 part, which ends at `end`.
inline std::vector<checkpoints::Piece> pieces_of(const std::vector<checkpoints::ArrayLocation>& places,
                                                 std::size_t end) {
  return checkpoints::cut_into_pieces(places, checkpoints::kEnvelopeBytes, end).value();
}

/// A state file of this HDF5 part (with room for the envelope in front) and index, all digests right.
inline std::string assembled(checkpoints::Envelope envelope, const std::string& content,
                             const std::vector<checkpoints::ArrayLocation>& places) {
  checkpoints::Index index;
  index.places = places;
  index.summaries.resize(places.size());
  const auto bytes = std::as_bytes(std::span(content));
  for (const auto& piece : pieces_of(places, content.size())) {
    index.digests.push_back(checkpoints::digest64(bytes.subspan(piece.offset, piece.nbytes)));
  }
  const std::vector<std::byte> encoded = index.encode();
  envelope.flags = checkpoints::kCommittedFlag;
  envelope.index_offset = content.size();
  envelope.file_bytes = content.size() + encoded.size();
  envelope.index_digest = checkpoints::digest128(encoded);
  return sealed(envelope, content + std::string(reinterpret_cast<const char*>(encoded.data()), encoded.size()));
}

/// The places that the index of a state file lists.
inline std::vector<checkpoints::ArrayLocation> places_of(const std::string& file) {
  const auto bytes = std::as_bytes(std::span(file)).subspan(envelope_of(file).index_offset);
  return checkpoints::Index::decode(bytes).value().places;
}

inline std::string content_of(const std::string& file) { return file.substr(0, envelope_of(file).index_offset); }

/// A state file with the HDF5 objects that `build` makes, and no array in the index.
inline std::string crafted_file(const std::function<void(hid_t)>& build) {
  const checkpoints::HdfSession session;
  checkpoints::MemoryFile memory;
  {
    const checkpoints::Handle access = memory.access_list();
    const checkpoints::Handle list(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "H5Pcreate");
    H5Pset_userblock(list.id(), checkpoints::kEnvelopeBytes);
    H5Pset_link_creation_order(list.id(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    const checkpoints::Handle file(H5Fcreate("crafted", H5F_ACC_TRUNC, list.id(), access.id()), H5Fclose, "H5Fcreate");
    build(file.id());
  }
  std::string content(memory.end(), '\0');
  memory.read(0, std::as_writable_bytes(std::span(content)));
  return assembled({}, content, {});
}

/// An HDF5 file of another program, with a user block of so many bytes.
inline void write_hdf5(const std::string& path, const std::function<void(hid_t)>& build, hsize_t user_bytes = 0) {
  const checkpoints::HdfSession session;
  const checkpoints::Handle list(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "H5Pcreate");
  H5Pset_userblock(list.id(), user_bytes);
  const checkpoints::Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, list.id(), H5P_DEFAULT), H5Fclose, "H5Fcreate");
  build(file.id());
}

/// Adds a data set of `count` elements without values.
inline void add_set(
    hid_t file, const char* name, hid_t type, hsize_t count, const std::function<void(hid_t)>& prepare = [](hid_t) {}) {
  const checkpoints::Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate");
  prepare(list.id());
  const checkpoints::Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose, "H5Screate_simple");
  const checkpoints::Handle set(H5Dcreate2(file, name, type, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), H5Dclose,
                                "H5Dcreate2");
}

/// A safetensors file with this header.
inline std::string safetensors_of(const std::string& header, const std::string& data = "") {
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> (8 * i));
  return length + header + data;
}

}  // namespace lockstep::ckpt
