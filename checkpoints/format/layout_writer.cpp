// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <map>

#include "checkpoints/format/layout.hpp"
#include "checkpoints/format/limits.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr unsigned kKeepOrder = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;

/// Every allocation starts on 64 bytes, so that an array in a buffer of the file is aligned for any use.
constexpr hsize_t kArrayAlignment = 64;

/// Fixed length, padded with NUL; HDF5 knows no string of length 0.
Handle text_type(std::size_t length) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "H5Tcopy");
  checked(H5Tset_size(type.id(), length == 0 ? 1 : length), "H5Tset_size");
  checked(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), "H5Tset_strpad");
  checked(H5Tset_cset(type.id(), H5T_CSET_UTF8), "H5Tset_cset");
  return type;
}

/// A file space strategy makes HDF5 add an object to the superblock, for which it has no list but the default one of
/// groups; that would give it the time of day.
class NoTimeInSuperblock {
 public:
  NoTimeInSuperblock() {
    checked(H5Pget_obj_track_times(H5P_GROUP_CREATE_DEFAULT, &kept_), "H5Pget_obj_track_times");
    checked(H5Pset_obj_track_times(H5P_GROUP_CREATE_DEFAULT, false), "H5Pset_obj_track_times");
  }
  NoTimeInSuperblock(const NoTimeInSuperblock&) = delete;
  NoTimeInSuperblock& operator=(const NoTimeInSuperblock&) = delete;
  ~NoTimeInSuperblock() { H5Pset_obj_track_times(H5P_GROUP_CREATE_DEFAULT, kept_); }

 private:
  hbool_t kept_ = false;
};

class LayoutWriter {
 public:
  LayoutWriter(MemoryFile& memory, const Archive& archive, std::uint64_t front_bytes)
      : archive_(archive),
        file_(create(memory, front_bytes)),
        scalar_(H5Screate(H5S_SCALAR), H5Sclose, "H5Screate"),
        links_(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "H5Pcreate"),
        group_list_(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "H5Pcreate"),
        array_list_(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "H5Pcreate") {
    checked(H5Pset_char_encoding(links_.id(), H5T_CSET_UTF8), "H5Pset_char_encoding");
    checked(H5Pset_link_creation_order(group_list_.id(), kKeepOrder), "H5Pset_link_creation_order");
    checked(H5Pset_obj_track_times(group_list_.id(), false), "H5Pset_obj_track_times");
    checked(H5Pset_layout(array_list_.id(), H5D_CONTIGUOUS), "H5Pset_layout");
    checked(H5Pset_alloc_time(array_list_.id(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
    checked(H5Pset_fill_time(array_list_.id(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
    checked(H5Pset_obj_track_times(array_list_.id(), false), "H5Pset_obj_track_times");
  }

  std::vector<ArrayLocation> write() {
    write_attributes(Handle(H5Gopen2(file_.id(), "/", H5P_DEFAULT), H5Gclose, "H5Gopen2").id(), "/");
    for (const std::string& path : archive_.group_paths()) write_group(path);
    std::vector<ArrayLocation> places;
    std::map<std::string, std::size_t> index_of;
    for (const std::string& path : archive_.array_paths()) {
      const std::string& first = archive_.first_path_of(path);
      index_of[path] = places.size();
      places.push_back(first.empty() ? write_array(path) : write_link(path, places[index_of.at(first)]));
      if (!first.empty()) places.back().first = index_of.at(first);
    }
    file_.close("H5Fclose");
    return places;
  }

 private:
  static Handle create(MemoryFile& memory, std::uint64_t front_bytes) {
    const Handle access = memory.access_list();
    checked(H5Pset_alignment(access.id(), 1, kArrayAlignment), "H5Pset_alignment");
    const Handle list(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "H5Pcreate");
    checked(H5Pset_userblock(list.id(), front_bytes), "H5Pset_userblock");
    // Alignment leaves gaps, and to look through all of them for every new array takes quadratic time.
    checked(H5Pset_file_space_strategy(list.id(), H5F_FSPACE_STRATEGY_NONE, false, 1), "H5Pset_file_space_strategy");
    checked(H5Pset_link_creation_order(list.id(), kKeepOrder), "H5Pset_link_creation_order");
    checked(H5Pset_obj_track_times(list.id(), false), "H5Pset_obj_track_times");
    const NoTimeInSuperblock no_time;
    return {H5Fcreate("archive", H5F_ACC_TRUNC, list.id(), access.id()), H5Fclose, "H5Fcreate"};
  }

  void write_group(const std::string& path) {
    const Handle group(H5Gcreate2(file_.id(), path.c_str(), links_.id(), group_list_.id(), H5P_DEFAULT), H5Gclose,
                       "H5Gcreate2");
    write_attributes(group.id(), path);
  }

  ArrayLocation write_array(const std::string& path) {
    const Array& array = archive_.array(path);
    const std::vector<hsize_t> shape(array.shape.begin(), array.shape.end());
    const Handle space(
        shape.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
        H5Sclose, "H5Screate_simple");
    const Handle set(H5Dcreate2(file_.id(), path.c_str(), types_.of(array.dtype), space.id(), links_.id(),
                                array_list_.id(), H5P_DEFAULT),
                     H5Dclose, "H5Dcreate2");
    write_text(set.id(), kDTypeAttribute, std::string(name_of(array.dtype)));
    write_attributes(set.id(), path);
    ArrayLocation place{.path = path, .nbytes = array.bytes.size(), .dtype = array.dtype, .shape = array.shape};
    if (array.bytes.empty()) return place;
    place.offset = H5Dget_offset(set.id());
    if (place.offset == HADDR_UNDEF) throw_hdf("H5Dget_offset");
    return place;
  }

  ArrayLocation write_link(const std::string& path, ArrayLocation place) {
    checked(H5Lcreate_hard(file_.id(), place.path.c_str(), file_.id(), path.c_str(), links_.id(), H5P_DEFAULT),
            "H5Lcreate_hard");
    place.path = path;
    return place;
  }

  void write_attributes(hid_t object, const std::string& path) {
    for (const auto& [name, value] : archive_.attributes_of(path)) {
      if (const auto* text = std::get_if<std::string>(&value)) {
        write_text(object, name, *text);
      } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        write_attribute(object, name, H5T_STD_I64LE, integer);
      } else {
        write_attribute(object, name, H5T_IEEE_F64LE, &std::get<double>(value));
      }
    }
  }

  void write_text(hid_t object, const std::string& name, const std::string& text) {
    write_attribute(object, name, text_type(text.size()).id(), text.c_str());
  }

  void write_attribute(hid_t object, const std::string& name, hid_t type, const void* value) {
    const Handle attribute(H5Acreate2(object, name.c_str(), type, scalar_.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                           "H5Acreate2");
    checked(H5Awrite(attribute.id(), type, value), "H5Awrite");
  }

  const Archive& archive_;
  FileTypes types_;
  Handle file_;
  Handle scalar_;
  Handle links_;
  Handle group_list_;
  Handle array_list_;
};

}  // namespace

Layout lay_out(const Archive& archive, std::uint64_t front_bytes) {
  const HdfSession session;
  Layout layout{std::make_unique<MemoryFile>(), {}};
  layout.places = LayoutWriter(*layout.metadata, archive, front_bytes).write();
  return layout;
}

}  // namespace lockstep::checkpoints
